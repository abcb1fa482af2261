// SPDX-License-Identifier: Apache-2.0
// The CPU variants: tiles transposed in registers, small blocks element by element, plain loops.
#include <algorithm>
#include <array>
#include <type_traits>

#include "isobit/ops/transpose/cpu_kernels.h"
#include "isobit/ops/transpose/formula.h"
#include "isobit/ops/transpose/problem.h"
#include "isobit/simd/tasks.h"

namespace isobit::transpose {
namespace {

// Where a matrix starts, from one matrix to the next.
class Place {
 public:
  Place(const Problem& problem, std::int64_t matrix) : problem_(problem) {
    for (int i = problem.outer_count - 1; i >= 0; --i) {
      const Axis& axis = problem.outer[i];
      turns_[i] = matrix % axis.extent;
      matrix /= axis.extent;
      x_ += turns_[i] * axis.x_stride;
      y_ += turns_[i] * axis.y_stride;
    }
  }

  void next() {
    for (int i = problem_.outer_count - 1; i >= 0; --i) {
      const Axis& axis = problem_.outer[i];
      x_ += axis.x_stride;
      y_ += axis.y_stride;
      if (++turns_[i] < axis.extent) return;
      x_ -= axis.extent * axis.x_stride;
      y_ -= axis.extent * axis.y_stride;
      turns_[i] = 0;
    }
  }

  // The addresses of an element of this matrix.
  const std::byte* x(std::int64_t row, std::int64_t col) const {
    return problem_.x + (x_ + row * problem_.rows.x_stride + col * problem_.cols.x_stride) *
                            size_of(problem_.x_dtype);
  }
  std::byte* y(std::int64_t row, std::int64_t col) const {
    return problem_.y + (y_ + row * problem_.rows.y_stride + col * problem_.cols.y_stride) *
                            size_of(problem_.y_dtype);
  }

 private:
  const Problem& problem_;
  std::array<std::int64_t, kMaxRank> turns_{};
  std::int64_t x_ = 0, y_ = 0;  // elements
};

// What one thread does at a time.
struct Part {
  const std::byte* x;
  std::byte* y;
  std::int64_t rows, cols;
  const std::byte* next_x;  // of the thread's next part; null after the last
};

// How matrices are cut: into bands of rows, and these into panels of columns. What is left over
// belongs to the last, for it could be too little for a tile.
struct Cut {
  std::int64_t panel_cols, band_rows;
};

// Deals all matrices to threads and calls body(part) for their parts. Panels of one band that meet
// in one task are one part.
template <class Body>
void for_each_part(const Problem& problem, const Execution& execution, Cut cut, const Body& body) {
  const std::int64_t rows = problem.rows.extent, cols = problem.cols.extent;
  if (problem.elements() == 0) return;
  const std::int64_t panels = std::max<std::int64_t>(1, cols / cut.panel_cols);
  const std::int64_t bands = std::max<std::int64_t>(1, rows / cut.band_rows);
  const std::int64_t units = problem.matrices() * panels * bands;
  const std::int64_t tasks = simd::task_count(execution.machine, problem.elements(), units);
  simd::in_parts(execution, tasks, units, 1, [&](std::int64_t unit, std::int64_t end) {
    if (unit == end) return;
    Place place(problem, unit / panels / bands);
    std::int64_t panel = unit % panels, band = unit / panels % bands;
    while (unit < end) {
      const std::int64_t panels_now = std::min(panels - panel, end - unit);
      const std::int64_t row = band * cut.band_rows, col = panel * cut.panel_cols;
      Part part{place.x(row, col), place.y(row, col),
                band + 1 == bands ? rows - row : cut.band_rows,
                panel + panels_now == panels ? cols - col : panels_now * cut.panel_cols, nullptr};
      unit += panels_now;
      panel = 0;
      if (++band == bands) {
        band = 0;
        place.next();
      }
      if (unit < end) part.next_x = place.x(band * cut.band_rows, 0);
      body(part);
    }
  });
}

// Calls body(Type<X>{}, Type<T>{}); elements that keep their type move as unsigned integers.
template <class Body>
void with_types(DType x, DType y, const Body& body) {
  if (x == y) switch (size_of(x)) {
      case 1:  return body(Type<std::uint8_t>{}, Type<std::uint8_t>{});
      case 2:  return body(Type<std::uint16_t>{}, Type<std::uint16_t>{});
      case 4:  return body(Type<std::uint32_t>{}, Type<std::uint32_t>{});
      default: return body(Type<std::uint64_t>{}, Type<std::uint64_t>{});
    }
  const auto floating = [](DType dtype, const auto& next) {
    switch (dtype) {
      case DType::f16:  return next(Type<f16>{});
      case DType::bf16: return next(Type<bf16>{});
      case DType::f64:  return next(Type<double>{});
      default:          return next(Type<float>{});
    }
  };
  floating(x, [&](auto from) { floating(y, [&](auto to) { body(from, to); }); });
}

// Element by element, in parts as `cut` says.
void run_plain(const Problem& problem, const Execution& execution, Cut cut) {
  with_types(problem.x_dtype, problem.y_dtype, [&]<class X, class T>(Type<X>, Type<T>) {
    for_each_part(problem, execution, cut, [&](const Part& part) {
      const Axis along_rows = problem.rows, along_cols = problem.cols;
      const auto* x = reinterpret_cast<const X*>(part.x);
      auto* y = reinterpret_cast<T*>(part.y);
      for (std::int64_t i = 0; i < part.rows; ++i) {
        for (std::int64_t j = 0; j < part.cols; ++j) {
          const X element = x[i * along_rows.x_stride + j * along_cols.x_stride];
          T& to = y[i * along_rows.y_stride + j * along_cols.y_stride];
          if constexpr (std::is_same_v<X, T>)
            to = element;
          else
            to = cast<Conversions, T>(element);
        }
      }
    });
  });
}

BlockKernel block_kernel_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, block_kernel(problem.x_dtype, problem.y_dtype));
}
RowKernel row_kernel_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, row_kernel(problem.x_dtype, problem.y_dtype));
}

