// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: a warp or a block takes a row, for its largest element and the sums; what
// it reads again is in the caches. A launch of its own adds up rows.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "isobit/dispatch/threads.h"
#include "isobit/norms/cuda_arrays.h"
#include "isobit/norms/cuda_launch.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/ops/cross_entropy/cuda_totals.h"
#include "isobit/ops/cross_entropy/formula.h"
#include "isobit/ops/cross_entropy/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/row_group.h"
#include "isobit/tile/scalar.h"

namespace isobit::cross_entropy {
namespace {

using norms::Array;
using norms::ArrayRow;
using norms::RealOf;
using tile::kPiece;
using tile::Place;

template <class T>
struct Source {
  static constexpr int kElements = kPiece<T>;
  ArrayRow<const T> array;

  template <class Real>
  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kElements]) const {
    array.load(place, piece);
  }
};

// The classes' weights, all 1 where they are not given.
template <class Real>
struct Weights {
  const Real* data;
  int cols;

  explicit Weights(const Given& given)
      : data(reinterpret_cast<const Real*>(given.weight)), cols(static_cast<int>(given.cols)) {}

  ISOBIT_DEVICE Real at(int col) const {
    return data == nullptr ? Real(1) : simt::load(data + col);
  }
  template <int kElements>
  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kElements]) const {
#pragma unroll
    for (int i = 0; i < kElements; ++i) piece[i] = i < place.left ? at(place.col + i) : Real(0);
  }
};

// The class that each row should have named.
template <class Real>
struct Targets {
  const std::int64_t* data;
  std::int64_t ignore_index;
  Weights<Real> weights;

  explicit Targets(const Given& given)
      : data(given.target), ignore_index(given.ignore_index), weights(given) {}

  ISOBIT_DEVICE std::int64_t at(std::int64_t row) const { return simt::load(data + row); }
  ISOBIT_DEVICE bool ignored(std::int64_t target) const { return target == ignore_index; }
  ISOBIT_DEVICE bool exists(std::int64_t target) const {
    return target >= 0 && target < weights.cols;
  }
  // Nothing is read at what is no class.
  ISOBIT_DEVICE Real weight(std::int64_t target) const {
    if (ignored(target)) return 0;
    if (!exists(target)) return std::numeric_limits<Real>::quiet_NaN();
    return weights.at(static_cast<int>(target));
  }
};

// The sum of terms(place, piece, a, b), which are products a b.
template <class Real, class Row, class Terms>
ISOBIT_DEVICE Real sum_of(const Row& row, const Terms& terms) {
  return row
      .template sum_and_dot<false>([&](const Place& place, bool, const auto& piece, auto& a,
                                       auto& b) { terms(place, piece, a, b); })
      .dot;
}

template <class Group, class T, class Real>
ISOBIT_DEVICE Real sum_of_weights(const norms::RowInMemory<Group, Real, Source<T>>& row,
                                  const Weights<Real>& weights) {
  if (weights.data == nullptr) return static_cast<Real>(weights.cols);
  return sum_of<Real>(row, [&](const Place& place, const auto&, auto& a, auto& b) {
    weights.load(place, a);
#pragma unroll
    for (Real& one : b) one = 1;
  });
}

// What both passes have of their rows.
template <class TOf, class GroupOf>
struct Rows {
  using T = TOf;
  using Group = GroupOf;
  using Real = RealOf<T>;
  using Scalar = tile::Scalar<Real>;
  using Memory = typename Group::template Memory<Real>;
  using Row = norms::RowInMemory<Group, Real, Source<T>>;
  static constexpr int kElements = kPiece<T>;

  Array<const T> x;
  Targets<Real> targets;
  std::int64_t rows;
  int cols;
  Shares<Real> shares;

  explicit Rows(const Given& given)
      : x(given.x),
        targets(given),
        rows(given.rows),
        cols(static_cast<int>(given.cols)),
        shares(Shares<Real>::of(given.label_smoothing, given.z_loss, given.cols)) {}
};

template <class T, class Group>
struct ForwardRows : Rows<T, Group> {
  using Base = Rows<T, Group>;
  using typename Base::Real;
  using Scalar = typename Base::Scalar;
  using Memory = typename Base::Memory;

  Real *loss, *lse, *largest, *sum;

  explicit ForwardRows(const ForwardProblem& problem)
      : Base(problem),
        loss(reinterpret_cast<Real*>(problem.loss)),
        lse(reinterpret_cast<Real*>(problem.lse)),
        largest(reinterpret_cast<Real*>(problem.largest)),
        sum(reinterpret_cast<Real*>(problem.sum)) {}

