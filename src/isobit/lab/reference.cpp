// SPDX-License-Identifier: Apache-2.0
// References in double, or in quad beside types of 64 bits, over parts of the batch that are spread
// over the threads.
#include "isobit/lab/reference.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "isobit/ops/catalog.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::lab {
namespace {

constexpr std::int64_t kChunk = 1 << 18;  // elements of an array: a few such arrays fit in L3

// A workload's case as one of another pass.
Case case_for(const Operation& operation, const Workload& workload) {
  Case c = workload.the_case();
  c.extents = c.extents_of(operation);
  c.operation = &operation;
  return c;
}

// Elements of an argument at one index of the batch, or of all of it where it has no batch dim.
std::int64_t elements_of(const Case& c, const Argument& argument) {
  std::int64_t count = 1;
  for (int place : c.operation->dims_of(argument))
    if (place != c.operation->batch()) count *= c.extents[static_cast<std::size_t>(place)];
  return count;
}

// An operation's arguments for up to `capacity` indices of a workload's batch, in Real. Inputs are
// the workload's arrays of the same names; outputs that neither the operation needs nor the
// workload has are absent.
template <class Real>
class Part {
 public:
  Part(const Operation& operation, const Workload& workload, std::int64_t capacity)
      : operation_(operation),
        case_(case_for(operation, workload)),
        dtype_(workload.the_case().types.x),
        y_dtype_(workload.the_case().types.y),
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
      const bool parts = case_.has_batch(argument);
      const std::int64_t size = elements_of(case_, argument);
      buffer.exact.resize(static_cast<std::size_t>(parts ? capacity * size : size));
      if (!input) buffer.scale.resize(buffer.exact.size());
      if (input && !parts) load(buffer, 0, array->form().lines());
    }
  }

  // Writes the outputs that have the batch dim at `count` indices from `first` on, and adds to the
  // others.
  void compute(std::int64_t first, std::int64_t count) {
    load(first, count);
    operation_.reference(exact_, scale_, {dtype_, y_dtype_, first});
  }

  void emit(const EmitArray& emit, std::int64_t count) {
    load(0, count);
    operation_.intermediates(exact_, {dtype_, y_dtype_, 0}, emit);
  }

  std::span<const Real> exact(const Argument& argument) const { return find(argument).exact; }
  std::span<const Real> scale(const Argument& argument) const { return find(argument).scale; }

  // Adds another's outputs that lack the batch dim.
  void add(const Part& other) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      Buffer& buffer = buffers_[i];
      if (case_.has_batch(*buffer.argument) || buffer.argument->role == Role::input) continue;
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

  TensorView view(const Argument& argument, std::vector<Real>& values, std::int64_t count) const {
    Form form{sizeof(Real) == 8 ? DType::f64 : DType::f128, case_.form_of(argument).extents};
    if (case_.has_batch(argument)) form.extents[0] = count;
    TensorView view{values.data(), static_cast<std::int64_t>(values.size() * sizeof(Real)),
                    form.dtype, static_cast<int>(form.extents.size())};
    std::ranges::copy(form.extents, view.shape.begin());
    std::ranges::copy(strides_of(form), view.strides.begin());
    return view;
  }

  static void load(Buffer& buffer, std::int64_t first, std::int64_t lines) {
    const std::int64_t length = buffer.array->form().line_length();
    for (std::int64_t line = 0; line < lines; ++line)
      buffer.array->load(
          first + line, 0,
          std::span<Real>(buffer.exact)
              .subspan(static_cast<std::size_t>(line * length), static_cast<std::size_t>(length)));
  }

  void load(std::int64_t first, std::int64_t count) {
    for (Buffer& buffer : buffers_) {
      const Argument& argument = *buffer.argument;
      const bool input = argument.role == Role::input;
      exact_[argument] = view(argument, buffer.exact, count);
      scale_[argument] = view(argument, input ? buffer.exact : buffer.scale, count);
      if (!input || !case_.has_batch(argument)) continue;
      const Form& form = buffer.array->form();
      if (form.extents.size() == 1) {
        buffer.array->load(0, first,
                           std::span<Real>(buffer.exact).first(static_cast<std::size_t>(count)));
      } else if (form.extents[0] != 0) {
        const std::int64_t lines = form.lines() / form.extents[0];
        load(buffer, first * lines, count * lines);
      }
    }
  }

  const Buffer& find(const Argument& argument) const {
    return *std::find_if(buffers_.begin(), buffers_.end(),
                         [&](const Buffer& buffer) { return buffer.argument == &argument; });
  }

  const Operation& operation_;
  Case case_;
  DType dtype_, y_dtype_;
  Arguments exact_, scale_;
  std::vector<Buffer> buffers_;
};

// Calls visit(part, task, first, count) for every chunk of the batch after it is computed. Which
// task owns which chunk depends on the number of processors alone, so that C is the same from run
// to run.
template <class Real, class Visit>
Part<Real> compute_all(const Operation& operation, const Workload& workload, Visit visit) {
  const Case c = case_for(operation, workload);
  std::int64_t largest = 1;
  for (const Argument& argument : operation.arguments)
    if (c.has_batch(argument)) largest = std::max(largest, elements_of(c, argument));
  const std::int64_t batch = c.batch();
  const std::int64_t per_chunk =
      c.has_free_batch() ? std::max<std::int64_t>(1, kChunk / largest) : batch;
  const std::int64_t chunks = (batch + per_chunk - 1) / per_chunk;
  const std::int64_t tasks = std::clamp<std::int64_t>(chunks, 1, Machine::here().threads);

  std::vector<Part<Real>> results;
  for (std::int64_t task = 0; task < tasks; ++task)
    results.emplace_back(operation, workload, std::min(per_chunk, batch));
  simd::threads()(tasks, [&](std::int64_t task) {
    for (std::int64_t chunk = task * chunks / tasks; chunk < (task + 1) * chunks / tasks; ++chunk) {
      const std::int64_t first = chunk * per_chunk, count = std::min(per_chunk, batch - first);
      results[task].compute(first, count);
      visit(results[task], task, first, count);
    }
  });
  for (std::int64_t task = 1; task < tasks; ++task) results[0].add(results[task]);
  return std::move(results[0]);
}

