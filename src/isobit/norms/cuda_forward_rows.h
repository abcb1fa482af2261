// SPDX-License-Identifier: Apache-2.0
// A row of the forward pass of any norm on a GPU: what all kernels do with one.
#pragma once

#include <cmath>

#include "isobit/norms/cuda_arrays.h"
#include "isobit/norms/cuda_launch.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/norms/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/piece.h"
#include "isobit/tile/row_group.h"

namespace isobit::norms {

// The row that is normalised: x, or the sum that takes its place, rounded as it is stored. Row:
// where x and residual come from.
template <class Real, class T, class Row = ArrayRow<const T>>
struct ForwardSource {
  static constexpr int kElements = kPiece<T>;
  Row x, residual;
  const DropoutMask<Real>* dropout = nullptr;
  std::int64_t row = 0;

  ISOBIT_DEVICE bool in_pieces(int cols) const {
    return dropout == nullptr && !residual && x.in_pieces(cols);
  }
  ISOBIT_DEVICE auto raw(const Place& place) const { return x.raw(place); }
  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kElements]) const {
    x.load(place, piece);
    if (dropout == nullptr && !residual) return;
    if (dropout != nullptr) dropout->apply(row, place, piece);
    if (residual) {
      Real added[kElements];
      residual.load(place, added);
#pragma unroll
      for (int i = 0; i < kElements; ++i) piece[i] += added[i];
    }
    T rounded[kElements];
    simt::narrow_all(piece, rounded);
    simt::widen_all(rounded, piece);
  }
};

// Weight and bias as they lie in memory.
template <class Real, class T>
struct WeightAndBias {
  WeightArray<Real, T> weight, bias;

  ISOBIT_DEVICE void load(const Place& place, Real (&w)[kPiece<T>], Real (&b)[kPiece<T>]) const {
    weight.load(place, w);
    bias.load(place, b);
  }
};

// kBlocks: of the order, that a worker holds. Warps that hold two are half as many.
template <class Group, int kBlocks = 1>
inline constexpr MostThreads kForwardThreads =
    kBlocks == 2 ? MostThreads{256, 128} : MostThreads{512, 256};
// Whole rows are in their registers, of a warp up to 1024 columns.
template <int kLanes, int kBlocks>
inline constexpr MostThreads kForwardThreads<tile::Lanes<kLanes>, kBlocks> =
    kLanes < simt::kWarpThreads ? MostThreads{512, 512} : MostThreads{256, 256};

// One row of the forward pass. kBlocks: how many blocks of the order a worker keeps in registers;
// 0: none, the row is read anew for each sum.
template <class FormulaOf, class T, class GroupOf, int kBlocksOf>
struct ForwardRows {
  using Formula = FormulaOf;
  using Type = T;
  using Group = GroupOf;
  static constexpr int kBlocks = kBlocksOf;
  using Real = RealOf<T>;
  using Scalar = tile::Scalar<Real>;
  using Source = ForwardSource<Real, T>;
  static constexpr int kElements = Source::kElements;
  using Memory = typename Group::template Memory<Real>;
  using Adder = typename Group::template Adder<Real>;

  Array<const T> x, residual;
  Array<T> sum;
  AnyArray<Real, T> y;
  WeightAndBias<Real, T> weights;
  Real *mean, *rstd;
  std::int64_t rows;
  int cols;
  Real eps;
  DropoutMask<Real> dropout;
  int threads;

  ForwardRows(const ForwardProblem& problem, int threads)
      : x(problem.x),
        residual(problem.residual),
        sum(problem.sum),
        y(problem.y, problem.y_dtype, problem.dtype),
        weights{WeightArray<Real, T>::weight(problem), WeightArray<Real, T>::bias(problem)},
        mean(static_cast<Real*>(problem.mean)),
        rstd(static_cast<Real*>(problem.rstd)),
        rows(problem.rows),
        cols(static_cast<int>(problem.cols)),
        eps(static_cast<Real>(problem.eps)),
        dropout(problem.dropout),
        threads(threads) {}

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    return Group::template memory<Real>(carver, threads, blocks_of(cols));
  }

  ISOBIT_DEVICE void row(std::int64_t row, Adder& adder, const Memory& memory) const {
    this->row(row, x.row(row), residual.row(row), weights, adder, memory);
  }

  // With x, residual, weight and bias from where the kernel has them.
  template <class Row, class Weights>
  ISOBIT_DEVICE void row(std::int64_t row, const Row& x_row, const Row& residual_row,
                         const Weights& weights, Adder& adder, const Memory& memory) const {
    const DropoutMask<Real>* const drops = dropout.drops ? &dropout : nullptr;
    const ForwardSource<Real, T, Row> first{x_row, residual_row, drops, row};
    // A sum that was stored may lie where x or residual did.
    const Source again = sum.data == nullptr ? Source{x.row(row), residual.row(row), drops, row}
                                             : Source{{sum.row(row).data, sum.vectors}, {}};
    if constexpr (kBlocks > 0) {
      RowInRegisters<Group, Real, kBlocks, Source> row_in(first, again, cols, adder, memory);
      store_sum(row, row_in);
      const Statistics<Real> statistics = statistics_of<Formula>(row_in, cols, eps);
      if (!statistics.plain) adder.begin();  // the long way had an adder of its own
      const Statistics<Real> plain = row_in.template make_plain<Formula>(statistics);
      write(row, row_in, typename Formula::template Normalise<Scalar>(plain), weights);
      save(row, statistics);
    } else {
      store_sum(row, RowInMemory<Group, Real, Source>(first, cols, memory));
      const RowInMemory<Group, Real, Source> row_in(again, cols, memory);
      const Statistics<Real> statistics = statistics_of<Formula>(row_in, cols, eps);
      if (statistics.plain)
        write(row, row_in, typename Formula::template Normalise<Scalar>(statistics), weights);
      else
        write_rare(row, row_in, statistics);
      save(row, statistics);
    }
  }

 private:
  template <class Row>
  ISOBIT_DEVICE void store_sum(std::int64_t row, const Row& row_in) const {
    if (sum.data == nullptr) return;
    const ArrayRow<T> to = sum.row(row);
    row_in.for_each_piece(
        [&](const Place& place, const Real(&piece)[kElements]) { to.store(place, piece); });
  }

  ISOBIT_DEVICE void save(std::int64_t row, const Statistics<Real>& statistics) const {
    if (Group::leads()) {
      if (mean != nullptr) mean[row] = narrow<Real>(statistics.saved_mean);
      if (rstd != nullptr) rstd[row] = narrow<Real>(statistics.saved_rstd);
    }
  }

  // Rows that are not usual go the long way, out of line.
  template <class Row>
  ISOBIT_DEVICE_NOINLINE void write_rare(std::int64_t row, const Row& row_in,
                                         Statistics<Real> statistics) const {
    write(row, row_in, typename Formula::template NormaliseAny<Scalar>(statistics), weights);
  }

  template <class Row, class Normalise, class Weights>
  ISOBIT_DEVICE void write(std::int64_t row, const Row& row_in, const Normalise& normalise,
                           const Weights& weights) const {
    const AnyRow<Real, T> to = y.row(row);
    row_in.for_each_piece([&](const Place& place, const Real(&piece)[kElements]) {
      Real w[kElements], b[kElements], result[kElements];
      weights.load(place, w, b);
#pragma unroll
      for (int i = 0; i < kElements; ++i) result[i] = std::fma(normalise(piece[i]), w[i], b[i]);
      to.store(place, result);
    });
  }
};

}  // namespace isobit::norms
