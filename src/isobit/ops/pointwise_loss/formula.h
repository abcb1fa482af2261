// SPDX-License-Identifier: Apache-2.0
// The losses and their slopes, of scalars and vectors, on every back end. S offers the operations
// of simd's F32.
#pragma once

#include "isobit/functions/exponential.h"
#include "isobit/functions/logarithm.h"
#include "isobit/functions/logistic.h"
#include "isobit/ops/pointwise_loss/pointwise_loss.h"

namespace isobit::pointwise_loss {

using functions::all;
using functions::magnitude;
using functions::negative;
using functions::VectorOf;

// One element of a call, or a vector of them. weight and pos_weight are 1 where there is none.
template <class S>
struct Element {
  VectorOf<S> x, target, weight, pos_weight;
};

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
                   negative<S>(S::mul(element.pos_weight, element.target)),
                   S::sub(all<S>(1), element.target));
}

template <class S>
ISOBIT_INLINE VectorOf<S> cross_entropy(const Element<S>& element) {
  const auto decay = functions::exp<S>(negative<S>(magnitude<S>(element.x)));
  const auto bent = S::mul(share<S>(element), log_of_one_and<S>(decay));
  return S::fma(straight<S>(element), element.x, bent);
}

template <class S>
ISOBIT_INLINE VectorOf<S> slope_of_cross_entropy(const Element<S>& element) {
  const auto far = negative<S>(magnitude<S>(element.x));
  const auto small = functions::number<S>(functions::sigmoid<S>(far));
  const auto part = share<S>(element);
  const auto signed_part = S::choose(S::less(element.x, all<S>(0)), part, negative<S>(part));
  return S::fma(signed_part, small, straight<S>(element));
}

// The weight goes first, so that nothing leaves the range before the result does.
template <class S>
ISOBIT_INLINE VectorOf<S> loss(Kind kind, typename S::Real beta, const Element<S>& element) {
  const auto difference = S::sub(element.x, element.target);
  const auto distance = magnitude<S>(difference);
  const auto half = S::mul(all<S>(0.5), distance), weight = element.weight;
  const auto less = S::minus_product(S::all(beta), all<S>(0.5), distance);
  switch (kind) {
    case Kind::mse: return S::mul(S::mul(weight, difference), difference);
    case Kind::l1:  return S::mul(weight, distance);
    case Kind::smooth_l1:
      return S::mul(weight, S::choose(S::less(distance, S::all(beta)),
                                      S::mul(S::div(half, S::all(beta)), distance), less));
    case Kind::huber:
      return S::choose(S::less(distance, S::all(beta)), S::mul(S::mul(weight, half), distance),
                       S::mul(S::mul(weight, S::all(beta)), less));
    default: return S::mul(weight, cross_entropy<S>(element));
  }
}

// The slope of the loss times what flows into it. The slope of a square is doubled last, so that
// nothing leaves the range before the result does.
template <class S>
ISOBIT_INLINE VectorOf<S> gradient(Kind kind, typename S::Real beta, const Element<S>& element,
                                   VectorOf<S> grad_loss) {
  const auto difference = S::sub(element.x, element.target);
  const auto distance = magnitude<S>(difference);
  VectorOf<S> slope;
  switch (kind) {
    case Kind::mse: slope = difference; break;
    case Kind::l1:  slope = sign<S>(difference); break;
    case Kind::smooth_l1:
      slope = S::choose(S::less(distance, S::all(beta)), S::div(difference, S::all(beta)),
                        sign<S>(difference));
      break;
    case Kind::huber:
      slope = S::choose(S::less(distance, S::all(beta)), difference,
                        S::mul(S::all(beta), sign<S>(difference)));
      break;
    default: slope = slope_of_cross_entropy<S>(element); break;
  }
  const auto result = S::mul(S::mul(element.weight, grad_loss), slope);
  return kind == Kind::mse ? S::add(result, result) : result;
}

}  // namespace isobit::pointwise_loss
