// SPDX-License-Identifier: Apache-2.0
// What only interpolate promises: where results lie, that weights are a partition of 1, what is
// copied, and what a call is told.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/dispatch/operation.h"
#include "isobit/ops/interpolate/formula.h"
#include "isobit/ops/interpolate/interpolate.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::interpolate {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// (1, channels, height, width), with channels first or last in memory.
TensorView images(std::vector<float>& values, std::int64_t channels, std::int64_t height,
                  std::int64_t width, bool last = false) {
  TensorView view;
  view.data = values.data();
  view.bytes = std::ssize(values) * 4;
  view.dtype = DType::f32;
  view.rank = 4;
  const std::int64_t size = channels * height * width;
  view.shape = {1, channels, height, width};
  if (last)
    view.strides = {size, 1, width * channels, channels};
  else
    view.strides = {size, height * width, width, 1};
  return view;
}

// Calls body(run), where run(operation, args) computes by one variant on one instruction set.
template <class Body>
void in_every_way(const Body& body) {
  for (const Isa isa : Machine::isas_here())
    for (const int variant : {0, 1}) {
      SCOPED_TRACE(std::string(name_of(isa)) + (variant == 0 ? " simd" : " scalar"));
      body([&](const Operation& operation, const auto& given) {
        Execution execution = simd::here(1);
        execution.machine.isa = isa;
        const Arguments args = operation.make_arguments();
        *static_cast<std::decay_t<decltype(given)>*>(args.get()) = given;
        operation.run(variant, {}, args, execution);
      });
    }
}

// One row of two channels, of which the second is a copy.
std::vector<float> row_of(const auto& run, const std::vector<float>& x, ForwardArgs args,
                          std::int64_t results, bool last) {
  const std::int64_t width = std::ssize(x);
  std::vector<float> both;
  for (std::int64_t i = 0; i < 2 * width; ++i) both.push_back(x[last ? i / 2 : i % width]);
  std::vector<float> y(2 * results), found;
  args.x = images(both, 2, 1, width, last);
  args.y = images(y, 2, 1, results, last);
  run(forward_operation(), args);
  for (std::int64_t i = 0; i < results; ++i) {
    const std::int64_t one = last ? 2 * i : i, other = last ? one + 1 : i + results;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(y[one]), std::bit_cast<std::uint32_t>(y[other])) << i;
    found.push_back(y[one]);
  }
  return found;
}

TEST(Interpolate, NearestElementsAreThoseOfExactFractions) {
  for (std::int64_t from = 1; from < 60; ++from)
    for (std::int64_t to = 1; to < 200; ++to) {
      const Axis nearest{from, to, Mode::nearest}, exact{from, to, Mode::nearest_exact};
      for (std::int64_t i = 0; i < to; ++i) {
        ASSERT_EQ(taps_of<float>(nearest, i).first, i * from / to) << from << " " << to;
        ASSERT_EQ(taps_of<float>(exact, i).first, (2 * i + 1) * from / (2 * to))
            << from << " " << to;
      }
    }
  // 41 (1 / 41) is less than 1 in float, and so is 49 (1 / 49) in double.
  EXPECT_EQ(taps_of<float>({2, 82, Mode::nearest}, 41).first, 1);
  EXPECT_EQ(taps_of<float>({2, 98, Mode::nearest}, 49).first, 1);
}

