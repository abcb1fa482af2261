// SPDX-License-Identifier: Apache-2.0
// One row at a time in vectors, compiled once for each instruction set.
#include "isobit/ops/reduce/cpu_kernels.h"

#include "isobit/ops/reduce/cpu_extremes.h"
#include "isobit/ops/reduce/cpu_rounds.h"
#include "isobit/simd/prefetch.h"
#include "isobit/simd/row_loops.h"
#include "isobit/simd/row_sums.h"

namespace isobit::reduce::ISOBIT_ISA {
namespace {

using order::kBlock;

// The elements of a row one block after the other: in their place where they are adjacent, or
// copied.
template <class T>
class Blocks {
 public:
  ISOBIT_INLINE Blocks(const Problem& p, const Part& part)
      : row_(reinterpret_cast<const T*>(p.x) + Walk(p.kept, part.first).x),
        step_(p.reduced.innermost().x),
        walk_(p.reduced, part.begin) {}

  // Of `count` elements, no more than a block.
  ISOBIT_INLINE const T* next(std::int64_t count, T* buffer) {
    if (step_ == 1 && count <= walk_.left()) {
      const T* const here = row_ + walk_.x;
      walk_.advance(count);
      return here;
    }
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t run = walk_.left() < count - i ? walk_.left() : count - i;
      const T* const from = row_ + walk_.x;
      for (std::int64_t j = 0; j < run; ++j) buffer[i + j] = from[j * step_];
      walk_.advance(run);
      i += run;
    }
    return buffer;
  }

