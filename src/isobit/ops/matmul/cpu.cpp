// SPDX-License-Identifier: Apache-2.0
// The CPU variants: packed panels, a few rows, one level of blocks, and plain loops. How products
// are cut into regions for threads, and regions into tiles that stay in the caches.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "isobit/core/order.h"
#include "isobit/ops/matmul/cpu_kernels.h"
#include "isobit/ops/matmul/formula.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::matmul {
namespace {

constexpr std::int64_t kRunK = std::int64_t{order::kPanel} * order::kRun;
constexpr std::int64_t kMostMemory = 16 << 20;  // of all threads, beside the arrays

std::int64_t parts_of(std::int64_t count, std::int64_t part) { return (count + part - 1) / part; }

// Calls visit(T{}, Real{}) with the types of a and of sums.
template <class Visit>
void with_types(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::f16:  return visit(f16{}, float{});
    case DType::bf16: return visit(bf16{}, float{});
    case DType::f64:  return visit(double{}, double{});
    default:          return visit(float{}, float{});
  }
}

// One element, of any type.
template <class Real>
Real read(const Array& array, std::int64_t row, std::int64_t col) {
  const std::byte* at = array.moved(row, col).data;
  Real value{};
  with_types(array.dtype, [&]<class T>(T, auto) {
    if constexpr (std::is_same_v<T, double> == std::is_same_v<Real, double>)
      value = widen<Real>(*reinterpret_cast<const T*>(at));
  });
  return value;
}
template <class Real>
void write(const Array& array, std::int64_t row, std::int64_t col, Real value) {
  std::byte* at = array.moved(row, col).data;
  with_types(array.dtype, [&]<class T>(T, auto) {
    if constexpr (std::is_same_v<T, double> == std::is_same_v<Real, double>)
      *reinterpret_cast<T*>(at) = narrow<T>(value);
  });
}

// What becomes of one sum.
template <class Real>
void finish_element(const Problem& problem, const Arrays& arrays, std::int64_t row,
                    std::int64_t col, Real sum) {
  using S = std::conditional_t<std::is_same_v<Real, double>, simd::scalar::F64, simd::scalar::F32>;
  if (problem.alpha != 1) sum = static_cast<Real>(problem.alpha) * sum;
  if (arrays.c) sum = S::fma(static_cast<Real>(problem.beta), read<Real>(arrays.c, row, col), sum);
  if (arrays.bias) sum = sum + read<Real>(arrays.bias, row, col);
  if (arrays.pre) write(arrays.pre, row, col, sum);
  Real y = activated<S>(problem.activation, sum);
  if (arrays.residual) y = y + read<Real>(arrays.residual, row, col);
  write(arrays.y, row, col, y);
}

// A part of one product.
struct Region {
  std::int64_t product, row, col, rows, cols;
};

// How all products are cut into regions: a grid over each.
struct Grid {
  std::int64_t down = 1, across = 1, tasks = 1;

  std::int64_t units(const Problem& problem) const { return problem.products() * down * across; }
};

// So many regions that threads have equally much to do, as square as they can be. Rows and columns
// are cut at multiples of `rows` and `cols`.
Grid grid_of(const Problem& problem, const Machine& machine, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kFmasAnElement = 8;  // of the elements that it takes to wake a thread
  const std::int64_t most_down = parts_of(problem.m, rows), most_across = parts_of(problem.n, cols);
  const std::int64_t products = problem.products();
  Grid grid;
  const auto work = static_cast<double>(products) * static_cast<double>(problem.m) *
                    static_cast<double>(problem.n) *
                    static_cast<double>(std::max<std::int64_t>(16, problem.k)) / kFmasAnElement;
  const std::int64_t units =
      std::min<std::int64_t>(machine.threads, products * most_down * most_across);
  grid.tasks = simd::task_count(machine, static_cast<std::int64_t>(std::min(work, 0x1p60)), units);
  if (grid.tasks == 1) return grid;
  std::int64_t wanted = 1;
  while (products * wanted % grid.tasks != 0 && products * wanted < 4 * grid.tasks) ++wanted;
  double least = 0;
  for (std::int64_t down = 1; down <= std::min(wanted, most_down); ++down) {
    const std::int64_t across = std::min(most_across, parts_of(wanted, down));
    const double edges = static_cast<double>(problem.m) / static_cast<double>(down) +
                         static_cast<double>(problem.n) / static_cast<double>(across);
    // Fewer regions than wanted leave threads idle.
    const double cost = edges * (down * across < wanted ? 1000.0 : 1.0);
    if (down > 1 && cost >= least) continue;
    least = cost;
    grid.down = down;
    grid.across = across;
  }
  return grid;
}

