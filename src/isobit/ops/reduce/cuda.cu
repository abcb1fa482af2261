// SPDX-License-Identifier: Apache-2.0
// reduce on GPUs: a warp, a block or a thread takes a row. Of rows side by side, threads of a warp
// take neighbours, and so read memory in whole sectors. What is read again is in the caches.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "isobit/dispatch/threads.h"
#include "isobit/norms/cuda_arrays.h"
#include "isobit/norms/cuda_launch.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/ops/reduce/formula.h"
#include "isobit/ops/reduce/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/row_group.h"
#include "isobit/tile/scalar.h"

namespace isobit::reduce {
namespace {

using norms::ArrayRow;
using norms::RealOf;
using tile::kPiece;
using tile::Place;

// A row of an array over the reduced loops, a piece at a time. kGradient: of grad_x, else of x.
template <class T, bool kGradient>
class Elements {
 public:
  static constexpr int kElements = kPiece<T>;

  // magnitudes: without signs.
  ISOBIT_DEVICE Elements(T* row, const Axes& axes, bool magnitudes = false)
      : row_(row),
        axes_(axes),
        stride_(kGradient ? axes.innermost().grad_x : axes.innermost().x),
        adjacent_(axes.count == 1 && stride_ == 1),
        vectors_(tile::on_pieces(row)),
        magnitudes_(magnitudes) {}

  template <class Real>
  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kElements]) const {
    if (adjacent_) {
      ArrayRow<T>{row_, vectors_}.load(place, piece);
    } else {
      const Piece<Real> found = gathered<Real>(row_, axes_, place);
#pragma unroll
      for (int i = 0; i < kElements; ++i) piece[i] = found.elements[i];
    }
    if (magnitudes_)
#pragma unroll
      for (int i = 0; i < kElements; ++i) piece[i] = std::fabs(piece[i]);
  }
  template <class Real>
  ISOBIT_DEVICE void store(const Place& place, const Real (&piece)[kElements]) const {
    if (adjacent_) return ArrayRow<T>{row_, vectors_}.store(place, piece);
    Piece<Real> found;
#pragma unroll
    for (int i = 0; i < kElements; ++i) found.elements[i] = piece[i];
    scatter(row_, axes_, place, found);
  }

 private:
  template <class Real>
  struct Piece {
    Real elements[kElements];
  };
  // Functions by themselves: a kernel has a dozen loops over a row, and each would hold the
  // divisions of a walk.
  template <class Real>
  ISOBIT_NOINLINE static Piece<Real> gathered(T* row, const Axes& axes, Place place) {
    Piece<Real> result;
    walk(row, axes, place, [&](int i, const T* from) {
      result.elements[i] =
          from == nullptr ? Real(0) : simt::Conversions::widen<Real>(simt::load(from));
    });
    return result;
  }
  template <class Real>
  ISOBIT_NOINLINE static void scatter(T* row, const Axes& axes, Place place, Piece<Real> piece) {
    walk(row, axes, place, [&](int i, T* to) {
      if (to != nullptr) *to = simt::Conversions::narrow<T>(piece.elements[i]);
    });
  }
  // Calls body(i, where element i of a piece stands, null where the row has none).
  template <class Body>
  ISOBIT_DEVICE static void walk(T* row, const Axes& axes, const Place& place, const Body& body) {
    Walk at(axes, place.left > 0 ? place.col : 0);
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const bool there = i < place.left;
      body(i, there ? row + (kGradient ? at.grad_x : at.x) : nullptr);
      if (i + 1 < place.left) at.advance(1);
    }
  }

  T* row_;
  const Axes& axes_;
  std::int64_t stride_;
  bool adjacent_, vectors_, magnitudes_;
};

// A row that one thread adds by itself, as formulas want it.
template <class T>
class ThreadRow {
 public:
  using Real = RealOf<T>;
  using Scalar = tile::Scalar<Real>;

  ISOBIT_DEVICE ThreadRow(const T* row, const Axes& axes, int cols)
      : row_(row), axes_(axes), step_(axes.count == 1 ? axes.innermost().x : 0), cols_(cols) {}

  ISOBIT_DEVICE const ThreadRow& rare() const { return *this; }
  ISOBIT_DEVICE Real at(int i) const {
    const std::int64_t place = axes_.count == 1 ? i * step_ : walked(axes_, i);
    return simt::Conversions::widen<Real>(simt::load(row_ + place));
  }

