// SPDX-License-Identifier: Apache-2.0
// A row of the backward pass of any norm on a GPU: what both ways through it do with one.
#pragma once

#include "isobit/norms/cuda_arrays.h"
#include "isobit/norms/cuda_launch.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/norms/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/row_group.h"

namespace isobit::norms {

// x, as RowInRegisters and RowInMemory ask for it.
template <class Real, class T>
struct BackwardSource {
  static constexpr int kElements = kPiece<T>;
  ArrayRow<const T> x;

  ISOBIT_DEVICE bool in_pieces(int cols) const { return x.in_pieces(cols); }
  ISOBIT_DEVICE auto raw(const Place& place) const { return x.raw(place); }
  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kElements]) const {
    x.load(place, piece);
  }
};

// Rows of grad_y, as the rows of x that they stand beside: in registers, or read anew.
template <class Group, class Source, class Real, int kElements, int kBlocks>
class GradientRow {
 public:
  ISOBIT_DEVICE GradientRow(const Source& source, int cols) {
    load_pieces<Group, kBlocks>(source, cols, of_);
  }
  ISOBIT_DEVICE void get(const Place& place, Real (&piece)[kElements]) const {
#pragma unroll
    for (int i = 0; i < kElements; ++i) piece[i] = of_[place.index][i];
  }

 private:
  static constexpr int kPieces = kPiecesOf<Group, kElements>;
  Real of_[kBlocks * kPieces][kElements];
};
template <class Group, class Source, class Real, int kElements>
class GradientRow<Group, Source, Real, kElements, 0> {
 public:
  ISOBIT_DEVICE GradientRow(const Source& source, int) : source_(source) {}
  ISOBIT_DEVICE void get(const Place& place, Real (&piece)[kElements]) const {
    source_.load(place, piece);
  }

 private:
  const Source& source_;
};

inline constexpr MostThreads kBackwardThreads = {384, 256};

// One row of the backward pass. kBlocks: how many blocks of the order a worker keeps in registers;
// 0: none, the row is read anew for each sum.
template <class FormulaOf, class T, class GroupOf, int kBlocksOf>
struct BackwardRows {
  using Formula = FormulaOf;
  using Type = T;
  using Group = GroupOf;
  static constexpr int kBlocks = kBlocksOf;
  static constexpr int kElements = kPiece<T>;
  using Real = RealOf<T>;
  using Scalar = tile::Scalar<Real>;
  using Source = BackwardSource<Real, T>;
  using Memory = typename Group::template Memory<Real>;
  using Adder = typename Group::template Adder<Real>;

  Array<const T> x, grad_sum;
  AnyArray<Real, T> grad_y;
  Array<T> grad_x, grad_residual;
  WeightArray<Real, T> weight;
  const Real *mean, *rstd;
  std::int64_t rows;
  int cols;
  Real eps;
  DropoutMask<Real> dropout;
  bool wants_rows;
  int threads;

