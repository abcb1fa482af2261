// SPDX-License-Identifier: Apache-2.0
// What all norms share: residual sums, dropout, zero-centered weights, outputs of another type,
// several last dimensions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/dispatch/operation.h"
#include "isobit/norms/cpu_forward.h"
#include "isobit/norms/philox.h"
#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/ops/rmsnorm/rmsnorm.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::norms {
namespace {

constexpr std::int64_t kRows = 37, kCols = 300;

// A matrix of kRows x kCols, or a row of kCols.
template <class T = float>
struct Array {
  std::vector<T> values;
  std::int64_t rows;

  explicit Array(std::int64_t rows = kRows) : values(rows * kCols), rows(rows) {}
  static constexpr DType kType = sizeof(T) == 4 ? DType::f32 : DType::bf16;
  TensorView view() {
    const std::int64_t bytes = std::ssize(values) * sizeof(T);
    return rows == 1 ? vector_view(values.data(), bytes, kType, kCols)
                     : matrix_view(values.data(), bytes, kType, rows, kCols, kCols);
  }
};

template <class T = float>
Array<T> drawn(int seed, std::int64_t rows = kRows) {
  Array<T> array(rows);
  for (std::size_t i = 0; i < array.values.size(); ++i)
    array.values[i] =
        from_float<T>(static_cast<float>((i * 2654435761u + seed * 40503u) % 2048) / 256 - 4);
  return array;
}

Execution execution() { return simd::here(2); }

// The vectors published with Random123 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3").
TEST(Philox, GivesThePublishedWords) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, ~std::uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Also of the upper 32 bits of each: no mask comes again after 2^32 rows.
TEST(Dropout, WordsDependOnEveryBitOfSeedRowAndColumn) {
  const auto words = dropout_words(0, 0, 0);
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t one = std::uint64_t{1} << bit;
    EXPECT_NE(dropout_words(one, 0, 0), words) << bit;
    EXPECT_NE(dropout_words(0, static_cast<std::int64_t>(one), 0), words) << bit;
    EXPECT_NE(dropout_words(0, 0, static_cast<std::int64_t>(one)), words) << bit;
  }
}

TEST(Dropout, DropsAsManyAsItSays) {
  Array<> x, sum;
  std::fill(x.values.begin(), x.values.end(), 1.0f);
  Array<> y;
  for (double p : {0.1, 0.5, 0.9}) {
    rmsnorm::forward({.x = x.view(), .y = y.view(), .sum = sum.view(), .dropout = p}, execution());
    const double dropped = std::count(sum.values.begin(), sum.values.end(), 0.0f);
    const double n = kRows * kCols;
    EXPECT_NEAR(dropped / n, p, 5 * std::sqrt(p * (1 - p) / n));
    for (float value : sum.values)
      ASSERT_TRUE(value == 0 || value == static_cast<float>(1 / (1 - p)));
  }
}

// The mask is a function of seed, row and column: not of the type, the threads or the batch.
TEST(Dropout, MaskIsTheSameEverywhere) {
  const auto mask = [](auto type, int rows, int threads, std::uint64_t seed) {
    using T = decltype(type);
    Array<T> x(rows), y(rows), sum(rows);
    std::fill(x.values.begin(), x.values.end(), from_float<T>(1.0f));
    layernorm::forward(
        {.x = x.view(), .y = y.view(), .sum = sum.view(), .dropout = 0.3, .dropout_seed = seed},
        simd::here(threads));
    std::vector<bool> kept;
    for (T value : sum.values) kept.push_back(to_float(value) != 0);
    return kept;
  };
  const std::vector<bool> expected = mask(float{}, kRows, 1, 5);
  EXPECT_EQ(mask(float{}, kRows, 3, 5), expected);
  EXPECT_EQ(mask(bf16{}, kRows, 2, 5), expected);
  const std::vector<bool> fewer = mask(float{}, 9, 1, 5);
  EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), expected.begin()));
  EXPECT_NE(mask(float{}, kRows, 1, 6), expected);
}

