// SPDX-License-Identifier: Apache-2.0
// The yardstick measures what it says, and the judgement built on it can fail.
#include "isobit/lab/yardstick.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "isobit/lab/settings.h"
#include "isobit/lab/verdict.h"
#include "isobit/lab/ways.h"
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

TEST(Deviation, RemembersThePlaceOfTheWorst) {
  Deviation worst{.c = 2, .max_abs = 5, .row = 1}, other{.c = 3, .max_abs = 1, .row = 7};
  worst.merge(other);
  EXPECT_EQ(worst.c, 3);
  EXPECT_EQ(worst.max_abs, 5);
  EXPECT_EQ(worst.row, 7);
}

// Runs the first operation of the catalog, for `spoil` to damage what it wrote.
template <class Spoil>
Verdict judged_after(Spoil spoil) {
  Flags flags;
  flags.rows = {5};
  flags.cols = {33};
  flags.row_stride = {40};
  Workload workload(cases_of(*catalog().front(), flags, "quick").front());
  workload.draw();
  run(workload, ways_of(workload, Flags{}, Unnamed::best).able.at(0));
  spoil(workload);
  return Judge(workload)();
}

float* row_of(const Workload& workload, std::string_view name, std::int64_t row) {
  return reinterpret_cast<float*>(workload.find(name)->row(row));
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
  EXPECT_EQ(verdict.damage, "memory beside y was written");
}

TEST(Judge, FindsAWriteBeforeAndAfterAnArray) {
  EXPECT_FALSE(judged_after([](const Workload& w) { row_of(w, "y", 0)[-1] = 0; }).passed());
  EXPECT_FALSE(judged_after([](const Workload& w) { row_of(w, "y", 4)[33] = 0; }).passed());
}

TEST(Judge, FindsAChangedInput) {
  const Verdict verdict = judged_after([](const Workload& w) { row_of(w, "x", 1)[5] += 1; });
  EXPECT_EQ(verdict.damage, "x is an input and was written");
}

}  // namespace
}  // namespace isobit::lab