  BackwardRows(const BackwardProblem& problem, int threads)
      : x(problem.x),
        grad_sum(problem.grad_sum),
        grad_y(problem.grad_y, problem.grad_y_dtype, problem.dtype),
        grad_x(problem.grad_x),
        grad_residual(problem.grad_residual),
        weight(WeightArray<Real, T>::weight(problem)),
        mean(static_cast<const Real*>(problem.mean)),
        rstd(static_cast<const Real*>(problem.rstd)),
        rows(problem.rows),
        cols(static_cast<int>(problem.cols)),
        eps(static_cast<Real>(problem.eps)),
        dropout(problem.dropout),
        wants_rows(problem.wants_rows()),
        threads(threads) {}

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    return Group::template memory<Real>(carver, threads, blocks_of(cols));
  }

  // Writes the gradients of a row that are wanted, and calls add(place, grad_y, x̂) for what sums
  // over rows are made of. Gives the row's statistics.
  template <class Add>
  ISOBIT_DEVICE Statistics<Real> row(std::int64_t row, Adder& adder, const Memory& memory,
                                     const Add& add) const {
    return this->row(row, Source{x.row(row)}, grad_y.row(row), weight, adder, memory, add);
  }

  // With x, grad_y and weight from where the kernel has them.
  template <class X, class GradY, class Weight, class Add>
  ISOBIT_DEVICE Statistics<Real> row(std::int64_t row, const X& x_row, const GradY& grad_y_row,
                                     const Weight& weight, Adder& adder, const Memory& memory,
                                     const Add& add) const {
    if constexpr (kBlocks > 0) {
      RowInRegisters<Group, Real, kBlocks, Source> row_in(x_row, Source{x.row(row)}, cols, adder,
                                                          memory);
      return gradients(row, row_in, grad_y_row, weight, adder, add);
    } else {
      RowInMemory<Group, Real, Source> row_in(x_row, cols, memory);
      return gradients(row, row_in, grad_y_row, weight, adder, add);
    }
  }

  // Of doubles registers hold the row and the sums over rows, but grad_y is read anew.
  static constexpr bool kReadsTwice = sizeof(Real) == 8;

  // Whether the threads of a row's blocks meet behind their last look at what they were given.
  ISOBIT_DEVICE bool meet() const { return !kReadsTwice && (wants_rows || rstd == nullptr); }

 private:
  template <class Row, class GradY, class Weight, class Add>
  ISOBIT_DEVICE Statistics<Real> gradients(std::int64_t row, Row& row_in, const GradY& grad_y_row,
                                           const Weight& weight, Adder& adder,
                                           const Add& add) const {
    constexpr int kHeld = kReadsTwice ? 0 : kBlocks;
    const GradientRow<Group, GradY, Real, kElements, kHeld> gradient(grad_y_row, cols);
    Statistics<Real> statistics;
    if (rstd != nullptr) {
      statistics = given_statistics(mean == nullptr ? Real(0) : mean[row], rstd[row]);
    } else {
      statistics = statistics_of<Formula>(row_in, cols, eps);
      if (!statistics.plain) adder.begin();  // the long way had an adder of its own
    }
    using Normalise = typename Formula::template Normalise<Scalar>;
    using NormaliseAny = typename Formula::template NormaliseAny<Scalar>;
    if constexpr (kBlocks > 0) {
      const Normalise normalise(row_in.template make_plain<Formula>(statistics));
      write(row, row_in, gradient, weight, normalise, statistics, add);
    } else if (statistics.plain) {
      write(row, row_in, gradient, weight, Normalise(statistics), {}, add);
    } else {
      write(row, row_in, gradient, weight, NormaliseAny(statistics), {}, add);
    }
    return statistics;
  }

  // scaled: by what the gradients that `normalise` gives still are.
  template <class Row, class Gradient, class Weight, class Normalise, class Add>
  ISOBIT_DEVICE void write(std::int64_t row, const Row& row_in, const Gradient& gradient,
                           const Weight& weight, const Normalise& normalise,
                           const Statistics<Real>& scaled, const Add& add) const {
    Real mean_g = 0, mean_gx = 0;
    if (wants_rows) {
      const SumAndDot<Real> sums = row_in.template sum_and_dot<Formula::kCentered>(
          [&](const Place& place, bool whole, const Real(&piece)[kElements], Real(&g)[kElements],
              Real(&xhat)[kElements]) {
            Real w[kElements];
            weight.load(place, w);
            gradient.get(place, g);
#pragma unroll
            for (int i = 0; i < kElements; ++i) g[i] *= w[i];
            detail::map_piece(place, whole, piece, xhat, normalise);
          });
      mean_g = sums.sum / static_cast<Real>(cols);
      mean_gx = sums.dot / static_cast<Real>(cols);
    }
    row_in.for_each_piece([&](const Place& place, const Real(&piece)[kElements]) {
      Real dy[kElements], xhat[kElements];
      gradient.get(place, dy);
#pragma unroll
      for (int i = 0; i < kElements; ++i) xhat[i] = normalise(piece[i]);
      add(place, dy, xhat);
      if (!wants_rows) return;
      Real w[kElements];
      weight.load(place, w);
#pragma unroll
      for (int i = 0; i < kElements; ++i)
        dy[i] = normalise.gradient(dy[i] * w[i], xhat[i], mean_g, mean_gx);
      if (scaled.exponent != 0) [[unlikely]] {
        const Scaling<Scalar> scaling(scaled);
#pragma unroll
        for (int i = 0; i < kElements; ++i) dy[i] = scaling.back(dy[i]);
      }
      finish(row, place, dy);
    });
  }

  ISOBIT_DEVICE void finish(std::int64_t row, const Place& place, Real (&piece)[kElements]) const {
    const ArrayRow<const T> more = grad_sum.row(row);
    const ArrayRow<T> to_residual = grad_residual.row(row), to_x = grad_x.row(row);
    const bool vectors = more.vectors && to_residual.vectors && to_x.vectors;
    if (!vectors || place.left < kElements) return finish_each(row, place, piece);
    if (more) {
      Real added[kElements];
      tile::load_whole(more.data + place.col, added);
#pragma unroll
      for (int i = 0; i < kElements; ++i) piece[i] += added[i];
    }
    if (to_residual) tile::store_whole(to_residual.data + place.col, piece);
    if (dropout.drops) dropout.apply(row, place, piece);
    if (to_x) tile::store_whole(to_x.data + place.col, piece);
  }
  // The same element by element, in one loop for all arrays: it is rare, and shall be short.
  ISOBIT_DEVICE void finish_each(std::int64_t row, const Place& place,
                                 const Real (&piece)[kElements]) const {
    const ArrayRow<const T> more = grad_sum.row(row);
    const ArrayRow<T> to_residual = grad_residual.row(row), to_x = grad_x.row(row);
    const unsigned kept = dropout.drops ? dropout.template kept<kElements>(row, place) : 0;
    const auto finish_one = [&](int i, Real value) {
      if (more) value += simt::Conversions::widen<Real>(more.data[place.col + i]);
      if (to_residual) to_residual.data[place.col + i] = simt::Conversions::narrow<T>(value);
      if (dropout.drops) value = dropout.of(kept >> i, value);
      if (to_x) to_x.data[place.col + i] = simt::Conversions::narrow<T>(value);
    };
    tile::store_each(finish_one, place.left, piece);
  }
};

}  // namespace isobit::norms
