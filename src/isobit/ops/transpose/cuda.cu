// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: tiles that move in vectors of 16 bytes on both sides, the same fetched in
// bulk, tiles that move element by element, and each element on its own. Blocks take tiles in turn.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "isobit/dispatch/threads.h"
#include "isobit/ops/transpose/cuda_bulk.h"
#include "isobit/ops/transpose/cuda_elements.h"
#include "isobit/ops/transpose/cuda_vectors.h"
#include "isobit/ops/transpose/problem.h"
#include "isobit/simt/simt.h"

namespace isobit::transpose {
namespace {

constexpr int kSides[] = {8, 16};
constexpr int kPlaces[] = {2, 4};
constexpr int kBlocks[] = {0, 1, 2, 4, 8};
constexpr Knob kAcrossKnob = {"across", kSides, "vectors per tile row of x, one per thread"};
constexpr Knob kDownKnob = {"down", kSides, "vectors per tile row of y, one per thread"};
constexpr Knob kBlocksKnob = {
    "blocks", kBlocks,
    "blocks per multiprocessor, which take tiles in turn; 0: one block per tile"};
constexpr Knob kVectorsKnobs[] = {kAcrossKnob, kDownKnob, kBlocksKnob};
constexpr Knob kBulkKnobs[] = {
    kAcrossKnob,
    kDownKnob,
    kBlocksKnob,
    {"places", kPlaces, "tiles in shared memory at once; lowered to what fits"}};
constexpr Knob kElementsKnobs[] = {threads_knob(512), kBlocksKnob};

// Calls run with the types of a call. What keeps its type is moved as a word of its size.
template <class Run>
void with_types(const Problem& problem, const Run& run) {
  const auto same = [&](auto word) { run(word, word); };
  if (problem.elements() == 0) return;
  if (!problem.casts()) switch (size_of(problem.x_dtype)) {
      case 1:  return same(Type<std::uint8_t>{});
      case 2:  return same(Type<std::uint16_t>{});
      case 4:  return same(Type<std::uint32_t>{});
      default: return same(Type<std::uint64_t>{});
    }
  const auto real = [](DType dtype, const auto& visit) {
    switch (dtype) {
      case DType::f16:  return visit(Type<f16>{});
      case DType::bf16: return visit(Type<bf16>{});
      case DType::f64:  return visit(Type<double>{});
      default:          return visit(Type<float>{});
    }
  };
  real(problem.x_dtype, [&](auto from) {
    real(problem.y_dtype, [&](auto to) {
      if constexpr (!std::is_same_v<decltype(from), decltype(to)>) run(from, to);
    });
  });
}

template <template <class, class> class Kernel, class From, class To, class... Options>
Kernel<From, To> kernel_of(Type<From>, Type<To>, const Problem& problem, Options... options) {
  return {problem, options...};
}

// `most`: of blocks, for as many parts as there are; 0 a multiprocessor: one a part.
template <class Kernel>
void launch(const Kernel& kernel, std::int64_t parts, int most, const Execution& execution) {
  const std::int64_t blocks =
      most == 0 ? simt::kMostBlocks : std::int64_t{most} * execution.machine.gpu.multiprocessors;
  simt::launch(static_cast<simt::Stream>(execution.stream),
               {.blocks = std::clamp<std::int64_t>(blocks, 1, parts), .threads = kernel.threads},
               kernel);
}

// Whether lines of an array, of `count` elements, start and end at multiples of 16 bytes.
template <class Stride>
bool whole_vectors(const Problem& problem, const void* data, DType dtype, std::int64_t count,
                   const Axis& lines, const Stride& stride) {
  const auto whole = [&](std::int64_t elements) {
    return elements * size_of(dtype) % kVector == 0;
  };
  bool all = reinterpret_cast<std::uintptr_t>(data) % kVector == 0 && whole(count) &&
             (lines.extent <= 1 || whole(stride(lines)));
  for (int i = 0; i < problem.outer_count; ++i)
    all &= problem.outer[static_cast<std::size_t>(i)].extent <= 1 ||
           whole(stride(problem.outer[static_cast<std::size_t>(i)]));
  return all;
}

bool has_whole_rows(const Problem& problem) {
  return whole_vectors(problem, problem.x, problem.x_dtype, problem.cols.extent, problem.rows,
                       [](const Axis& axis) { return axis.x_stride; });
}
// Of x, which are rows of y.
bool has_whole_columns(const Problem& problem) {
  return whole_vectors(problem, problem.y, problem.y_dtype, problem.rows.extent, problem.cols,
                       [](const Axis& axis) { return axis.y_stride; });
}

template <class From, class To>
using WholeVectors = Vectors<From, To, true>;
template <class From, class To>
using AnyPieces = Vectors<From, To, false>;

int log_of(int value) { return std::countr_zero(static_cast<unsigned>(value)); }

void run_tiled_vec(const Args&, const Problem& problem, const Plan& plan,
                   const Execution& execution) {
  with_types(problem, [&](auto from, auto to) {
    if (problem.copies()) {
      const auto kernel = kernel_of<Rows>(from, to, problem, plan[0] * plan[1]);
      launch(kernel, kernel.tiles.count(), plan[2], execution);
    } else {
      const auto run = [&](const auto& kernel) {
        launch(kernel, kernel.tiles.count(), plan[2], execution);
      };
      const int across = log_of(plan[0]), down = log_of(plan[1]);
      if (has_whole_rows(problem) && has_whole_columns(problem))
        run(kernel_of<WholeVectors>(from, to, problem, across, down));
      else
        run(kernel_of<AnyPieces>(from, to, problem, across, down));
    }
  });
}

template <class Kernel>
std::int64_t shared_bytes(const Kernel& kernel) {
  simt::Carver counter;
  kernel.memory(counter);
  return counter.bytes();
}

void run_bulk_swizzle(const Args&, const Problem& problem, const Plan& plan,
                      const Execution& execution) {
  with_types(problem, [&](auto from, auto to) {
    auto kernel = kernel_of<Bulk>(from, to, problem, log_of(plan[0]), log_of(plan[1]), plan[3]);
    while (kernel.places > kPlaces[0] && shared_bytes(kernel) > execution.machine.gpu.shared_bytes)
      kernel.places /= 2;
    launch(kernel, kernel.tiles.count(), plan[2], execution);
  });
}

void run_tiled(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  with_types(problem, [&](auto from, auto to) {
    const auto kernel = kernel_of<Elements>(from, to, problem, plan[0]);
    launch(kernel, kernel.tiles.count(), plan[1], execution);
  });
}

void run_naive(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  with_types(problem, [&](auto from, auto to) {
    const auto kernel = kernel_of<Naive>(from, to, problem, plan[0]);
    launch(kernel, kernel.blocks(), plan[1], execution);
  });
}

std::string not_adjacent(const Problem& problem, const Machine&) {
  return problem.tiles() || problem.copies()
             ? ""
             : "vectors need contiguous rows of x, and contiguous rows or columns of y";
}

std::string not_in_bulk(const Problem& problem, const Machine& machine) {
  if (machine.gpu.capability < 90) return "bulk copies need sm_90 or later";
  if (!problem.tiles()) return "bulk copies need contiguous rows of x, and contiguous columns of y";
  if (!has_whole_rows(problem))
    return "bulk copies need rows of x that start and end at multiples of 16 bytes";
  if (!has_whole_columns(problem))
    return "bulk_swizzle needs rows of y that start and end at multiples of 16 bytes";
  return "";
}

// Where a side is shorter, most threads of a tile have nothing to do.
bool has_two_sides(const Problem& problem, const Machine&) {
  return std::min(problem.rows.extent, problem.cols.extent) >= 4;
}
bool is_copied_or_has_two_sides(const Problem& problem, const Machine& machine) {
  return problem.copies() || has_two_sides(problem, machine);
}

// Vectors of a side: 16, or 8 where more would find nothing there, or leave multiprocessors idle;
// and of bytes, of which a thread holds so many that few blocks of 256 fit a multiprocessor.
Plan sides(const Problem& problem, const Machine& machine) {
  const auto parts = [](const Axis& axis, DType dtype, int vectors) {
    const std::int64_t elements = vectors * kVector / size_of(dtype);
    return (axis.extent + elements - 1) / elements;
  };
  const bool few = problem.matrices() * parts(problem.rows, problem.y_dtype, 16) *
                       parts(problem.cols, problem.x_dtype, 16) <
                   2 * machine.gpu.multiprocessors;
  const auto side = [&](const Axis& axis, DType dtype) {
    return few || size_of(dtype) == 1 || parts(axis, dtype, 8) == 1 ? 8 : 16;
  };
  return {side(problem.cols, problem.x_dtype), side(problem.rows, problem.y_dtype)};
}

Plan choose_tiled_vec(const Problem& problem, const Machine& machine) {
  if (problem.copies()) return {16, 16, 0};
  return sides(problem, machine);
}

// Two blocks a multiprocessor, each with a tile under way while it turns another.
Plan choose_bulk_swizzle(const Problem& problem, const Machine& machine) {
  Plan plan = sides(problem, machine);
  plan[2] = 2;
  plan[3] = 2;
  return plan;
}

Plan one_block_a_tile(const Problem&, const Machine&) { return {256, 0}; }

constexpr TransposeVariant kVariants[] = {
    {.name = "tiled_vec",
     .knobs = kVectorsKnobs,
     .declines = not_adjacent,
     .suits = is_copied_or_has_two_sides,
     .choose = choose_tiled_vec,
     .run = run_tiled_vec},
    {.name = "bulk_swizzle",
     .knobs = kBulkKnobs,
     .declines = not_in_bulk,
     .suits = has_two_sides,
     .choose = choose_bulk_swizzle,
     .run = run_bulk_swizzle},
    {.name = "tiled",
     .knobs = kElementsKnobs,
     .suits = has_two_sides,
     .choose = one_block_a_tile,
     .run = run_tiled},
    {.name = "naive", .knobs = kElementsKnobs, .choose = one_block_a_tile, .run = run_naive},
};

}  // namespace

std::span<const TransposeVariant> cuda_variants() { return kVariants; }

}  // namespace isobit::transpose
