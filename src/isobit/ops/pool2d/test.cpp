// SPDX-License-Identifier: Apache-2.0
// What only pool2d promises: which element is the largest, what an index may hold, which windows
// there are, and sums in panels.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/dispatch/operation.h"
#include "isobit/ops/pool2d/pool2d.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::pool2d {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// (1, channels, height, width), with channels first or last in memory.
template <class T>
TensorView images(std::vector<T>& values, DType dtype, std::int64_t channels, std::int64_t height,
                  std::int64_t width, bool last = false) {
  TensorView view;
  view.data = values.data();
  view.bytes = std::ssize(values) * static_cast<std::int64_t>(sizeof(T));
  view.dtype = dtype;
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

struct Found {
  std::vector<float> y;
  std::vector<std::int64_t> index;
};

Found row_of_largest(const auto& run, std::vector<float> x, ForwardArgs args, std::int64_t results,
                     bool last) {
  const std::int64_t width = std::ssize(x);
  // Two channels, of which the second is a copy.
  std::vector<float> both;
  for (std::int64_t i = 0; i < 2 * width; ++i) both.push_back(x[last ? i / 2 : i % width]);
  std::vector<float> y(2 * results);
  std::vector<std::int64_t> index(2 * results);
  args.x = images(both, DType::f32, 2, 1, width, last);
  args.y = images(y, DType::f32, 2, 1, results);
  args.index = images(index, DType::i64, 2, 1, results);
  args.window_h = 1;
  run(forward_operation(), args);
  std::vector<float> alone(y.size());
  ForwardArgs without = args;
  without.y = images(alone, DType::f32, 2, 1, results);
  without.index = {};
  run(forward_operation(), without);
  for (std::size_t i = 0; i < y.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(alone[i]), std::bit_cast<std::uint32_t>(y[i])) << i;
  Found found;
  for (std::int64_t i = 0; i < results; ++i) {
    EXPECT_EQ(index[i], index[i + results]);
    found.y.push_back(y[i]);
    found.index.push_back(index[i]);
  }
  return found;
}

TEST(Pool2d, TheFirstOfEqualElementsIsTheLargestAndTheLastNaN) {
  in_every_way([](const auto& run) {
    for (const bool last : {false, true}) {
      const Found found = row_of_largest(
          run, {1, 3, 3, -0.0f, 0.0f, 0.0f, 0.0f, -0.0f, -0.0f, kNaN, 9, kNaN, 5, kNaN, 2},
          {.x = {}, .y = {}, .window_w = 3}, 5, last);
      EXPECT_EQ(found.index, (std::vector<std::int64_t>{1, 3, 6, 11, 13}));
      EXPECT_EQ(found.y[0], 3);
      EXPECT_TRUE(std::signbit(found.y[1])) << found.y[1];
      EXPECT_FALSE(std::signbit(found.y[2])) << found.y[2];
      EXPECT_TRUE(std::isnan(found.y[3]));
      EXPECT_TRUE(std::isnan(found.y[4]));
      // Rows without NaN have a loop of their own.
      const Found zeros = row_of_largest(run, {-0.0f, 0.0f, 0.0f, -0.0f},
                                         {.x = {}, .y = {}, .window_w = 2}, 2, last);
      EXPECT_EQ(zeros.index, (std::vector<std::int64_t>{0, 2}));
      EXPECT_TRUE(std::signbit(zeros.y[0]) && !std::signbit(zeros.y[1]));
    }
  });
}

TEST(Pool2d, PaddingIsNoElement) {
  in_every_way([](const auto& run) {
    for (const bool last : {false, true}) {
      const Found found =
          row_of_largest(run, {-kInfinity, -kInfinity, -kInfinity, -2},
                         {.x = {}, .y = {}, .window_w = 2, .padding_w = 1}, 3, last);
      EXPECT_EQ(found.index, (std::vector<std::int64_t>{0, 1, 3}));
      EXPECT_EQ(found.y, (std::vector<float>{-kInfinity, -kInfinity, -2}));
    }
  });
}

TEST(Pool2d, AWindowWithoutElementsIsNowhereAndMinusInfinity) {
  in_every_way([](const auto& run) {
    const Found found = row_of_largest(
        run, {7, 8},
        {.x = {}, .y = {}, .window_w = 2, .stride_w = 1, .padding_w = 2, .dilation_w = 4}, 2,
        false);
    EXPECT_EQ(found.index, (std::vector<std::int64_t>{-1, -1}));
    EXPECT_EQ(found.y, (std::vector<float>{-kInfinity, -kInfinity}));
  });
}

TEST(Pool2d, AnIndexOfNoElementOfItsWindowGivesNothing) {
  in_every_way([](const auto& run) {
    for (const bool last : {false, true}) {
      constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
      constexpr float kGrads[] = {1, 2, 4, 8, 16, 32};
      constexpr std::int64_t kIndices[] = {0, -1, 3, kMost, 9, 11};
      std::vector<float> grad, grad_x(24, kNaN);
      std::vector<std::int64_t> index;
      for (std::size_t i = 0; i < 12; ++i) {
        grad.push_back(kGrads[last ? i / 2 : i % 6]);
        index.push_back(kIndices[last ? i / 2 : i % 6]);
      }
      run(backward_operation(), BackwardArgs{.grad_y = images(grad, DType::f32, 2, 1, 6, last),
                                             .index = images(index, DType::i64, 2, 1, 6, last),
                                             .grad_x = images(grad_x, DType::f32, 2, 1, 12, last),
                                             .window_h = 1,
                                             .window_w = 2});
      std::vector<float> expected(12);
      expected[0] = 1;
      expected[9] = 16;
      expected[11] = 32;
      for (std::size_t i = 0; i < 24; ++i)
        EXPECT_EQ(grad_x[i], expected[last ? i / 2 : i % 12]) << i;
    }
  });
}

TEST(Pool2d, AnIndexThatIsNotInThePlaneGivesNothing) {
  in_every_way([](const auto& run) {
    for (const bool last : {false, true})
      for (const std::int64_t index : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{5},
                                       std::int64_t{6}, std::numeric_limits<std::int64_t>::max()}) {
        std::vector<float> grad(2, 3), grad_x(12, kNaN);
        std::vector<std::int64_t> indices(2, index);
        run(backward_operation(),
            BackwardArgs{.grad_y = images(grad, DType::f32, 2, 1, 1),
                         .index = images(indices, DType::i64, 2, 1, 1),
                         .grad_x = images(grad_x, DType::f32, 2, 2, 3, last)});
        for (std::int64_t i = 0; i < 12; ++i)
          EXPECT_EQ(grad_x[i], (last ? i / 2 : i % 6) == index ? 3 : 0) << index << " " << i;
      }
  });
}

