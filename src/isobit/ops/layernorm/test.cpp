// SPDX-License-Identifier: Apache-2.0
// Is the reference right? Everything else is measured against it, so it is held to values found by
// hand, to derivatives taken numerically in quad precision, and to the mistakes that are easily
// made.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/norms/cases.h"
#include "isobit/norms/reference.h"
#include "isobit/ops/layernorm/norm.h"

namespace isobit::layernorm {
namespace {

using Quad = quad;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Reference = norms::Reference<Norm>;
constexpr Rounding kRounding{DType::f64};

// A small call on the reference in Real; what `run` finds lies in the fields.
template <class Real>
struct Call {
  using Values = std::vector<Real>;

  std::int64_t rows, cols;
  Values x, grad_y;
  Values weight{}, bias{};  // empty: absent
  double eps = 0;
  Values given_mean{}, given_rstd{};

  struct Outputs {
    Values y, mean, rstd, grad_x, grad_weight, grad_bias;
  };
  Outputs exact{}, scale{};

  void run() {
    for (Outputs* outputs : {&exact, &scale}) {
      for (Values* matrix : {&outputs->y, &outputs->grad_x}) matrix->assign(rows * cols, kNan);
      for (Values* statistic : {&outputs->mean, &outputs->rstd}) statistic->assign(rows, kNan);
      for (Values* column : {&outputs->grad_weight, &outputs->grad_bias}) column->assign(cols, 0);
    }
    Reference::forward(forward_args(), forward_outputs({}, scale), kRounding);
    Reference::backward(backward_args(), backward_outputs({}, scale), kRounding);
  }

  ForwardArgs forward_args() {
    ForwardArgs args;
    args.x = matrix(x);
    args.weight = vector(weight);
    args.bias = vector(bias);
    args.eps = eps;
    return forward_outputs(args, exact);
  }

  BackwardArgs backward_args() {
    BackwardArgs args;
    args.x = matrix(x);
    args.grad_y = matrix(grad_y);
    args.weight = vector(weight);
    args.mean = vector(given_mean);
    args.rstd = vector(given_rstd);
    args.eps = eps;
    return backward_outputs(args, exact);
  }

 private:
  static constexpr DType kType = std::is_same_v<Real, double> ? DType::f64 : DType::f128;

  TensorView matrix(Values& values) const {
    return matrix_view(values.data(), bytes(values), kType, rows, cols, cols);
  }
  static TensorView vector(Values& values) {
    if (values.empty()) return {};
    return vector_view(values.data(), bytes(values), kType, std::ssize(values));
  }
  static std::int64_t bytes(const Values& values) { return std::ssize(values) * sizeof(Real); }

  ForwardArgs forward_outputs(ForwardArgs args, Outputs& outputs) const {
    args.y = matrix(outputs.y);
    args.mean = vector(outputs.mean);
    args.rstd = vector(outputs.rstd);
    return args;
  }
  BackwardArgs backward_outputs(BackwardArgs args, Outputs& outputs) const {
    args.grad_x = matrix(outputs.grad_x);
    args.grad_weight = vector(outputs.grad_weight);
    args.grad_bias = vector(outputs.grad_bias);
    return args;
  }
};

template <class Real>
std::vector<Real> randn(std::int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<Real> values(count);
  for (Real& value : values) value = normal(engine);
  return values;
}

template <class Real>
Call<Real> random_call(std::int64_t rows, std::int64_t cols) {
  const std::int64_t count = rows * cols;
  return {rows,
          cols,
          randn<Real>(count, 1),
          randn<Real>(count, 2),
          randn<Real>(cols, 3),
          randn<Real>(cols, 4),
          1e-5};
}

template <class Real>
void expect_near(const std::vector<Real>& actual, const std::vector<Real>& expected,
                 double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto error = static_cast<double>(actual[i] - expected[i]);
    const auto size = std::abs(static_cast<double>(expected[i]));
    EXPECT_LE(std::abs(error), tolerance * std::max(1.0, size))
        << "element " << i << ": " << static_cast<double>(actual[i]) << ", expected "
        << static_cast<double>(expected[i]);
  }
}

bool all_nan(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isnan(value); });
}