// The `index`-th of `parts` parts of `count`, cut at multiples of `step`.
struct Part {
  std::int64_t begin, end;

  Part(std::int64_t count, std::int64_t step, std::int64_t parts, std::int64_t index) {
    const std::int64_t steps = parts_of(count, step);
    begin = std::min(count, steps * index / parts * step);
    end = std::min(count, steps * (index + 1) / parts * step);
  }
  std::int64_t count() const { return end - begin; }
};

// Calls body(task, region) for all regions.
template <class Body>
void for_each_region(const Problem& problem, const Execution& execution, const Grid& grid,
                     std::int64_t rows, std::int64_t cols, const Body& body) {
  const std::int64_t units = grid.units(problem);
  execution.parallel_for(grid.tasks, [&](std::int64_t task) {
    const simd::FloatMode mode;
    for (std::int64_t unit = units * task / grid.tasks; unit < units * (task + 1) / grid.tasks;
         ++unit) {
      const std::int64_t cell = unit % (grid.down * grid.across);
      const Part down(problem.m, rows, grid.down, cell / grid.across);
      const Part across(problem.n, cols, grid.across, cell % grid.across);
      if (down.count() > 0 && across.count() > 0)
        body(task, Region{unit / (grid.down * grid.across), down.begin, across.begin, down.count(),
                          across.count()});
    }
  });
}

// Sums of runs of panels, added by adjacent pairs: as many buffers as there can be at once.
class Runs {
 public:
  Runs(std::byte* buffers, std::int64_t bytes, std::int64_t count, AddKernel add)
      : buffers_(buffers), bytes_(bytes), count_(count), add_(add) {}

  static std::int64_t buffers(std::int64_t k) {
    return std::bit_width(
        static_cast<std::uint64_t>(std::max<std::int64_t>(1, parts_of(k, kRunK))));
  }

  std::byte* now() const { return buffers_ + depth_ * bytes_; }
  void next() {
    for (std::int64_t done = done_++; done & 1; done >>= 1) join();
    ++depth_;
  }
  std::byte* total() {
    for (--depth_; depth_ > 0;) join();
    return buffers_;
  }

 private:
  void join() {
    add_(now(), now() - bytes_, count_);
    --depth_;
  }

  std::byte* buffers_;
  std::int64_t bytes_, count_;
  AddKernel add_;
  std::int64_t depth_ = 0, done_ = 0;
};

// Rows of sums become rows of y.
class Finish {
 public:
  Finish(const Problem& problem, Isa isa)
      : problem_(problem),
        epilogue_{problem.activation, problem.alpha, problem.beta},
        kernel_(kernel_for(problem, isa)) {
    const Arrays& first = problem.first;
    const auto adjacent = [&](const Array& array) { return !array || array.col == 1; };
    adjacent_ =
        problem.n == 1 || (adjacent(first.c) && adjacent(first.residual) && adjacent(first.pre) &&
                           adjacent(first.y) && (!first.bias || first.bias.col <= 1));
  }

  void operator()(const Arrays& arrays, std::int64_t row, std::int64_t col, void* sums,
                  std::int64_t pitch, std::int64_t rows, std::int64_t cols) const {
    if (problem_.real() == DType::f64)
      each<double>(arrays, row, col, static_cast<double*>(sums), pitch, rows, cols);
    else
      each<float>(arrays, row, col, static_cast<float*>(sums), pitch, rows, cols);
  }

 private:
  static FinishKernel kernel_for(const Problem& problem, Isa isa) {
    const DType real = problem.real(), y = problem.first.y.dtype;
    const DType bias = problem.first.bias ? problem.first.bias.dtype : real;
    ISOBIT_RETURN_FOR_ISA(isa, finish_kernel(real, bias, y));
  }

  template <class Real>
  void each(const Arrays& arrays, std::int64_t row, std::int64_t col, Real* sums,
            std::int64_t pitch, std::int64_t rows, std::int64_t cols) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      Real* line = sums + i * pitch;
      if (adjacent_) {
        const auto at = [&](const Array& array) { return array.moved(row + i, col).data; };
        kernel_(epilogue_, {line, cols, at(arrays.bias), at(arrays.c), at(arrays.residual),
                            arrays.bias.col == 0 || cols == 1, at(arrays.pre), at(arrays.y)});
      } else {
        for (std::int64_t j = 0; j < cols; ++j)
          finish_element<Real>(problem_, arrays, row + i, col + j, line[j] + Real(0));
      }
    }
  }

  const Problem& problem_;
  Epilogue epilogue_;
  FinishKernel kernel_;
  bool adjacent_;
};

