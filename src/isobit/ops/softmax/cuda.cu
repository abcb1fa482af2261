// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: a warp or a block takes a row, for its largest element, the sum, and the
// results; what it reads again is in the caches. Sums are in the order of core/order.h.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "isobit/dispatch/threads.h"
#include "isobit/norms/cuda_arrays.h"
#include "isobit/norms/cuda_launch.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/ops/softmax/formula.h"
#include "isobit/ops/softmax/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/row_group.h"
#include "isobit/tile/scalar.h"

namespace isobit::softmax {
namespace {

using norms::AnyArray;
using norms::AnyRow;
using norms::Array;
using norms::ArrayRow;
using norms::RealOf;
using tile::kPiece;
using tile::Place;

// Which elements of a row are there.
struct MaskRow {
  const std::byte* data;

  ISOBIT_DEVICE explicit operator bool() const { return data != nullptr; }
  ISOBIT_DEVICE bool has(const Place& place, int i) const {
    return i < place.left && (data == nullptr || data[place.col + i] != std::byte{0});
  }
};
struct Mask {
  const std::byte* data;
  std::int64_t stride;

  explicit Mask(const Matrix& matrix) : data(matrix.data), stride(matrix.stride) {}
  ISOBIT_DEVICE MaskRow row(std::int64_t row) const {
    return {data == nullptr ? nullptr : data + row * stride};
  }
};

// The elements of a row, or `absent` in their place, all times `sign`.
template <class Real, class T>
struct Source {
  static constexpr int kElements = kPiece<T>;
  ArrayRow<const T> array;
  MaskRow mask;
  Real sign, absent;

  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kElements]) const {
    array.load(place, piece);
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      piece[i] = !mask || mask.has(place, i) ? piece[i] * sign : absent;
  }
};

// A row of the forward pass.
template <class TOf, class GroupOf>
struct ForwardRows {
  using T = TOf;
  using Group = GroupOf;
  using Real = RealOf<T>;
  using Scalar = tile::Scalar<Real>;
  using Memory = typename Group::template Memory<Real>;
  static constexpr int kElements = kPiece<T>;
  static constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

  Array<const T> x;
  Mask mask;
  AnyArray<Real, T> y;
  std::int64_t rows;
  int cols;
  double scale;
  bool log;

  explicit ForwardRows(const ForwardProblem& problem)
      : x(problem.x),
        mask(problem.mask),
        y(problem.y, problem.y_dtype, problem.x_dtype),
        rows(problem.rows),
        cols(static_cast<int>(problem.cols)),
        scale(problem.scale),
        log(problem.log) {}

  ISOBIT_DEVICE void row(std::int64_t index, const Memory& memory) const {
    const auto factor = Scale<Real>::of(scale);
    const MaskRow there = mask.row(index);
    const Source<Real, T> source{x.row(index), there, factor.sign, -kInfinity};
    const norms::RowInMemory<Group, Real, Source<Real, T>> row(source, cols, memory);
    const Real largest = row.extremes().highest;
    const auto sum_of = [&](const auto& term) {
      return row
          .template sum_and_dot<false>([&](const Place& place, bool, const Real(&piece)[kElements],
                                           Real(&a)[kElements], Real(&b)[kElements]) {
#pragma unroll
            for (int i = 0; i < kElements; ++i) {
              a[i] = i < place.left ? term(place, piece[i], i) : Real(0);
              b[i] = 1;
            }
          })
          .dot;
    };
    // The sign is in what the source gives.
    const Scale<Real> size{1, factor.head, factor.rest};
    const AnyRow<Real, T> to = y.row(index);
    const auto write = [&](const auto& value) {
      row.for_each_piece([&](const Place& place, const Real(&piece)[kElements]) {
        Real result[kElements];
#pragma unroll
        for (int i = 0; i < kElements; ++i) result[i] = value(piece[i]);
        to.store(place, result);
      });
    };
    if (there && largest == -kInfinity) {
      const Real count = sum_of(
          [&](const Place& place, Real, int i) { return there.has(place, i) ? Real(1) : Real(0); });
      if (count == 0) return write([&](Real) { return log ? -kInfinity : Real(0); });
    }
    const auto exponent = [&](Real element) { return exponent_of<Scalar>(size, element, largest); };
    const Real sum = sum_of(
        [&](const Place&, Real element, int) { return weight_of<Scalar>(exponent(element)); });
    if (log) {
      const Real log_of_sum = functions::log<Scalar>(sum);
      write([&](Real element) { return log_of<Scalar>(exponent(element), log_of_sum); });
    } else {
      const Real inverse = Real(1) / sum;
      write([&](Real element) { return weight_of<Scalar>(exponent(element)) * inverse; });
    }
  }
};

// A row of the backward pass; T is the type of y.
template <class TOf, class GroupOf>
struct BackwardRows {
  using T = TOf;
  using Group = GroupOf;
  using Real = RealOf<T>;
  using Scalar = tile::Scalar<Real>;
  using Memory = typename Group::template Memory<Real>;
  static constexpr int kElements = kPiece<T>;

  Array<const T> y, grad_y;
  Mask mask;
  AnyArray<Real, T> grad_x;
  std::int64_t rows;
  int cols;
  double scale;
  bool log;