// What forward dropped gets no gradient, and what it kept gets the residual's, scaled.
TEST(Dropout, BackwardKnowsTheMaskOfForward) {
  Array<> x = drawn(1), residual = drawn(2), grad_y = drawn(3), y, sum, grad_x, grad_residual;
  layernorm::forward({.x = x.view(),
                      .residual = residual.view(),
                      .y = y.view(),
                      .sum = sum.view(),
                      .dropout = 0.5,
                      .dropout_seed = 11},
                     execution());
  layernorm::backward({.x = sum.view(),
                       .grad_y = grad_y.view(),
                       .grad_x = grad_x.view(),
                       .grad_residual = grad_residual.view(),
                       .dropout = 0.5,
                       .dropout_seed = 11},
                      execution());
  int dropped = 0;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const bool kept = grad_x.values[i] != 0;
    dropped += !kept;
    ASSERT_EQ(sum.values[i], residual.values[i] + (kept ? 2 * x.values[i] : 0)) << i;
    ASSERT_EQ(grad_x.values[i], kept ? 2 * grad_residual.values[i] : 0) << i;
  }
  EXPECT_GT(dropped, kRows * kCols / 3);
}

TEST(Residual, NormOfTheSumIsTheNormOfThatArray) {
  Array<bf16> x = drawn<bf16>(1), residual = drawn<bf16>(2), y, sum, y_of_sum;
  rmsnorm::forward({.x = x.view(), .residual = residual.view(), .y = y.view(), .sum = sum.view()},
                   execution());
  rmsnorm::forward({.x = sum.view(), .y = y_of_sum.view()}, execution());
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    ASSERT_EQ(y.values[i].bits, y_of_sum.values[i].bits) << i;
    ASSERT_EQ(sum.values[i].bits,
              from_float<bf16>(to_float(x.values[i]) + to_float(residual.values[i])).bits);
  }
}

TEST(Residual, SumMayReplaceTheResidual) {
  Array<> x = drawn(1), residual = drawn(2), y, sum, y_in_place;
  layernorm::forward({.x = x.view(), .residual = residual.view(), .y = y.view(), .sum = sum.view()},
                     execution());
  layernorm::forward(
      {.x = x.view(), .residual = residual.view(), .y = y_in_place.view(), .sum = residual.view()},
      execution());
  EXPECT_EQ(residual.values, sum.values);
  EXPECT_EQ(y_in_place.values, y.values);
  layernorm::forward({.x = x.view(), .residual = drawn(2).view(), .y = x.view(), .sum = sum.view()},
                     execution());
  EXPECT_EQ(x.values, y.values);
}

TEST(ZeroCenteredWeight, IsTheWeightLessOne) {
  Array<> x = drawn(1), grad_y = drawn(2), weight = drawn(3, 1), stored = weight;
  for (float& value : stored.values) value -= 1;  // exact: eighths of small numbers
  const auto results = [&](Array<>& of, bool zero_centered) {
    Array<> y, grad_x;
    layernorm::forward(
        {.x = x.view(), .weight = of.view(), .y = y.view(), .zero_centered = zero_centered},
        execution());
    layernorm::backward({.x = x.view(),
                         .grad_y = grad_y.view(),
                         .weight = of.view(),
                         .grad_x = grad_x.view(),
                         .zero_centered = zero_centered},
                        execution());
    y.values.insert(y.values.end(), grad_x.values.begin(), grad_x.values.end());
    return y.values;
  };
  EXPECT_EQ(results(stored, true), results(weight, false));
}

// One rounding, from the float that is computed: not two by way of x's type.
TEST(OutputType, IsRoundedOnce) {
  Array<> x = drawn(1), y;
  Array<bf16> rounded;
  rmsnorm::forward({.x = x.view(), .y = y.view()}, execution());
  rmsnorm::forward({.x = x.view(), .y = rounded.view()}, execution());
  for (std::size_t i = 0; i < y.values.size(); ++i)
    ASSERT_EQ(rounded.values[i].bits, from_float<bf16>(y.values[i]).bits) << i;
}