constexpr int kBooleans[] = {0, 1};
constexpr Knob kSimdKnobs[] = {{"stream", kBooleans, "streaming stores, which bypass the caches"}};

std::string declines_simd(const Problem& problem, const Machine&) {
  if (problem.tiles() || problem.copies()) return {};
  return "needs contiguous rows of x, and contiguous columns or rows of y";
}

// Rows of y of a line or less are seldom whole lines: 10000 matrices of 8 x 8 doubles took five
// times as long. Matrices of a few rows or columns are never streamed.
Plan choose_simd(const Problem& problem, const Machine& machine) {
  constexpr std::int64_t kShort = 128;  // bytes
  const std::int64_t size = size_of(problem.y_dtype);
  const std::int64_t row = problem.copies() ? problem.cols.extent : problem.rows.extent;
  const bool narrow = std::min(problem.rows.extent, problem.cols.extent) <= kMostNarrow;
  return {row * size >= kShort && (problem.copies() || !narrow) &&
          machine.leaves_caches(problem.elements() * (size_of(problem.x_dtype) + size))};
}

void run_simd(const Problem& problem, const Plan& plan, const Execution& execution) {
  const bool streaming = plan[0] != 0;
  if (problem.copies()) {
    const RowKernel kernel = row_kernel_for(problem, execution.machine.isa);
    const std::int64_t x_step = problem.rows.x_stride * size_of(problem.x_dtype);
    const std::int64_t y_step = problem.rows.y_stride * size_of(problem.y_dtype);
    for_each_part(problem, execution, {32 << 10, 1}, [&](const Part& part) {
      for (std::int64_t i = 0; i < part.rows; ++i)
        kernel(part.x + i * x_step, part.y + i * y_step, part.cols, streaming);
    });
    return;
  }
  const BlockKernel kernel = block_kernel_for(problem, execution.machine.isa);
  // As wide as the kernels' blocks. So few rows that their pages stay known while all panels pass:
  // 128 rows reached down to half of what 512 did, 4096 were up to a twelfth slower.
  const Cut cut{256 / size_of(problem.y_dtype), 512};
  for_each_part(problem, execution, cut, [&](const Part& part) {
    kernel({part.x, part.y, part.rows, part.cols, problem.rows.x_stride, problem.cols.y_stride,
            part.next_x},
           streaming);
  });
}

constexpr TransposeVariant kVariants[] = {
    {.name = "simd.in_register",
     .knobs = kSimdKnobs,
     .declines = declines_simd,
     .choose = choose_simd,
     .run = [](const Args&, const Problem& problem, const Plan& plan,
               const Execution& execution) { run_simd(problem, plan, execution); }},
    {.name = "blocked",
     .run = [](const Args&, const Problem& problem, const Plan&,
               const Execution& execution) { run_plain(problem, execution, {32, 32}); }},
    {.name = "scalar",
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           run_plain(problem, execution, {problem.cols.extent, 1});
         }},
};

}  // namespace

std::span<const TransposeVariant> cpu_variants() { return kVariants; }

}  // namespace isobit::transpose
