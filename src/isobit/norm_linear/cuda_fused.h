// SPDX-License-Identifier: Apache-2.0
// Norms in the tiles of products on GPUs: the statistics of all rows first; then an operand of the
// product is normalised while a tile of it comes to shared memory, and is stored nowhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "isobit/core/pieces.h"
#include "isobit/norm_linear/unfused.h"
#include "isobit/norms/cuda_forward_rows.h"
#include "isobit/norms/cuda_launch.h"
#include "isobit/ops/matmul/cuda_slopes.h"
#include "isobit/ops/matmul/cuda_tiles.h"

namespace isobit::norm_linear {

// The statistics of rows, one row a block at a time; and the sum that takes the place of x, where
// it is asked for.
template <class Formula, class T>
struct RowStatistics {
  using Group = tile::BlockOfWarps;
  static constexpr int kMostThreads = norms::kForwardThreads<Group>.template of<norms::RealOf<T>>();
  using Real = norms::RealOf<T>;
  using Source = norms::ForwardSource<Real, T>;
  using Row = norms::RowInMemory<Group, Real, Source>;
  using Memory = typename Group::template Memory<Real>;

  norms::Array<const T> x, residual;
  norms::Array<T> sum;
  Real *mean, *rstd;
  norms::Statistics<Real>* statistics;
  std::int64_t rows;
  int cols;
  Real eps;
  norms::DropoutMask<Real> dropout;

  RowStatistics(const norms::ForwardProblem& problem, norms::Statistics<Real>* statistics)
      : x(problem.x),
        residual(problem.residual),
        sum(problem.sum),
        mean(static_cast<Real*>(problem.mean)),
        rstd(static_cast<Real*>(problem.rstd)),
        statistics(statistics),
        rows(problem.rows),
        cols(static_cast<int>(problem.cols)),
        eps(static_cast<Real>(problem.eps)),
        dropout(problem.dropout) {}

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    return Group::template memory<Real>(carver, kMostThreads, norms::blocks_of(cols));
  }

  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    for (std::int64_t row = Group::group(); row < rows; row += Group::groups()) {
      const Source given{x.row(row), residual.row(row), dropout.drops ? &dropout : nullptr, row};
      if (sum.data != nullptr) {
        const norms::ArrayRow<T> to = sum.row(row);
        Row(given, cols, memory).for_each_piece([&](const tile::Place& place, const auto& piece) {
          to.store(place, piece);
        });
      }
      // A sum that was stored may lie where x or residual did.
      const Source again =
          sum.data == nullptr ? given : Source{{sum.row(row).data, sum.vectors}, {}};
      const norms::Statistics<Real> found =
          norms::statistics_of<Formula>(Row(again, cols, memory), cols, eps);
      if (!Group::leads()) continue;
      statistics[row] = found;
      if (mean != nullptr) mean[row] = narrow<Real>(found.saved_mean);
      if (rstd != nullptr) rstd[row] = narrow<Real>(found.saved_rstd);
    }
  }
};

// Normalised rows as an operand of T: as rows of a, or as columns of b, of which they are the k.
template <class Formula, class T, bool kAsRows>
struct NormalisedOperand {
  using Real = matmul::RealOf<T>;
  using S = tile::Scalar<Real>;
  matmul::Operand x, weight, bias;
  const norms::Statistics<Real>* statistics;
  std::int64_t rows, cols;
  bool one_less;

  NormalisedOperand(const norms::ForwardProblem& norm, const std::byte* statistics)
      : x{norm.x.data, norm.dtype, norm.x.stride, 1, {}},
        weight(of_columns(norm.weight, norm)),
        bias(of_columns(norm.bias, norm)),
        statistics(reinterpret_cast<const norms::Statistics<Real>*>(statistics)),
        rows(norm.rows),
        cols(norm.cols),
        one_less(norm.zero_centered) {
    if (norm.sum) x = {norm.sum.data, norm.dtype, norm.sum.stride, 1, {}};
  }

  // Those of a tile.
  struct Lanes {
    const NormalisedOperand& all;
    std::int64_t first;