// Rows among which some are constant, not finite or far from zero, or their squares leave the
// range.
std::vector<float> unusual_rows(std::int64_t rows, std::int64_t cols) {
  std::vector<float> x(rows * cols);
  for (std::int64_t i = 0; i < std::ssize(x); ++i)
    x[i] = static_cast<float>(i * 2654435761u % 2048) / 256 - 4;
  const auto change = [&](std::int64_t row, const auto& of) {
    std::for_each_n(x.begin() + row * cols, cols, [&](float& each) { each = of(each); });
  };
  change(3, [](float) { return 7.0f; });
  change(5, [](float) { return -0.0f; });
  change(11, [](float each) { return each + 1e6f; });
  change(17, [](float each) { return each * 1e30f; });
  change(19, [](float each) { return each * 1e-30f; });
  x[9 * cols] = std::numeric_limits<float>::quiet_NaN();
  x[14 * cols + cols - 1] = std::numeric_limits<float>::infinity();
  return x;
}

// Of rows [first, first + count): y, rstd and grad_x, row after row, then grad_weight. `given`:
// backward takes the statistics that forward found.
std::vector<std::uint32_t> bits_of_rows(bool centered, bool given, const std::vector<float>& all,
                                        std::int64_t cols, std::int64_t first, std::int64_t count,
                                        const Execution& execution) {
  const auto from = all.begin() + first * cols, to = from + count * cols;
  std::vector<float> x(from, to), y(x.size()), mean(count), rstd(count);
  std::vector<float> grad_x(x.size()), grad_weight(cols);
  std::vector<float> grad_y(all.size());
  for (std::int64_t i = 0; i < std::ssize(grad_y); ++i)
    grad_y[i] = static_cast<float>(i * 40503u % 512) / 128 - 2;
  grad_y.assign(grad_y.begin() + first * cols, grad_y.begin() + (first + count) * cols);
  const auto matrix = [&](std::vector<float>& data) {
    return matrix_view(data.data(), std::ssize(data) * 4, DType::f32, count, cols, cols);
  };
  const auto vector = [&](std::vector<float>& data) {
    return vector_view(data.data(), std::ssize(data) * 4, DType::f32, std::ssize(data));
  };
  const auto run = [&](const auto& forward, const auto& backward) {
    forward({.x = matrix(x), .y = matrix(y), .rstd = vector(rstd)}, execution);
    backward({.x = matrix(x),
              .grad_y = matrix(grad_y),
              .rstd = given ? vector(rstd) : TensorView{},
              .grad_x = matrix(grad_x),
              .grad_weight = vector(grad_weight)},
             execution);
  };
  if (centered)
    run(
        [&](layernorm::ForwardArgs args, const Execution& e) {
          args.mean = vector(mean);
          layernorm::forward(args, e);
        },
        [&](layernorm::BackwardArgs args, const Execution& e) {
          if (given) args.mean = vector(mean);
          layernorm::backward(args, e);
        });
  else
    run([](const rmsnorm::ForwardArgs& args, const Execution& e) { rmsnorm::forward(args, e); },
        [](const rmsnorm::BackwardArgs& args, const Execution& e) { rmsnorm::backward(args, e); });
  std::vector<std::uint32_t> bits;
  const auto put = [&](const float* data, std::int64_t size) {
    for (std::int64_t i = 0; i < size; ++i) bits.push_back(std::bit_cast<std::uint32_t>(data[i]));
  };
  for (std::int64_t row = 0; row < count; ++row) {
    put(&y[row * cols], cols);
    put(&rstd[row], 1);
    put(&grad_x[row * cols], cols);
  }
  put(grad_weight.data(), cols);
  return bits;
}