// Calls visit(line, first element, values' place, how many) for all of an output that a chunk of
// the batch has.
template <class Visit>
void for_each_line(const Array& array, std::int64_t first, std::int64_t count, Visit visit) {
  const Form& form = array.form();
  if (form.extents.size() == 1) return visit(0, first, 0, count);
  const std::int64_t length = form.line_length();
  const std::int64_t lines = form.extents[0] == 0 ? 0 : form.lines() / form.extents[0];
  for (std::int64_t line = 0; line < count * lines; ++line)
    visit(first * lines + line, 0, line * length, length);
}

template <class Real>
std::vector<Comparison> compare_in(const Workload& workload) {
  const Operation& operation = workload.operation();
  const std::vector<const Argument*> outputs = workload.outputs();
  std::vector<Comparison> none;
  for (const Argument* output : outputs) none.push_back({output, {}});
  std::vector<std::vector<Comparison>> found(static_cast<std::size_t>(Machine::here().threads),
                                             none);

  const bool any_nan = operation.moves_bytes(workload.args());
  const auto judge = [&](const Array& actual, std::int64_t first, std::int64_t count,
                         std::span<const Real> exact, std::span<const Real> scale,
                         Deviation& worst) {
    for_each_line(actual, first, count,
                  [&](std::int64_t line, std::int64_t begin, std::int64_t at, std::int64_t length) {
                    measure(actual, line, begin, exact.subspan(at, length),
                            scale.subspan(at, length), worst, any_nan);
                  });
  };
  const Part<Real> sums = compute_all<Real>(
      operation, workload,
      [&](const Part<Real>& part, std::int64_t task, std::int64_t first, std::int64_t count) {
        for (Comparison& comparison : found[task])
          if (const Argument& argument = *comparison.argument;
              workload.the_case().has_batch(argument))
            judge(*workload.find(argument.name), first, count, part.exact(argument),
                  part.scale(argument), comparison.deviation);
      });

  std::vector<Comparison> worst = std::move(none);
  for (std::size_t i = 0; i < worst.size(); ++i) {
    const Argument& argument = *worst[i].argument;
    for (const auto& of_task : found) worst[i].deviation.merge(of_task[i].deviation);
    const Array& actual = *workload.find(argument.name);
    if (!workload.the_case().has_batch(argument))
      judge(actual, 0, actual.form().extents[0], sums.exact(argument), sums.scale(argument),
            worst[i].deviation);
  }
  return worst;
}

// The pass of the same operator that returns an array of this name.
const Operation* producer(const Operation& consumer, std::string_view name) {
  for (const Operation* operation : catalog()) {
    const Argument* argument = operation->find(name);
    if (operation->op == consumer.op && argument && argument->role == Role::output)
      return operation;
  }
  return nullptr;
}

// Draws what another pass needs for an output and this workload lacks, as softmax's gradients lack
// x.
std::optional<Workload> lacking(const Workload& workload, const Operation& source,
                                const Argument& output) {
  const auto lacks = [&](const Argument& argument) {
    return argument.role == Role::input && argument.presence == Presence::required &&
           workload.find(argument.name) == nullptr;
  };
  if (std::ranges::none_of(source.arguments, lacks)) return std::nullopt;
  Case c = workload.the_case();
  c.extents = c.extents_of(source);
  c.operation = &source;
  c.layout = Layout::dense;
  c.row_stride = c.row_gap = c.offset = 0;
  if (output.presence == Presence::extra) c.with += "+" + std::string(output.name);
  std::optional<Workload> drawn(std::in_place, c);
  drawn->draw();
  return drawn;
}

}  // namespace

std::vector<Comparison> compare(const Workload& workload) {
  const auto wide = [](DType dtype) { return dtype == DType::f64 || dtype == DType::i64; };
  const Types& types = workload.the_case().types;
  return wide(types.x) || wide(types.y) ? compare_in<quad>(workload) : compare_in<double>(workload);
}

void draw_produced(const Workload& workload) {
  for (const Argument& argument : workload.operation().arguments) {
    const Array* array = workload.find(argument.name);
    if (argument.drawn != Drawn::produced || !array) continue;
    const Operation& source = *producer(workload.operation(), argument.name);
    const Argument& output = *source.find(argument.name);
    const std::optional<Workload> drawn = lacking(workload, source, output);
    const auto store = [&](const Part<double>& part, std::int64_t first, std::int64_t count) {
      const std::span<const double> values = part.exact(output);
      for_each_line(
          *array, first, count,
          [&](std::int64_t line, std::int64_t begin, std::int64_t at, std::int64_t length) {
            array->store(line, begin, values.subspan(at, length));
          });
    };
    const bool in_parts = workload.the_case().has_batch(argument);
    const Part<double> sums = compute_all<double>(
        source, drawn ? *drawn : workload,
        [&](const Part<double>& part, std::int64_t, std::int64_t first, std::int64_t count) {
          if (in_parts) store(part, first, count);
        });
    if (!in_parts) store(sums, 0, array->form().extents[0]);
  }
}

void emit_intermediates(const Workload& workload, const EmitArray& emit) {
  const std::int64_t batch = workload.the_case().batch();
  Part<double>(workload.operation(), workload, batch).emit(emit, batch);
}

}  // namespace isobit::lab
