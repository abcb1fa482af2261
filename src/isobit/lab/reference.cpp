// SPDX-License-Identifier: Apache-2.0
// References in double, or in quad beside f64, over chunks of rows that are spread over the
// threads.
#include "isobit/lab/reference.h"

#include <algorithm>

#include "isobit/ops/catalog.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::lab {
namespace {

constexpr std::int64_t kChunk = 1 << 18;  // elements of a matrix: a few such arrays fit in L3

// An operation's arguments for up to `capacity` rows of a workload, in Real. Inputs are the
// workload's arrays of the same names; outputs that neither the operation needs nor the workload
// has are absent.
template <class Real>
class Rows {
 public:
  Rows(const Operation& operation, const Workload& workload, std::int64_t capacity)
      : operation_(operation),
        cols_(workload.the_case().cols),
        dtype_(workload.the_case().types.x),
        exact_(operation.make_arguments()),
        scale_(operation.make_arguments()) {
    set_options(operation, workload.the_case(), exact_);
    set_options(operation, workload.the_case(), scale_);
    for (const Argument& argument : operation.arguments) {
      const Array* array = workload.find(argument.name);
      const bool input = argument.role == Role::input;
      const bool needed = !input && argument.presence == Presence::required;
      if ((array == nullptr && !needed) || !exact_.applies(argument)) continue;
      Buffer& buffer = buffers_.emplace_back(Buffer{&argument, array, {}, {}});
      buffer.exact.resize(static_cast<std::size_t>(size(argument, capacity)));
      if (!input) buffer.scale.resize(buffer.exact.size());
      if (input && argument.extent == Extent::row_vector)
        array->load(0, 0, std::span<Real>(buffer.exact));
    }
  }

  // Writes the row outputs of `rows` rows from `first` on, and adds them to the column outputs.
  void compute(std::int64_t first, std::int64_t rows) {
    load(first, rows);
    operation_.reference(exact_, scale_, {dtype_, first});
  }

  void emit(const EmitArray& emit, std::int64_t rows) {
    load(0, rows);
    operation_.intermediates(exact_, {dtype_, 0}, emit);
  }

  std::span<const Real> exact(const Argument& argument) const { return find(argument).exact; }
  std::span<const Real> scale(const Argument& argument) const { return find(argument).scale; }

  // Adds another's column outputs.
  void add(const Rows& other) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      Buffer& buffer = buffers_[i];
      if (buffer.argument->extent != Extent::row_vector) continue;
      if (buffer.argument->role == Role::input) continue;
      std::transform(buffer.exact.begin(), buffer.exact.end(), other.buffers_[i].exact.begin(),
                     buffer.exact.begin(), std::plus<>());
      std::transform(buffer.scale.begin(), buffer.scale.end(), other.buffers_[i].scale.begin(),
                     buffer.scale.begin(), std::plus<>());
    }
  }

 private:
  struct Buffer {
    const Argument* argument;
    const Array* array;
    std::vector<Real> exact, scale;
  };

  std::int64_t size(const Argument& argument, std::int64_t rows) const {
    if (argument.extent == Extent::matrix) return rows * cols_;
    return argument.extent == Extent::row_vector ? cols_ : rows;
  }

  TensorView view(const Argument& argument, std::vector<Real>& values, std::int64_t rows) const {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(Real));
    const DType dtype = sizeof(Real) == 8 ? DType::f64 : DType::f128;
    if (argument.extent == Extent::matrix)
      return matrix_view(values.data(), bytes, dtype, rows, cols_, cols_);
    return vector_view(values.data(), bytes, dtype, size(argument, rows));
  }

  void load(std::int64_t first, std::int64_t rows) {
    for (Buffer& buffer : buffers_) {
      const Argument& argument = *buffer.argument;
      const bool input = argument.role == Role::input;
      exact_[argument] = view(argument, buffer.exact, rows);
      scale_[argument] = view(argument, input ? buffer.exact : buffer.scale, rows);
      if (!input) continue;
      const std::span<Real> values(buffer.exact);
      if (argument.extent == Extent::row_statistic)
        buffer.array->load(0, first, values.first(static_cast<std::size_t>(rows)));
      if (argument.extent == Extent::matrix)
        for (std::int64_t row = 0; row < rows; ++row)
          buffer.array->load(first + row, 0,
                             values.subspan(static_cast<std::size_t>(row * cols_),
                                            static_cast<std::size_t>(cols_)));
    }
  }

  const Buffer& find(const Argument& argument) const {
    return *std::find_if(buffers_.begin(), buffers_.end(),
                         [&](const Buffer& buffer) { return buffer.argument == &argument; });
  }

  const Operation& operation_;
  std::int64_t cols_;
  DType dtype_;
  Arguments exact_, scale_;
  std::vector<Buffer> buffers_;
};