AddKernel add_kernel_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, add_kernel(problem.real()));
}

// --- packed ---

const PackKernels& pack_kernels_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, pack_kernels(problem.dtype()));
}

constexpr int kRowPanels[] = {1, 2, 4, 8, 16, 32, 64};
constexpr int kTileCols[] = {64, 128, 256, 512, 1024, 2048};
constexpr Knob kPackedKnobs[] = {
    {"row_panels", kRowPanels, "panels of rows that are packed at a time"},
    {"cols", kTileCols, "columns that are packed at a time"}};

// What a thread of the packed variant works in.
struct PackedMemory {
  std::int64_t a, b, sums, pitch;  // bytes; pitch: elements
  std::int64_t buffers;

  PackedMemory(const Problem& problem, const PackKernels& kernels, std::int64_t panels,
               std::int64_t cols) {
    const std::int64_t size = size_of(problem.real()), line = 64 / size;
    const std::int64_t k = std::min<std::int64_t>(problem.k, order::kPanel);
    const std::int64_t rows = std::min(panels * kernels.rows, problem.m);
    panels = parts_of(rows, kernels.rows);
    cols = parts_of(std::min(cols, problem.n), kernels.cols) * kernels.cols;
    a = parts_of(panels * kernels.row_pitch * k, line) * 64;
    b = parts_of(cols * k, line) * 64;
    pitch = cols + line;  // rows that lie a power of two apart would push each other out of caches
    sums = parts_of(rows * pitch, line) * 64;
    buffers = Runs::buffers(problem.k);
  }
  std::int64_t bytes() const { return a + b + buffers * sums; }
};

// Both come from the third cache at the speed of the second, where there is enough to do between:
// the more rows there are, the less often columns are packed.
Plan choose_packed(const Problem& problem, const Machine& machine) {
  const PackKernels& kernels = pack_kernels_for(problem, machine.isa);
  int panels = 64, cols = 1024;
  const std::int64_t most = kMostMemory / std::max(1, machine.threads);
  while (PackedMemory(problem, kernels, panels, cols).bytes() > most && (panels > 1 || cols > 64)) {
    if (cols > 64 && (panels == 1 || cols >= panels * kernels.rows))
      cols /= 2;
    else
      panels /= 2;
  }
  return {panels, cols};
}

std::size_t packed_workspace(const Problem& problem, const Plan& plan, const Machine& machine) {
  if (problem.empty()) return 0;
  const PackKernels& kernels = pack_kernels_for(problem, machine.isa);
  const Grid grid = grid_of(problem, machine, kernels.rows, kernels.cols);
  return static_cast<std::size_t>(grid.tasks *
                                  PackedMemory(problem, kernels, plan[0], plan[1]).bytes());
}

void run_packed(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  if (problem.empty()) return;
  const Isa isa = execution.machine.isa;
  const PackKernels& kernels = pack_kernels_for(problem, isa);
  const Grid grid = grid_of(problem, execution.machine, kernels.rows, kernels.cols);
  const PackedMemory memory(problem, kernels, plan[0], plan[1]);
  const Finish finish(problem, isa);
  const AddKernel add = add_kernel_for(problem, isa);
  const auto tile = [&](std::byte* room, const Arrays& arrays, std::int64_t row, std::int64_t col,
                        std::int64_t rows, std::int64_t cols) {
    std::byte *a = room, *b = a + memory.a;
    Runs runs(b + memory.b, memory.sums, rows * memory.pitch, add);
    if (problem.k == 0) std::memset(runs.now(), 0, static_cast<std::size_t>(memory.sums));
    for (std::int64_t k = 0; k < problem.k; k += order::kPanel) {
      const std::int64_t count = std::min<std::int64_t>(order::kPanel, problem.k - k);
      const Array from_a = arrays.a.moved(row, k), from_b = arrays.b.moved(k, col);
      kernels.pack_a({from_a.data, from_a.row, from_a.col, rows}, count, a);
      kernels.pack_b({from_b.data, from_b.col, from_b.row, cols}, count, b);
      kernels.multiply({a, b, runs.now(), memory.pitch, rows, cols, count, k % kRunK != 0});
      if ((k + count) % kRunK == 0 || k + count == problem.k) runs.next();
    }
    if (problem.k == 0) runs.next();
    finish(arrays, row, col, runs.total(), memory.pitch, rows, cols);
  };
  for_each_region(problem, execution, grid, kernels.rows, kernels.cols,
                  [&](std::int64_t task, const Region& region) {
                    std::byte* room = execution.workspace + task * memory.bytes();
                    const Arrays arrays = problem.arrays(region.product);
                    // Tiles of whole panels, as equal as they can be.
                    const std::int64_t panels = parts_of(region.rows, kernels.rows);
                    const std::int64_t down = parts_of(panels, plan[0]),
                                       across = parts_of(region.cols, plan[1]);
                    for (std::int64_t j = 0; j < across; ++j) {
                      const Part cols(region.cols, kernels.cols, across, j);
                      for (std::int64_t i = 0; i < down; ++i) {
                        const std::int64_t begin = region.rows * (panels * i / down) / panels;
                        const std::int64_t end = region.rows * (panels * (i + 1) / down) / panels;
                        tile(room, arrays, region.row + begin, region.col + cols.begin, end - begin,
                             cols.count());
                      }
                    }
                  });
}

