// SPDX-License-Identifier: Apache-2.0
// What a row's sums become, and what its elements' gradients are, on every back end.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "isobit/ops/layernorm/formula.h"
#include "isobit/ops/reduce/reduce.h"
#include "isobit/ops/vector_norm/formula.h"

namespace isobit::reduce {

using norms::Extremes;
using norms::Moments;
using norms::Statistics;
using vector_norm::Factors;

// What is summed of a row, in one round over it: of x - centre and of its square, of |x|, of 1 for
// each element that is not 0, of 1 for each whose magnitude is the centre, of 1 for each that is
// the centre. extremes and bounds sum nothing: they find the largest and the smallest magnitude, or
// element, or NaN.
enum class Round { deviations, magnitudes, nonzeros, equals, matches, extremes, bounds };

template <Round kRound>
struct RoundConstant {
  static constexpr Round value = kRound;
};

// Calls body(RoundConstant) with a round that sums. Kernels for GPUs ask for each piece which one
// it is: a loop over a row for each would be most of their code.
template <class Body>
ISOBIT_INLINE void with_round(Round round, const Body& body) {
  switch (round) {
    case Round::magnitudes: return body(RoundConstant<Round::magnitudes>{});
    case Round::nonzeros:   return body(RoundConstant<Round::nonzeros>{});
    case Round::equals:     return body(RoundConstant<Round::equals>{});
    case Round::matches:    return body(RoundConstant<Round::matches>{});
    default:                return body(RoundConstant<Round::deviations>{});
  }
}

template <class Real>
struct Measure {
  Kind kind;
  std::int64_t count;
  Real n, freedom;  // how many elements, and what variances are divided by