    template <int kSide, int kDepth, int kPitch>
    ISOBIT_DEVICE void bring(std::int64_t k, std::int64_t depth, Real* to) const {
      const std::int64_t lanes = (kAsRows ? all.rows : all.cols) - first;
#pragma unroll 1
      for (int i = simt::thread(); i < kSide * kDepth; i += simt::threads()) {
        // Columns are adjacent.
        const int lane = kAsRows ? i / kDepth : i % kSide, at = kAsRows ? i % kDepth : i / kSide;
        Real value = 0;
        if (lane < lanes && at < depth)
          value = kAsRows ? all.at(first + lane, k + at) : all.at(k + at, first + lane);
        to[at * kPitch + lane] = value;
      }
    }
  };
  ISOBIT_DEVICE Lanes of(const matmul::Call<T>&, const matmul::Tile& tile) const {
    return {*this, kAsRows ? tile.row : tile.col};
  }

 private:
  static matmul::Operand of_columns(const void* data, const norms::ForwardProblem& norm) {
    return {static_cast<std::byte*>(const_cast<void*>(data)), norm.weight_dtype, 0, 1, {}};
  }

  // As the norm stores it, widened again.
  ISOBIT_DEVICE Real at(std::int64_t row, std::int64_t col) const {
    const norms::Statistics<Real>& found = statistics[row];
    const Real element = matmul::read<Real>(x, x.at(row, col));
    const Real xhat = found.plain ? typename Formula::template Normalise<S>(found)(element)
                                  : typename Formula::template NormaliseAny<S>(found)(element);
    Real w = 1, b = Real(-0.0);  // what is absent
    if (weight.data != nullptr) w = matmul::read<Real>(weight, col) + Real(one_less ? 1 : 0);
    if (bias.data != nullptr) b = matmul::read<Real>(bias, col);
    return matmul::wide<Real>(simt::Conversions::template narrow<T>(std::fma(xhat, w, b)));
  }
};

// What both passes do before a product.
template <class Formula>
struct Statistics {
  static std::int64_t bytes(const norms::ForwardProblem& norm) {
    return norm.rows * static_cast<std::int64_t>(norm.dtype == DType::f64
                                                     ? sizeof(norms::Statistics<double>)
                                                     : sizeof(norms::Statistics<float>));
  }
  static std::string declines(const norms::ForwardProblem& norm, const Machine& machine) {
    return norms::wider_than_streams(norm.cols, norm.dtype, machine);
  }
  static void run(const norms::ForwardProblem& norm, std::byte* to, const Execution& execution) {
    if (norm.rows == 0) return;
    norms::with_type(norm.dtype, [&]<class T>(Type<T>) {
      using Kernel = RowStatistics<Formula, T>;
      simt::launch(static_cast<simt::Stream>(execution.stream),
                   {.blocks = norms::blocks_for(norm.rows, 1, 1, 0, execution.machine),
                    .threads = Kernel::kMostThreads},
                   Kernel(norm, reinterpret_cast<norms::Statistics<typename Kernel::Real>*>(to)));
    });
  }
};

template <class Fused>
struct FusedForward {
  using Args = typename Fused::ForwardArgs;
  using Formula = typename Fused::Norm::Formula;
  using Statistics = norm_linear::Statistics<Formula>;

  static matmul::Problem product(const ForwardProblem& problem) {
    return product_of(problem, problem.product.y_at(nullptr));
  }
  static std::string declines(const ForwardProblem& problem, const Machine& machine) {
    if (problem.product.arithmetic == matmul::Arithmetic::tensor) return "has no tensor arithmetic";
    if (problem.norm.y) return "y is asked for, which it does not store";
    if (problem.norm.composes() && !problem.norm.sum) return "needs sum, where x is not normalised";
    return Statistics::declines(problem.norm, machine);
  }
  static Plan choose(const ForwardProblem& problem, const Machine& machine) {
    return matmul::choose_tile(product(problem), machine);
  }
  static std::size_t workspace(const ForwardProblem& problem, const Plan&, const Machine&) {
    return Room(problem).pieces.taken();
  }
  static void run(const Args&, const ForwardProblem& problem, const Plan& plan,
                  const Execution& execution) {
    const Room room(problem, execution.workspace);
    Statistics::run(problem.norm, room.statistics, execution);
    Execution of_product = execution;
    of_product.workspace = room.runs;
    matmul::run_in_registers(
        product(problem), plan, of_product,
        [&]<class T>(T) {
          return NormalisedOperand<Formula, T, true>(problem.norm, room.statistics);
        },
        []<class T>(T) { return matmul::ColumnsOfB<T>(); });
  }

