// SPDX-License-Identifier: Apache-2.0
// A call as the kernels for GPUs see it: where its elements are, what becomes of a sum, and how the
// tiles of y are numbered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "isobit/core/order.h"
#include "isobit/ops/matmul/formula.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/scalar.h"

namespace isobit::matmul {

template <class T>
using RealOf = std::conditional_t<sizeof(T) == 8, double, float>;

constexpr std::int64_t kRunK = std::int64_t{order::kPanel} * order::kRun;

// The panels of the longest run of k.
constexpr std::int64_t panels_of_run(std::int64_t k) {
  return ((k < kRunK ? k : kRunK) + order::kPanel - 1) / order::kPanel;
}

// One array of a call.
struct Operand {
  std::byte* data;
  DType dtype;
  std::int64_t row, col, steps[kMaxRank];

  ISOBIT_DEVICE std::int64_t at(std::int64_t i, std::int64_t j) const { return i * row + j * col; }
};

template <class Real>
ISOBIT_DEVICE Real read(const Operand& operand, std::int64_t at) {
  using C = simt::Conversions;
  if constexpr (sizeof(Real) == 8) {
    return reinterpret_cast<const double*>(operand.data)[at];
  } else {
    switch (operand.dtype) {
      case DType::f16:
        return C::template widen<Real>(reinterpret_cast<const f16*>(operand.data)[at]);
      case DType::bf16:
        return C::template widen<Real>(reinterpret_cast<const bf16*>(operand.data)[at]);
      default: return reinterpret_cast<const float*>(operand.data)[at];
    }
  }
}
template <class Real>
ISOBIT_DEVICE void write(const Operand& operand, std::int64_t at, Real value) {
  using C = simt::Conversions;
  if constexpr (sizeof(Real) == 8) {
    reinterpret_cast<double*>(operand.data)[at] = C::template narrow<double>(value);
  } else {
    switch (operand.dtype) {
      case DType::f16:
        reinterpret_cast<f16*>(operand.data)[at] = C::template narrow<f16>(value);
        break;
      case DType::bf16:
        reinterpret_cast<bf16*>(operand.data)[at] = C::template narrow<bf16>(value);
        break;
      default: reinterpret_cast<float*>(operand.data)[at] = C::template narrow<float>(value); break;
    }
  }
}

// All of a call whose elements of a and b are Ts.
template <class T>
struct Call {
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;

  Operand a, b, bias, c, residual, y, pre;
  std::int64_t extents[kMaxRank];
  int loops;
  std::int64_t products, m, n, k;
  Real alpha, beta;
  Activation activation;

  explicit Call(const Problem& problem)
      : loops(problem.loop_count),
        products(problem.products()),
        m(problem.m),
        n(problem.n),
        k(problem.k),
        alpha(static_cast<Real>(problem.alpha)),
        beta(static_cast<Real>(problem.beta)),
        activation(problem.activation) {
    Operand* const operands[] = {&a, &b, &bias, &c, &residual, &y, &pre};
    for (std::size_t i = 0; i < std::size(operands); ++i) {
      const Array& array = problem.first.*Arrays::kAll[i];
      *operands[i] = {array.data, array.dtype, array.row, array.col, {}};
      for (int loop = 0; loop < loops; ++loop)
        operands[i]->steps[loop] = problem.loops[static_cast<std::size_t>(loop)].steps[i];
    }
    for (int loop = 0; loop < loops; ++loop)
      extents[loop] = problem.loops[static_cast<std::size_t>(loop)].extent;
  }

  ISOBIT_EITHER std::int64_t runs() const { return k <= kRunK ? 1 : (k + kRunK - 1) / kRunK; }

  // Where a product's elements begin.
  ISOBIT_DEVICE std::int64_t start(const Operand& operand, std::int64_t product) const {
    std::int64_t at = 0;
#pragma unroll 1
    for (int i = loops - 1; i >= 0; --i) {
      const std::int64_t rest = product / extents[i];
      at += (product - rest * extents[i]) * operand.steps[i];
      product = rest;
    }
    return at;
  }
  ISOBIT_DEVICE const T* of_a(std::int64_t product) const {
    return reinterpret_cast<const T*>(a.data) + start(a, product);
  }
  ISOBIT_DEVICE const T* of_b(std::int64_t product) const {
    return reinterpret_cast<const T*>(b.data) + start(b, product);
  }

