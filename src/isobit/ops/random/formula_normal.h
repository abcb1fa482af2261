// SPDX-License-Identifier: Apache-2.0
// The normal distribution's integral and, the other way, the number beyond which a probability
// lies: Wichura's rational functions (Applied Statistics 37, 1988, algorithm AS 241), in f64.
#pragma once

#include "isobit/functions/logarithm.h"
#include "isobit/functions/normal.h"
#include "isobit/functions/root.h"

namespace isobit::random {

using functions::VectorOf;

// How likely a normal number is below x.
template <class S>
ISOBIT_INLINE VectorOf<S> probability_below(VectorOf<S> x) {
  constexpr double kRootHalf = 0x1.6a09e667f3bcdp-1;
  return S::mul(S::all(0.5), functions::erfc<S>(S::mul(x, S::all(-kRootHalf))));
}

// Two values of a fraction, of which one is wanted, cost one division.
template <class S>
struct Fraction {
  VectorOf<S> above, below;
};

// The x >= 0 that a normal number exceeds with probability p, 2^-1000 <= p <= 1/2.
template <class S>
ISOBIT_INLINE VectorOf<S> number_exceeded(VectorOf<S> p) {
  using functions::polynomial;
  const auto q = S::sub(S::all(0.5), p);
  const auto inner = S::minus_product(q, q, S::all(0.180625));
  const Fraction<S> center{
      S::mul(q, polynomial<S>(inner, 3.3871328727963666080e0, 1.3314166789178437745e2,
                              1.9715909503065514427e3, 1.3731693765509461125e4,
                              4.5921953931549871457e4, 6.7265770927008700853e4,
                              3.3430575583588128105e4, 2.5090809287301226727e3)),
      polynomial<S>(inner, 1.0, 4.2313330701600911252e1, 6.8718700749205790830e2,
                    5.3941960214247511077e3, 2.1213794301586595867e4, 3.9307895800092710610e4,
                    2.8729085735721942674e4, 5.2264952788528545610e3)};

  const auto distance = functions::sqrt<S>(functions::negative<S>(functions::log<S>(p)));
  const auto near = S::sub(distance, S::all(1.6)), far = S::sub(distance, S::all(5.0));
  const Fraction<S> tail{
      polynomial<S>(near, 1.42343711074968357734e0, 4.63033784615654529590e0,
                    5.76949722146069140550e0, 3.64784832476320460504e0, 1.27045825245236838258e0,
                    2.41780725177450611770e-1, 2.27238449892691845833e-2,
                    7.74545014278341407640e-4),
      polynomial<S>(near, 1.0, 2.05319162663775882187e0, 1.67638483018380384940e0,
                    6.89767334985100004550e-1, 1.48103976427480074590e-1, 1.51986665636164571966e-2,
                    5.47593808499534494600e-4, 1.05075007164441684324e-9)};
  const Fraction<S> end{
      polynomial<S>(far, 6.65790464350110377720e0, 5.46378491116411436990e0,
                    1.78482653991729133580e0, 2.96560571828504891230e-1, 2.65321895265761230930e-2,
                    1.24266094738807843860e-3, 2.71155556874348757815e-5,
                    2.01033439929228813265e-7),
      polynomial<S>(far, 1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1,
                    1.48753612908506148525e-2, 7.86869131145613259100e-4, 1.84631831751005468180e-5,
                    1.42151175831644588870e-7, 2.04426310338993978564e-15)};

  const auto outside = S::less(S::all(0.425), q), beyond = S::less(S::all(5.0), distance);
  const auto one_of = [&](VectorOf<S> in_center, VectorOf<S> in_tail, VectorOf<S> at_end) {
    return S::choose(outside, S::choose(beyond, at_end, in_tail), in_center);
  };
  return S::div(one_of(center.above, tail.above, end.above),
                one_of(center.below, tail.below, end.below));
}

}  // namespace isobit::random
