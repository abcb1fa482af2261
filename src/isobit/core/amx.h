// SPDX-License-Identifier: Apache-2.0
// How AMX multiplies tiles of bf16 (TDPBF16PS, as Intel documents it), element by element, and the
// order of sums that products of arithmetic `tensor` have on processors: the one place that says
// it. Every variant adds in this order, with AMX or without.
//
// A step is 32 k; beyond the last k, both factors count as +0. Its even and its odd k are two
// chains of fma from +0, k ascending; the two are added, and that to the sum of the steps before,
// from +0. Runs of 256 steps are added by adjacent pairs, as float adds; the total gets +0 once.
// Within a run every number is rounded to nearest even as if floats had no smallest exponent, and
// counts as 0 of its sign where it is then below the smallest normal number; so do the factors.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "isobit/core/inline.h"
#include "isobit/core/order.h"

namespace isobit::amx {

// Why this process cannot multiply tiles of bf16 by AMX; empty where it can. The first call asks
// the system for its registers, for all threads: from then on what a signal handler's stack must
// hold is some 11 KiB larger, so that it is asked where AMX is wanted, and nowhere else.
const std::string& why_not();

inline constexpr std::int64_t kStep = 32;
inline constexpr std::int64_t kRun = std::int64_t{order::kPanel} * order::kRun;  // k
static_assert(order::kPanel % kStep == 0 && kRun == 256 * kStep);

// A factor, or a sum: 0 of its sign where it is subnormal.
ISOBIT_INLINE float flushed(float x) {
  return (std::bit_cast<std::uint32_t>(x) & 0x7f80'0000U) == 0 ? std::copysign(0.0F, x) : x;
}

// x + y, exact in doubles but for what their sum lacks, as a float that was rounded once. Needs a
// float mode that rounds to nearest and keeps subnormals.
ISOBIT_INLINE float sum_of(double x, double y) {
  double sum = x + y;
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  // Of what was rounded off no more is needed than that there is something, in which direction.
  const double other = sum - x, lost = (x - (sum - other)) + (y - other);
  auto bits = std::bit_cast<std::uint64_t>(sum);
  if (lost != 0 && (bits & 1) == 0) {
    bits = (lost > 0) == (sum > 0) ? bits + 1 : bits - 1;
    sum = std::bit_cast<double>(bits);
  }
  // What rounds to 24 digits below the smallest normal number.
  constexpr double kLeast = 0x1p-126 * (1 - 0x1p-25);
  if (std::fabs(sum) < kLeast) return std::copysign(0.0F, static_cast<float>(sum));
  return static_cast<float>(sum);
}

// c + a b, of factors that were bf16: their product is exact in a double.
ISOBIT_INLINE float multiply_add(float a, float b, float c) {
  return sum_of(double{flushed(a)} * double{flushed(b)}, c);
}

// A run: one step after the other, of k from begin to before end.
template <class A, class B>
float run(std::int64_t begin, std::int64_t end, A a, B b) {
  float sum = 0;
  for (std::int64_t step = begin; step < end; step += kStep) {
    float chains[2] = {0, 0};
    for (std::int64_t k = step; k < step + kStep; ++k)
      chains[k % 2] =
          k < end ? multiply_add(a(k), b(k), chains[k % 2]) : sum_of(0.0, chains[k % 2]);
    sum = sum_of(sum, sum_of(chains[0], chains[1]));
  }
  return sum;
}

// The specification for an element of a product, the sum of a(k) * b(k).
template <class A, class B>
float product(std::int64_t count, A a, B b) {
  order::PairTree<float> runs;
  for (std::int64_t start = 0; start < count; start += kRun)
    runs.push(run(start, std::min(count, start + kRun), a, b));
  return runs.total();
}

}  // namespace isobit::amx