// They are summed side by side where there are as many as a vector has lanes.
TEST(ShortRows, AreWhatTheyAreAlone) {
  for (const std::int64_t cols : {1, 7, 8, 9, 63, 64, 65, 100, 192, 255, 256, 300})
    for (const auto& [centered, given] :
         {std::pair(true, false), {true, true}, {false, false}, {false, true}}) {
      const std::vector<float> x = unusual_rows(kRows, cols);
      Execution here = simd::here(1);
      const auto bits = [&, centered = centered, given = given](Isa isa, std::int64_t first,
                                                                std::int64_t count) {
        here.machine.isa = isa;
        return bits_of_rows(centered, given, x, cols, first, count, here);
      };
      const auto specified = bits(Isa::scalar, 0, kRows);
      for (const Isa isa : Machine::isas_here()) {
        EXPECT_EQ(bits(isa, 0, kRows), specified) << cols << " columns, " << name_of(isa);
        const Machine machine = here.machine;
        here.machine.l2_bytes = here.machine.l3_bytes = 0;  // results are streamed
        EXPECT_EQ(bits(isa, 0, kRows), specified) << cols << " columns, " << name_of(isa);
        here.machine = machine;
        const std::int64_t numbers = 2 * cols + 1;  // of a row
        for (std::int64_t row = 0; row < kRows; ++row) {
          const auto alone = bits(isa, row, 1);
          EXPECT_TRUE(
              std::equal(alone.begin(), alone.begin() + numbers, specified.begin() + row * numbers))
              << "row " << row << " of " << cols << " columns, " << name_of(isa);
        }
      }
    }
}

// By default the forward pass walks its rows as they lie in the caches of the machine.
TEST(Schedules, AreChosenByTheCaches) {
  Machine desktop;
  desktop.l2_bytes = 512 << 10, desktop.l3_bytes = 32 << 20;
  Machine server;
  server.l1_bytes = 48 << 10, server.l2_bytes = 2 << 20, server.l3_bytes = 480 << 20;
  const auto chosen = [](const Machine& machine, std::int64_t rows, std::int64_t cols) {
    ForwardProblem problem = {};
    problem.rows = rows, problem.cols = cols;
    problem.dtype = problem.y_dtype = DType::f32;
    return static_cast<Schedule>(choose_forward(problem, machine)[0]);
  };
  EXPECT_EQ(chosen(desktop, 64, 1024), Schedule::cached);
  EXPECT_EQ(chosen(desktop, 1024, 1024), Schedule::streaming_far);
  EXPECT_EQ(chosen(server, 64, 1024), Schedule::cached);
  EXPECT_EQ(chosen(server, 1024, 1024), Schedule::fetched);
  EXPECT_EQ(chosen(server, 64, 32768), Schedule::fetched);
  EXPECT_EQ(chosen(server, 32, 65536), Schedule::streaming_long_rows);  // leave the second cache
  EXPECT_EQ(chosen(server, 16384, 1024), Schedule::streaming_near);
  server.threads = 8;
  EXPECT_EQ(chosen(server, 1024, 1024), Schedule::cached);
}

TEST(HiddenDims, SeveralDimensionsAreOneRow) {
  Array<> x = drawn(1), y, folded;
  const auto shaped = [](Array<>& array) {
    return TensorView{array.values.data(), std::ssize(array.values) * 4,
                      DType::f32,          4,
                      {kRows, 5, 6, 10},   {kCols, 60, 10, 1}};
  };
  layernorm::forward({.x = x.view(), .y = y.view()}, execution());
  layernorm::forward({.x = shaped(x), .y = shaped(folded), .hidden_dims = 3}, execution());
  EXPECT_EQ(folded.values, y.values);
  // The whole array is a row.
  layernorm::forward({.x = shaped(x), .y = shaped(folded), .hidden_dims = 4}, execution());
  const double sum = std::accumulate(folded.values.begin(), folded.values.end(), 0.0);
  EXPECT_NEAR(sum, 0, 1e-2);
  EXPECT_NE(folded.values, y.values);
}

}  // namespace
}  // namespace isobit::norms
