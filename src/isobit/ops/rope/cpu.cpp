// SPDX-License-Identifier: Apache-2.0
// The CPU variants: whole vectors of adjacent elements, and one pair at a time, of any strides. How
// tokens are dealt to threads, and where tables are computed that the caller has not.
#include <cstddef>
#include <type_traits>

#include "isobit/core/error.h"
#include "isobit/ops/rope/cpu_kernels.h"
#include "isobit/ops/rope/formula.h"
#include "isobit/ops/rope/problem.h"
#include "isobit/ops/rope_tables/formula.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::rope {
namespace {

// Where a token stands.
struct Place {
  std::int64_t batch, seq;
};

// Its position, without the offset.
std::int64_t position_of(const Problem& problem, Place place) {
  if (problem.positions == nullptr) return place.seq;
  return problem
      .positions[place.batch * problem.position_batch_step + place.seq * problem.position_step];
}

// Each before the first element is written.
void check_positions(const Problem& problem) {
  if (problem.positions == nullptr) return;
  const std::int64_t batches = problem.position_batch_step == 0 ? 1 : problem.batch;
  for (std::int64_t batch = 0; batch < batches; ++batch)
    for (std::int64_t seq = 0; seq < problem.seq; ++seq) {
      const std::int64_t position = position_of(problem, {batch, seq});
      require(position >= 0 && position < problem.end - problem.offset, "rope: positions[", batch,
              ", ", seq, "] is ", position, ", and offset_positions ", problem.offset,
              "; there are positions from 0 to ", problem.end - 1);
    }
}

// The tables' rows of all tokens.
struct Tables {
  const std::byte *cos, *sin;
  std::int64_t cos_pitch, sin_pitch;  // bytes
};

// Computed tables have a row for each place in the sequence, or each token where positions are
// given.
std::int64_t computed_rows(const Problem& problem) {
  return problem.positions == nullptr ? problem.seq : problem.tokens();
}

std::size_t room_for_tables(const Problem& problem, const Plan&, const Machine&) {
  if (problem.tables || problem.tokens() == 0) return 0;
  const std::int64_t row = 2 * problem.pairs * size_of(problem.real());
  return static_cast<std::size_t>(problem.pairs * std::int64_t{sizeof(double)} +
                                  computed_rows(problem) * row);
}

Tables compute_tables(const Problem& problem, const Execution& execution, TableKernel kernel) {
  using S = simd::scalar::F64;
  auto* frequencies = reinterpret_cast<double*>(execution.workspace);
  const std::int64_t pairs = problem.pairs, rows = computed_rows(problem);
  {
    const simd::FloatMode mode;
    const auto ratio = rope_tables::frequency_ratio<S>(problem.base, pairs);
    for (std::int64_t i = 0; i < pairs; ++i) frequencies[i] = rope_tables::frequency<S>(ratio, i);
  }
  const std::int64_t pitch = pairs * size_of(problem.real());
  std::byte* const cos = execution.workspace + pairs * std::int64_t{sizeof(double)};
  std::byte* const sin = cos + rows * pitch;
  const std::int64_t tasks = simd::task_count(execution.machine, 8 * rows * pairs, rows);
  simd::in_parts(execution, tasks, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t position =
          problem.offset + position_of(problem, {row / problem.seq, row % problem.seq});
      kernel(static_cast<double>(position), frequencies, cos + row * pitch, sin + row * pitch,
             pairs);
    }
  });
  return {cos, sin, pitch, pitch};
}

// Calls turn(heads, place, row) for the queries and the keys of every token.
template <class TurnHeads>
void for_each_token(const Problem& problem, const Execution& execution, TableKernel table_kernel,
                    const TurnHeads& turn) {
  if (problem.elements() == 0) return;
  check_positions(problem);
  const std::int64_t size = size_of(problem.real());
  const Tables tables = problem.tables
                            ? Tables{problem.cos.data, problem.sin.data, problem.cos.stride * size,
                                     problem.sin.stride * size}
                            : compute_tables(problem, execution, table_kernel);
  const std::int64_t tokens = problem.tokens();
  const std::int64_t tasks = simd::task_count(execution.machine, problem.elements(), tokens);
  simd::in_parts(execution, tasks, tokens, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      const Place place{token / problem.seq, token % problem.seq};
      const std::int64_t at = problem.tables ? problem.offset + position_of(problem, place)
                              : problem.positions == nullptr ? place.seq
                                                             : token;
      const Row row{tables.cos + at * tables.cos_pitch, tables.sin + at * tables.sin_pitch};
      turn(problem.q, place, row);
      if (problem.k.count > 0) turn(problem.k, place, row);
    }
  });
}