  template <class F>
  ISOBIT_DEVICE Moments<Real> moments(const F& f) const {
    constexpr int kHalf = order::kBlock / 2, kBits = 8;
    order::PairTree<Real> sums, dots;
    for (int begin = 0; begin < cols_; begin += order::kBlock) {
      // A block is folded by halves: its pairs follow each other as the bits of their numbers,
      // reversed, do. What it lacks counts as +0.
      order::PairTree<Real> of_sums, of_dots;
      for (int k = 0; k < kHalf; ++k) {
        int i = 0;
        for (int bit = 0; bit < kBits; ++bit) i |= (k >> bit & 1) << (kBits - 1 - bit);
        i += begin;
        const Real upper = i < cols_ ? f(at(i)) : Real(0);
        const Real lower = i + kHalf < cols_ ? f(at(i + kHalf)) : Real(0);
        of_sums.push(upper + lower);
        of_dots.push(std::fma(lower, lower, upper * upper));
      }
      sums.push(of_sums.total());
      dots.push(of_dots.total());
    }
    return {sums.total(), dots.total()};
  }
  template <class F>
  ISOBIT_DEVICE Real sum(const F& f) const {
    return moments(f).sum;
  }
  ISOBIT_DEVICE Moments<Real> sums_of(Round round, Real centre) const {
    return moments([&](Real x) {
      with_round(round,
                 [&](auto constant) { x = term_of<Scalar, decltype(constant)::value>(x, centre); });
      return x;
    });
  }
  ISOBIT_DEVICE Extremes<Real> extremes() const { return found(false); }
  // Of |x|, or of x.
  ISOBIT_DEVICE_NOINLINE Extremes<Real> found(bool magnitudes) const {
    constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
    Extremes<Real> result{kInfinity, -kInfinity};
    for (int i = 0; i < cols_; ++i) {
      const Real x = magnitudes ? std::fabs(at(i)) : at(i);
      if (x != x) return {x, x};
      result.lowest = x < result.lowest ? x : result.lowest;
      result.highest = x > result.highest ? x : result.highest;
    }
    return result;
  }

 private:
  ISOBIT_NOINLINE static std::int64_t walked(const Axes& axes, int i) { return Walk(axes, i).x; }
  const T* row_;
  const Axes& axes_;
  std::int64_t step_;
  int cols_;
};

// One thread as a group of threads.
struct Alone {
  template <class Real>
  struct Memory {};
  template <class Real, class Carver>
  ISOBIT_EITHER static Memory<Real> memory(Carver&, int, int) {
    return {};
  }
  static constexpr int groups_of_block(int threads) { return threads; }
  ISOBIT_DEVICE static std::int64_t group() {
    return simt::block() * simt::threads() + simt::thread();
  }
  ISOBIT_DEVICE static std::int64_t groups() { return simt::blocks() * simt::threads(); }
  ISOBIT_DEVICE static bool leads() { return true; }
};

// What a group needs of a row of x: its sums, and its elements once more.
template <class T, class Group>
class GroupRow : public norms::RowInMemory<Group, RealOf<T>, Elements<const T, false>> {
 public:
  using Real = RealOf<T>;
  using Source = Elements<const T, false>;
  using Base = norms::RowInMemory<Group, Real, Source>;
  using Memory = typename Group::template Memory<Real>;

  ISOBIT_DEVICE GroupRow(const T* row, const Axes& axes, int cols, const Memory& memory)
      : Base(Source(row, axes), cols, memory),
        row_(row),
        axes_(axes),
        cols_(cols),
        memory_(memory) {}

  template <class F>
  ISOBIT_DEVICE_NOINLINE Moments<Real> moments(const F& f) const {
    return Base::moments(f);
  }
  template <class F>
  ISOBIT_DEVICE Real sum(const F& f) const {
    return moments(f).sum;
  }
  ISOBIT_DEVICE Moments<Real> sums_of(Round round, Real centre) const {
    constexpr int kElements = Source::kElements;
    const norms::SumAndDot<Real> sums =
        this->sum_and_dot([&](const Place& place, bool whole, const Real(&piece)[kElements],
                              Real(&a)[kElements], Real(&b)[kElements]) {
          with_round(round, [&](auto constant) {
            norms::detail::map_piece(place, whole, piece, a, [centre](Real x) {
              return term_of<typename Base::Scalar, decltype(constant)::value>(x, centre);
            });
          });
#pragma unroll
          for (int i = 0; i < kElements; ++i) b[i] = a[i];
        });
    return {sums.sum, sums.dot};
  }
  ISOBIT_DEVICE Extremes<Real> extremes() const { return found(false); }
  // Of |x|, or of x.
  ISOBIT_DEVICE_NOINLINE Extremes<Real> found(bool magnitudes) const {
    const Base row(Source(row_, axes_, magnitudes), cols_, memory_);
    const Extremes<Real> found = row.extremes();
    typename Base::Adder(memory_).begin();  // other threads may still read where this row will add
    return found;
  }
  ISOBIT_DEVICE const GroupRow& rare() const { return *this; }

