// SPDX-License-Identifier: Apache-2.0
// The specification of what kernels compute, element by element: the scalar variant, and where rare
// rows are summed again.
#pragma once

#include "isobit/core/order.h"
#include "isobit/norms/cpu_row.h"
#include "isobit/ops/reduce/cpu_extremes.h"
#include "isobit/ops/reduce/cpu_kernels.h"

namespace isobit::reduce {

using simd::ScalarOf;

// The elements of a row of x.
template <class T, class Real>
struct ElementsOf {
  const Problem& p;
  const T* row;

  ElementsOf(const Problem& p, std::int64_t index)
      : p(p), row(reinterpret_cast<const T*>(p.x) + Walk(p.kept, index).x) {}
  Real operator()(std::int64_t i) const { return widen<Real>(row[Walk(p.reduced, i).x]); }
};

// A row of which the sums of its rounds are known.
template <class T, class RealOf>
struct SummedRow {
  using Real = RealOf;
  using Scalar = ScalarOf<Real>;
  const Problem& p;
  std::int64_t index;
  auto rare() const {
    return norms::SpecifiedRow<Scalar, ElementsOf<T, Real>>(p.cols, ElementsOf<T, Real>(p, index));
  }
};

namespace specified {

template <Round kRound, class Real, class Get>
Moments<Real> sums_of(const Part& part, const Get& get, Real centre) {
  const auto term = [&](std::int64_t i) {
    return term_of<ScalarOf<Real>, kRound>(get(part.begin + i), centre);
  };
  const std::int64_t count = part.end - part.begin;
  return {order::sum<Real>(count, term), order::dot<Real>(count, term, term)};
}

template <bool kSigned, class Real, class Get>
Moments<Real> extremes_of(const Part& part, const Get& get) {
  ExtremePieces<Real, kSigned> all;
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    const Real value = kSigned ? get(i) : std::fabs(get(i));
    all.push({value, value});
  }
  return all.total();
}

template <class T, class Real>
void moments(const Problem& p, const Part& part, Round round, const void* centres, void* to) {
  const ElementsOf<T, Real> get(p, part.first);
  const Real centre = centres == nullptr ? Real(0) : *static_cast<const Real*>(centres);
  auto& result = *static_cast<Moments<Real>*>(to);
  switch (round) {
    case Round::deviations: result = sums_of<Round::deviations>(part, get, centre); return;
    case Round::magnitudes: result = sums_of<Round::magnitudes>(part, get, centre); return;
    case Round::nonzeros:   result = sums_of<Round::nonzeros>(part, get, centre); return;
    case Round::equals:     result = sums_of<Round::equals>(part, get, centre); return;
    case Round::matches:    result = sums_of<Round::matches>(part, get, centre); return;
    case Round::extremes:   result = extremes_of<false, Real>(part, get); return;
    case Round::bounds:     result = extremes_of<true, Real>(part, get); return;
  }
}

template <class T, class Real>
void gradient(const Problem& p, const Part& part, const void* slopes) {
  const ElementsOf<T, Real> get(p, part.first);
  const auto of = Slopes<ScalarOf<Real>>::all(*static_cast<const Slope<Real>*>(slopes));
  T* const grad_x = reinterpret_cast<T*>(p.grad_x) + Walk(p.kept, part.first).grad_x;
  for (std::int64_t i = part.begin; i < part.end; ++i)
    with_form(p.kind, [&](auto form) {
      constexpr Form kForm = decltype(form)::value;
      Real x = 0;
      if constexpr (kForm != Form::constant) x = get(i);
      grad_x[Walk(p.reduced, i).grad_x] = narrow<T>(of.template gradient<kForm>(x));
    });
}

template <class T, class Real>
constexpr Kernels kKernels = {moments<T, Real>, gradient<T, Real>};

}  // namespace specified

}  // namespace isobit::reduce
