// SPDX-License-Identifier: Apache-2.0
// What is peculiar to scans: lengths around blocks and pieces, and laws that no other operator has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/ops/scan/scan.h"
#include "isobit/simd/parallel_for.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

Case case_of(std::vector<std::int64_t> extents, double kind, DType x = DType::f32,
             DType y = DType::f32, std::string with = "") {
  Case c = cases_of(scan::operation(), Flags{}, "quick").at(0);
  std::ranges::copy(extents, c.extents.begin());
  c.options = {{"kind", kind}, {"exclusive", 0}, {"reverse", 0}};
  c.types = {x, x, y};
  c.with = std::move(with);
  return c;
}

constexpr double kSum = 0, kProd = 1, kMax = 2, kLogSumExp = 4;

void set(const Workload& workload, std::string_view name, const std::vector<double>& values) {
  const Array& array = *workload.find(name);
  const std::int64_t length = array.form().line_length();
  for (std::int64_t line = 0; line < array.form().lines(); ++line)
    array.store(line, 0, std::span(values).subspan(line * length, length));
}

std::vector<double> scanned(Case c, const std::vector<double>& x) {
  Workload workload(c);
  workload.draw();
  set(workload, "x", x);
  workload.seal();
  run(workload, default_configuration(workload));
  return values_of(workload, "y");
}

// On both sides of groups, blocks, pairs of blocks and pieces, of each kind that rounds.
TEST(Scan, LengthsAroundBlocksAndPiecesAreRight) {
  for (const double kind : {kSum, kProd, kLogSumExp})
    for (const std::int64_t length :
         {1, 15, 16, 17, 511, 512, 513, 1024, 1025, 1536, 4095, 4096, 4097, 66'000}) {
      Workload workload(case_of({1, length, 1}, kind));
      workload.draw();
      expect_right(workload, every_configuration(workload, {1, 2, 5}));
      if (HasFatalFailure()) return;
    }
}

TEST(Scan, ColumnsHaveTheBitsOfRows) {
  for (const double kind : {kSum, kProd, kLogSumExp}) {
    const std::int64_t length = 1600, inner = 21;
    Workload columns(case_of({1, length, inner}, kind));
    columns.draw();
    run(columns, default_configuration(columns));
    const std::vector<double> x = values_of(columns, "x"), y = values_of(columns, "y");
    for (std::int64_t column = 0; column < inner; ++column) {
      std::vector<double> alone, expected;
      for (std::int64_t i = 0; i < length; ++i) {
        alone.push_back(x[i * inner + column]);
        expected.push_back(y[i * inner + column]);
      }
      ASSERT_EQ(scanned(case_of({1, length, 1}, kind), alone), expected) << "column " << column;
    }
  }
}

TEST(Scan, ASegmentIsTheSegmentAlone) {
  constexpr std::int64_t kLength = 1500, kBegin = 333;
  for (const double reverse : {0.0, 1.0}) {
    Case c = case_of({1, kLength, 1}, kSum, DType::f32, DType::f32, "reset");
    c.options["reverse"] = reverse;
    Workload whole(c);
    whole.draw();
    std::vector<double> flags(kLength);
    flags[kBegin] = 1;
    set(whole, "reset", flags);
    whole.seal();
    expect_right(whole, every_configuration(whole, {1, 3}));
    run(whole, default_configuration(whole));
    const std::vector<double> x = values_of(whole, "x"), y = values_of(whole, "y");
    Case alone = case_of({1, kLength - kBegin, 1}, kSum);
    alone.options["reverse"] = reverse;
    EXPECT_EQ(scanned(alone, {x.begin() + kBegin, x.end()}),
              std::vector<double>(y.begin() + kBegin, y.end()));
  }
}

// pytorch #75240: what came before the first was wrong in one of the ways.
TEST(Scan, AnExclusiveScanIsTheInclusiveOneShifted) {
  for (const double kind : {kSum, kProd, kLogSumExp})
    for (const std::int64_t inner : {1, 6}) {
      Case c = case_of({1, 1100, inner}, kind);
      Workload inclusive(c);
      inclusive.draw();
      run(inclusive, default_configuration(inclusive));
      const std::vector<double> expected = values_of(inclusive, "y");
      c.options["exclusive"] = 1;
      Workload exclusive(c);
      exclusive.draw();
      expect_right(exclusive, every_configuration(exclusive, {1, 2}));
      const std::vector<double> found = values_of(exclusive, "y");
      for (std::int64_t i = inner; i < 1100 * inner; ++i)
        ASSERT_EQ(found[i], expected[i - inner]) << i;
    }
}

TEST(Scan, AReversedScanIsThatOfTheReversedSequence) {
  Case c = case_of({1, 1100, 1}, kSum);
  Workload forwards(c);
  forwards.draw();
  run(forwards, default_configuration(forwards));
  std::vector<double> x = values_of(forwards, "x"), y = values_of(forwards, "y");
  std::ranges::reverse(x);
  std::ranges::reverse(y);
  c.options["reverse"] = 1;
  EXPECT_EQ(scanned(c, x), y);
}

// A chain of factors reaches 0 on its way.
TEST(Scan, HalvesAndThenTwosAreOne) {
  std::vector<double> x(1024, 0.5);
  std::fill(x.begin() + 512, x.end(), 2.0);
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    EXPECT_EQ(scanned(case_of({1, 1024, 1}, kProd, dtype, dtype), x).back(), 1);
}

// The sums of a million floats lose no more digits than those of a few.
TEST(Scan, LongSumsStayRight) {
  Case c = case_of({1, 1'000'000, 1}, kSum);
  c.input = "uniform";
  Workload workload(c);
  workload.draw();
  expect_right(workload, {default_configuration(workload)});
}

TEST(Scan, ManyMinusZerosSumToPlusZeroEverywhere) {
  for (const double value : scanned(case_of({1, 1100, 1}, kSum), std::vector<double>(1100, -0.0)))
    ASSERT_FALSE(std::signbit(value));
}

TEST(Scan, NansSpoilWhatFollowsOnly) {
  for (const double kind : {kSum, kProd, kMax, kLogSumExp}) {
    std::vector<double> x(1100, 1.5);
    x[600] = std::nan("");
    const std::vector<double> y = scanned(case_of({1, 1100, 1}, kind), x);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(std::isnan(y[i]), i >= 600) << i;
  }
}

TEST(Scan, InfinitiesAndTheLargestFloatsAreRightInLogSumExp) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr float kLargest = std::numeric_limits<float>::max();
  Workload workload(case_of({1, 6, 1}, kLogSumExp));
  workload.draw();
  set(workload, "x", {-kInfinity, -kLargest, 0, kLargest, kInfinity, -kInfinity});
  workload.seal();
  expect_right(workload, every_configuration(workload, {1}));
}

