// SPDX-License-Identifier: Apache-2.0
// The losses and their slopes, of scalars and vectors, on every back end. S offers the operations
// of simd's F32.
#pragma once

#include <limits>

#include "isobit/functions/exponential.h"
#include "isobit/functions/logarithm.h"
#include "isobit/functions/logistic.h"
#include "isobit/ops/pointwise_loss/pointwise_loss.h"

namespace isobit::pointwise_loss {

using functions::all;
using functions::kSingle;
using functions::magnitude;
using functions::negative;
using functions::VectorOf;

// One element of a call, or a vector of them. weight and pos_weight are 1 where there is none.
template <class S>
struct Element {
  VectorOf<S> x, target, weight, pos_weight;
};

// Which loss, and what is known of all elements of a call: a weight that none has is 1, which needs
// no care.
template <class Real>
struct Rule {
  Kind kind;
  Real beta;
  bool has_weight, has_pos_weight;
};

// What a step gives, or NaN where that is below the normal numbers and may have lost digits, which
// a factor that follows would bring to light. Nothing is lost where `unless` is 0.
template <class S>
ISOBIT_INLINE VectorOf<S> kept(VectorOf<S> value, VectorOf<S> unless) {
  using Limits = std::numeric_limits<typename S::Real>;
  const auto lost = S::choose(S::less(all<S>(0), unless), S::all(Limits::quiet_NaN()), value);
  return S::choose(S::less(magnitude<S>(value), S::all(Limits::min())), lost, value);
}
// How far a weight is from 1, by which nothing is lost.
template <class S>
ISOBIT_INLINE VectorOf<S> beside_one(VectorOf<S> weight) {
  return magnitude<S>(S::sub(weight, all<S>(1)));
}
// A weight times a number.
template <class S>
ISOBIT_INLINE VectorOf<S> weighted(bool has_weight, VectorOf<S> weight, VectorOf<S> x) {
  const auto result = S::mul(weight, x);
  if (!has_weight) return result;
  const auto least = S::min(magnitude<S>(weight), magnitude<S>(x));
  return kept<S>(result, S::min(least, beside_one<S>(weight)));
}

// 1, -1, or x itself where it is 0 or NaN.
template <class S>
ISOBIT_INLINE VectorOf<S> sign(VectorOf<S> x) {
  return S::choose(S::less(all<S>(0), x), all<S>(1),
                   S::choose(S::less(x, all<S>(0)), all<S>(-1), x));
}

// log(1 + e) of an e from 0 to 1, with what the sum lost.
template <class S>
ISOBIT_INLINE VectorOf<S> log_of_one_and(VectorOf<S> e) {
  const auto sum = S::add(all<S>(1), e);
  const auto missed = S::div(S::sub(e, S::sub(sum, all<S>(1))), sum);
  return S::add(functions::log<S>(sum), missed);
}

// How much the part of a loss counts that is there for targets of 1.
template <class S>
ISOBIT_INLINE VectorOf<S> share(const Element<S>& element) {
  return S::fma(S::sub(element.pos_weight, all<S>(1)), element.target, all<S>(1));
}

// The cross entropy of a logit is share * log(1 + e^-|x|) + straight * x: nothing cancels.
template <class S>
ISOBIT_INLINE VectorOf<S> straight(bool has_pos_weight, const Element<S>& element) {
  return S::choose(S::less(element.x, all<S>(0)),
                   negative<S>(weighted<S>(has_pos_weight, element.pos_weight, element.target)),
                   S::sub(all<S>(1), element.target));
}

template <class S>
ISOBIT_INLINE VectorOf<S> cross_entropy(const Rule<typename S::Real>& rule,
                                        const Element<S>& element) {
  auto decay = functions::exp<S>(negative<S>(magnitude<S>(element.x)));
  if (rule.has_pos_weight) decay = kept<S>(decay, beside_one<S>(element.pos_weight));
  const auto bent = S::mul(share<S>(element), log_of_one_and<S>(decay));
  const auto result = S::fma(straight<S>(rule.has_pos_weight, element), element.x, bent);
  return rule.has_weight ? kept<S>(result, beside_one<S>(element.weight)) : result;
}

template <class S>
ISOBIT_INLINE VectorOf<S> slope_of_cross_entropy(const Rule<typename S::Real>& rule,
                                                 const Element<S>& element) {
  const auto far = negative<S>(magnitude<S>(element.x));
  auto small = functions::number<S>(functions::sigmoid<S>(far));
  if (rule.has_pos_weight) small = kept<S>(small, beside_one<S>(element.pos_weight));
  const auto part = share<S>(element);
  const auto signed_part = S::choose(S::less(element.x, all<S>(0)), part, negative<S>(part));
  return kept<S>(S::fma(signed_part, small, straight<S>(rule.has_pos_weight, element)), all<S>(1));
}

// The weight goes first: of a small one a square need not leave the range. NaN where a step lost
// digits below it.
template <class S>
ISOBIT_INLINE VectorOf<S> plain_loss(const Rule<typename S::Real>& rule,
                                     const Element<S>& element) {
  const auto difference = S::sub(element.x, element.target);
  const auto distance = magnitude<S>(difference), beta = S::all(rule.beta);
  const auto half = S::mul(all<S>(0.5), distance), weight = element.weight;
  const auto less = S::minus_product(beta, all<S>(0.5), distance);
  switch (rule.kind) {
    case Kind::mse:       return S::mul(weighted<S>(rule.has_weight, weight, difference), difference);
    case Kind::l1:        return S::mul(weight, distance);
    case Kind::smooth_l1: {
      auto slope = S::div(half, beta);
      if (rule.beta > 0x1p100f) slope = kept<S>(slope, distance);  // beside others it is no matter
      auto near = S::mul(slope, distance);
      if (rule.has_weight) near = kept<S>(near, distance);
      return S::mul(weight, S::choose(S::less(distance, beta), near, less));
    }
    case Kind::huber:
      return S::choose(S::less(distance, beta),
                       S::mul(weighted<S>(rule.has_weight, weight, half), distance),
                       S::mul(weighted<S>(rule.has_weight, weight, beta), less));
    default: return S::mul(weight, cross_entropy<S>(rule, element));
  }
}

// The slope of the loss times what flows into it, or NaN where a step lost digits.
template <class S>
ISOBIT_INLINE VectorOf<S> plain_gradient(const Rule<typename S::Real>& rule,
                                         const Element<S>& element, VectorOf<S> grad_loss) {
  const auto difference = S::sub(element.x, element.target);
  const auto distance = magnitude<S>(difference), beta = S::all(rule.beta);
  const auto factor = weighted<S>(rule.has_weight, element.weight, grad_loss);
  switch (rule.kind) {
    case Kind::mse:       return S::mul(S::add(factor, factor), difference);
    case Kind::l1:        return S::mul(factor, sign<S>(difference));
    case Kind::smooth_l1: {
      auto slope = S::div(difference, beta);
      if (rule.beta != 1) slope = kept<S>(slope, distance);
      return S::mul(factor, S::choose(S::less(distance, beta), slope, sign<S>(difference)));
    }
    case Kind::huber:
      return S::mul(factor, S::choose(S::less(distance, beta), difference,
                                      S::mul(beta, sign<S>(difference))));
    default: return S::mul(factor, slope_of_cross_entropy<S>(rule, element));
  }
}

// The same with exponents apart, so that nothing leaves the range, at either end, but the result.
// What is plain is taken wherever it is finite.

namespace detail {

using functions::product;
using functions::quotient;
using functions::Scaled;
using functions::split;

template <class S>
ISOBIT_INLINE auto finite(VectorOf<S> x) {
  return S::less(magnitude<S>(x), S::all(std::numeric_limits<typename S::Real>::infinity()));
}
template <class S>
ISOBIT_INLINE bool all_finite(VectorOf<S> x) {
  const auto zeros = S::mul(x, all<S>(0));  // or NaN
  if constexpr (requires { S::fold(zeros); })
    return S::fold(zeros) == 0;
  else
    return zeros == 0;
}

template <class S, class Mask>
ISOBIT_INLINE Scaled<S> choose(Mask mask, const Scaled<S>& yes, const Scaled<S>& no) {
  return {S::choose(mask, yes.value, no.value), S::choose(mask, yes.exponent, no.exponent)};
}
template <class S>
ISOBIT_INLINE Scaled<S> negative(const Scaled<S>& x) {
  return {functions::negative<S>(x.value), x.exponent};
}
// 2x, and x / 2.
template <class S>
ISOBIT_INLINE Scaled<S> twice(const Scaled<S>& x) {
  return {x.value, S::add(x.exponent, all<S>(1))};
}
template <class S>
ISOBIT_INLINE Scaled<S> halved(const Scaled<S>& x) {
  return {x.value, S::sub(x.exponent, all<S>(1))};
}
// x, or twice its half where x is not finite.
template <class S>
ISOBIT_INLINE Scaled<S> whole(VectorOf<S> x, VectorOf<S> half) {
  return choose<S>(finite<S>(x), split<S>(x), twice<S>(split<S>(half)));
}
// A zero has no exponent that another number must be brought to.
template <class S>
ISOBIT_INLINE VectorOf<S> exponent_of(const Scaled<S>& x) {
  return S::choose(S::less(all<S>(0), magnitude<S>(x.value)), x.exponent, all<S>(-10000));
}
template <class S>
ISOBIT_INLINE VectorOf<S> brought(VectorOf<S> value, VectorOf<S> exponent, VectorOf<S> to) {
  return S::mul(value, functions::power_beside_one<S>(S::sub(exponent, to)));
}
// Of values below 1 in magnitude.
template <class S>
ISOBIT_INLINE Scaled<S> sum(const Scaled<S>& a, const Scaled<S>& b) {
  const auto of_a = exponent_of<S>(a), of_b = exponent_of<S>(b), most = S::max(of_a, of_b);
  return {S::add(brought<S>(a.value, of_a, most), brought<S>(b.value, of_b, most)), most};
}
// x, but 0 where no number brings it back into range.
template <class S>
ISOBIT_INLINE Scaled<S> or_zero(const Scaled<S>& x) {
  const auto least = all<S>(functions::FormatOf<S>::kLeastFactor);
  return {S::choose(S::less(x.exponent, least), all<S>(0), x.value), x.exponent};
}

template <class S>
ISOBIT_INLINE Scaled<S> any_share(const Element<S>& element) {
  const auto near = share<S>(element);
  const auto more = S::sub(element.pos_weight, all<S>(1));
  return choose<S>(finite<S>(near), split<S>(near),
                   product<S>(split<S>(more), split<S>(element.target)));
}
template <class S>
ISOBIT_INLINE Scaled<S> any_straight(const Element<S>& element) {
  const auto below = product<S>(split<S>(element.pos_weight), split<S>(element.target));
  return choose<S>(S::less(element.x, all<S>(0)), negative<S>(below),
                   split<S>(S::sub(all<S>(1), element.target)));
}
// log(1 + z) is z to its last place where z = e^-|x| is small.
template <class S>
ISOBIT_INLINE Scaled<S> any_logarithm(const Element<S>& element) {
  const auto far = functions::negative<S>(magnitude<S>(element.x));
  return choose<S>(S::less(far, all<S>(kSingle<S> ? -18 : -40)),
                   or_zero<S>(functions::scaled_exp<S>(far)),
                   split<S>(log_of_one_and<S>(functions::exp<S>(far))));
}

template <class S>
ISOBIT_INLINE Scaled<S> any_cross_entropy(const Element<S>& element) {
  return sum<S>(product<S>(any_straight<S>(element), split<S>(element.x)),
                product<S>(any_share<S>(element), any_logarithm<S>(element)));
}
template <class S>
ISOBIT_INLINE Scaled<S> any_slope_of_cross_entropy(const Element<S>& element) {
  const auto far = functions::negative<S>(magnitude<S>(element.x));
  const auto part = product<S>(any_share<S>(element), or_zero<S>(functions::sigmoid<S>(far)));
  return sum<S>(any_straight<S>(element),
                choose<S>(S::less(element.x, all<S>(0)), part, negative<S>(part)));
}

template <class S>
ISOBIT_NOINLINE VectorOf<S> any_loss(Rule<typename S::Real> rule, Element<S> element) {
  const auto beta = S::all(rule.beta);
  const auto plain = S::sub(element.x, element.target), distance = magnitude<S>(plain);
  const auto half_apart =
      S::sub(S::mul(all<S>(0.5), element.x), S::mul(all<S>(0.5), element.target));
  const auto difference = whole<S>(plain, half_apart);
  const auto less = whole<S>(S::minus_product(beta, all<S>(0.5), distance),
                             S::minus_product(beta, all<S>(0.25), magnitude<S>(half_apart)));
  const auto near = S::less(distance, beta);
  const auto bend = split<S>(beta), whole_way = split<S>(distance);
  const auto half_way = halved<S>(whole_way);
  Scaled<S> result;
  switch (rule.kind) {
    case Kind::mse: result = product<S>(difference, difference); break;
    case Kind::l1:  result = {magnitude<S>(difference.value), difference.exponent}; break;
    case Kind::smooth_l1:
      result = choose<S>(near, product<S>(quotient<S>(half_way, bend), whole_way), less);
      break;
    case Kind::huber:
      result = product<S>(choose<S>(near, half_way, bend), choose<S>(near, whole_way, less));
      break;
    default: result = any_cross_entropy<S>(element); break;
  }
  return functions::number<S>(product<S>(split<S>(element.weight), result));
}

template <class S>
ISOBIT_NOINLINE VectorOf<S> any_gradient(Rule<typename S::Real> rule, Element<S> element,
                                         VectorOf<S> grad_loss) {
  const auto beta = S::all(rule.beta);
  const auto plain = S::sub(element.x, element.target);
  const auto near = S::less(magnitude<S>(plain), beta);
  Scaled<S> slope;
  switch (rule.kind) {
    case Kind::mse:
      slope = twice<S>(whole<S>(
          plain, S::sub(S::mul(all<S>(0.5), element.x), S::mul(all<S>(0.5), element.target))));
      break;
    case Kind::l1: slope = split<S>(sign<S>(plain)); break;
    case Kind::smooth_l1:
      slope =
          choose<S>(near, quotient<S>(split<S>(plain), split<S>(beta)), split<S>(sign<S>(plain)));
      break;
    case Kind::huber: slope = split<S>(S::choose(near, plain, S::mul(beta, sign<S>(plain)))); break;
    default:          slope = any_slope_of_cross_entropy<S>(element); break;
  }
  const auto factor = product<S>(split<S>(element.weight), split<S>(grad_loss));
  return functions::number<S>(product<S>(factor, slope));
}

}  // namespace detail

template <class S>
ISOBIT_INLINE VectorOf<S> loss(const Rule<typename S::Real>& rule, const Element<S>& element) {
  const auto plain = plain_loss<S>(rule, element);
  if (detail::all_finite<S>(plain)) [[likely]]
    return plain;
  return S::choose(detail::finite<S>(plain), plain, detail::any_loss<S>(rule, element));
}

template <class S>
ISOBIT_INLINE VectorOf<S> gradient(const Rule<typename S::Real>& rule, const Element<S>& element,
                                   VectorOf<S> grad_loss) {
  const auto plain = plain_gradient<S>(rule, element, grad_loss);
  if (detail::all_finite<S>(plain)) [[likely]]
    return plain;
  return S::choose(detail::finite<S>(plain), plain,
                   detail::any_gradient<S>(rule, element, grad_loss));
}

}  // namespace isobit::pointwise_loss