TEST(Pool2d, TheLastWindowDoesNotBeginInThePaddingBehindTheImage) {
  ForwardArgs args{.x = {},
                   .y = {},
                   .window_h = 1,
                   .window_w = 2,
                   .stride_w = 3,
                   .padding_w = 1,
                   .ceil_mode = true};
  std::vector<float> x(5), y(9);
  args.x = images(x, DType::f32, 1, 1, 5);
  args.y = images(y, DType::f32, 1, 1, 2);  // from -1 and 2; one from 5 would see padding alone
  forward(args, simd::here(1));
  args.y = images(y, DType::f32, 1, 1, 3);
  EXPECT_ANY_THROW(forward(args, simd::here(1)));
}

TEST(Pool2d, MeansAreSumsInPanelsDividedOnce) {
  in_every_way([](const auto& run) {
    for (const bool last : {false, true}) {
      constexpr std::int64_t kHeight = 37, kWidth = 41;  // a bit less than three panels
      std::vector<float> x(2 * kHeight * kWidth), y(2);
      float total = 0, part = 0;
      for (std::int64_t i = 0; i < kHeight * kWidth; ++i) {
        const float value = 0.1f + static_cast<float>(i % 97);
        x[last ? 2 * i : i] = x[last ? 2 * i + 1 : i + kHeight * kWidth] = value;
        if (i % 512 == 0) {
          total += part;
          part = 0;
        }
        part += value;
      }
      const float expected = (total + part) / (kHeight * kWidth);
      for (const bool bins : {false, true}) {
        ForwardArgs args{.x = images(x, DType::f32, 2, kHeight, kWidth, last),
                         .y = images(y, DType::f32, 2, 1, 1),
                         .reduction = Reduction::average};
        if (!bins) {
          args.window_h = kHeight;
          args.window_w = kWidth;
        }
        run(forward_operation(), args);
        EXPECT_EQ(y[0], expected);
        EXPECT_EQ(y[1], expected);
      }
    }
  });
}

