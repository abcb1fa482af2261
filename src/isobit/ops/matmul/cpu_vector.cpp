// SPDX-License-Identifier: Apache-2.0
// A few rows, or columns, times a matrix that is read once.
#include "isobit/ops/matmul/cpu_panels.h"
#include "isobit/ops/matmul/cpu_slopes.h"

namespace isobit::matmul {
namespace {

constexpr std::int64_t kMostAlong = 8, kMostAcross = 4;

// The products with the fewer rows, whichever way they come.
Problem flat(const Problem& problem) {
  return problem.n < problem.m ? problem.transposed() : problem;
}

// Why it cannot; "" where it can.
const char* obstacle(const Problem& few) {
  if (few.arithmetic == Arithmetic::tensor) return "has no tensor arithmetic";
  if (few.m > kMostAlong) return "needs at most 8 rows or columns";
  if (few.derived == Derived::b) return "reads the larger matrix as it lies in memory";
  if (few.first.b.col != 1 && few.first.b.row != 1 && few.n > 1 && few.k > 1)
    return "needs adjacent elements in rows or columns of the larger matrix";
  return "";
}

std::string declines_vector(const Problem& problem, const Machine&) {
  return obstacle(flat(problem));
}

bool is_along(const Problem& few) { return few.first.b.col == 1 || few.n == 1; }

bool suits_vector(const Problem& problem, const Machine&) {
  const Problem few = flat(problem);
  return few.m <= (is_along(few) ? kMostAlong : kMostAcross) && *obstacle(few) == '\0';
}

constexpr int kVectorCols[] = {64, 256, 512, 1024, 2048};
constexpr Knob kVectorKnobs[] = {{"cols", kVectorCols, "columns whose sums are kept at a time"}};

Plan choose_vector(const Problem& problem, const Machine& machine) {
  const Problem few = flat(problem);
  int cols = 2048;
  while (cols > 64 && cols * few.m * size_of(few.real()) > machine.l1_bytes / 4) cols /= 2;
  if (cols == 128) cols = 64;
  return {cols};
}

struct VectorMemory {
  std::int64_t depth, a, derived, sums, pitch, buffers;  // depth: of k, at a time

  VectorMemory(const Problem& few, std::int64_t cols, const FewKernels& kernels)
      : depth(is_along(few) ? std::int64_t{order::kPanel} : kernels.across_k) {
    const std::int64_t size = size_of(few.real()), line = 64 / size;
    a = few.m * depth * size;
    derived = Slopes::room(few, few.m, depth);
    pitch = cols + line;
    sums = few.m * pitch * size;
    buffers = Runs::buffers(few.k) + 1;  // and one for a part
  }
  std::int64_t bytes() const { return parts_of(a + derived + buffers * sums, 64) * 64; }
};

std::size_t vector_workspace(const Problem& problem, const Plan& plan, const Machine& machine) {
  if (problem.empty()) return 0;
  const Problem few = flat(problem);
  const Grid grid = grid_of(few, machine, few.m, 64);
  const FewKernels& kernels = few_kernels_for(few.dtype(), machine.isa);
  return static_cast<std::size_t>(grid.tasks * VectorMemory(few, plan[0], kernels).bytes());
}

// A part of the rows of a, widened.
template <class T, class Real>
void widen_rows(const Array& a, std::int64_t m, std::int64_t count, Real* to, std::int64_t pitch) {
  for (std::int64_t i = 0; i < m; ++i) {
    const Array line = a.moved(i, 0);
    const auto* from = reinterpret_cast<const T*>(line.data);
    for (std::int64_t k = 0; k < count; ++k) to[i * pitch + k] = widen<Real>(from[k * a.col]);
  }
}

void run_vector(const ForwardArgs&, const Problem& problem, const Plan& plan,
                const Execution& execution) {
  if (problem.empty()) return;
  const Problem few = flat(problem);
  const Isa isa = execution.machine.isa;
  const FewKernels& kernels = few_kernels_for(few.dtype(), isa);
  const auto kernel = is_along(few) ? kernels.along : kernels.across;
  const Grid grid = grid_of(few, execution.machine, few.m, 64);
  const VectorMemory memory(few, plan[0], kernels);
  const Finish finish(few, isa);
  const AddKernel add = add_kernel_for(few.real(), isa);
  const Slopes slopes(few, isa);
  const auto tile = [&](std::byte* a, const Arrays& arrays, std::int64_t col, std::int64_t cols) {
    std::byte *derived = a + memory.a, *part = derived + memory.derived;
    Runs runs(part + memory.sums, memory.sums, few.m * memory.pitch, add);
    const auto multiply = [&](std::int64_t k, std::int64_t count, void* to) {
      Array rows = arrays.a.moved(0, k);
      if (few.derived == Derived::a)
        rows = slopes.part(rows, arrays.slope.moved(0, k), few.m, count, derived);
      with_types(few.dtype(), [&]<class T, class Real>(T, Real) {
        widen_rows<T>(rows, few.m, count, reinterpret_cast<Real*>(a), memory.depth);
      });
      const Array b = arrays.b.moved(k, col);
      kernel({a, memory.depth, few.m, count, {b.data, b.col, b.row, cols}, to, memory.pitch});
    };
    runs.for_each_part_alone(few.k, memory.depth, part, multiply);
    finish(arrays, 0, col, runs.total(), memory.pitch, few.m, cols);
  };
  for_each_region(few, execution, grid, few.m, 64, [&](std::int64_t task, const Region& region) {
    std::byte* room = execution.workspace + task * memory.bytes();
    const Arrays arrays = few.arrays(region.product);
    for (std::int64_t col = 0; col < region.cols; col += plan[0])
      tile(room, arrays, region.col + col, std::min<std::int64_t>(plan[0], region.cols - col));
  });
}

}  // namespace

ForwardVariant vector_variant() {
  return {.name = "vector",
          .knobs = kVectorKnobs,
          .each_isa = true,
          .declines = declines_vector,
          .suits = suits_vector,
          .choose = choose_vector,
          .workspace = vector_workspace,
          .run = run_vector};
}

}  // namespace isobit::matmul
