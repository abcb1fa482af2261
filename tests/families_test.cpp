// SPDX-License-Identifier: Apache-2.0
// The families of input are what their names promise, for every type, and the same wherever they
// are drawn.
#include "isobit/lab/families.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "isobit/lab/array.h"
#include "isobit/lab/limits.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/workload.h"
#include "isobit/ops/catalog.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

// As an array of the type would hold them.
std::vector<double> stored(std::string_view family, std::string_view argument, DType dtype,
                           std::int64_t row, std::int64_t cols, std::uint64_t seed = 0) {
  std::vector<double> values(static_cast<std::size_t>(cols));
  const Drawn drawn = argument == "grad_y" ? Drawn::gradient : Drawn::family;
  Draw(family, seed, argument, drawn, dtype).line(row, values);
  const Array array({dtype, {cols}});
  array.store(0, 0, values);
  array.load(0, 0, std::span<double>(values));
  return values;
}

TEST(Families, AreFiniteInEveryType) {
  for (std::string_view family : family_names())
    for (DType dtype : kFloats)
      for (std::int64_t row = 0; row < 6; ++row)
        for (double value : stored(family, "x", dtype, row, 2000))
          ASSERT_TRUE(std::isfinite(value)) << family << " " << name_of(dtype);
}

TEST(Families, VaryUnlessConstant) {
  for (std::string_view family : family_names())
    for (DType dtype : {DType::f32, DType::f64}) {
      const std::vector<double> values = stored(family, "x", dtype, 1, 200);
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      EXPECT_EQ(*low == *high, family == "constant") << family << " " << name_of(dtype);
    }
}

TEST(Families, DependOnSeedArgumentAndRow) {
  const auto base = stored("randn", "x", DType::f32, 0, 8);
  EXPECT_EQ(base, stored("randn", "x", DType::f32, 0, 8));
  EXPECT_NE(base, stored("randn", "x", DType::f32, 0, 8, 1));
  EXPECT_NE(base, stored("randn", "residual", DType::f32, 0, 8));
  EXPECT_NE(base, stored("randn", "x", DType::f32, 1, 8));
}

TEST(Families, ShorterRowIsAPrefixOfALongerOne) {
  for (std::string_view family : family_names()) {
    std::vector<double> longer = stored(family, "x", DType::f32, 3, 300);
    longer.resize(77);
    EXPECT_EQ(longer, stored(family, "x", DType::f32, 3, 77)) << family;
  }
}

// The bits of the inputs are part of every stored result.
TEST(Families, KeepTheirValues) {
  const Array array({DType::f32, {1000}});
  array.store(0, 0, stored("randn", "x", DType::f32, 0, 1000));
  EXPECT_EQ(bits(array), "cd6666327d638fce");
}

TEST(Families, RandnHasMeanZeroAndVarianceOne) {
  const auto values = stored("randn", "x", DType::f64, 0, 100000);
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / 1e5;
  const double square = std::inner_product(values.begin(), values.end(), values.begin(), 0.0) / 1e5;
  EXPECT_NEAR(mean, 0, 0.02);
  EXPECT_NEAR(square, 1, 0.02);
}

TEST(Families, DenormalIsSubnormalInEveryNarrowType) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const double smallest_normal = std::ldexp(1.0, limits_of(dtype).min_exponent);
    for (double value : stored("denormal", "x", dtype, 0, 500))
      ASSERT_LT(std::fabs(value), smallest_normal) << name_of(dtype);
  }
}

TEST(Families, ConstantRowsCycleThroughThreeValues) {
  EXPECT_EQ(stored("constant", "x", DType::f64, 0, 2)[1], 3.14159265358979323846);
  EXPECT_EQ(stored("constant", "x", DType::f64, 4, 2)[1], 1e4 / 3);
  EXPECT_EQ(stored("constant", "x", DType::f64, -1, 2)[1], 1e30);
}

TEST(Families, OutlierStandsAloneInItsRow) {
  for (std::int64_t row = 0; row < 70; ++row) {
    const auto values = stored("outlier", "x", DType::f32, row, 100);
    EXPECT_EQ(std::count_if(values.begin(), values.end(), [](double v) { return v > 1e5; }), 1);
  }
}

TEST(Families, ConstGradMakesOnlyTheGradientConstant) {
  const auto gradient = stored("const_grad", "grad_y", DType::f32, 5, 50);
  EXPECT_EQ(std::count(gradient.begin(), gradient.end(), gradient[0]), 50);
  EXPECT_EQ(stored("const_grad", "x", DType::f32, 5, 50), stored("randn", "x", DType::f32, 5, 50));
}

// The y of softmax's gradients was all zeros: they lack x, of which it is made. Of the moments of a
// batch, which is whole, one channel alone was there.
TEST(Families, WhatAnotherPassProducesIsMadeOfWhatThatTakes) {
  int arguments = 0;
  for (const Operation* operation : catalog()) {
    Case c = cases_of(*operation, Flags{}, "quick").front();
    c = resized(c, 5, 40);
    c.input = "randn";
    c.given_statistics = true;
    if (!suits_its_options(c)) continue;
    Workload workload(c);
    workload.draw();
    for (const Argument& argument : operation->arguments) {
      const Array* array = workload.find(argument.name);
      if (argument.drawn != Drawn::produced || array == nullptr) continue;
      std::vector<double> line(static_cast<std::size_t>(array->form().line_length()));
      const std::int64_t last = c.has_batch(argument) ? 0 : array->form().lines() - 1;
      for (const std::int64_t which : {std::int64_t{0}, last}) {
        array->load(which, 0, std::span<double>(line));
        EXPECT_TRUE(std::ranges::any_of(line, [](double value) { return value != 0; }))
            << operation->op << " " << operation->pass << ": " << argument.name;
      }
      ++arguments;
    }
  }
  EXPECT_GT(arguments, 5);
}

TEST(Families, IntegersReachBothEnds) {
  const auto values = stored("randn", "x", DType::i32, 0, 1000);
  EXPECT_TRUE(std::count(values.begin(), values.end(), std::numeric_limits<std::int32_t>::min()));
  EXPECT_TRUE(std::count(values.begin(), values.end(), std::numeric_limits<std::int32_t>::max()));
}

}  // namespace
}  // namespace isobit::lab