TEST(Pool2d, CallsAreToldWhichRuleTheyBreak) {
  std::vector<float> x(9 * 7), y(9 * 7);
  std::vector<std::int64_t> index(9 * 7);
  ForwardArgs right;
  right.x = images(x, DType::f32, 1, 9, 7);
  right.y = images(y, DType::f32, 1, 4, 3);
  right.window_h = right.window_w = 2;
  forward(right, simd::here(1));
  const auto told = [&](const auto& spoil) -> std::string {
    ForwardArgs args = right;
    spoil(args);
    try {
      forward(args, simd::here(1));
    } catch (const InvalidArgument& error) { return error.what(); }
    return "accepted";
  };
  EXPECT_EQ(told([](auto& a) { a.window_h = 10; }),
            "pool2d: height 9, window_h 10, dilation_h 1 and padding_h 0 leave no window: "
            "(9 + 2 * 0 - 1 * (10 - 1) - 1) / 10 + 1 = 0; must be at least 1");
  EXPECT_EQ(told([](auto& a) { a.padding_w = 2; }),
            "pool2d: padding_w is 2; allowed: at most half of what a window spans, "
            "1 * (2 - 1) + 1 = 2");
  EXPECT_EQ(told([](auto& a) { a.dilation_w = std::int64_t{1} << 31; }),
            "pool2d: dilation_w is 2147483648; allowed: 1 to 2^31 - 1");
  EXPECT_EQ(told([](auto& a) { a.stride_h = -1; }),
            "pool2d: stride_h is -1; allowed: 0 to 2^31 - 1");
  EXPECT_EQ(told([](auto& a) { a.bins_h = 2; }),
            "pool2d: bins_h is 2 beside window_h 2; must be 1, or window_h 0");
  EXPECT_EQ(told([](auto& a) {
              a.window_h = 0;
              a.padding_h = 1;
            }),
            "pool2d: padding_h is 1, but bins have none: window_h is 0");
  EXPECT_EQ(told([](auto& a) {
              a.window_h = a.window_w = 0;
              a.ceil_mode = true;
            }),
            "pool2d: ceil_mode is given, but bins always reach the end: window_h and window_w are "
            "0");
  EXPECT_EQ(told([](auto& a) { a.divisor = 3; }),
            "pool2d: divisor is 3, but reduction max does not divide");
  EXPECT_EQ(told([](auto& a) { a.count_include_pad = true; }),
            "pool2d: count_include_pad is given, but reduction max does not divide");
  EXPECT_EQ(told([](auto& a) { a.reduction = static_cast<Reduction>(2); }),
            "pool2d: reduction is 2; allowed: 0 to 1");
  EXPECT_EQ(told([](auto& a) {
              a.reduction = Reduction::average;
              a.dilation_h = 2;
            }),
            "pool2d: dilation_h is 2; reduction average has none: must be 1");
  EXPECT_EQ(told([](auto& a) {
              a.reduction = Reduction::average;
              a.count_include_pad = true;
              a.divisor = 3;
            }),
            "pool2d: divisor is 3 beside count_include_pad; must be 0, or nothing is counted");
  EXPECT_EQ(told([&](auto& a) {
              a.reduction = Reduction::average;
              a.index = images(index, DType::i64, 1, 4, 3);
            }),
            "pool2d: index is given, but reduction average finds none");
  EXPECT_EQ(told([](auto& a) { a.y.shape[2] = 3; }),
            "pool2d: y has shape (1, 1, 3, 3); the windows of x has (1, 1, 4, 3)");
}

}  // namespace
}  // namespace isobit::pool2d