// x = 1 2 3 4: mean 5/2, variance 5/4. With eps = 1 everything is a fraction of 3/2.
TEST(LayerNormReference, AgreesWithHandComputation) {
  Call<double> call{1, 4, {1, 2, 3, 4}, {1, 0, 0, 0}, {1, 2, 3, 4}, {10, 20, 30, 40}, 1};
  call.run();
  EXPECT_EQ(call.exact.mean, std::vector{2.5});
  expect_near(call.exact.rstd, {2.0 / 3}, 1e-15);
  expect_near(call.exact.y, {9, 20 - 2.0 / 3, 31, 44}, 1e-15);
  // x_hat = -1 -1/3 1/3 1, g = 1 0 0 0: mean g = 1/4, mean g x_hat = -1/4.
  expect_near(call.exact.grad_x, {1.0 / 3, -2.0 / 9, -1.0 / 9, 0}, 1e-15);
  expect_near(call.exact.grad_weight, {-1, 0, 0, 0}, 1e-15);
  EXPECT_EQ(call.exact.grad_bias, (std::vector<double>{1, 0, 0, 0}));
}

TEST(LayerNormReference, ScalesAgreeWithHandComputation) {
  Call<double> call{1, 4, {-1, 2, 3, 4}, {1, -1, 0, 0}, {1, -2, 3, 4}, {-10, 20, 30, 40}, 0.5};
  call.run();  // mean 2, variance 7/2: x_hat = -3/2 0 1/2 1
  EXPECT_EQ(call.scale.y,
            (std::vector<double>{1 * 2.5 + 10, 2 * 1 + 20, 3 * 1.5 + 30, 4 * 2 + 40}));
  EXPECT_EQ(call.scale.mean, std::vector{2.5});
  EXPECT_EQ(call.scale.rstd, call.exact.rstd);
  // g = 1 2 0 0: mean |g| = 3/4, mean |g x_hat| = 3/8.
  EXPECT_EQ(call.scale.grad_x,
            (std::vector<double>{0.5 * (1 + 0.75 + 1.5 * 0.375), 0.5 * (2 + 0.75),
                                 0.5 * (0.75 + 0.5 * 0.375), 0.5 * (0.75 + 0.375)}));
  EXPECT_EQ(call.scale.grad_weight, (std::vector<double>{2.5, 1, 0, 0}));
  EXPECT_EQ(call.scale.grad_bias, (std::vector<double>{1, 1, 0, 0}));
}

// The gradients of L = sum(grad_y * y), by central differences.
class NumericalDerivative : public testing::TestWithParam<bool> {
 protected:
  static Quad loss(Call<Quad> call) {
    call.run();
    Quad sum = 0;
    for (std::size_t i = 0; i < call.grad_y.size(); ++i) sum += call.grad_y[i] * call.exact.y[i];
    return sum;
  }

  static std::vector<Quad> derivative(Call<Quad> call, std::vector<Quad> Call<Quad>::* argument) {
    const Quad step = 1e-10;  // its square, times the third derivative, is the method's error
    std::vector<Quad> result;
    for (Quad& value : call.*argument) {
      const Quad saved = value;
      value = saved + step;
      const Quad above = loss(call);
      value = saved - step;
      const Quad below = loss(call);
      value = saved;
      result.push_back((above - below) / (2 * step));
    }
    return result;
  }
};

TEST_P(NumericalDerivative, IsTheGradient) {
  Call<Quad> call = random_call<Quad>(3, 5);
  if (GetParam()) {  // a row far from zero, one nearly constant
    for (int i = 0; i < 5; ++i) call.x[i] += 1000;
    for (int i = 5; i < 10; ++i) call.x[i] = 1 + call.x[i] / 100;
  }
  call.run();
  expect_near(call.exact.grad_x, derivative(call, &Call<Quad>::x), 1e-14);
  expect_near(call.exact.grad_weight, derivative(call, &Call<Quad>::weight), 1e-18);
  expect_near(call.exact.grad_bias, derivative(call, &Call<Quad>::bias), 1e-18);
}

INSTANTIATE_TEST_SUITE_P(LayerNormReference, NumericalDerivative, testing::Bool(),
                         [](const auto& test) { return test.param ? "FarFromZero" : "Random"; });

// BatchNorm's formula has column sums where LayerNorm has row means.
TEST(LayerNormReference, GradientOfARowIgnoresOtherRows) {
  Call<double> call = random_call<double>(4, 6);
  call.run();
  Call<double> alone{1,
                     6,
                     {call.x.begin() + 12, call.x.begin() + 18},
                     {call.grad_y.begin() + 12, call.grad_y.begin() + 18},
                     call.weight,
                     call.bias,
                     1e-5};
  alone.run();
  EXPECT_TRUE(std::equal(alone.exact.grad_x.begin(), alone.exact.grad_x.end(),
                         call.exact.grad_x.begin() + 12));
}

