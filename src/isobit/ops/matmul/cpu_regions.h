// SPDX-License-Identifier: Apache-2.0
// What the CPU variants share: how products are cut into regions for threads, how sums of runs are
// added, and what becomes of rows of sums.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "isobit/core/order.h"
#include "isobit/ops/matmul/cpu_kernels.h"
#include "isobit/ops/matmul/formula.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::matmul {

ForwardVariant amx_variant();
ForwardVariant vector_variant();
ForwardVariant direct_variant();
ForwardVariant blocked_variant();
ForwardVariant naive_variant();

inline constexpr std::int64_t kMostMemory = 16 << 20;  // of all threads, beside the arrays
inline constexpr std::int64_t kRunK = std::int64_t{order::kPanel} * order::kRun;

inline std::int64_t parts_of(std::int64_t count, std::int64_t part) {
  return (count + part - 1) / part;
}

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
  using S = simd::ScalarOf<Real>;
  if (problem.alpha != 1) sum = static_cast<Real>(problem.alpha) * sum;
  if (arrays.c) sum = S::fma(static_cast<Real>(problem.beta), read<Real>(arrays.c, row, col), sum);
  if (arrays.bias) sum = sum + read<Real>(arrays.bias, row, col);
  if (arrays.pre) write(arrays.pre, row, col, sum);
  Real y = activated<S>(problem.activation, sum);
  if (arrays.residual) y = y + read<Real>(arrays.residual, row, col);
  write(arrays.y, row, col, y);
}

// Whether y has the sums' type, and all that happens to them is that a bias is added: then y itself
// holds them, while there are more panels of k.
inline bool sums_are_in_y(const Problem& problem) {
  const auto& [a, b, bias, c, residual, y, pre, slope] = problem.first;
  return problem.arithmetic == Arithmetic::canonical && size_of(problem.dtype()) >= 4 &&
         problem.alpha == 1 && !c && !residual && !pre && problem.activation == Activation::none &&
         problem.k > 0 && problem.k <= kRunK && y.dtype == problem.real() &&
         (y.col == 1 || problem.n == 1) &&
         (!bias || (bias.dtype == problem.real() && bias.col == 1));
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
inline Grid grid_of(const Problem& problem, const Machine& machine, std::int64_t rows,
                    std::int64_t cols,
                    std::int64_t most_tasks = std::numeric_limits<std::int64_t>::max()) {
  constexpr std::int64_t kFmasAnElement = 8;  // of the elements that it takes to wake a thread
  const std::int64_t most_down = parts_of(problem.m, rows), most_across = parts_of(problem.n, cols);
  const std::int64_t products = problem.products();
  Grid grid;
  const auto work = static_cast<double>(products) * static_cast<double>(problem.m) *
                    static_cast<double>(problem.n) *
                    static_cast<double>(std::max<std::int64_t>(16, problem.k)) / kFmasAnElement;
  const std::int64_t units =
      std::min({std::int64_t{machine.threads}, products * most_down * most_across, most_tasks});
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

  // Calls multiply(k, count) for each panel in turn, which puts its sums into now(), or adds them
  // to what is there if k is not where a run begins.
  template <class Multiply>
  void for_each_panel(std::int64_t k, const Multiply& multiply) {
    for_each_part(k, order::kPanel, multiply);
  }
  // For so many panels at a time, in `depth` k, of which a run is a multiple.
  template <class Multiply>
  void for_each_part(std::int64_t k, std::int64_t depth, const Multiply& multiply) {
    if (k == 0) {
      std::memset(now(), 0, static_cast<std::size_t>(bytes_));
      next();
    }
    for (std::int64_t at = 0; at < k; at += depth) {
      const std::int64_t count = std::min(depth, k - at);
      multiply(at, count);
      if ((at + count) % kRunK == 0 || at + count == k) next();
    }
  }
  // The same where multiply(k, count, to) can only replace what is at `to`: that is `part`, a
  // buffer of its own, wherever no run begins, and is added.
  template <class Multiply>
  void for_each_part_alone(std::int64_t k, std::int64_t depth, std::byte* part,
                           const Multiply& multiply) {
    for_each_part(k, depth, [&](std::int64_t at, std::int64_t count) {
      const bool begins = at % kRunK == 0;
      multiply(at, count, begins ? now() : part);
      if (!begins) add_(part, now(), count_);
    });
  }
  template <class Multiply>
  void for_each_panel_alone(std::int64_t k, std::byte* panel, const Multiply& multiply) {
    for_each_part_alone(k, order::kPanel, panel, multiply);
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
    others_adjacent_ = adjacent(first.c) && adjacent(first.residual) && adjacent(first.pre) &&
                       (!first.bias || first.bias.col <= 1);
    adjacent_ = problem.n == 1 || (others_adjacent_ && adjacent(first.y));
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
      if (adjacent_)
        finish_line(arrays, row + i, col, line, cols, arrays.y.moved(row + i, col).data);
      else if (others_adjacent_)
        finish_apart(arrays, row + i, col, line, cols);
      else
        for (std::int64_t j = 0; j < cols; ++j)
          finish_element<Real>(problem_, arrays, row + i, col + j, line[j] + Real(0));
    }
  }

  void finish_line(const Arrays& arrays, std::int64_t row, std::int64_t col, void* line,
                   std::int64_t cols, std::byte* y) const {
    const auto at = [&](const Array& array) { return array.moved(row, col).data; };
    kernel_(epilogue_, {line, cols, at(arrays.bias), at(arrays.c), at(arrays.residual),
                        arrays.bias.col == 0 || cols == 1, at(arrays.pre), y});
  }

  // Some elements side by side, and then each to its place.
  template <class Real>
  void finish_apart(const Arrays& arrays, std::int64_t row, std::int64_t col, Real* line,
                    std::int64_t cols) const {
    constexpr std::int64_t kSome = 256;
    alignas(64) std::byte some[kSome * sizeof(double)];
    for (std::int64_t done = 0; done < cols; done += kSome) {
      const std::int64_t count = std::min(kSome, cols - done);
      finish_line(arrays, row, col + done, line + done, count, some);
      const Array to = arrays.y.moved(row, col + done);
      const auto scatter = [&]<class T>(T) {
        for (std::int64_t j = 0; j < count; ++j)
          std::memcpy(to.data + j * to.col * static_cast<std::int64_t>(sizeof(T)),
                      some + j * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      };
      switch (size_of(to.dtype)) {
        case 2:  scatter(std::uint16_t()); break;
        case 4:  scatter(std::uint32_t()); break;
        default: scatter(std::uint64_t()); break;
      }
    }
  }

  const Problem& problem_;
  Epilogue epilogue_;
  FinishKernel kernel_;
  bool adjacent_, others_adjacent_;
};

inline AddKernel add_kernel_for(DType real, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, add_kernel(real));
}

}  // namespace isobit::matmul