// The later one of equals, and every NaN is later than what is none.
TEST(Scan, MaximaStandWherePyTorchFindsThem) {
  Workload workload(case_of({1, 7, 1}, kMax, DType::f32, DType::f32, "index"));
  workload.draw();
  set(workload, "x", {1, 1, 0, 2, std::nan(""), 5, std::nan("")});
  workload.seal();
  for (const Configuration& configuration : every_configuration(workload, {1})) {
    run(workload, configuration);
    EXPECT_EQ(values_of(workload, "index"), (std::vector<double>{0, 1, 1, 3, 4, 4, 6}));
  }
}

// Its piece of the next round must not be read after it was written.
TEST(Scan, InPlaceGivesTheSameBits) {
  constexpr std::int64_t kLength = 300'000;
  std::vector<float> x(kLength), y(kLength);
  for (std::int64_t i = 0; i < kLength; ++i) x[i] = std::sin(static_cast<float>(i));
  const auto view = [&](std::vector<float>& array) {
    return matrix_view(array.data(), kLength * 4, DType::f32, kLength, 1, 1);
  };
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true}) {
      std::vector<float> both = x;
      const Execution execution = execution_for(Machine::here().isa, 3);
      scan::run({.x = view(x), .y = view(y), .exclusive = exclusive, .reverse = reverse},
                execution);
      scan::run({.x = view(both), .y = view(both), .exclusive = exclusive, .reverse = reverse},
                execution);
      EXPECT_EQ(both, y) << exclusive << reverse;
    }
}

TEST(Scan, YMayNotStartWhereXDoesWithOtherStrides) {
  std::vector<float> memory(16);
  const TensorView x = matrix_view(memory.data(), 64, DType::f32, 4, 4, 4);
  TensorView y = x;
  y.strides = {1, 4};
  EXPECT_THROW(scan::run({.x = x, .y = y}, {}), InvalidArgument);
}

}  // namespace
}  // namespace isobit::lab