TEST(Interpolate, WeightsAreAPartitionOfOne) {
  for (const Mode mode : {Mode::linear, Mode::cubic})
    for (const double scale : {0.0, 0.7, 1.5, 3.3})
      for (const bool aligned : {false, true})
        for (std::int64_t from = 1; from < 12; ++from)
          for (std::int64_t to = 1; to < 40; ++to) {
            if (aligned && scale != 0) continue;
            const Axis axis{from, to, mode, aligned, scale};
            for (std::int64_t i = 0; i < to; ++i) {
              const Taps<double> taps = taps_of<double>(axis, i);
              double sum = 0, place = 0;
              ASSERT_GE(taps.first, 0);
              ASSERT_LE(taps.first + taps.count, from);
              for (std::int64_t k = 0; k < taps.count; ++k) {
                sum += taps.weight[k];
                place += taps.weight[k] * static_cast<double>(taps.first + k);
              }
              ASSERT_NEAR(sum, 1, 1e-15);
              // A line stays a line.
              if (mode == Mode::linear && aligned && to > 1) {
                ASSERT_NEAR(place,
                            static_cast<double>(i * (from - 1)) / static_cast<double>(to - 1),
                            1e-13);
              }
            }
          }
}

TEST(Interpolate, ResultsThatReachAnElementAreAllThatHaveIt) {
  for (const Mode mode : {Mode::nearest, Mode::nearest_exact, Mode::linear, Mode::cubic})
    for (const double scale : {0.0, 0.7, 2.1, 1e-300, 1e300})
      for (std::int64_t from = 1; from < 9; ++from)
        for (std::int64_t to = 1; to < 24; ++to) {
          const Axis axis{from, to, mode, false, scale};
          for (std::int64_t j = 0; j < from; ++j) {
            const Range reaching = axis.reaching(j);
            for (std::int64_t i = 0; i < to; ++i) {
              float weight = 0;
              if (weighs(axis, i, j, weight)) {
                ASSERT_TRUE(reaching.begin <= i && i < reaching.end)
                    << from << " " << to << " " << scale << ": " << i << " has " << j;
              }
            }
          }
        }
}

TEST(Interpolate, WhatAResultIsNotMadeOfDoesItNoHarm) {
  in_every_way([](const auto& run) {
    for (const bool last : {false, true})
      for (const Mode mode : {Mode::linear, Mode::cubic}) {
        const ForwardArgs args{.x = {}, .y = {}, .mode = mode};
        const std::vector<float> same =
            row_of(run, {1, kInfinity, -0.0f, kNaN, 5, -kInfinity}, args, 6, last);
        EXPECT_EQ(same[0], 1);
        EXPECT_EQ(same[1], kInfinity);
        EXPECT_TRUE(same[2] == 0 && std::signbit(same[2]));
        EXPECT_TRUE(std::isnan(same[3]));
        EXPECT_EQ(same[4], 5);
        EXPECT_EQ(same[5], -kInfinity);
        ForwardArgs corners = args;
        corners.align_corners = true;
        const std::vector<float> wide = row_of(run, {3, kNaN, 7}, corners, 5, last);
        EXPECT_EQ(wide[0], 3);
        EXPECT_TRUE(std::isnan(wide[1]) && std::isnan(wide[2]) && std::isnan(wide[3]));
        EXPECT_EQ(wide[4], 7);
      }
  });
}

TEST(Interpolate, TwiceAsManyResultsLieAtQuarters) {
  in_every_way([](const auto& run) {
    for (const bool last : {false, true}) {
      for (const double scale : {0.0, 2.0})
        EXPECT_EQ(row_of(run, {0, 4, 8}, {.x = {}, .y = {}, .mode = Mode::linear, .scale_w = scale},
                         6, last),
                  (std::vector<float>{0, 1, 3, 5, 7, 8}));
      EXPECT_EQ(row_of(run, {0, 4, 8},
                       {.x = {}, .y = {}, .mode = Mode::linear, .align_corners = true}, 5, last),
                (std::vector<float>{0, 2, 4, 6, 8}));
      EXPECT_EQ(row_of(run, {0, 4, 8},
                       {.x = {}, .y = {}, .mode = Mode::linear, .align_corners = true}, 1, last),
                (std::vector<float>{0}));
      EXPECT_EQ(row_of(run, {0, 4, 8}, {.x = {}, .y = {}, .mode = Mode::linear}, 1, last),
                (std::vector<float>{4}));
      // -9/64, 45/64 ... of Keys' cubic with a = -3/4 at a half.
      EXPECT_EQ(row_of(run, {0, 0, 32, 0, 0, 0},
                       {.x = {}, .y = {}, .mode = Mode::cubic, .align_corners = true}, 11, last),
                (std::vector<float>{0, -3, 0, 19, 32, 19, 0, -3, 0, 0, 0}));
    }
  });
}