// A diagonal Jacobian would leave the other elements of the row at 0.
TEST(LayerNormReference, GradientReachesEveryElementOfTheRow) {
  Call<double> call{1, 4, {1, 2, 3, 5}, {0, 1, 0, 0}};
  call.run();
  for (double value : call.exact.grad_x) EXPECT_NE(value, 0);
}

TEST(LayerNormReference, GradientIsOrthogonalToOnesAndToXHat) {
  Call<double> call = random_call<double>(1, 100);
  call.weight.clear();
  call.bias.clear();
  call.eps = 0;
  call.run();
  double sum = 0, product = 0;
  for (int i = 0; i < 100; ++i) {
    sum += call.exact.grad_x[i];
    product += call.exact.grad_x[i] * call.exact.y[i];
  }
  EXPECT_NEAR(sum, 0, 1e-12);
  EXPECT_NEAR(product, 0, 1e-12);
}

TEST(LayerNormReference, VarianceDividesByCount) {
  Call<double> call{1, 2, {-1, 1}, {0, 0}};
  call.run();
  EXPECT_EQ(call.exact.rstd, std::vector{1.0});  // by count - 1: 0.707
}

TEST(LayerNormReference, WeightWorksWithoutBias) {
  Call<double> call{1, 2, {-1, 1}, {1, 0}, {3, 5}};
  call.run();
  EXPECT_EQ(call.exact.y, (std::vector<double>{-3, 5}));
}

TEST(LayerNormReference, ConstantRowIsExactlyTheBias) {
  for (double value : {1e4 / 3, 3.14159, 1e30, -0.1, 0.0}) {
    for (double eps : {1e-5, 0.0, -0.0}) {
      Call<double> call{1,
                        7,
                        std::vector(7, value),
                        {1, 2, 3, 4, 5, 6, 7},
                        std::vector(7, 3.0),
                        {1, 2, 3, 4, 5, 6, 7},
                        eps};
      call.run();
      EXPECT_EQ(call.exact.y, call.bias);
      EXPECT_EQ(call.exact.mean[0], value);
      const double rstd = eps == 0 ? 0 : 1 / std::sqrt(double{1e-5f});
      EXPECT_DOUBLE_EQ(call.exact.rstd[0], rstd);
      EXPECT_EQ(call.exact.grad_weight, std::vector(7, 0.0));
      for (int i = 0; i < 7; ++i)
        EXPECT_DOUBLE_EQ(call.exact.grad_x[i], rstd * 3 * (call.grad_y[i] - 4));
    }
  }
}

TEST(LayerNormReference, OneColumnIsTheBias) {
  Call<double> call{2, 1, {5, 1e30}, {1, 2}, {3}, {7}, 1e-5};
  call.run();
  EXPECT_EQ(call.exact.y, (std::vector<double>{7, 7}));
  EXPECT_EQ(call.exact.grad_x, (std::vector<double>{0, 0}));
  EXPECT_EQ(call.exact.grad_bias, std::vector{3.0});
}

TEST(LayerNormReference, EpsMayBeNegativeAsLongAsTheSumIsPositive) {
  Call<double> call{1, 2, {-1, 1}, {0, 0}, {}, {}, -0.75};
  call.run();
  EXPECT_EQ(call.exact.rstd, std::vector{2.0});
  call.eps = -1.5;
  call.run();
  EXPECT_TRUE(all_nan(call.exact.y));
  EXPECT_TRUE(all_nan(call.exact.rstd));
}

TEST(LayerNormReference, EpsIsRoundedToFloatUnlessTheProblemIsInDouble) {
  Call<double> narrow{1, 2, {1, 1}, {0, 0}, {}, {}, 0.1};
  narrow.run();
  EXPECT_EQ(narrow.exact.rstd[0], 1 / std::sqrt(double{0.1f}));
  Call<Quad> wide{1, 2, {1, 1}, {0, 0}, {}, {}, 0.1};
  wide.run();
  EXPECT_EQ(static_cast<double>(wide.exact.rstd[0]), 1 / std::sqrt(0.1));
}

TEST(LayerNormReference, NanAndInfinitySpoilTheirRowAlone) {
  for (double bad : {kNan, kInf, -kInf}) {
    for (int position : {0, 2}) {
      Call<double> call = random_call<double>(3, 4);
      call.x[4 + position] = bad;
      call.run();
      for (const auto* values : {&call.exact.y, &call.exact.grad_x})
        for (int i = 0; i < 12; ++i)
          EXPECT_EQ(std::isnan((*values)[i]), i / 4 == 1) << bad << ' ' << i;
      EXPECT_TRUE(std::isnan(call.exact.rstd[1]));
      EXPECT_FALSE(std::isnan(call.exact.rstd[2]));
    }
  }
  Call<double> infinite{1, 2, {kInf, kInf}, {1, 1}};
  infinite.run();
  EXPECT_TRUE(all_nan(infinite.exact.y));
}

