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

// What a step gives, or NaN where that is below the normal numbers and may have lost digits, which
// a factor that follows would bring to light. A step of a zero has none to lose.
template <class S>
ISOBIT_INLINE VectorOf<S> kept(VectorOf<S> value, VectorOf<S> least_part) {
  using Limits = std::numeric_limits<typename S::Real>;
  const auto loses = S::choose(S::less(all<S>(0), least_part), S::all(Limits::quiet_NaN()), value);
  return S::choose(S::less(magnitude<S>(value), S::all(Limits::min())), loses, value);
}
template <class S>
ISOBIT_INLINE VectorOf<S> kept(VectorOf<S> value) {
  return kept<S>(value, all<S>(1));
}
template <class S>
ISOBIT_INLINE VectorOf<S> kept_product(VectorOf<S> a, VectorOf<S> b) {
  return kept<S>(S::mul(a, b), S::min(magnitude<S>(a), magnitude<S>(b)));
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
ISOBIT_INLINE VectorOf<S> straight(const Element<S>& element) {
  return S::choose(S::less(element.x, all<S>(0)),
                   negative<S>(kept_product<S>(element.pos_weight, element.target)),
                   S::sub(all<S>(1), element.target));
}

template <class S>
ISOBIT_INLINE VectorOf<S> cross_entropy(const Element<S>& element) {
  const auto decay = kept<S>(functions::exp<S>(negative<S>(magnitude<S>(element.x))));
  const auto bent = S::mul(share<S>(element), log_of_one_and<S>(decay));
  return kept<S>(S::fma(straight<S>(element), element.x, bent));
}

template <class S>
ISOBIT_INLINE VectorOf<S> slope_of_cross_entropy(const Element<S>& element) {
  const auto far = negative<S>(magnitude<S>(element.x));
  const auto small = kept<S>(functions::number<S>(functions::sigmoid<S>(far)));
  const auto part = share<S>(element);
  const auto signed_part = S::choose(S::less(element.x, all<S>(0)), part, negative<S>(part));
  return kept<S>(S::fma(signed_part, small, straight<S>(element)));
}

// The weight goes first: of a small one a square need not leave the range. NaN where digits are
// lost below it.
template <class S>
ISOBIT_INLINE VectorOf<S> plain_loss(Kind kind, typename S::Real beta, const Element<S>& element) {
  const auto difference = S::sub(element.x, element.target);
  const auto distance = magnitude<S>(difference);
  const auto half = kept<S>(S::mul(all<S>(0.5), distance), distance), weight = element.weight;
  const auto less = S::minus_product(S::all(beta), all<S>(0.5), distance);
  switch (kind) {
    case Kind::mse: return S::mul(kept_product<S>(weight, difference), difference);
    case Kind::l1:  return S::mul(weight, distance);
    case Kind::smooth_l1: {
      const auto share = kept<S>(S::div(half, S::all(beta)), distance);
      return S::mul(weight, S::choose(S::less(distance, S::all(beta)),
                                      kept_product<S>(share, distance), less));
    }
    case Kind::huber:
      return S::choose(S::less(distance, S::all(beta)),
                       S::mul(kept_product<S>(weight, half), distance),
                       S::mul(kept_product<S>(weight, S::all(beta)), less));
    default: return S::mul(weight, cross_entropy<S>(element));
  }
}

// The slope of the loss times what flows into it, or NaN where digits are lost. The slope of a
// square is doubled last.
template <class S>
ISOBIT_INLINE VectorOf<S> plain_gradient(Kind kind, typename S::Real beta,
                                         const Element<S>& element, VectorOf<S> grad_loss) {
  const auto difference = S::sub(element.x, element.target);
  const auto distance = magnitude<S>(difference);
  VectorOf<S> slope;
  switch (kind) {
    case Kind::mse: slope = difference; break;
    case Kind::l1:  slope = sign<S>(difference); break;
    case Kind::smooth_l1:
      slope = S::choose(S::less(distance, S::all(beta)),
                        kept<S>(S::div(difference, S::all(beta)), distance), sign<S>(difference));
      break;
    case Kind::huber:
      slope = S::choose(S::less(distance, S::all(beta)), difference,
                        S::mul(S::all(beta), sign<S>(difference)));
      break;
    default: slope = slope_of_cross_entropy<S>(element); break;
  }
  const auto factor = kept_product<S>(element.weight, grad_loss);
  if (kind != Kind::mse) return S::mul(factor, slope);
  const auto half = kept_product<S>(factor, slope);
  return S::add(half, half);
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
ISOBIT_NOINLINE VectorOf<S> any_loss(Kind kind, typename S::Real beta, Element<S> element) {
  const auto plain = S::sub(element.x, element.target), distance = magnitude<S>(plain);
  const auto half_apart =
      S::sub(S::mul(all<S>(0.5), element.x), S::mul(all<S>(0.5), element.target));
  const auto difference = whole<S>(plain, half_apart);
  const auto less =
      whole<S>(S::minus_product(S::all(beta), all<S>(0.5), distance),
               S::minus_product(S::all(beta), all<S>(0.25), magnitude<S>(half_apart)));
  const auto near = S::less(distance, S::all(beta));
  const auto bend = split<S>(S::all(beta)), whole_way = split<S>(distance);
  const auto half_way = halved<S>(whole_way);
  Scaled<S> result;
  switch (kind) {
    case Kind::mse: result = product<S>(difference, difference); break;
    case Kind::l1:  result = {magnitude<S>(difference.value), difference.exponent}; break;
    case Kind::smooth_l1:
      result = choose<S>(near, product<S>(quotient<S>(half_way, bend), whole_way), less);
      break;
    case Kind::huber:
      result =
          product<S>(choose<S>(near, half_way, bend), choose<S>(near, whole_way, less));
      break;
    default: result = any_cross_entropy<S>(element); break;
  }
  return functions::number<S>(product<S>(split<S>(element.weight), result));
}

template <class S>
ISOBIT_NOINLINE VectorOf<S> any_gradient(Kind kind, typename S::Real beta, Element<S> element,
                                         VectorOf<S> grad_loss) {
  const auto plain = S::sub(element.x, element.target);
  const auto near = S::less(magnitude<S>(plain), S::all(beta));
  Scaled<S> slope;
  switch (kind) {
    case Kind::mse:
      slope = twice<S>(whole<S>(
          plain, S::sub(S::mul(all<S>(0.5), element.x), S::mul(all<S>(0.5), element.target))));
      break;
    case Kind::l1: slope = split<S>(sign<S>(plain)); break;
    case Kind::smooth_l1:
      slope = choose<S>(near, quotient<S>(split<S>(plain), split<S>(S::all(beta))),
                        split<S>(sign<S>(plain)));
      break;
    case Kind::huber:
      slope = split<S>(S::choose(near, plain, S::mul(S::all(beta), sign<S>(plain))));
      break;
    default: slope = any_slope_of_cross_entropy<S>(element); break;
  }
  const auto factor = product<S>(split<S>(element.weight), split<S>(grad_loss));
  return functions::number<S>(product<S>(factor, slope));
}

}  // namespace detail

template <class S>
ISOBIT_INLINE VectorOf<S> loss(Kind kind, typename S::Real beta, const Element<S>& element) {
  const auto plain = plain_loss<S>(kind, beta, element);
  if (detail::all_finite<S>(plain)) [[likely]]
    return plain;
  return S::choose(detail::finite<S>(plain), plain, detail::any_loss<S>(kind, beta, element));
}

template <class S>
ISOBIT_INLINE VectorOf<S> gradient(Kind kind, typename S::Real beta, const Element<S>& element,
                                   VectorOf<S> grad_loss) {
  const auto plain = plain_gradient<S>(kind, beta, element, grad_loss);
  if (detail::all_finite<S>(plain)) [[likely]]
    return plain;
  return S::choose(detail::finite<S>(plain), plain,
                   detail::any_gradient<S>(kind, beta, element, grad_loss));
}

}  // namespace isobit::pointwise_loss