  // What becomes of one sum.
  ISOBIT_DEVICE void finish(std::int64_t product, std::int64_t i, std::int64_t j, Real sum) const {
    if (alpha != Real(1)) sum = S::mul(alpha, sum);
    if (c.data != nullptr) sum = S::fma(beta, read<Real>(c, start(c, product) + c.at(i, j)), sum);
    if (bias.data != nullptr) sum = S::add(sum, read<Real>(bias, bias.at(i, j)));
    if (pre.data != nullptr) write(pre, start(pre, product) + pre.at(i, j), sum);
    Real value = activated<S>(activation, sum);
    if (residual.data != nullptr)
      value = S::add(value, read<Real>(residual, start(residual, product) + residual.at(i, j)));
    write(y, start(y, product) + y.at(i, j), value);
  }
};

template <class Real, class T>
ISOBIT_DEVICE Real wide(T value) {
  return simt::Conversions::template widen<Real>(value);
}

// A tile of one product, and a run of its k, or one part of that.
struct Tile {
  std::int64_t product, run, row, col;
  int part = 0;
};

// All tiles of a call, of `side` rows and columns: those of one run beside each other, along rows
// of y.
struct Tiles {
  std::int64_t products, runs, down, across;
  int side, parts;  // of a run of k
  int panels, all;  // of a part, of which the last have fewer or none; of k

  // No more parts than a run has panels.
  template <class T>
  Tiles(const Call<T>& call, int side, int splits = 1)
      : products(call.products),
        runs(call.runs()),
        down((call.m + side - 1) / side),
        across((call.n + side - 1) / side),
        side(side),
        parts(parts_of(call.k, splits)),
        panels(static_cast<int>((panels_of_run(call.k) + parts - 1) / parts)),
        all(static_cast<int>((call.k + order::kPanel - 1) / order::kPanel)) {}
  static int parts_of(std::int64_t k, int splits) {
    return static_cast<int>(
        std::clamp<std::int64_t>(splits, 1, std::max<std::int64_t>(1, panels_of_run(k))));
  }
  ISOBIT_EITHER std::int64_t count() const { return products * runs * parts * down * across; }
  ISOBIT_DEVICE Tile operator[](std::int64_t index) const {
    const std::int64_t line = index / across, of_part = line / down, of_run = of_part / parts;
    const std::int64_t product = of_run / runs;
    return {product, of_run - product * runs, (line - of_part * down) * side,
            (index - line * across) * side, static_cast<int>(of_part - of_run * parts)};
  }
  // Behind the last panel of a tile whose first this is.
  ISOBIT_DEVICE int end_of(const Tile& tile, int first) const {
    const int of_part = first + panels, of_run = static_cast<int>(tile.run + 1) * order::kRun;
    return of_part < of_run ? (of_part < all ? of_part : all) : (of_run < all ? of_run : all);
  }
};

// Calls run(T{}) with the type of a's elements, where there is anything to do.
template <class Run>
void with_type(const Problem& problem, const Run& run) {
  if (problem.empty()) return;
  switch (problem.dtype()) {
    case DType::f16:  return run(f16{});
    case DType::bf16: return run(bf16{});
    case DType::f64:  return run(double{});
    default:          return run(float{});
  }
}

template <class Body>
void with_bool(bool value, const Body& body) {
  value ? body(std::true_type{}) : body(std::false_type{});
}

template <class Kernel>
void launch(const Kernel& kernel, std::int64_t blocks, int threads, const Execution& execution) {
  simt::launch(static_cast<simt::Stream>(execution.stream),
               {.blocks = std::min(blocks, simt::kMostBlocks), .threads = threads}, kernel);
}

}  // namespace isobit::matmul