  // What of(piece) makes of the elements, which are not looked at unless it reads them.
  template <class Of>
  ISOBIT_DEVICE void write(T* grad_x, bool reads, const Of& of) const {
    const Elements<T, true> to(grad_x, axes_);
    const Source from(row_, axes_);
    constexpr int kPieces = norms::kPiecesOf<Group, Source::kElements>;
    for (int block = Group::worker(); block < norms::blocks_of(cols_); block += Group::workers())
      for (int p = 0; p < kPieces; ++p) {
        const Place place = norms::place_in<Group, Source::kElements>(block, p, cols_);
        if (place.left <= 0) continue;
        Real piece[Source::kElements] = {};
        if (reads) from.load(place, piece);
        of(piece);
        to.store(place, piece);
      }
  }

 private:
  const T* row_;
  const Axes& axes_;
  int cols_;
  Memory memory_;
};
template <class T>
class GroupRow<T, Alone> : public ThreadRow<T> {
 public:
  using Real = RealOf<T>;

  ISOBIT_DEVICE GroupRow(const T* row, const Axes& axes, int cols, const Alone::Memory<Real>&)
      : ThreadRow<T>(row, axes, cols), axes_(axes), cols_(cols) {}

  template <class Of>
  ISOBIT_DEVICE void write(T* grad_x, bool reads, const Of& of) const {
    for (int i = 0; i < cols_; ++i) {
      Real piece[] = {reads ? this->at(i) : Real(0)};
      of(piece);
      grad_x[Walk(axes_, i).grad_x] = simt::Conversions::narrow<T>(piece[0]);
    }
  }

 private:
  const Axes& axes_;
  int cols_;
};

constexpr int kMostThreads = 512;

template <class T, class Group, bool kBackward>
struct Kernel {
  using Real = RealOf<T>;
  using Scalar = tile::Scalar<Real>;
  using Memory = typename Group::template Memory<Real>;
  using Row = GroupRow<T, Group>;
  static constexpr int kMostThreads = reduce::kMostThreads;

  Problem p;
  int threads;

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    return Group::template memory<Real>(carver, threads,
                                        norms::blocks_of(static_cast<int>(p.cols)));
  }
  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    for (std::int64_t index = Group::group(); index < p.rows; index += Group::groups()) {
      const Walk at(p.kept, index);
      const Row row(reinterpret_cast<const T*>(p.x) + at.x, p.reduced, static_cast<int>(p.cols),
                    memory);
      const Measure<Real> measure(p.kind, p.cols, p.correction);
      if constexpr (kBackward)
        backward(measure, row, at);
      else
        forward(measure, row, at);
    }
  }

 private:
  // What the rounds over a row have found; of the second one, what it was centred at.
  struct Found {
    Moments<Real> first{}, second{};
    Real centre = 0;
  };
  // So many rounds at most, in a loop: the code of one is long.
  ISOBIT_DEVICE static Found found_of(const Measure<Real>& measure, const Row& row, int rounds) {
    Found found;
    int round = 0;
    if (measure.extreme()) {
      found.first = extremes_of(measure, row.found(!measure.bound()));
      found.centre = measure.extreme_of(found.first);
      round = 1;
    }
    for (; round < rounds; ++round) {
      const Moments<Real> sums =
          row.sums_of(round == 0 ? measure.first_round() : measure.second_round(), found.centre);
      (round == 0 ? found.first : found.second) = sums;
      if (round == 0 && measure.centred()) found.centre = sums.sum / measure.n;
    }
    return found;
  }
  // Of no elements, the largest is the least that there is.
  ISOBIT_DEVICE static Moments<Real> extremes_of(const Measure<Real>& measure,
                                                 const Extremes<Real>& found) {
    constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
    if (found.lowest > found.highest) return {measure.bound() ? -kInfinity : Real(0), kInfinity};
    return {found.highest, found.lowest};
  }

  ISOBIT_DEVICE void forward(const Measure<Real>& measure, const Row& row, const Walk& at) const {
    const Found found = found_of(measure, row, measure.centred() ? 2 : 1);
    const Real y = result_of(measure, row, found.first, found.centre, found.second);
    if (!Group::leads()) return;
    if (p.y_dtype == p.dtype)
      reinterpret_cast<T*>(p.y)[at.y] = simt::Conversions::narrow<T>(y);
    else
      reinterpret_cast<Real*>(p.y)[at.y] = simt::Conversions::narrow<Real>(y);
  }

  ISOBIT_DEVICE Real gradient(const Walk& at) const {
    if (p.y_dtype == p.dtype)
      return simt::Conversions::widen<Real>(simt::load(reinterpret_cast<const T*>(p.y) + at.y));
    return simt::load(reinterpret_cast<const Real*>(p.y) + at.y);
  }
  ISOBIT_DEVICE void backward(const Measure<Real>& measure, const Row& row, const Walk& at) const {
    // The other kinds' gradients know all that they need.
    const int rounds = measure.centred() || measure.extreme() ? 2
                       : measure.kind == Kind::l2             ? 1
                                                              : 0;
    const Found found = found_of(measure, row, rounds);
    const auto slopes = Slopes<Scalar>::all(
        slope_of(measure, row, gradient(at), found.first, found.centre, found.second));
    T* const grad_x = reinterpret_cast<T*>(p.grad_x) + at.grad_x;
    row.write(grad_x, form_of(measure.kind) != Form::constant, [&](auto& piece) {
      with_form(measure.kind, [&](auto form) {
#pragma unroll
        for (Real& x : piece) x = slopes.template gradient<decltype(form)::value>(x);
      });
    });
  }
};