 private:
  const T* row_;
  std::int64_t step_;
  Walk walk_;
};

// Calls body(elements, count) for each block of a part.
template <class T, class Body>
ISOBIT_INLINE void for_each_block(const Problem& p, const Part& part, const Body& body) {
  alignas(64) T buffer[kBlock];
  Blocks<T> blocks(p, part);
  for (std::int64_t begin = part.begin; begin < part.end; begin += kBlock) {
    const std::int64_t count = part.end - begin < kBlock ? part.end - begin : kBlock;
    body(blocks.next(count, buffer), count);
  }
}

constexpr std::int64_t kAhead = 4 * kBlock;  // is fetched while an element is summed

// What is not wanted is 0.
template <class S, class T, Round kRound, simd::Want kWant, bool kFetches>
ISOBIT_INLINE Moments<typename S::Real> sums_of(const Problem& p, const Part& part,
                                                typename S::Real number) {
  using Real = typename S::Real;
  const auto centre = S::all(number);
  order::PairTree<Real> sums, dots;
  for_each_block<T>(p, part, [&](const T* x, std::int64_t count) ISOBIT_INLINE_LAMBDA {
    const auto term = [x, centre](std::int64_t i, auto... some) ISOBIT_INLINE_LAMBDA {
      if constexpr (kFetches && sizeof...(some) == 0) simd::fetch_to_second_cache(x + i + kAhead);
      return S::only(term_of<S, kRound>(S::load(x + i, some...), centre), some...);
    };
    const auto terms = [&term](std::int64_t i, auto... some) ISOBIT_INLINE_LAMBDA {
      const auto value = term(i, some...);
      return simd::Terms<S>{value, value};
    };
    if constexpr (kWant == simd::Want::sum) {
      sums.push(simd::row_sum<S>(count, term));
    } else if constexpr (kWant == simd::Want::dot) {
      dots.push(simd::row_dot<S>(count, terms));
    } else {
      const simd::Sums<S> of = simd::row_sum_and_dot<S>(count, terms);
      sums.push(of.sum);
      dots.push(of.dot);
    }
  });
  return {sums.total(), dots.total()};
}

template <class S, class T, bool kSigned>
ISOBIT_INLINE Moments<typename S::Real> extremes_of(const Problem& p, const Part& part) {
  using Real = typename S::Real;
  ExtremePieces<Real, kSigned> all;
  for_each_block<T>(p, part, [&](const T* x, std::int64_t count) ISOBIT_INLINE_LAMBDA {
    LaneExtremes<S, kSigned> lanes;
    std::int64_t i = 0;
    for (; i + S::kWidth <= count; i += S::kWidth) lanes.add(S::load(x + i));
    Moments<Real> each[S::kWidth];
    lanes.store(each);
    for (const Moments<Real>& of : each) all.push(of);
    for (; i < count; ++i) {
      const Real value = kSigned ? widen<Real>(x[i]) : std::fabs(widen<Real>(x[i]));
      all.push({value, value});
    }
  });
  return all.total();
}

template <class S, class T, bool kFetches>
void moments(const Problem& p, const Part& part, Round round, const void* centres, void* to) {
  using Real = typename S::Real;
  auto& result = *static_cast<Moments<Real>*>(to);
  if (round == Round::extremes || round == Round::bounds) {
    result = round == Round::bounds ? extremes_of<S, T, true>(p, part)
                                    : extremes_of<S, T, false>(p, part);
    return;
  }
  const Real centre = centres == nullptr ? Real(0) : *static_cast<const Real*>(centres);
  with_wanted(p, round, centres != nullptr, [&](auto of, auto want) ISOBIT_INLINE_LAMBDA {
    result = sums_of<S, T, decltype(of)::value, decltype(want)::value, kFetches>(p, part, centre);
  });
}

template <class S, class T, Form kForm>
ISOBIT_INLINE void gradients(const Problem& p, const Part& part, const Slopes<S>& slopes) {
  const Walk row(p.kept, part.first);
  const T* const x = reinterpret_cast<const T*>(p.x) + row.x;
  T* const grad_x = reinterpret_cast<T*>(p.grad_x) + row.grad_x;
  const std::int64_t step = p.reduced.innermost().x, to_step = p.reduced.innermost().grad_x;
  alignas(64) T from_buffer[kBlock], to_buffer[kBlock];
  Walk walk(p.reduced, part.begin);
  for (std::int64_t i = part.begin; i < part.end;) {
    std::int64_t run = walk.left() < part.end - i ? walk.left() : part.end - i;
    if (run > kBlock) run = kBlock;
    const T* from = x + walk.x;
    if (kForm != Form::constant && step != 1) {
      for (std::int64_t j = 0; j < run; ++j) from_buffer[j] = from[j * step];
      from = from_buffer;
    }
    T* const place = grad_x + walk.grad_x;
    T* const to = to_step == 1 ? place : to_buffer;
    simd::for_each_vector<S>(run, [&](std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
      auto value = S::zero();
      if constexpr (kForm != Form::constant) value = S::load(from + j, some...);
      S::template store<simd::Stores::cached>(to + j, slopes.template gradient<kForm>(value),
                                              some...);
    });
    if (to_step != 1)
      for (std::int64_t j = 0; j < run; ++j) place[j * to_step] = to_buffer[j];
    walk.advance(run);
    i += run;
  }
}

template <class S, class T>
void gradient(const Problem& p, const Part& part, const void* slopes) {
  const auto all = Slopes<S>::all(*static_cast<const Slope<typename S::Real>*>(slopes));
  with_form(p.kind, [&](auto form) ISOBIT_INLINE_LAMBDA {
    gradients<S, T, decltype(form)::value>(p, part, all);
  });
}

template <class S, class T>
Kernels kernels_of(bool fetches) {
  return {fetches ? moments<S, T, true> : moments<S, T, false>, gradient<S, T>};
}

}  // namespace

Kernels kernels_along(DType dtype, bool fetches) {
  switch (dtype) {
    case DType::f16:  return kernels_of<simd::F32, f16>(fetches);
    case DType::bf16: return kernels_of<simd::F32, bf16>(fetches);
    case DType::f64:  return kernels_of<simd::F64, double>(fetches);
    default:          return kernels_of<simd::F32, float>(fetches);
  }
}

}  // namespace isobit::reduce::ISOBIT_ISA