  ISOBIT_DEVICE void row(std::int64_t index, const Memory& memory) const {
    const std::int64_t target = this->targets.at(index);
    if (this->targets.ignored(target)) return write(index, 0, Known<Scalar>::of_ignored());
    if (!this->targets.exists(target)) {
      const auto none = Known<Scalar>::of_none();
      return write(index, none.sum, none);
    }
    const ArrayRow<const T> x = this->x.row(index);
    const typename Base::Row row({x}, this->cols, memory);
    const Real most = row.extremes().highest + Real(0);  // never -0
    const Real weights_sum =
        sum_of<Real>(row, [&](const Place& place, const auto& piece, auto& a, auto& b) {
#pragma unroll
          for (int i = 0; i < Base::kElements; ++i) {
            a[i] = i < place.left ? weight_of<Scalar>(piece[i], most) : Real(0);
            b[i] = 1;
          }
        });
    Real weights = 0, differences = 0;
    if (this->shares.smooth) {
      weights = sum_of_weights(row, this->targets.weights);
      differences = sum_of<Real>(row, [&](const Place& place, const auto& piece, auto& a, auto& b) {
        this->targets.weights.load(place, a);
#pragma unroll
        for (int i = 0; i < Base::kElements; ++i) b[i] = i < place.left ? piece[i] - most : Real(0);
      });
    }
    const auto known = Known<Scalar>::of(most, weights_sum);
    const Real element = simt::Conversions::widen<Real>(simt::load(x.data + target));
    write(index,
          loss_of<Scalar>(this->shares, known, element, this->targets.weight(target), weights,
                          differences),
          known);
  }

 private:
  ISOBIT_DEVICE void write(std::int64_t index, Real loss_here, const Known<Scalar>& known) const {
    if (!Group::leads()) return;
    loss[index] = narrow<Real>(loss_here);
    if (lse != nullptr) lse[index] = narrow<Real>(known.lse());
    if (largest != nullptr) largest[index] = narrow<Real>(known.largest);
    if (sum != nullptr) sum[index] = narrow<Real>(known.sum);
  }
};

template <class T, class Group>
struct BackwardRows : Rows<T, Group> {
  using Base = Rows<T, Group>;
  using typename Base::Real;
  using Scalar = typename Base::Scalar;
  using Memory = typename Base::Memory;

  const Real *grad_loss, *largest, *sum;
  Array<T> grad_x;

  explicit BackwardRows(const BackwardProblem& problem)
      : Base(problem),
        grad_loss(reinterpret_cast<const Real*>(problem.grad_loss)),
        largest(reinterpret_cast<const Real*>(problem.largest)),
        sum(reinterpret_cast<const Real*>(problem.sum)),
        grad_x(problem.grad_x) {}

  ISOBIT_DEVICE void row(std::int64_t index, const Memory& memory) const {
    const std::int64_t target = this->targets.at(index);
    const typename Base::Row row({this->x.row(index)}, this->cols, memory);
    const ArrayRow<T> to = grad_x.row(index);
    const auto write = [&](const auto& value) {
      row.for_each_piece([&](const Place& place, const auto& piece) {
        Real result[Base::kElements];
#pragma unroll
        for (int i = 0; i < Base::kElements; ++i)
          result[i] = value(piece[i], place.col + i, i < place.left);
        to.store(place, result);
      });
    };
    if (this->targets.ignored(target)) return write([](Real, int, bool) { return Real(0); });
    const Weights<Real>& weights = this->targets.weights;
    const Known<Scalar> known{simt::load(largest + index), simt::load(sum + index)};
    const Real total = this->shares.smooth ? sum_of_weights(row, weights) : Real(0);
    const auto factors = Factors<Scalar>::of(this->shares, known, simt::load(grad_loss + index),
                                             this->targets.weight(target), total);
    write([&](Real element, int col, bool there) {
      const Real value =
          this->shares.smooth
              ? gradient<Scalar, true>(factors.by_weight, factors.by_class, element, known.largest,
                                       there ? weights.at(col) : Real(0))
              : gradient<Scalar, false>(factors.by_weight, factors.by_class, element, known.largest,
                                        1);
      return col == target ? value - factors.at_target : value;
    });
  }
};

// The sums over rows. A warp has a run of the order in each lane, and adds the runs by pairs.
template <class Real>
struct Totals {
  static constexpr int kMostThreads = simt::kWarpThreads;

