// SPDX-License-Identifier: Apache-2.0
// Rows side by side, each in a lane of its own: columns of a matrix, channels that come last.
// Compiled once for each instruction set.
#include "isobit/ops/reduce/cpu_kernels.h"
#include "isobit/ops/reduce/cpu_rounds.h"
#include "isobit/simd/column_sums.h"
#include "isobit/simd/row_loops.h"

namespace isobit::reduce::ISOBIT_ISA {
namespace {

using order::kBlock;

// Where the elements of a block stand, in x and in its gradient, of the first row of a part.
struct Places {
  std::int64_t x[kBlock], grad_x[kBlock];

  ISOBIT_INLINE void fill(Walk& walk, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i, walk.advance(1)) {
      x[i] = walk.x;
      grad_x[i] = walk.grad_x;
    }
  }
};

// Calls body(places, count) for each block of a part.
template <class Body>
ISOBIT_INLINE void for_each_block(const Problem& p, const Part& part, const Body& body) {
  Places places;
  Walk walk(p.reduced, part.begin);
  for (std::int64_t begin = part.begin; begin < part.end; begin += kBlock) {
    const std::int64_t count = part.end - begin < kBlock ? part.end - begin : kBlock;
    places.fill(walk, count);
    body(places, count);
  }
}

template <class S, class T, Round kRound, simd::Want kWant>
ISOBIT_INLINE void add(const Problem& p, const Part& part, const typename S::Real* centre,
                       Moments<typename S::Real>* to) {
  const T* const x = reinterpret_cast<const T*>(p.x) + Walk(p.kept, part.first).x;
  simd::SumsAbreast<S, kWant, kMostAbreast> sums;
  for_each_block(p, part, [&](const Places& places, std::int64_t count) ISOBIT_INLINE_LAMBDA {
    sums.add_block(part.rows, count, [&](int i, std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
      const auto term =
          term_of<S, kRound>(S::load(x + places.x[i] + j, some...), S::load(centre + j));
      return simd::Terms<S>{term, term};
    });
  });
  sums.put(part.rows, to);
}

template <class S, class T, bool kSigned>
ISOBIT_INLINE void find_extremes(const Problem& p, const Part& part,
                                 Moments<typename S::Real>* to) {
  using Real = typename S::Real;
  const T* const x = reinterpret_cast<const T*>(p.x) + Walk(p.kept, part.first).x;
  LaneExtremes<S, kSigned> lanes[kMostAbreast / S::kWidth];
  for_each_block(p, part, [&](const Places& places, std::int64_t count) ISOBIT_INLINE_LAMBDA {
    simd::for_each_vector<S>(part.rows, [&](std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
      LaneExtremes<S, kSigned> of = lanes[j / S::kWidth];
      for (std::int64_t i = 0; i < count; ++i) of.add(S::load(x + places.x[i] + j, some...));
      lanes[j / S::kWidth] = of;
    });
  });
  for (std::int64_t j = 0; j < part.rows; j += S::kWidth) {
    Moments<Real> each[S::kWidth];
    lanes[j / S::kWidth].store(each);
    for (int k = 0; k < S::kWidth && j + k < part.rows; ++k) to[j + k] = each[k];
  }
}

template <class S, class T>
void moments(const Problem& p, const Part& part, Round round, const void* centres, void* to) {
  using Real = typename S::Real;
  auto* const results = static_cast<Moments<Real>*>(to);
  if (round == Round::extremes) return find_extremes<S, T, false>(p, part, results);
  if (round == Round::bounds) return find_extremes<S, T, true>(p, part, results);
  alignas(64) Real centre[kMostAbreast] = {};
  for (std::int64_t i = 0; i < part.rows && centres != nullptr; ++i)
    centre[i] = static_cast<const Real*>(centres)[i];
  with_wanted(p, round, centres != nullptr, [&](auto of, auto want) ISOBIT_INLINE_LAMBDA {
    add<S, T, decltype(of)::value, decltype(want)::value>(p, part, centre, results);
  });
}

// The slopes of some rows, a number of all of them after the other.
template <class S>
struct SlopeLanes {
  using Real = typename S::Real;
  alignas(64) Real numbers[12][S::kWidth];

  ISOBIT_INLINE SlopeLanes(const Slope<Real>* rows, std::int64_t count) {
    for (int k = 0; k < S::kWidth; ++k) {
      const Slope<Real>& of = rows[k < count ? k : 0];
      const Real each[12] = {of.factor, of.into[0], of.into[1], of.mean, of.shift, of.residue,
                             of.rstd,   of.back[0], of.back[1], of.low,  of.high,  of.none};
      for (int i = 0; i < 12; ++i) numbers[i][k] = each[i];
    }
  }
  ISOBIT_INLINE Slopes<S> vectors() const {
    const auto at = [&](int i) ISOBIT_INLINE_LAMBDA { return S::load(numbers[i]); };
    return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), at(11)};
  }
};

template <class S, class T, Form kForm>
ISOBIT_INLINE void gradients(const Problem& p, const Part& part,
                             const Slope<typename S::Real>* slopes) {
  const Walk first(p.kept, part.first);
  const T* const x = reinterpret_cast<const T*>(p.x) + first.x;
  T* const grad_x = reinterpret_cast<T*>(p.grad_x) + first.grad_x;
  for_each_block(p, part, [&](const Places& places, std::int64_t count) ISOBIT_INLINE_LAMBDA {
    simd::for_each_vector<S>(part.rows, [&](std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
      const SlopeLanes<S> lanes(slopes + j, part.rows - j);
      const Slopes<S> of = lanes.vectors();
      for (std::int64_t i = 0; i < count; ++i) {
        auto value = S::zero();
        if constexpr (kForm != Form::constant) value = S::load(x + places.x[i] + j, some...);
        S::template store<simd::Stores::cached>(grad_x + places.grad_x[i] + j,
                                                of.template gradient<kForm>(value), some...);
      }
    });
  });
}

template <class S, class T>
void gradient(const Problem& p, const Part& part, const void* slopes) {
  with_form(p.kind, [&](auto form) ISOBIT_INLINE_LAMBDA {
    gradients<S, T, decltype(form)::value>(p, part,
                                           static_cast<const Slope<typename S::Real>*>(slopes));
  });
}

template <class S, class T>
Kernels kernels_of() {
  return {moments<S, T>, gradient<S, T>};
}

}  // namespace

Kernels kernels_abreast(DType dtype) {
  switch (dtype) {
    case DType::f16:  return kernels_of<simd::F32, f16>();
    case DType::bf16: return kernels_of<simd::F32, bf16>();
    case DType::f64:  return kernels_of<simd::F64, double>();
    default:          return kernels_of<simd::F32, float>();
  }
}

}  // namespace isobit::reduce::ISOBIT_ISA
