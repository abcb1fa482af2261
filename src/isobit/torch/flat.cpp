// SPDX-License-Identifier: Apache-2.0
// How many tensors are dealt to threads, as flat.h says.
#include "isobit/torch/flat.h"

#include <algorithm>
#include <mutex>
#include <optional>

namespace isobit::torch {
namespace {

constexpr std::int64_t kCut = 64;         // elements: whole cache lines, so that threads share none
constexpr std::int64_t kAThread = 16384;  // elements that are worth one

// What failed first, of parts that run at once. The words belong to the thread that asked.
class Failure {
 public:
  void note(isobit_status status) {
    if (status == ISOBIT_OK) return;
    const std::lock_guard lock(mutex_);
    if (status_) return;
    status_ = status;
    words_ = isobit_last_error();
  }
  void tell() const {
    if (!status_) return;
    if (*status_ == ISOBIT_INVALID_ARGUMENT) throw std::invalid_argument(words_);
    if (*status_ == ISOBIT_OUT_OF_MEMORY) throw std::bad_alloc();
    throw std::runtime_error(words_);
  }

 private:
  std::mutex mutex_;
  std::optional<isobit_status> status_;
  std::string words_;
};

struct Parts {
  const std::vector<std::int64_t>& ends;  // of each item, counted through all of them
  std::int64_t tasks;
  isobit_context context;
  const Part& run;
  Failure failure{};

  std::int64_t begin_of(std::size_t item) const { return item == 0 ? 0 : ends[item - 1]; }

  // The elements of all items from one place to another; items are cut at whole lines.
  void between(std::int64_t begin, std::int64_t end) {
    auto item = static_cast<std::size_t>(std::ranges::upper_bound(ends, begin) - ends.begin());
    for (; item < ends.size() && begin_of(item) < end; ++item) {
      const std::int64_t first = begin_of(item), count = ends[item] - first;
      const auto cut = [&](std::int64_t place) {
        return std::min(count, (std::max<std::int64_t>(place - first, 0) + kCut - 1) / kCut * kCut);
      };
      const std::int64_t from = cut(begin), to = cut(end);
      if (from < to) failure.note(run(item, from, to - from, &context));
    }
  }

  static void task(void* self, std::int64_t task) {
    Parts& parts = *static_cast<Parts*>(self);
    const std::int64_t all = parts.ends.back(), share = (all + parts.tasks - 1) / parts.tasks;
    parts.between(std::min(all, share * task), std::min(all, share * (task + 1)));
  }
};

}  // namespace

bool Flat::is_dense(const Tensor& tensor) {
  const Shape shape = tensor.shape(), strides = tensor.strides();
  std::int64_t span = 1, left = 0;
  for (const std::int64_t extent : shape) left += extent > 1;
  // One dimension after the other, from the innermost.
  for (bool found = true; left > 0 && found; --left) {
    found = false;
    for (std::size_t i = 0; i < shape.size() && !found; ++i)
      if (shape[i] > 1 && strides[i] == span) {
        span *= shape[i];
        found = true;
      }
    if (!found) return false;
  }
  return true;
}

bool Flat::lies_alike(const Tensor& tensor) const {
  const Shape shape = first_.shape(), mine = first_.strides(), its = tensor.strides();
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] > 1 && mine[i] != its[i]) return false;
  return true;
}

isobit_tensor Flat::add(const char* name, const Tensor& tensor, Access access) {
  require(same(tensor.shape(), first_.shape()), op_, ": ", name, " has shape ", tensor.shape(),
          "; its parameter has shape ", first_.shape());
  require_one_device(op_, name, tensor, "its parameter", first_.device());
  const Tensor* walked = &tensor;
  if (!dense_ || !lies_alike(tensor)) {
    auto& copies = access == Access::write ? written_ : read_;
    walked =
        &copies
             .emplace_back(Copy{tensor, empty_strided_like(tensor, tensor.shape(),
                                                           dense_ ? first_.strides()
                                                                  : dense_strides(tensor.shape()),
                                                           tensor.dtype())})
             .tensor;
    copy(*walked, tensor);
  }
  elements_ = 1;
  for (const std::int64_t extent : tensor.shape()) elements_ *= extent;
  const std::int64_t extent[] = {elements_}, stride[] = {1};
  return strided(*walked, extent, stride, access);
}

void Flat::finish() const {
  for (const Copy& each : written_) copy(each.of, each.tensor);
}

isobit_tensor part(const isobit_tensor& view, std::int64_t from, std::int64_t count) {
  isobit_tensor result = view;
  if (view.rank == 0) return result;
  const std::int64_t size = view.shape[0] == 0 ? 0 : view.bytes / view.shape[0];
  result.data = static_cast<char*>(view.data) + from * size;
  result.bytes = count * size;
  result.shape[0] = count;
  return result;
}

void run_parts(const std::vector<std::int64_t>& elements, const isobit_context* context,
               const Part& run) {
  std::vector<std::int64_t> ends;
  std::int64_t all = 0;
  for (const std::int64_t count : elements) ends.push_back(all += count);
  if (all == 0) return;
  const bool here = context->device == ISOBIT_CPU;
  const std::int64_t tasks =
      here ? std::clamp<std::int64_t>(all / kAThread, 1, std::max(1, context->threads)) : 1;
  Parts parts{ends, tasks, *context, run};
  if (here) parts.context.threads = 1;
  if (tasks == 1)
    parts.between(0, all);
  else
    context->parallel_for.run(context->parallel_for.self, tasks, Parts::task, &parts);
  parts.failure.tell();
}

}  // namespace isobit::torch