  explicit BackwardRows(const BackwardProblem& problem)
      : y(problem.y),
        grad_y(problem.grad_y),
        mask(problem.mask),
        grad_x(problem.grad_x, problem.x_dtype, problem.y_dtype),
        rows(problem.rows),
        cols(static_cast<int>(problem.cols)),
        scale(problem.scale),
        log(problem.log) {}

  ISOBIT_DEVICE void row(std::int64_t index, const Memory& memory) const {
    const MaskRow there = mask.row(index);
    const Source<Real, T> source{grad_y.row(index), there, 1, 0};
    const ArrayRow<const T> y_row = y.row(index);
    const norms::RowInMemory<Group, Real, Source<Real, T>> row(source, cols, memory);
    const Real sum =
        row.template sum_and_dot<false>([&](const Place& place, bool, const Real(&piece)[kElements],
                                            Real(&a)[kElements], Real(&b)[kElements]) {
             if (!log) y_row.load(place, b);
#pragma unroll
             for (int i = 0; i < kElements; ++i) {
               a[i] = piece[i];
               b[i] = !there.has(place, i) ? Real(0) : log ? Real(1) : b[i];
             }
           })
            .dot;
    const AnyRow<Real, T> to = grad_x.row(index);
    const Real factor = static_cast<Real>(scale);
    row.for_each_piece([&](const Place& place, const Real(&piece)[kElements]) {
      Real own[kElements], result[kElements];
      y_row.load(place, own);
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const Real value = log ? gradient<Scalar, true>(factor, own[i], piece[i], sum)
                               : gradient<Scalar, false>(factor, own[i], piece[i], sum);
        result[i] = there.has(place, i) ? value : Real(0);
      }
      to.store(place, result);
    });
  }
};

constexpr int kMostThreads = 512;

template <class Rows>
struct Kernel {
  using Group = typename Rows::Group;
  static constexpr int kMostThreads = softmax::kMostThreads;

  Rows rows;
  int threads;

  template <class Carver>
  ISOBIT_EITHER typename Rows::Memory memory(Carver& carver) const {
    return Group::template memory<typename Rows::Real>(carver, threads,
                                                       norms::blocks_of(rows.cols));
  }
  ISOBIT_DEVICE void operator()(const typename Rows::Memory& memory) const {
    for (std::int64_t row = Group::group(); row < rows.rows; row += Group::groups())
      rows.row(row, memory);
  }
};

constexpr int kTurns[] = {0, 1, 2, 4, 8};
constexpr Knob kKnobs[] = {
    threads_knob(kMostThreads),
    {"blocks", kTurns, "blocks per multiprocessor, which take rows in turn; 0: one turn per block"},
};

template <template <class, class> class Rows, class Group, class Problem>
void launch(const Problem& problem, DType dtype, const Plan& plan, const Execution& execution) {
  if (problem.rows == 0) return;
  norms::with_type(dtype, [&]<class T>(Type<T>) {
    using Of = Rows<T, Group>;
    simt::launch(static_cast<simt::Stream>(execution.stream),
                 {.blocks = norms::blocks_for(problem.rows, Group::groups_of_block(plan[0]), 1,
                                              plan[1], execution.machine),
                  .threads = plan[0]},
                 Kernel<Of>{Of(problem), plan[0]});
  });
}

template <class Group>
void run_in(const ForwardArgs&, const ForwardProblem& problem, const Plan& plan,
            const Execution& execution) {
  launch<ForwardRows, Group>(problem, problem.x_dtype, plan, execution);
}
template <class Group>
void run_in(const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
            const Execution& execution) {
  launch<BackwardRows, Group>(problem, problem.y_dtype, plan, execution);
}

// Columns are counted in 32 bits, and a block adds the sums of each 512 in shared memory.
template <class Problem>
std::string too_wide_for_a_warp(const Problem& problem, const Machine&) {
  return norms::wider_than(1 << 30, problem.cols, "a count of 32 bits");
}
template <class Problem>
std::string too_wide_for_a_block(const Problem& problem, const Machine& machine) {
  return norms::wider_than_streams(problem.cols, problem.y_dtype, machine);
}

template <class Args, class Problem>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "row_per_warp",
     .knobs = kKnobs,
     .declines = too_wide_for_a_warp<Problem>,
     .suits = [](const Problem& problem, const Machine&) { return problem.cols <= 1024; },
     .choose = [](const Problem&, const Machine&) -> Plan { return {128, 0}; },
     .run =
         [](const Args& args, const Problem& problem, const Plan& plan,
            const Execution& execution) {
           run_in<tile::Lanes<simt::kWarpThreads>>(args, problem, plan, execution);
         }},
    {.name = "row_per_block",
     .knobs = kKnobs,
     .declines = too_wide_for_a_block<Problem>,
     .choose = [](const Problem&, const Machine&) -> Plan { return {256, 0}; },
     .run =
         [](const Args& args, const Problem& problem, const Plan& plan,
            const Execution& execution) {
           run_in<tile::BlockOfWarps>(args, problem, plan, execution);
         }},
};

}  // namespace

std::span<const ForwardVariant> cuda_forward_variants() {
  return kVariants<ForwardArgs, ForwardProblem>;
}
std::span<const BackwardVariant> cuda_backward_variants() {
  return kVariants<BackwardArgs, BackwardProblem>;
}

}  // namespace isobit::softmax
