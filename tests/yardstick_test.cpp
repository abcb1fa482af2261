// SPDX-License-Identifier: Apache-2.0
// The yardstick measures what it says, and the judgement built on it can fail.
#include "isobit/lab/yardstick.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "isobit/lab/configurations.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/verdict.h"
#include "isobit/ops/catalog.h"

namespace isobit::lab {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Yardstick, CountsRoundingsOfTheScale) {
  const float y = std::nextafter(1.0f, 2.0f);  // off by 2^-23, two units of 2^-24
  EXPECT_DOUBLE_EQ(distance(y, 1.0, 1.0).c, 2);
  EXPECT_DOUBLE_EQ(distance(y, 1.0, 4.0).c, 0.5);
  EXPECT_DOUBLE_EQ(distance(y, 1.0, 1.0).ulp, 1);
  EXPECT_DOUBLE_EQ(distance(y, 1.0, 1.0).abs, 0x1p-23);
  EXPECT_EQ(distance(1.0f, 1.0, 1.0).c, 0);
}

TEST(Yardstick, ForgivesTheRoundingOfA16BitOutput) {
  const bf16 y = from_float<bf16>(1.0f);
  EXPECT_EQ(distance(y, 1 + 0x1p-8, 1.0).c, 0);  // half an ulp
  EXPECT_GT(distance(y, 1 + 0x1p-7, 1.0).c, 8);  // a whole one
}

TEST(Yardstick, ForgivesTheRoundingOfASubnormal) {
  const double half_step = 0x1p-150;
  EXPECT_EQ(distance(0.0f, half_step, 0x1p-140).c, 0);
  EXPECT_GT(distance(0.0f, 4 * half_step, 0x1p-140).c, 8);
  const quad half_step_of_doubles = quad(0x1p-1074) / 2;
  EXPECT_EQ(distance(0.0, half_step_of_doubles, quad(0x1p-1060)).c, 0);
}

// Met in a gradient: a float is next to the truth, and halfway between two of 16 bits.
TEST(Yardstick, ForgivesBothRoundingsOfA16BitSubnormal) {
  const double step = 0x1p-133, exact = 2.5 * step + 0x1p-151;
  EXPECT_EQ(distance(from_float<bf16>(static_cast<float>(exact)), exact, 0x1p-130).c, 0);
  EXPECT_GT(distance(from_float<bf16>(static_cast<float>(2.5 * step)), 2.501 * step, 0x1p-130).c,
            8);
}

TEST(Yardstick, DoesNotCountWhatOverflows) {
  EXPECT_EQ(distance(kInf, 1e39, 1e39).c, 0);
  EXPECT_EQ(distance(-kInf, -1e39, 1e39).c, 0);
  EXPECT_EQ(distance(kInf, std::numeric_limits<double>::infinity(), 1.0).c, 0);
}

TEST(Yardstick, CountsInfinityWhereANumberIsDue) {
  EXPECT_GT(distance(kInf, 1e38, 1e38).c, 8);
  EXPECT_LE(distance(kInf, double{std::numeric_limits<float>::max()}, 3e38).c, 8);
}

TEST(Yardstick, WantsCanonicalNanWhereNanIsDueAndOnlyThere) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(distance(std::bit_cast<float>(kNanF32), nan, 1.0).c, 0);
  EXPECT_EQ(distance(std::bit_cast<float>(0xffffffffu), nan, 1.0).c, kWrong);
  EXPECT_EQ(distance(1.0f, nan, 1.0).c, kWrong);
  EXPECT_EQ(distance(std::bit_cast<float>(kNanF32), 1.0, 1.0).c, kWrong);
}

TEST(Yardstick, IsFiniteWithoutAScale) {
  EXPECT_EQ(distance(1.0f, 1.0, 0.0).c, 0);
  EXPECT_EQ(distance(1.0f, 2.0, 0.0).c, kWrong);
}

TEST(Yardstick, WantsIntegersExactAndWrapped) {
  EXPECT_EQ(distance(std::int32_t{7}, 7.0, 0.0).c, 0);
  EXPECT_EQ(distance(std::int32_t{7}, 8.0, 0.0).c, kWrong);
  EXPECT_EQ(distance(std::numeric_limits<std::int32_t>::min(), 0x1p31, 0.0).c, 0);
}

TEST(Yardstick, MeasuresF64InQuad) {
  const quad exact = static_cast<quad>(1.0) + static_cast<quad>(0x1p-60);
  EXPECT_NEAR(distance(1.0, exact, quad(1)).c, 0x1p-7, 1e-9);
}