  ISOBIT_INLINE Measure(Kind kind, std::int64_t count, double correction)
      : kind(kind), count(count), n(static_cast<Real>(count)) {
    const double left = static_cast<double>(count) - correction;
    freedom = left > 0 ? static_cast<Real>(left) : Real(0);
  }
  ISOBIT_INLINE bool centred() const { return kind == Kind::var || kind == Kind::std; }
  // Of elements, not of magnitudes.
  ISOBIT_INLINE bool bound() const { return kind == Kind::max || kind == Kind::min; }
  ISOBIT_INLINE bool extreme() const {
    return kind == Kind::largest || kind == Kind::smallest || bound();
  }
  // Which one it is of what the first round over a row has found.
  ISOBIT_INLINE Real extreme_of(const Moments<Real>& found) const {
    return kind == Kind::largest || kind == Kind::max ? found.sum : found.squares;
  }
  // What the second round asks for, where there is one.
  ISOBIT_INLINE Round second_round() const {
    return centred() ? Round::deviations : bound() ? Round::matches : Round::equals;
  }
  // What the first round over a row asks for.
  ISOBIT_INLINE Round first_round() const {
    switch (kind) {
      case Kind::l1:       return Round::magnitudes;
      case Kind::nonzero:  return Round::nonzeros;
      case Kind::largest:
      case Kind::smallest: return Round::extremes;
      case Kind::max:
      case Kind::min:      return Round::bounds;
      default:             return Round::deviations;
    }
  }
};

// What an element is in the sums of a round.
template <class S>
ISOBIT_INLINE typename S::V magnitude_of(typename S::V x) {
  if constexpr (sizeof(typename S::Real) == 8)
    return S::real(S::bits_and(S::bits(x), S::all_bits(~std::uint64_t{0} >> 1)));
  else
    return S::real(S::bits_and(S::bits(x), S::all_bits(~std::uint32_t{0} >> 1)));
}
template <class S, Round kRound>
ISOBIT_INLINE typename S::V term_of(typename S::V x, typename S::V centre) {
  using Real = typename S::Real;
  const auto one = S::all(Real(1)), none = S::all(Real(0));
  if constexpr (kRound == Round::deviations) return S::sub(x, centre);
  if constexpr (kRound == Round::matches)
    return S::choose(S::less(x, centre), none, S::choose(S::less(centre, x), none, one));
  const auto size = magnitude_of<S>(x);
  if constexpr (kRound == Round::magnitudes || kRound == Round::extremes)
    return size;
  else if constexpr (kRound == Round::nonzeros)  // NaN is not 0
    return S::choose(S::less(size, S::all(std::numeric_limits<Real>::denorm_min())), none, one);
  else
    return S::choose(S::less(size, centre), none, S::choose(S::less(centre, size), none, one));
}

// The sum of a row, divided. Where additions have left the range, of the row that is scaled by a
// power of two.
template <class Row, class Real = typename Row::Real>
ISOBIT_NOINLINE Real unusual_total(const Row& row, Real divisor) {
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  const Extremes<Real> extremes = row.extremes();
  if (extremes.lowest != extremes.lowest) return extremes.lowest;
  if (extremes.lowest == -kInfinity)
    return extremes.highest == kInfinity ? std::numeric_limits<Real>::quiet_NaN() : -kInfinity;
  if (extremes.highest == kInfinity) return kInfinity;
  const int exponent = norms::scaling_exponent(vector_norm::largest_of(extremes), Real(0));
  const auto into = Factors<Real>::of(exponent), back = Factors<Real>::of(-exponent);
  return back.times(row.sum([into](Real x) { return into.times(x); }) / divisor);
}
template <class Row, class Real = typename Row::Real>
ISOBIT_INLINE Real total_of(const Row& row, Real sum, Real divisor) {
  if (std::isfinite(sum)) [[likely]]
    return sum / divisor;
  return unusual_total(row.rare(), divisor);
}

// The variance of a row times 4^exponent of its statistics, divided by its count.
template <class Row, class Real = typename Row::Real>
ISOBIT_NOINLINE Real unusual_spread(const Row& row, const Statistics<Real>& statistics, Real n) {
  if (statistics.equal) return 0;
  if (statistics.mean != statistics.mean) return std::numeric_limits<Real>::quiet_NaN();
  using Any = layernorm::NormaliseAny<typename Row::Scalar>;
  const Moments<Real> moments =
      row.moments([any = Any(statistics)](Real x) { return any.centered(x); });
  return layernorm::detail::variance(moments.sum / n, moments.squares / n);
}
template <class Row, class Real = typename Row::Real>
ISOBIT_INLINE Real spread_of(const Row& row, const Statistics<Real>& statistics,
                             const Moments<Real>& deviations, Real n) {
  if (statistics.plain) [[likely]]
    return layernorm::detail::variance(deviations.sum / n, deviations.squares / n);
  return unusual_spread(row.rare(), statistics, n);
}

// The root of the squares' sum of a row, times 2^exponent.
template <class Real>
struct Length {
  Real root;
  int exponent;
};
template <class Row, class Real = typename Row::Real>
ISOBIT_INLINE Length<Real> length_of(const Row& row, Real squares) {
  if (norms::in_range(squares)) [[likely]]
    return {std::sqrt(squares), 0};
  const auto& rare = row.rare();
  const Real most = vector_norm::largest_of(rare.extremes());
  if (most == 0 || most != most || most == std::numeric_limits<Real>::infinity()) return {most, 0};
  const int exponent = norms::scaling_exponent(most, Real(0));
  const auto into = Factors<Real>::of(exponent);
  return {std::sqrt(rare.moments([into](Real x) { return into.times(x); }).squares), exponent};
}

// What y is of a row: of its first round, and of its second one where it is centred.
template <class Row, class Real = typename Row::Real>
ISOBIT_INLINE Real result_of(const Measure<Real>& measure, const Row& row,
                             const Moments<Real>& first, Real mean,
                             const Moments<Real>& deviations) {
  switch (measure.kind) {
    case Kind::sum:  return total_of(row, first.sum, Real(1));
    case Kind::mean: return total_of(row, first.sum, measure.n);
    case Kind::var:
    case Kind::std:  {
      const Statistics<Real> statistics =
          layernorm::Formula::statistics(row, mean, deviations, measure.count, Real(0));
      const Real spread =
          spread_of(row, statistics, deviations, measure.n) * (measure.n / measure.freedom);
      if (measure.kind == Kind::var) return std::ldexp(spread, -2 * statistics.exponent);
      return std::ldexp(std::sqrt(spread), -statistics.exponent);
    }
    case Kind::l2: {
      const Length<Real> length = length_of(row, first.squares);
      return Factors<Real>::of(-length.exponent).times(length.root);
    }
    case Kind::smallest: return first.squares;
    case Kind::max:
    case Kind::min:      return measure.extreme_of(first) + 0;  // of zeros, +0
    default:             return first.sum;
  }
}

// How an element's gradient follows from the element.
enum class Form { constant, centred, signs, matches };

ISOBIT_INLINE Form form_of(Kind kind) {
  switch (kind) {
    case Kind::var:
    case Kind::std:
    case Kind::l2:       return Form::centred;
    case Kind::l1:
    case Kind::largest:
    case Kind::smallest: return Form::signs;
    case Kind::max:
    case Kind::min:      return Form::matches;
    default:             return Form::constant;
  }
}

// The numbers of a row that its gradient is made of.
// constant: factor everywhere.
// centred: x is scaled by `into` and centred, multiplied by rstd and factor, and scaled back.
// signs: factor with the sign of x where low <= |x| <= high, and `none` elsewhere.
// matches: factor where low <= x <= high, and `none` elsewhere.
template <class Real>
struct Slope {
  Real factor = 0;
  Real into[2] = {1, 1}, mean = 0, shift = 0, residue = 0, rstd = 1, back[2] = {1, 1};
  Real low = 0, high = 0, none = 0;
};

template <class Row, class Real = typename Row::Real>
ISOBIT_INLINE Slope<Real> centred_slope(const Measure<Real>& measure, const Row& row, Real grad,
                                        Real mean, const Moments<Real>& deviations) {
  Slope<Real> slope;
  const Statistics<Real> statistics =
      layernorm::Formula::statistics(row, mean, deviations, measure.count, Real(0));
  const int exponent = statistics.exponent;
  const auto into = Factors<Real>::of(exponent), back = Factors<Real>::of(-exponent);
  slope.into[0] = statistics.equal ? Real(0) : into.first;
  slope.into[1] = statistics.equal ? Real(0) : into.second;
  slope.mean = statistics.mean;
  slope.shift = statistics.shift;
  slope.residue = statistics.residue;
  if (measure.kind == Kind::var) {
    slope.factor = 2 * grad / measure.freedom;
    slope.back[0] = back.first;
    slope.back[1] = back.second;
    return slope;
  }
  const Real root =
      std::sqrt(spread_of(row, statistics, deviations, measure.n) * (measure.n / measure.freedom));
  slope.rstd = root == 0 ? Real(0) : 1 / root;
  slope.factor = root == 0 ? Real(0) : grad / measure.freedom;
  return slope;
}

// second: the mean that the second round was centred at, or the largest or smallest magnitude or
// element, of which it counted the equals.
template <class Row, class Real = typename Row::Real>
ISOBIT_INLINE Slope<Real> slope_of(const Measure<Real>& measure, const Row& row, Real grad,
                                   const Moments<Real>& first, Real second,
                                   const Moments<Real>& of_second) {
  Slope<Real> slope;
  switch (measure.kind) {
    case Kind::sum:  slope.factor = grad; break;
    case Kind::mean: slope.factor = grad / measure.n; break;
    case Kind::var:
    case Kind::std:  return centred_slope(measure, row, grad, second, of_second);
    case Kind::l2:   {
      const Length<Real> length = length_of(row, first.squares);
      const auto into = Factors<Real>::of(length.exponent);
      slope.into[0] = into.first;
      slope.into[1] = into.second;
      slope.rstd = length.root == 0 ? Real(0) : 1 / length.root;
      slope.factor = length.root == 0 ? Real(0) : grad;
      break;
    }
    case Kind::l1:
      slope.factor = grad;
      slope.high = std::numeric_limits<Real>::infinity();
      break;
    case Kind::largest:
    case Kind::smallest:
    case Kind::max:
    case Kind::min:
      slope.low = slope.high = second;
      if (second != second)
        slope.factor = slope.none = second;
      else
        slope.factor = grad / of_second.sum;
      break;
    default: break;
  }
  return slope;
}

// The numbers of rows in the lanes of vectors, or of one row in all lanes.
template <class S>
struct Slopes {
  using V = typename S::V;
  using Real = typename S::Real;
  V factor, into0, into1, mean, shift, residue, rstd, back0, back1, low, high, none;

