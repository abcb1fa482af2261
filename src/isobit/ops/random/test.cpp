// SPDX-License-Identifier: Apache-2.0
// What only random promises: numbers by their places, the words behind them, tails and bounds, and
// distributions that are those they are called.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/norms/philox.h"
#include "isobit/ops/random/formula.h"
#include "isobit/ops/random/random.h"
#include "isobit/simd/parallel_for.h"
#include "isobit/tile/scalar.h"

namespace isobit::random {
namespace {

constexpr std::int64_t kMany = 1 << 17;

template <class T>
constexpr DType dtype_of() {
  if constexpr (sizeof(T) == 8) return DType::f64;
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  return std::is_same_v<T, f16> ? DType::f16 : DType::bf16;
}

template <class T = float>
std::vector<T> drawn(Args args, std::int64_t count, int threads = 2) {
  std::vector<T> values(static_cast<std::size_t>(count));
  args.y = vector_view(values.data(), count * static_cast<std::int64_t>(sizeof(T)), dtype_of<T>(),
                       count);
  run(args, simd::here(threads));
  return values;
}

std::string complaint(const Args& args) {
  try {
    drawn(args, 4);
  } catch (const InvalidArgument& error) { return error.what(); }
  return "nothing";
}

// How likely a normal number is below x.
double integral(double x) { return std::erfc(-x * std::sqrt(0.5)) / 2; }

// The largest distance of the drawn numbers' distribution from the one that they should have.
template <class Below>
double distance(std::vector<float> values, const Below& below) {
  std::ranges::sort(values);
  double worst = 0;
  const auto count = static_cast<double>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    worst = std::max(worst, std::fabs(below(values[i]) - (static_cast<double>(i) + 0.5) / count));
  return worst * std::sqrt(count);  // above 1.95 in one of a thousand draws
}

TEST(Random, AnElementDependsOnItsPlaceAlone) {
  for (const auto distribution :
       {Distribution::uniform, Distribution::normal, Distribution::bernoulli}) {
    const Args args{.y = {}, .distribution = distribution, .random_seed = 9};
    const auto whole = drawn(args, 1000);
    for (const std::int64_t offset : {1, 2, 3, 4, 63, 64, 500}) {
      Args later = args;
      later.random_offset = static_cast<std::uint64_t>(offset);
      EXPECT_TRUE(std::ranges::equal(drawn(later, 1000 - offset),
                                     std::span(whole).subspan(static_cast<std::size_t>(offset))))
          << offset;
    }
  }
}

TEST(Random, OffsetsCountModulo2To64) {
  for (const int threads : {1, 3}) {
    const auto first = drawn<double>({.y = {}, .random_seed = 3}, 40'000, threads);
    const auto around = drawn<double>(
        {.y = {}, .random_seed = 3, .random_offset = ~std::uint64_t{0} - 4}, 40'005, threads);
    EXPECT_TRUE(std::ranges::equal(first, std::span(around).subspan(5)));
    const auto last =
        drawn<double>({.y = {}, .random_seed = 3, .random_offset = ~std::uint64_t{0} - 2}, 3);
    EXPECT_TRUE(std::ranges::equal(last, std::span(around).subspan(2, 3)));
  }
}

// Of dropout's masks, whose rows would be counters of the same generator, none is made of them.
TEST(Random, UniformsAreWordsThatNoMaskIsMadeOf) {
  constexpr std::uint64_t kSeed = 0x299f31d0a4093822;
  const auto values = drawn<double>({.y = {}, .random_seed = kSeed}, 64);
  for (std::uint32_t i = 0; i < 64; ++i) {
    const auto first = norms::philox({i / 4, 0, 0, 0x80000000u}, kSeed)[i % 4];
    const auto second = norms::philox({i / 4, 0, 1, 0x80000000u}, kSeed)[i % 4];
    EXPECT_EQ(values[i], first * 0x1p-32 + (second >> 11) * 0x1p-53);
  }
  const auto masks = norms::dropout_words(kSeed, 0, 0);
  EXPECT_NE(static_cast<float>(masks[0]) * 0x1p-32f, static_cast<float>(values[0]));
}

TEST(Random, EveryBitOfSeedAndOffsetMatters) {
  const auto plain = drawn({.y = {}}, 8);
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t one = std::uint64_t{1} << bit;
    EXPECT_NE(drawn({.y = {}, .random_seed = one}, 8), plain) << bit;
    EXPECT_NE(drawn({.y = {}, .random_offset = one}, 8), plain) << bit;
  }
}

TEST(Random, DistributionsAreThoseTheyAreCalled) {
  EXPECT_LT(distance(drawn({.y = {}, .low = -2, .high = 6, .random_seed = 1}, kMany),
                     [](double x) { return (x + 2) / 8; }),
            1.95);
  EXPECT_LT(
      distance(drawn({.y = {}, .distribution = Distribution::normal, .mean = 3, .std = 0.5}, kMany),
               [](double x) { return integral((x - 3) / 0.5); }),
      1.95);
  const auto cut = [](double low, double high) {
    const Args args{.y = {},
                    .distribution = Distribution::truncated_normal,
                    .low = low,
                    .high = high,
                    .mean = 1,
                    .std = 2,
                    .random_seed = 5};
    const auto values = drawn(args, kMany);
    const auto [least, most] = std::ranges::minmax(values);
    EXPECT_TRUE(low <= least && most <= high) << least << " " << most;
    const double first = integral((low - 1) / 2), last = integral((high - 1) / 2);
    return distance(values,
                    [&](double x) { return (integral((x - 1) / 2) - first) / (last - first); });
  };
  EXPECT_LT(cut(-2, 2), 1.95);
  EXPECT_LT(cut(2, 9), 1.95);
  EXPECT_LT(cut(-30, 0.5), 1.95);
  for (const double p : {0.1, 0.5, 0.99}) {
    const auto values = drawn({.y = {}, .distribution = Distribution::bernoulli, .p = p}, kMany);
    const auto ones = static_cast<double>(std::ranges::count(values, 1.0f));
    EXPECT_EQ(ones + static_cast<double>(std::ranges::count(values, 0.0f)), kMany);
    EXPECT_NEAR(ones / kMany, p, 4 * std::sqrt(p * (1 - p) / kMany));
  }
  for (const double p : {0.0, 1.0})
    for (const float value :
         drawn({.y = {}, .distribution = Distribution::bernoulli, .p = p}, 1000))
      EXPECT_EQ(value, p);
}

// The first and the last word; between them tails are symmetric.
TEST(Random, TailsReachSixStandardDeviations) {
  using S = tile::Scalar<double>;
  const Constants c = constants_of<S, float>({.y = {}, .distribution = Distribution::normal});
  const auto at = [&](std::uint32_t word) {
    return number_of<S>(c, draw_of<float>(c.distribution, word, 0));
  };
  EXPECT_NEAR(at(0), -6.3379, 1e-4);
  EXPECT_EQ(at(0xffffffffu), -at(0));
  for (std::uint32_t word = 1; word != 0; word *= 3) {
    EXPECT_EQ(at(~word), -at(word));
    EXPECT_LE(at(word), at(word + 1));
    EXPECT_NEAR(integral(at(word)) * 0x1p32, word + 0.5, (word + 0.5) * 1e-13);
    if (word > 0x50000000u) break;
  }
}

template <class T>
void expect_inside(double low, double high) {
  const auto values = drawn<T>({.y = {}, .low = low, .high = high}, kMany);
  const double least = rounded_to<T>(low), end = rounded_to<T>(high);
  int last = 0;
  for (const T value : values) {
    const double number = widen<std::conditional_t<sizeof(T) == 8, double, float>>(value);
    ASSERT_TRUE(least <= number && number < end) << number << " of " << low << " to " << high;
    last += number == previous<T>(end);
  }
  EXPECT_GT(last, sizeof(T) == 2 && high != 0 ? 0 : -1);
}

TEST(Random, UniformsReachTheNumberBelowHighAndNotHigh) {
  for (const auto& [low, high] : {std::pair{0.0, 1.0}, {-3.0, 0.0}, {-7.0, -1.5}, {0.1, 0.7}}) {
    expect_inside<bf16>(low, high);
    expect_inside<f16>(low, high);
    expect_inside<float>(low, high);
    expect_inside<double>(low, high);
  }
  // Between 1 and the next number there is none of this type.
  for (const bf16 value : drawn<bf16>({.y = {}, .low = 1, .high = 1.001}, 8))
    EXPECT_EQ(to_float(value), 1.0f);
}

TEST(Random, BernoulliIsTheSameInEveryType) {
  const Args args{.y = {}, .distribution = Distribution::bernoulli, .p = 0.3, .random_seed = 8};
  const auto narrow = drawn<bf16>(args, 100);
  const auto wide = drawn<double>(args, 100);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(to_float(narrow[i]), wide[i]);
}

TEST(Random, EachRuleIsToldByName) {
  const double kNan = std::nan("");
  EXPECT_EQ(complaint({.y = {}, .low = 2, .high = 2}),
            "random: low is 2 and high 2; low must be less");
  EXPECT_EQ(complaint({.y = {}, .low = kNan}),
            "random: low is nan; must be a number of y's type, f32");
  EXPECT_EQ(complaint({.y = {}, .high = 1e39}),
            "random: high is 1e+39; must be a number of y's type, f32");
  EXPECT_EQ(complaint({.y = {}, .distribution = Distribution::normal, .std = -1}),
            "random: std is -1; must not be negative");
  EXPECT_EQ(complaint({.y = {}, .distribution = Distribution::truncated_normal, .std = 0}),
            "random: std is 0; must be above 0 in truncated_normal");
  EXPECT_EQ(complaint({.y = {}, .distribution = Distribution::bernoulli, .p = 1.5}),
            "random: p is 1.5; allowed: 0 to 1");
  EXPECT_EQ(complaint({.y = {}, .distribution = static_cast<Distribution>(4)}),
            "random: distribution is 4; allowed: 0 to 3");
  EXPECT_THROW(drawn<double>({.y = {}, .low = -1e308, .high = 0}, 4), InvalidArgument);
  EXPECT_EQ(complaint({.y = {}, .distribution = Distribution::normal, .low = 3, .std = 0}),
            "nothing");
}

}  // namespace
}  // namespace isobit::random