TEST(LayerNormReference, GivenStatisticsReplaceTheRowsOwn) {
  Call<double> call{2, 2, {1, 2, 3, 4}, {1, 1, 1, 0}, {}, {}, 1e-5, {1, 2}, {2, 3}};
  call.run();
  EXPECT_EQ(call.exact.grad_weight, (std::vector<double>{0 + 3, 2 + 0}));
  // Row 0: x_hat = 0 2, mean g = 1, mean g x_hat = 1. Row 1: x_hat = 3 6, 1/2, 3/2.
  EXPECT_EQ(call.exact.grad_x,
            (std::vector<double>{0, 2 * (0 - 2.0), 3 * (0.5 - 4.5), 3 * (-0.5 - 9)}));
}

// Against the reference in quad, where a double has to be careful: |mean| is up to 4e9 times the
// deviations.
TEST(LayerNormReference, DoubleAgreesWithQuadOnEveryFamily) {
  constexpr int kCols = 65535;  // no power of two: the mean must not be representable
  const auto z = randn<double>(kCols, 5);
  std::map<std::string, std::vector<double>> families;
  auto make = [&](const char* name, auto value) {
    for (int i = 0; i < kCols; ++i) families[name].push_back(static_cast<float>(value(i)));
  };
  make("randn", [&](int i) { return z[i]; });
  make("mean1e6", [&](int i) { return 1e6 + z[i]; });
  make("one ulp in one element", [&](int i) { return i == 77 ? 1 + 0x1p-23 : 1.0; });
  make("outlier", [&](int i) { return i == 0 ? 1e20 : z[i]; });
  make("fltmax", [&](int i) { return i % 3 ? z[i] : std::copysign(3.4028234e38, z[i]); });
  make("denormal", [&](int i) { return 1e-40 * z[i]; });
  make("alternating", [&](int i) { return i % 2 ? 1e5 : -1e5; });

  for (const auto& [name, x] : families) {
    Call<double> narrow{1, kCols, x, randn<double>(kCols, 6)};
    Call<Quad> wide{1, kCols, {x.begin(), x.end()}, {narrow.grad_y.begin(), narrow.grad_y.end()}};
    narrow.run();
    wide.run();
    auto worst = [](const auto& actual, const auto& expected, const auto& scale) {
      double error = 0;
      for (std::size_t i = 0; i < actual.size(); ++i) {
        const auto difference = static_cast<double>(Quad(actual[i]) - expected[i]);
        error = std::max(error, std::abs(difference) / static_cast<double>(scale[i]));
      }
      return error;
    };
    constexpr double kLimit = 0x1p-24 / 1000;  // invisible beside an error of C = 0.001
    EXPECT_LT(worst(narrow.exact.y, wide.exact.y, wide.scale.y), kLimit) << name;
    EXPECT_LT(worst(narrow.exact.mean, wide.exact.mean, wide.scale.mean), kLimit) << name;
    EXPECT_LT(worst(narrow.exact.rstd, wide.exact.rstd, wide.scale.rstd), kLimit) << name;
    EXPECT_LT(worst(narrow.exact.grad_x, wide.exact.grad_x, wide.scale.grad_x), kLimit) << name;
    EXPECT_LT(worst(narrow.exact.grad_weight, wide.exact.grad_weight, wide.scale.grad_weight),
              kLimit)
        << name;
  }
}

// What double cannot hold: the squares of these rows.
TEST(LayerNormReference, QuadKeepsTheWholeRangeOfDouble) {
  for (double size : {5e-324, 1e-200, 1e300}) {
    Call<Quad> call{1, 2, {-size, size}, {1, 0}};
    call.run();
    EXPECT_EQ(static_cast<double>(call.exact.y[0]), -1);
    EXPECT_EQ(static_cast<double>(call.exact.rstd[0] * size), 1);
  }
}