// Calls visit(rows, task, first, count) for every chunk after its rows are computed. Which task
// owns which chunk depends on the number of processors alone, so that C is the same from run to
// run.
template <class Real, class Visit>
Rows<Real> compute_all(const Operation& operation, const Workload& workload, Visit visit) {
  const std::int64_t rows = workload.the_case().rows;
  const std::int64_t per_chunk =
      std::max<std::int64_t>(1, kChunk / std::max<std::int64_t>(1, workload.the_case().cols));
  const std::int64_t chunks = (rows + per_chunk - 1) / per_chunk;
  const std::int64_t tasks = std::clamp<std::int64_t>(chunks, 1, Machine::here().threads);

  std::vector<Rows<Real>> results;
  for (std::int64_t task = 0; task < tasks; ++task)
    results.emplace_back(operation, workload, std::min(per_chunk, rows));
  simd::threads()(tasks, [&](std::int64_t task) {
    for (std::int64_t chunk = task * chunks / tasks; chunk < (task + 1) * chunks / tasks; ++chunk) {
      const std::int64_t first = chunk * per_chunk, count = std::min(per_chunk, rows - first);
      results[task].compute(first, count);
      visit(results[task], task, first, count);
    }
  });
  for (std::int64_t task = 1; task < tasks; ++task) results[0].add(results[task]);
  return std::move(results[0]);
}

template <class Real>
std::vector<Comparison> compare_in(const Workload& workload) {
  const std::vector<const Argument*> outputs = workload.outputs();
  std::vector<Comparison> none;
  for (const Argument* output : outputs) none.push_back({output, {}});
  std::vector<std::vector<Comparison>> found(static_cast<std::size_t>(Machine::here().threads),
                                             none);

  const std::int64_t cols = workload.the_case().cols;
  const auto judge_rows = [&](const Rows<Real>& rows, std::int64_t task, std::int64_t first,
                              std::int64_t count) {
    for (Comparison& comparison : found[task]) {
      const Argument& argument = *comparison.argument;
      const Array& actual = *workload.find(argument.name);
      const auto exact = rows.exact(argument), scale = rows.scale(argument);
      if (argument.extent == Extent::row_statistic)
        measure(actual, 0, first, exact.first(count), scale.first(count), comparison.deviation);
      if (argument.extent == Extent::matrix)
        for (std::int64_t row = 0; row < count; ++row)
          measure(actual, first + row, 0, exact.subspan(row * cols, cols),
                  scale.subspan(row * cols, cols), comparison.deviation);
    }
  };
  const Rows<Real> sums = compute_all<Real>(workload.operation(), workload, judge_rows);

  std::vector<Comparison> worst = std::move(none);
  for (std::size_t i = 0; i < worst.size(); ++i) {
    const Argument& argument = *worst[i].argument;
    for (const auto& of_task : found) worst[i].deviation.merge(of_task[i].deviation);
    if (argument.extent == Extent::row_vector)
      measure(*workload.find(argument.name), 0, 0, sums.exact(argument), sums.scale(argument),
              worst[i].deviation);
  }
  return worst;
}

// The pass of the same operator that returns `statistic`.
const Operation* producer(const Operation& consumer, std::string_view statistic) {
  for (const Operation* operation : catalog()) {
    const Argument* argument = operation->find(statistic);
    if (operation->op == consumer.op && argument && argument->role == Role::output)
      return operation;
  }
  return nullptr;
}

}  // namespace

std::vector<Comparison> compare(const Workload& workload) {
  return workload.the_case().types.x == DType::f64 ? compare_in<quad>(workload)
                                                   : compare_in<double>(workload);
}

void draw_statistics(const Workload& workload) {
  for (const Argument& argument : workload.operation().arguments) {
    const Array* array = workload.find(argument.name);
    if (argument.role != Role::input || argument.extent != Extent::row_statistic || !array)
      continue;
    const Operation& source = *producer(workload.operation(), argument.name);
    const Argument& output = *source.find(argument.name);
    compute_all<double>(
        source, workload,
        [&](const Rows<double>& rows, std::int64_t, std::int64_t first, std::int64_t count) {
          array->store(0, first, rows.exact(output).first(count));
        });
  }
}

void emit_intermediates(const Workload& workload, const EmitArray& emit) {
  const std::int64_t rows = workload.the_case().rows;
  Rows<double>(workload.operation(), workload, rows).emit(emit, rows);
}

}  // namespace isobit::lab