// The specification: one pair after the other.
template <class T>
void turn_heads(const Problem& problem, const Heads& heads, Place place, const Row& row) {
  using S = simd::ScalarOf<T>;
  using Real = typename S::Real;
  const Steps &from = heads.x_steps, &to = heads.y_steps;
  const bool half = problem.style == Style::half;
  for (std::int64_t head = 0; head < heads.count; ++head) {
    const T* x = reinterpret_cast<const T*>(heads.x) + place.batch * from.batch +
                 place.seq * from.seq + head * from.head;
    T* y = reinterpret_cast<T*>(heads.y) + place.batch * to.batch + place.seq * to.seq +
           head * to.head;
    for (std::int64_t i = 0; i < problem.pairs; ++i) {
      const std::int64_t first = half ? i : 2 * i, second = half ? i + problem.pairs : 2 * i + 1;
      const Real cosine = reinterpret_cast<const Real*>(row.cos)[i];
      const Real sine = reinterpret_cast<const Real*>(row.sin)[i];
      const Pair<S> found =
          turned<S>({widen<Real>(x[first * from.dim]), widen<Real>(x[second * from.dim])}, cosine,
                    problem.backward ? -sine : sine);
      y[first * to.dim] = narrow<T>(found.first);
      y[second * to.dim] = narrow<T>(found.second);
    }
    for (std::int64_t i = 2 * problem.pairs; i < problem.head_dim; ++i)
      y[i * to.dim] = narrow<T>(widen<Real>(x[i * from.dim]));
  }
}

template <class T>
void table_row_of(double position, const double* frequencies, std::byte* cosines, std::byte* sines,
                  std::int64_t count) {
  rope_tables::table_row<simd::scalar::F64>(position, frequencies, reinterpret_cast<T*>(cosines),
                                            reinterpret_cast<T*>(sines), count);
}

template <class Args>
void run_scalar(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  const TableKernel tables =
      problem.dtype == DType::f64 ? table_row_of<double> : table_row_of<float>;
  visit(problem.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (!std::is_same_v<T, quad> && !std::is_same_v<T, std::int32_t>)
      for_each_token(problem, execution, tables,
                     [&](const Heads& heads, Place place, const Row& row) {
                       turn_heads<T>(problem, heads, place, row);
                     });
  });
}

Kernel kernel_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, kernel(problem.dtype, problem.style));
}
TableKernel table_kernel_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, table_kernel(problem.real()));
}

template <class Args>
void run_simd(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  const Isa isa = execution.machine.isa;
  const Kernel kernel = kernel_for(problem, isa);
  const std::int64_t size = size_of(problem.dtype);
  const Turn turn{problem.pairs, problem.head_dim, problem.backward};
  for_each_token(problem, execution, table_kernel_for(problem, isa),
                 [&](const Heads& heads, Place place, const Row& row) {
                   const auto at = [&](const Steps& steps) {
                     return (place.batch * steps.batch + place.seq * steps.seq) * size;
                   };
                   kernel({heads.x + at(heads.x_steps), heads.y + at(heads.y_steps), heads.count,
                           heads.x_steps.head, heads.y_steps.head},
                          row, turn, plan[0] != 0);
                 });
}

std::string declines_simd(const Problem& problem, const Machine&) {
  return problem.adjacent() ? "" : "needs adjacent elements in each head";
}

constexpr int kBooleans[] = {0, 1};
constexpr Knob kSimdKnobs[] = {{"stream", kBooleans, "streaming stores, which bypass the caches"}};

// What is stored where it was read is in the caches already.
Plan choose_simd(const Problem& problem, const Machine& machine) {
  return {!problem.in_place() &&
          machine.leaves_caches(2 * problem.elements() * size_of(problem.dtype))};
}

template <class Args>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "simd",
     .knobs = kSimdKnobs,
     .declines = declines_simd,
     .choose = choose_simd,
     .workspace = room_for_tables,
     .run = run_simd<Args>},
    {.name = "scalar", .workspace = room_for_tables, .run = run_scalar<Args>},
};

}  // namespace

std::span<const ForwardVariant> cpu_forward_variants() { return kVariants<ForwardArgs>; }
std::span<const BackwardVariant> cpu_backward_variants() { return kVariants<BackwardArgs>; }

}  // namespace isobit::rope