  const Real* loss;
  Targets<Real> targets;
  Real *total, *count;
  std::int64_t rows;

  explicit Totals(const ForwardProblem& problem)
      : loss(reinterpret_cast<const Real*>(problem.loss)),
        targets(problem),
        total(reinterpret_cast<Real*>(problem.total)),
        count(reinterpret_cast<Real*>(problem.count)),
        rows(problem.rows) {}

  ISOBIT_DEVICE void operator()() const {
    put(total, [&](std::int64_t row) { return simt::load(loss + row); });
    put(count, [&](std::int64_t row) { return targets.weight(targets.at(row)); });
  }

 private:
  template <class Value>
  ISOBIT_DEVICE void put(Real* to, const Value& value) const {
    if (to == nullptr) return;
    order::PairTree<Real> runs;
    for (std::int64_t first = 0; first < rows; first += kMostThreads * order::kRun) {
      const std::int64_t begin = first + simt::lane() * order::kRun;
      Real sum = 0;
      for (int i = 0; i < order::kRun; ++i)
        if (begin + i < rows) sum = sum + value(begin + i);
      for (int lane = 0; lane < kMostThreads; ++lane) {
        const Real run = simt::shuffle(sum, lane, simt::kAllLanes);
        if (first + lane * order::kRun < rows) runs.push(run);
      }
    }
    if (simt::lane() == 0) *to = narrow<Real>(runs.total());
  }
};

constexpr int kMostThreads = 512;

template <class Of>
struct Kernel {
  using Group = typename Of::Group;
  static constexpr int kMostThreads = cross_entropy::kMostThreads;

  Of rows;
  int threads;

  template <class Carver>
  ISOBIT_EITHER typename Of::Memory memory(Carver& carver) const {
    return Group::template memory<typename Of::Real>(carver, threads, norms::blocks_of(rows.cols));
  }
  ISOBIT_DEVICE void operator()(const typename Of::Memory& memory) const {
    for (std::int64_t row = Group::group(); row < rows.rows; row += Group::groups())
      rows.row(row, memory);
  }
};

constexpr int kTurns[] = {0, 1, 2, 4, 8};
constexpr Knob kKnobs[] = {
    threads_knob(kMostThreads),
    {"blocks", kTurns, "blocks per multiprocessor, which take rows in turn; 0: one turn per block"},
};

template <class Of, class Problem>
void launch(const Problem& problem, const Plan& plan, const Execution& execution) {
  if (problem.rows == 0) return;
  simt::launch(static_cast<simt::Stream>(execution.stream),
               {.blocks = norms::blocks_for(problem.rows, Of::Group::groups_of_block(plan[0]), 1,
                                            plan[1], execution.machine),
                .threads = plan[0]},
               Kernel<Of>{Of(problem), plan[0]});
}

template <class Group>
void run_in(const ForwardArgs&, const ForwardProblem& problem, const Plan& plan,
            const Execution& execution) {
  norms::with_type(problem.dtype, [&]<class T>(Type<T>) {
    launch<ForwardRows<T, Group>>(problem, plan, execution);
  });
  launch_totals(problem, execution);
}
template <class Group>
void run_in(const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
            const Execution& execution) {
  norms::with_type(problem.dtype, [&]<class T>(Type<T>) {
    launch<BackwardRows<T, Group>>(problem, plan, execution);
  });
}

// Columns are counted in 32 bits, and a block adds the sums of each 512 in shared memory.
template <class Problem>
std::string too_wide_for_a_warp(const Problem& problem, const Machine&) {
  return norms::wider_than(1 << 30, problem.cols, "a count of 32 bits");
}
template <class Problem>
std::string too_wide_for_a_block(const Problem& problem, const Machine& machine) {
  return norms::wider_than_streams(problem.cols, problem.dtype, machine);
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

void launch_totals(const ForwardProblem& problem, const Execution& execution) {
  if (problem.total == nullptr && problem.count == nullptr) return;
  norms::with_type(problem.real(), [&]<class Real>(Type<Real>) {
    if constexpr (sizeof(Real) >= 4)
      simt::launch(static_cast<simt::Stream>(execution.stream),
                   {.blocks = 1, .threads = simt::kWarpThreads}, Totals<Real>(problem));
  });
}

std::span<const ForwardVariant> cuda_forward_variants() {
  return kVariants<ForwardArgs, ForwardProblem>;
}
std::span<const BackwardVariant> cuda_backward_variants() {
  return kVariants<BackwardArgs, BackwardProblem>;
}

}  // namespace isobit::cross_entropy
