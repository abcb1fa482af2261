// SPDX-License-Identifier: Apache-2.0
// RMSNorm's reference against computation by hand, derivatives and identities; and what is peculiar
// to broken rows.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "isobit/core/quad.h"
#include "isobit/norms/reference.h"
#include "isobit/ops/rmsnorm/formula.h"
#include "isobit/ops/rmsnorm/norm.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::rmsnorm {
namespace {

using Values = std::vector<double>;
using Reference = norms::Reference<Norm>;
constexpr Rounding kRounding{DType::f64};

TensorView matrix(Values& values, std::int64_t rows) {
  const std::int64_t count = std::ssize(values), cols = count / rows;
  return matrix_view(values.data(), count * 8, DType::f64, rows, cols, cols);
}
TensorView vector(Values& values) {
  return vector_view(values.data(), std::ssize(values) * 8, DType::f64, std::ssize(values));
}

Values random_values(int count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  Values values(count);
  for (double& value : values) value = normal(engine);
  return values;
}

Values forward(Values x, Values weight, double eps) {
  Values y(x.size());
  ForwardArgs args{.x = matrix(x, 1), .weight = vector(weight), .y = matrix(y, 1), .eps = eps};
  Reference::forward(args, {}, kRounding);
  return y;
}

struct Gradients {
  Values x, weight;
};

Gradients backward(Values x, Values grad_y, Values weight, double eps) {
  Gradients result{Values(x.size()), Values(x.size(), 0.0)};
  BackwardArgs args{.x = matrix(x, 1),
                    .grad_y = matrix(grad_y, 1),
                    .weight = vector(weight),
                    .grad_x = matrix(result.x, 1),
                    .grad_weight = vector(result.weight),
                    .eps = eps};
  Reference::backward(args, {}, kRounding);
  return result;
}

TEST(RmsNormReference, IsTheHandComputation) {
  const Values y = forward({3, -4, 0, 0}, {1, 2, 3, 4}, 0);  // mean square 25 / 4
  EXPECT_DOUBLE_EQ(y[0], 1.2);
  EXPECT_DOUBLE_EQ(y[1], -3.2);
  EXPECT_EQ(y[2], 0);
  EXPECT_DOUBLE_EQ(forward({3, -4, 0, 0}, {1, 1, 1, 1}, 30.0)[0], 3 / std::sqrt(36.25));
}

TEST(RmsNormReference, GradientsAreDerivatives) {
  constexpr int kCols = 7;
  constexpr double kEps = 0.125, kStep = 1e-5;  // eps as a float holds it
  const Values x = random_values(kCols, 1), grad_y = random_values(kCols, 2);
  const Values weight = random_values(kCols, 3);
  const auto loss = [&](const Values& at, const Values& scaled_by) {
    const Values y = forward(at, scaled_by, kEps);
    double sum = 0;
    for (int i = 0; i < kCols; ++i) sum += y[i] * grad_y[i];
    return sum;
  };
  const auto slope = [&](const Values& values, int i, auto of) {
    Values above = values, below = values;
    above[i] += kStep;
    below[i] -= kStep;
    return (of(above) - of(below)) / (2 * kStep);
  };
  const Gradients gradients = backward(x, grad_y, weight, kEps);
  for (int i = 0; i < kCols; ++i) {
    EXPECT_NEAR(gradients.x[i], slope(x, i, [&](const Values& at) { return loss(at, weight); }),
                1e-8);
    EXPECT_NEAR(gradients.weight[i], slope(weight, i, [&](const Values& w) { return loss(x, w); }),
                1e-8);
  }
}

// Without eps a row's length does not matter, so no gradient points along it. (LayerNorm's gradient
// sums to zero besides; RMSNorm's does not.)
TEST(RmsNormReference, GradientIsOrthogonalToItsRow) {
  const Values x = random_values(50, 4), grad_y = random_values(50, 5);
  const Gradients gradients = backward(x, grad_y, Values(50, 1.0), 0);
  double along = 0, sum = 0;
  for (int i = 0; i < 50; ++i) {
    along += gradients.x[i] * x[i];
    sum += gradients.x[i];
  }
  EXPECT_NEAR(along, 0, 1e-13);
  EXPECT_GT(std::fabs(sum), 1e-3);
}

// What others get wrong: squares that overflow or vanish, rows of zeros without eps, one infinity.
// Each rounding of rstd counts in every element of grad_x several times: with four of them, C was
// 8.45 on three columns of doubles.
TEST(RmsNorm, RstdOfDoublesIsRoundedAboutOnce) {
  std::mt19937 engine(1);
  std::lognormal_distribution<double> any(0, 20);
  for (int i = 0; i < 100000; ++i) {
    const std::int64_t cols = 1 + i % 77;
    const double squares = any(engine), eps = i % 3 == 0 ? 0 : any(engine);
    const quad root = detail::inverse_root(squares, cols, eps);
    const quad twice = root * root * (quad{squares} / cols + eps) - 1;  // the relative error
    ASSERT_LE(std::fabs(static_cast<double>(twice)), 2 * 1.02 * 0x1p-53)
        << squares << " / " << cols << " + " << eps;
  }
  EXPECT_TRUE(std::isnan(detail::inverse_root(1.0, 1, -2.0)));
  EXPECT_EQ(detail::inverse_root(1.0, 1, -1.0), std::numeric_limits<double>::infinity());
}

TEST(RmsNorm, RowsBeyondTheRangeOfTheirSquares) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto normalised = [](std::vector<float> x, double eps) {
    std::vector<float> y(x.size());
    const std::int64_t count = std::ssize(x);
    rmsnorm::forward({.x = matrix_view(x.data(), count * 4, DType::f32, 1, count, count),
                      .y = matrix_view(y.data(), count * 4, DType::f32, 1, count, count),
                      .eps = eps},
                     simd::here(1));
    return y;
  };
  EXPECT_FLOAT_EQ(normalised({3e38f, 3e38f, -3e38f, 3e38f}, 0)[2], -1);
  EXPECT_FLOAT_EQ(normalised({1e-40f, -1e-40f}, 0)[0], 1);
  EXPECT_EQ(normalised({0, 0, 0}, 0), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(normalised({0, 0, 0}, 1e-6), (std::vector<float>{0, 0, 0}));
  const std::vector<float> broken = normalised({1, kInf, 2}, 1e-6);
  EXPECT_EQ(broken[0], 0);
  EXPECT_TRUE(std::isnan(broken[1]));
}

}  // namespace
}  // namespace isobit::rmsnorm