// It was right whatever the result, as a truth beyond the range was never looked at.
TEST(Distance, AnInfiniteTruthNeedsTheSameInfinity) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto f32_infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(distance(f32_infinity, kInfinity, kInfinity).c, 0);
  EXPECT_EQ(distance(-f32_infinity, kInfinity, kInfinity).c, kWrong);
  EXPECT_EQ(distance(1.0f, kInfinity, kInfinity).c, kWrong);
  EXPECT_EQ(distance(std::numeric_limits<float>::quiet_NaN(), -kInfinity, kInfinity).c, kWrong);
}

// 70000 is infinite in f16, and nothing on the way to it leaves the range of f32.
TEST(Distance, ATruthBeyondTheTypesRangeNeedsItsInfinity) {
  EXPECT_EQ(distance(f16{0x7c00}, 70000.0, 70000.0).c, 0);
  EXPECT_GT(distance(f16{0xfc00}, 70000.0, 70000.0).c, 1e3);
  EXPECT_GT(distance(f16{0x7bff}, 70000.0, 70000.0).c, 1e3);
  EXPECT_EQ(distance(f16{kNanF16}, 70000.0, 70000.0).c, kWrong);
}

// Sums near the largest number: parts of them may have left the range.
TEST(Distance, WhatMayOverflowOnItsWayMayHaveAnyBits) {
  const double scale = 1e39;
  for (const float y :
       {1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    EXPECT_EQ(distance(y, 5e38, scale).c, 0) << y;
  EXPECT_EQ(distance(std::numeric_limits<float>::infinity(), 1.0, scale).c, 0);
  EXPECT_GT(distance(std::numeric_limits<float>::infinity(), 1.0, 1e30).c, 1e3);
}

TEST(Distance, MovedBytesMayBeAnyNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(distance(bf16{0xffc1}, nan, nan).c, kWrong);
  EXPECT_EQ(distance(bf16{0xffc1}, nan, nan, true).c, 0);
  EXPECT_EQ(distance(bf16{0x3f80}, nan, nan, true).c, kWrong);
}

TEST(Deviation, RemembersThePlaceOfTheWorst) {
  Deviation worst{.c = 2, .max_abs = 5, .line = 1}, other{.c = 3, .max_abs = 1, .line = 7};
  worst.merge(other);
  EXPECT_EQ(worst.c, 3);
  EXPECT_EQ(worst.max_abs, 5);
  EXPECT_EQ(worst.line, 7);
}

// Runs the first operation of the catalog, for `spoil` to damage what it wrote.
template <class Spoil>
Verdict judged_after(Spoil spoil) {
  Flags flags;
  flags.dims["rows"] = {5};
  flags.dims["cols"] = {33};
  flags.row_stride = {40};
  Workload workload(cases_of(*catalog().front(), flags, "quick").front());
  workload.draw();
  run(workload, configurations_of(workload, Flags{}, Unnamed::best).able.at(0));
  spoil(workload);
  return Judge(workload)();
}

float* row_of(const Workload& workload, std::string_view name, std::int64_t row) {
  return reinterpret_cast<float*>(workload.find(name)->line(row));
}

TEST(Judge, PassesARightResult) {
  EXPECT_TRUE(judged_after([](const Workload&) {}).passed());
}

TEST(Judge, FindsOneWrongElement) {
  const Verdict verdict =
      judged_after([](const Workload& workload) { row_of(workload, "y", 3)[17] *= 1 + 0x1p-19f; });
  EXPECT_FALSE(verdict.passed());
  EXPECT_NE(verdict.complaints().find("y[3, 17]: expected "), std::string::npos);
}

TEST(Judge, FindsAnElementThatWasNotWritten) {
  EXPECT_FALSE(judged_after([](const Workload& workload) {
                 row_of(workload, "y", 2)[0] = std::bit_cast<float>(0xffffffffu);
               }).passed());
}

TEST(Judge, FindsAWriteBetweenRows) {
  const Verdict verdict =
      judged_after([](const Workload& workload) { row_of(workload, "y", 2)[33] = 0; });
  EXPECT_EQ(verdict.damage, "memory outside y was written");
}

TEST(Judge, FindsAWriteBeforeAndAfterAnArray) {
  EXPECT_FALSE(judged_after([](const Workload& w) { row_of(w, "y", 0)[-1] = 0; }).passed());
  EXPECT_FALSE(judged_after([](const Workload& w) { row_of(w, "y", 4)[33] = 0; }).passed());
}

TEST(Judge, FindsAChangedInput) {
  const Verdict verdict = judged_after([](const Workload& w) { row_of(w, "x", 1)[5] += 1; });
  EXPECT_EQ(verdict.damage, "input x was modified");
}

}  // namespace
}  // namespace isobit::lab