 private:
  struct Room {
    Pieces pieces;
    std::byte *statistics, *runs;

    explicit Room(const ForwardProblem& problem, std::byte* memory = nullptr)
        : pieces(memory),
          statistics(pieces.take(Statistics::bytes(problem.norm))),
          runs(pieces.take(static_cast<std::int64_t>(matmul::room_for_runs(product(problem))))) {}
  };
};

// The columns of s as rows of a, of a product whose k are the rows of s.
template <class T>
struct SlopesAsColumns {
  using Real = matmul::RealOf<T>;
  matmul::Slopes<T> slopes;

  struct Lanes {
    const matmul::Slopes<T>& slopes;
    std::int64_t first;

    template <int kSide, int kDepth, int kPitch>
    ISOBIT_DEVICE void bring(std::int64_t k, std::int64_t depth, Real* to) const {
#pragma unroll 1
      for (int i = simt::thread(); i < kSide * kDepth; i += simt::threads()) {
        const int lane = i % kSide, at = i / kSide;
        const bool there = first + lane < slopes.call.n && at < depth;
        to[at * kPitch + lane] = there ? slopes(k + at, first + lane) : Real(0);
      }
    }
  };
  ISOBIT_DEVICE Lanes of(const matmul::Call<T>&, const matmul::Tile& tile) const {
    return {slopes, tile.row};
  }
};

// The gradient of the weight of rows that are normalised again; the others one after the other.
template <class Fused, class Tables>
struct FusedBackward {
  using Args = typename Fused::BackwardArgs;
  using Formula = typename Fused::Norm::Formula;
  using Statistics = norm_linear::Statistics<Formula>;
  using Others = UnfusedBackward<Tables>;

  static std::string declines(const BackwardProblem& problem, const Machine& machine) {
    if (problem.product.arithmetic == matmul::Arithmetic::tensor) return "has no tensor arithmetic";
    if (!problem.grad_weight.given()) return "grad_weight is not asked for, the one that is fused";
    return Statistics::declines(problem.again, machine);
  }
  static Plan choose(const BackwardProblem& problem, const Machine& machine) {
    return matmul::choose_tile(product(problem), machine);
  }
  static std::size_t workspace(const BackwardProblem& problem, const Plan&,
                               const Machine& machine) {
    Pieces pieces;
    const Room room(problem, pieces);
    const Others others(room.others, machine, pieces);
    return pieces.taken();
  }
  static void run(const Args&, const BackwardProblem& problem, const Plan& plan,
                  const Execution& execution) {
    Pieces pieces(execution.workspace);
    const Room room(problem, pieces);
    const Others others(room.others, execution.machine, pieces);
    Statistics::run(problem.again, room.statistics, execution);
    Execution of_product = execution;
    of_product.workspace = room.runs;
    matmul::run_in_registers(
        product(problem), plan, of_product,
        [&]<class T>(T) {
          return SlopesAsColumns<T>{matmul::Slopes<T>(gradient_of_bias(problem))};
        },
        [&]<class T>(T) {
          return NormalisedOperand<Formula, T, false>(problem.again, room.statistics);
        });
    others.run(execution);  // grad_x may be x
  }

 private:
  static matmul::Problem product(const BackwardProblem& problem) {
    return gradient_of_weight(problem, problem.product.y_at(nullptr));
  }
  struct Room {
    BackwardProblem others;
    std::byte *statistics, *runs;

    Room(const BackwardProblem& problem, Pieces& pieces)
        : others(problem),
          statistics(pieces.take(Statistics::bytes(problem.again))),
          runs(pieces.take(static_cast<std::int64_t>(matmul::room_for_runs(product(problem))))) {
      others.grad_weight = {};
    }
  };
};

}  // namespace isobit::norm_linear
