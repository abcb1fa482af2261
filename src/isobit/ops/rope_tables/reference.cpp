// SPDX-License-Identifier: Apache-2.0
// Angles in quad, brought near zero there, then the C library's functions in long double.
#include "isobit/ops/rope_tables/reference.h"

#include <cmath>
#include <vector>

#include "isobit/core/quad.h"

namespace isobit::rope_tables {
namespace {

quad power(quad x, std::int64_t n) {
  quad result = 1;
  for (; n > 0; n >>= 1, x *= x)
    if (n & 1) result *= x;
  return result;
}

// base^(-i / pairs) of all i, rounded to double as they are defined. The root by Newton's steps,
// whose last is exact to the last bits of quad.
std::vector<double> frequencies(double base, std::int64_t pairs) {
  std::vector<double> all;
  if (pairs == 0) return all;
  const quad count = static_cast<quad>(pairs);
  quad ratio = static_cast<quad>(std::pow(base, -1.0 / static_cast<double>(pairs)));
  for (int step = 0; step < 3; ++step)
    ratio -= ratio * ((power(ratio, pairs) * static_cast<quad>(base) - 1) / count);
  for (std::int64_t i = 0; i < pairs; ++i) all.push_back(static_cast<double>(power(ratio, i)));
  return all;
}

struct CosineSine {
  long double cosine, sine;
};

CosineSine turn(quad angle) {
  const quad half_pi = static_cast<quad>(0x1.921fb54442d18p0) +
                       static_cast<quad>(0x1.1a62633145c07p-54) +
                       static_cast<quad>(-0x1.f1976b7ed8fbcp-110);
  const auto quarters = static_cast<std::int64_t>(std::rint(static_cast<double>(angle / half_pi)));
  const auto left = static_cast<long double>(angle - static_cast<quad>(quarters) * half_pi);
  const long double cosine = std::cos(left), sine = std::sin(left);
  switch (quarters & 3) {
    case 0:  return {cosine, sine};
    case 1:  return {-sine, cosine};
    case 2:  return {-cosine, -sine};
    default: return {sine, -cosine};
  }
}

template <class Real>
void compute(const Args& exact, const Args& scale) {
  const auto at = [](const TensorView& view, std::int64_t i) {
    return static_cast<const Real*>(view.data)[i];
  };
  const auto put = [](const TensorView& view, std::int64_t i, long double value) {
    if (view.given()) static_cast<Real*>(view.data)[i] = static_cast<Real>(value);
  };
  const std::int64_t length = exact.cos.shape[0], pairs = exact.cos.shape[1];
  std::vector<double> computed;
  if (!exact.inv_freq.given()) computed = frequencies(exact.base, pairs);
  for (std::int64_t row = 0; row < length; ++row) {
    const quad given = exact.positions.given() ? static_cast<quad>(at(exact.positions, row))
                                               : static_cast<quad>(row);
    const quad position = given + static_cast<quad>(exact.offset_positions);
    for (std::int64_t i = 0; i < pairs; ++i) {
      const quad frequency = computed.empty() ? static_cast<quad>(at(exact.inv_freq, i))
                                              : static_cast<quad>(computed[i]);
      const CosineSine found = turn(position * frequency);
      const std::int64_t place = row * pairs + i;
      put(exact.cos, place, found.cosine);
      put(exact.sin, place, found.sine);
      put(scale.cos, place, std::fabs(found.cosine));
      put(scale.sin, place, std::fabs(found.sine));
    }
  }
}

}  // namespace

void reference(const Args& exact, const Args& scale, const Rounding&) {
  if (exact.cos.dtype == DType::f128)
    compute<quad>(exact, scale);
  else
    compute<double>(exact, scale);
}

// Nothing stands between the angles and the tables.
void intermediates(const Args& exact, const Rounding& rounding, const EmitArray& emit) {
  reference(exact, {}, rounding);
  const std::int64_t length = exact.cos.shape[0], pairs = exact.cos.shape[1];
  const auto values = [&](const TensorView& view) {
    const auto* from = static_cast<const double*>(view.data);
    return std::vector<double>(from, from + length * pairs);
  };
  emit("cos", length, pairs, values(exact.cos));
  emit("sin", length, pairs, values(exact.sin));
}

}  // namespace isobit::rope_tables