  ISOBIT_INLINE static Slopes all(const Slope<Real>& row) {
    return {S::all(row.factor),  S::all(row.into[0]), S::all(row.into[1]), S::all(row.mean),
            S::all(row.shift),   S::all(row.residue), S::all(row.rstd),    S::all(row.back[0]),
            S::all(row.back[1]), S::all(row.low),     S::all(row.high),    S::all(row.none)};
  }

  template <Form kForm>
  ISOBIT_INLINE V gradient(V x) const {
    if constexpr (kForm == Form::constant) {
      return factor;
    } else if constexpr (kForm == Form::centred) {
      const V scaled = S::mul(S::mul(x, into0), into1);
      const V centred = S::sub(S::sub(S::sub(scaled, mean), shift), residue);
      return S::mul(S::mul(S::mul(S::mul(centred, rstd), factor), back0), back1);
    } else if constexpr (kForm == Form::matches) {
      return S::choose(S::less(x, low), none, S::choose(S::less(high, x), none, factor));
    } else {
      const V zero = S::all(Real(0)), size = magnitude_of<S>(x);
      // 0 of zeros, and NaN of NaN.
      const V other = S::add(S::add(S::mul(x, zero), zero), none);
      const V signed_factor =
          S::choose(S::less(zero, x), factor,
                    S::choose(S::less(x, zero), S::sub(S::all(Real(-0.0)), factor), other));
      return S::choose(S::less(size, low), none,
                       S::choose(S::less(high, size), none, signed_factor));
    }
  }
};

// Calls body(FormConstant) with the form of a kind.
template <Form kForm>
struct FormConstant {
  static constexpr Form value = kForm;
};
template <class Body>
ISOBIT_INLINE void with_form(Kind kind, const Body& body) {
  switch (form_of(kind)) {
    case Form::constant: return body(FormConstant<Form::constant>{});
    case Form::centred:  return body(FormConstant<Form::centred>{});
    case Form::matches:  return body(FormConstant<Form::matches>{});
    default:             return body(FormConstant<Form::signs>{});
  }
}

}  // namespace isobit::reduce