// --- vector ---

constexpr std::int64_t kMostAlong = 8, kMostAcross = 4;

// The products with the fewer rows, whichever way they come.
Problem flat(const Problem& problem) {
  return problem.n < problem.m ? problem.transposed() : problem;
}

std::string declines_vector(const Problem& problem, const Machine&) {
  const Problem few = flat(problem);
  if (few.m > kMostAlong) return "needs at most 8 rows or columns";
  if (few.first.b.col != 1 && few.first.b.row != 1 && few.n > 1 && few.k > 1)
    return "needs adjacent elements in rows or columns of the larger matrix";
  return {};
}

bool is_along(const Problem& few) { return few.first.b.col == 1 || few.n == 1; }

bool suits_vector(const Problem& problem, const Machine&) {
  const Problem few = flat(problem);
  return few.m <= (is_along(few) ? kMostAlong : kMostAcross);
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
  std::int64_t a, sums, pitch, buffers;

  VectorMemory(const Problem& few, std::int64_t cols) {
    const std::int64_t size = size_of(few.real()), line = 64 / size;
    a = few.m * order::kPanel * size;
    pitch = cols + line;
    sums = few.m * pitch * size;
    buffers = Runs::buffers(few.k) + 1;  // and one for the panel
  }
  std::int64_t bytes() const { return parts_of(a + buffers * sums, 64) * 64; }
};

const FewKernels& few_kernels_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, few_kernels(problem.dtype()));
}

std::size_t vector_workspace(const Problem& problem, const Plan& plan, const Machine& machine) {
  if (problem.empty()) return 0;
  const Problem few = flat(problem);
  const Grid grid = grid_of(few, machine, few.m, 64);
  return static_cast<std::size_t>(grid.tasks * VectorMemory(few, plan[0]).bytes());
}

// A panel of the rows of a, widened.
template <class T, class Real>
void widen_rows(const Array& a, std::int64_t m, std::int64_t first, std::int64_t count, Real* to) {
  for (std::int64_t i = 0; i < m; ++i) {
    const Array line = a.moved(i, first);
    const auto* from = reinterpret_cast<const T*>(line.data);
    for (std::int64_t k = 0; k < count; ++k)
      to[i * order::kPanel + k] = widen<Real>(from[k * a.col]);
  }
}

void run_vector(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  if (problem.empty()) return;
  const Problem few = flat(problem);
  const Isa isa = execution.machine.isa;
  const FewKernels& kernels = few_kernels_for(few, isa);
  const auto kernel = is_along(few) ? kernels.along : kernels.across;
  const Grid grid = grid_of(few, execution.machine, few.m, 64);
  const VectorMemory memory(few, plan[0]);
  const Finish finish(few, isa);
  const AddKernel add = add_kernel_for(few, isa);
  const auto tile = [&](std::byte* a, const Arrays& arrays, std::int64_t col, std::int64_t cols) {
    std::byte* panel = a + memory.a;
    const std::int64_t all = few.m * memory.pitch;
    Runs runs(panel + memory.sums, memory.sums, all, add);
    if (few.k == 0) std::memset(runs.now(), 0, static_cast<std::size_t>(memory.sums));
    for (std::int64_t k = 0; k < few.k; k += order::kPanel) {
      const std::int64_t count = std::min<std::int64_t>(order::kPanel, few.k - k);
      with_types(few.dtype(), [&]<class T, class Real>(T, Real) {
        widen_rows<T>(arrays.a, few.m, k, count, reinterpret_cast<Real*>(a));
      });
      const Array b = arrays.b.moved(k, col);
      const bool adds = k % kRunK != 0;
      kernel(
          {a, few.m, count, {b.data, b.col, b.row, cols}, adds ? panel : runs.now(), memory.pitch});
      if (adds) add(panel, runs.now(), all);
      if ((k + count) % kRunK == 0 || k + count == few.k) runs.next();
    }
    if (few.k == 0) runs.next();
    finish(arrays, 0, col, runs.total(), memory.pitch, few.m, cols);
  };
  for_each_region(few, execution, grid, few.m, 64, [&](std::int64_t task, const Region& region) {
    std::byte* room = execution.workspace + task * memory.bytes();
    const Arrays arrays = few.arrays(region.product);
    for (std::int64_t col = 0; col < region.cols; col += plan[0])
      tile(room, arrays, region.col + col, std::min<std::int64_t>(plan[0], region.cols - col));
  });
}