constexpr int kTurns[] = {0, 1, 2, 4, 8};
constexpr Knob kKnobs[] = {
    threads_knob(kMostThreads),
    {"blocks", kTurns, "blocks per multiprocessor, which take rows in turn; 0: one turn per block"},
};

template <class Group, bool kBackward, class Args>
void run_in(const Args&, const Problem& p, const Plan& plan, const Execution& execution) {
  if (p.rows == 0) return;
  norms::with_type(p.dtype, [&]<class T>(Type<T>) {
    simt::launch(static_cast<simt::Stream>(execution.stream),
                 {.blocks = norms::blocks_for(p.rows, Group::groups_of_block(plan[0]), 1, plan[1],
                                              execution.machine),
                  .threads = plan[0]},
                 Kernel<T, Group, kBackward>{p, plan[0]});
  });
}

std::string too_wide_for_a_warp(const Problem& p, const Machine&) {
  return norms::wider_than(1 << 30, p.cols, "a count of 32 bits");
}
std::string too_wide_for_a_block(const Problem& p, const Machine& machine) {
  return norms::wider_than_streams(p.cols, p.dtype, machine);
}

template <class Args, bool kBackward>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "row_per_thread",
     .knobs = kKnobs,
     .declines = too_wide_for_a_warp,
     // Where neighbours are as many as fill warps.
     .suits =
         [](const Problem& p, const Machine&) {
           return p.side_by_side && p.kept.innermost().extent >= simt::kWarpThreads &&
                  p.rows >= 4096;
         },
     .choose = [](const Problem&, const Machine&) -> Plan { return {128, 0}; },
     .run = run_in<Alone, kBackward, Args>},
    {.name = "row_per_warp",
     .knobs = kKnobs,
     .declines = too_wide_for_a_warp,
     // And what no block can hold the sums of.
     .suits =
         [](const Problem& p, const Machine& machine) {
           return p.cols <= 1024 || !too_wide_for_a_block(p, machine).empty();
         },
     .choose = [](const Problem&, const Machine&) -> Plan { return {128, 0}; },
     .run = run_in<tile::Lanes<simt::kWarpThreads>, kBackward, Args>},
    {.name = "row_per_block",
     .knobs = kKnobs,
     .declines = too_wide_for_a_block,
     .choose = [](const Problem&, const Machine&) -> Plan { return {256, 0}; },
     .run = run_in<tile::BlockOfWarps, kBackward, Args>},
};

}  // namespace

std::span<const ForwardVariant> cuda_forward_variants() { return kVariants<ForwardArgs, false>; }
std::span<const BackwardVariant> cuda_backward_variants() { return kVariants<BackwardArgs, true>; }

}  // namespace isobit::reduce