TEST(LayerNormReference, ColumnOutputsAccumulateOverChunksOfRows) {
  Call<double> whole = random_call<double>(6, 5);
  whole.run();
  Call<double> chunks = whole;
  chunks.exact.grad_weight.assign(5, 0);
  chunks.exact.grad_bias.assign(5, 0);
  for (int start : {0, 2}) {
    BackwardArgs args = chunks.backward_args();
    const int rows = start == 0 ? 2 : 4;
    for (TensorView* view : {&args.x, &args.grad_y, &args.grad_x}) {
      view->data = static_cast<double*>(view->data) + start * 5;
      view->shape[0] = rows;
    }
    Reference::backward(args, {}, kRounding);
  }
  EXPECT_EQ(chunks.exact.grad_weight, whole.exact.grad_weight);
  EXPECT_EQ(chunks.exact.grad_bias, whole.exact.grad_bias);
  EXPECT_EQ(chunks.exact.grad_x, whole.exact.grad_x);
}

TEST(LayerNormReference, RowStridesAreFollowed) {
  Call<double> dense = random_call<double>(3, 4);
  dense.run();
  Call<double> wide = dense;
  wide.cols = 6;
  for (auto* values : {&wide.x, &wide.grad_y}) {
    std::vector<double> spread(18, kNan);
    for (int i = 0; i < 12; ++i) spread[i / 4 * 6 + i % 4] = (*values)[i];
    *values = spread;
  }
  ForwardArgs args = wide.forward_args();
  std::vector<double> y(18, kNan);
  args.y.data = y.data();
  args.x.shape[1] = args.y.shape[1] = 4;
  Reference::forward(args, {}, kRounding);
  for (int i = 0; i < 18; ++i) {
    if (i % 6 < 4)
      EXPECT_EQ(y[i], dense.exact.y[i / 6 * 4 + i % 6]);
    else
      EXPECT_TRUE(std::isnan(y[i]));
  }
}

TEST(LayerNormReference, EmptyProblemsWriteWhatThereIs) {
  Call<double> no_rows{0, 3, {}, {}, {1, 1, 1}, {1, 1, 1}, 1e-5};
  no_rows.run();
  EXPECT_EQ(no_rows.exact.grad_weight, std::vector(3, 0.0));
  Call<double> no_cols{2, 0, {}, {}};
  no_cols.run();
  EXPECT_TRUE(all_nan(no_cols.exact.mean));
  EXPECT_TRUE(all_nan(no_cols.exact.rstd));
}

TEST(LayerNormReference, IntermediatesAreThoseOfTheFormulas) {
  Call<double> call{1, 4, {1, 2, 3, 4}, {1, 0, 0, 0}, {1, 2, 3, 4}, {10, 20, 30, 40}, 1};
  call.run();
  std::map<std::string, std::vector<double>> arrays;
  const auto emit = [&](std::string_view name, std::int64_t rows, std::int64_t cols,
                        std::span<const double> values) {
    EXPECT_EQ(rows * cols, std::ssize(values)) << name;
    arrays[std::string(name)].assign(values.begin(), values.end());
  };
  Reference::forward_intermediates(call.forward_args(), kRounding, emit);
  EXPECT_EQ(arrays["variance"], std::vector{1.25});
  expect_near(arrays["x_hat"], {-1, -1.0 / 3, 1.0 / 3, 1}, 1e-15);
  arrays.clear();
  Reference::backward_intermediates(call.backward_args(), kRounding, emit);
  EXPECT_EQ(arrays["g"], (std::vector<double>{1, 0, 0, 0}));
  EXPECT_EQ(arrays["mean_g"], std::vector{0.25});
  EXPECT_EQ(arrays["mean_g_x_hat"], std::vector{-0.25});
}

TEST(LayerNormCases, EveryGridHasShapes) {
  for (const char* grid : {"quick", "test", "full", "bench", "bench-quick"}) {
    for (const CaseGrid& cases : norms::forward_cases("layernorm", grid)) {
      EXPECT_EQ(cases.shapes.empty(), cases.dims.size() == 2) << grid;
      EXPECT_FALSE(cases.types.empty() || cases.inputs.empty() || cases.options.empty()) << grid;
    }
  }
  EXPECT_THROW(norms::forward_cases("layernorm", "big"), InvalidArgument);
}

TEST(LayerNormCases, CostIsTheFloor) {
  Call<double> call = random_call<double>(10, 8);
  call.run();
  EXPECT_EQ(norms::forward_cost<Norm>(call.forward_args()).bytes, 8 * (2 * 80 + 2 * 8 + 2 * 10));
  EXPECT_EQ(norms::backward_cost<Norm>(call.backward_args()).bytes, 8 * (3 * 80 + 3 * 8));
  EXPECT_EQ(norms::forward_cost<Norm>(call.forward_args()).flops, 9 * 80);
}

}  // namespace
}  // namespace isobit::layernorm