// --- plain ---

// One level of blocks: sums of a block of y stay in the first cache while panels pass.
void run_blocked(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  if (problem.empty()) return;
  constexpr std::int64_t kSide = 32;
  const Grid grid = grid_of(problem, execution.machine, kSide, kSide);
  const auto block = [&]<class T, class Real>(const Arrays& arrays, std::int64_t row,
                                              std::int64_t col, T, Real) {
    const std::int64_t rows = std::min(kSide, problem.m - row),
                       cols = std::min(kSide, problem.n - col);
    order::PairTree<Real> runs[kSide][kSide];
    Real run[kSide][kSide];
    for (std::int64_t k = 0; k < problem.k; k += order::kPanel) {
      Real chains[kSide][kSide] = {};
      const std::int64_t end = std::min<std::int64_t>(problem.k, k + order::kPanel);
      for (std::int64_t at = k; at < end; ++at)
        for (std::int64_t i = 0; i < rows; ++i) {
          const Real a = widen<Real>(*reinterpret_cast<const T*>(arrays.a.moved(row + i, at).data));
          for (std::int64_t j = 0; j < cols; ++j)
            chains[i][j] = std::fma(
                a, widen<Real>(*reinterpret_cast<const T*>(arrays.b.moved(at, col + j).data)),
                chains[i][j]);
        }
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j) {
          run[i][j] = k % kRunK == 0 ? chains[i][j] : run[i][j] + chains[i][j];
          if (end % kRunK == 0 || end == problem.k) runs[i][j].push(run[i][j]);
        }
    }
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j)
        finish_element<Real>(problem, arrays, row + i, col + j, runs[i][j].total());
  };
  for_each_region(problem, execution, grid, kSide, kSide, [&](std::int64_t, const Region& region) {
    const Arrays arrays = problem.arrays(region.product);
    for (std::int64_t i = 0; i < region.rows; i += kSide)
      for (std::int64_t j = 0; j < region.cols; j += kSide)
        with_types(problem.dtype(), [&]<class T, class Real>(T, Real) {
          block(arrays, region.row + i, region.col + j, T{}, Real{});
        });
  });
}

// The specification: one element of y after the other.
void run_naive(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  if (problem.empty()) return;
  const Grid grid = grid_of(problem, execution.machine, 1, problem.n);
  for_each_region(problem, execution, grid, 1, problem.n, [&](std::int64_t, const Region& region) {
    const Arrays arrays = problem.arrays(region.product);
    with_types(problem.dtype(), [&]<class T, class Real>(T, Real) {
      const auto at = [](const Array& array, std::int64_t row, std::int64_t col) {
        return widen<Real>(*reinterpret_cast<const T*>(array.moved(row, col).data));
      };
      for (std::int64_t i = region.row; i < region.row + region.rows; ++i)
        for (std::int64_t j = region.col; j < region.col + region.cols; ++j)
          finish_element<Real>(problem, arrays, i, j,
                               order::product<Real>(
                                   problem.k, [&](std::int64_t k) { return at(arrays.a, i, k); },
                                   [&](std::int64_t k) { return at(arrays.b, k, j); }));
    });
  });
}

constexpr MatmulVariant kVariants[] = {
    {.name = "vector",
     .knobs = kVectorKnobs,
     .declines = declines_vector,
     .suits = suits_vector,
     .choose = choose_vector,
     .workspace = vector_workspace,
     .run = run_vector},
    {.name = "packed",
     .knobs = kPackedKnobs,
     .choose = choose_packed,
     .workspace = packed_workspace,
     .run = run_packed},
    {.name = "blocked", .run = run_blocked},
    {.name = "naive", .run = run_naive},
};

}  // namespace

std::span<const MatmulVariant> cpu_variants() { return kVariants; }

}  // namespace isobit::matmul