TEST(Interpolate, GradientsOfManyResultsAreAddedInPanels) {
  in_every_way([](const auto& run) {
    constexpr std::int64_t kResults = 1300;
    std::vector<float> grad, grad_x(2);
    for (std::int64_t i = 0; i < 2 * kResults; ++i)
      grad.push_back(1 + static_cast<float>(i % kResults * 37 % 101) / 7);
    float total = 0, part = 0;
    for (std::int64_t i = 0; i < kResults; ++i) {
      if (i % 512 == 0) {
        total += part;
        part = 0;
      }
      part += grad[static_cast<std::size_t>(i)];
    }
    for (const bool down : {false, true}) {
      BackwardArgs args{.grad_y = images(grad, 2, down ? kResults : 1, down ? 1 : kResults),
                        .grad_x = images(grad_x, 2, 1, 1),
                        .mode = Mode::linear};
      run(backward_operation(), args);
      EXPECT_EQ(grad_x, (std::vector<float>{total + part, total + part})) << down;
    }
  });
}

TEST(Interpolate, CallsAreToldWhichRuleTheyBreak) {
  std::vector<float> x(9 * 7), y(9 * 7);
  ForwardArgs right{.x = images(x, 1, 9, 7), .y = images(y, 1, 4, 3), .mode = Mode::linear};
  forward(right, simd::here(1));
  const auto told = [&](const auto& spoil) -> std::string {
    ForwardArgs args = right;
    spoil(args);
    try {
      forward(args, simd::here(1));
    } catch (const InvalidArgument& error) { return error.what(); }
    return "accepted";
  };
  EXPECT_EQ(told([](auto& a) { a.mode = static_cast<Mode>(4); }),
            "interpolate: mode is 4; allowed: 0 to 3");
  EXPECT_EQ(told([](auto& a) {
              a.mode = Mode::nearest_exact;
              a.align_corners = true;
            }),
            "interpolate: align_corners is given, but mode nearest_exact has no corners to align");
  EXPECT_EQ(told([](auto& a) {
              a.align_corners = true;
              a.scale_w = 2;
            }),
            "interpolate: scale_w is 2, but with align_corners the sizes alone say where results "
            "lie; must be 0");
  EXPECT_EQ(told([](auto& a) { a.scale_h = -1; }),
            "interpolate: scale_h is -1; must be at least 0");
  EXPECT_NE(told([](auto& a) { a.scale_h = std::numeric_limits<double>::infinity(); }), "accepted");
  EXPECT_EQ(told([](auto& a) { a.y.shape[3] = 0; }),
            "interpolate: out_width is 0; allowed: 1 to 2^31 - 1");
  EXPECT_EQ(told([](auto& a) { a.x.shape[2] = 0; }),
            "interpolate: height is 0; allowed: 1 to 2^31 - 1");
  EXPECT_EQ(told([](auto& a) {
              a.y.shape[1] = 2;
              a.y.shape[2] = 2;
            }),
            "interpolate: y has shape (1, 2, 2, 3); such a result of x has (1, 1, 2, 3)");
  EXPECT_EQ(told([](auto& a) { a.y.rank = 3; }), "interpolate: y has 3 dimensions; must have 4");
  EXPECT_EQ(told([](auto& a) { a.y.dtype = DType::f16; }),
            "interpolate: y has dtype f16; x has f32");
  EXPECT_NE(told([](auto& a) { a.y.data = a.x.data; }), "accepted");
}

}  // namespace
}  // namespace isobit::interpolate
