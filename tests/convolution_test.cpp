// SPDX-License-Identifier: Apache-2.0
// What is peculiar to convolutions: the order of a window, what padding multiplies, layouts,
// groups, pieces of a stream, and messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "convolution_calls.h"
#include "isobit/core/error.h"
#include "isobit/ops/conv1d/conv1d.h"

namespace isobit::convolutions {
namespace {

TEST(Convolution, AWindowIsAProductOverTapsOfChannels) {
  const Shape shapes[] = {
      {.channels = 3, .filters = 2, .height = 5, .width = 9, .taps_h = 3, .taps_w = 2},
      {.batch = 2,
       .channels = 4,
       .filters = 8,
       .height = 7,
       .width = 33,
       .taps_h = 3,
       .taps_w = 3,
       .groups = 2,
       .padding = 1},
      {.channels = 70,
       .filters = 7,
       .height = 4,
       .width = 20,
       .taps_h = 3,
       .taps_w = 3,
       .padding = 1},  // more than a panel
      {.channels = 1100,
       .filters = 3,
       .height = 3,
       .width = 4,
       .taps_h = 3,
       .taps_w = 3,
       .padding = 1},  // more than a run of them
      {.channels = 2,
       .filters = 1,
       .height = 11,
       .width = 40,
       .taps_h = 3,
       .taps_w = 5,
       .stride = 2,
       .dilation = 2,
       .padding = 3},
      {.channels = 3,
       .filters = 5,
       .height = 10,
       .width = 12,
       .taps_h = 4,
       .taps_w = 4,
       .stride = 4}};
  for (const Shape& s : shapes) {
    const Arrays arrays(s);
    const Floats y = convolved(s, arrays);
    std::size_t at = 0;
    for (std::int64_t n = 0; n < s.batch; ++n)
      for (std::int64_t filter = 0; filter < s.filters; ++filter)
        for (std::int64_t row = 0; row < s.out_h(); ++row)
          for (std::int64_t col = 0; col < s.out_w(); ++col, ++at)
            ASSERT_EQ(y[at], window(s, arrays, n, filter, row, col)) << at;
  }
}

// oneDNN and Winograd give a window other bits when the image around it is larger.
TEST(Convolution, AWindowIsTheSameInAnyImage) {
  const Shape whole{
      .channels = 5, .filters = 13, .height = 40, .width = 61, .taps_h = 3, .taps_w = 3};
  const Arrays arrays(whole);
  const Floats all = convolved(whole, arrays);
  for (const std::int64_t side : {3, 4, 7, 20}) {
    Shape part = whole;
    part.height = part.width = side;
    for (const std::int64_t first : {0, 1, 15}) {
      Floats y(static_cast<std::size_t>(Shape::count(part.y())), kNan);
      Forward args;
      args.x = view(arrays.x.data() + first * 61 + first, part.x(), {5 * 40 * 61, 40 * 61, 61, 1});
      args.weight = view(arrays.weight.data(), part.weight());
      args.y = view(y.data(), part.y());
      conv2d::forward(args, here());
      std::size_t at = 0;
      for (std::int64_t filter = 0; filter < 13; ++filter)
        for (std::int64_t row = 0; row < side - 2; ++row)
          for (std::int64_t col = 0; col < side - 2; ++col, ++at)
            ASSERT_EQ(
                y[at],
                all[static_cast<std::size_t>((filter * 38 + row + first) * 59 + col + first)]);
    }
  }
}

// What lies with its channels first, with its channels last.
Floats turned(const Floats& from, const std::vector<std::int64_t>& e) {
  Floats to(from.size());
  std::size_t at = 0;
  for (std::int64_t n = 0; n < e[0]; ++n)
    for (std::int64_t c = 0; c < e[1]; ++c)
      for (std::int64_t h = 0; h < e[2]; ++h)
        for (std::int64_t w = 0; w < e[3]; ++w, ++at)
          to[static_cast<std::size_t>(((n * e[2] + h) * e[3] + w) * e[1] + c)] = from[at];
  return to;
}
TensorView last(const Floats& data, const std::vector<std::int64_t>& e) {
  return view(data.data(), e, {e[1] * e[2] * e[3], 1, e[3] * e[1], e[1]});
}

// Both passes with channels last, beside those with channels first.
void expect_last_as_first(const Shape& s, const Execution& execution = here()) {
  const std::string what = std::to_string(s.channels) + " of " + std::to_string(s.taps_h) + " x " +
                           std::to_string(s.taps_w) + " " +
                           std::string(name_of(execution.machine.isa));
  const Arrays arrays(s);
  const Floats expected = turned(convolved(s, arrays), s.y());
  const Gradients of = gradients(s, arrays);
  const Floats x = turned(arrays.x, s.x()), weight = turned(arrays.weight, s.weight()),
               grad = turned(arrays.grad, s.y());
  Floats y(expected.size(), kNan), to_x(x.size(), kNan), to_weight(weight.size(), kNan);
  Forward args = s.with(Forward{});
  args.x = last(x, s.x());
  args.weight = last(weight, s.weight());
  args.y = last(y, s.y());
  conv2d::forward(args, execution);
  EXPECT_TRUE(same(y, expected)) << what;
  for (const bool whole : {false, true}) {  // only a bias, or all that may become of a sum
    const Floats bias = numbers(s.filters, 4), residual = turned(arrays.grad, s.y());
    Floats first(y.size(), kNan);
    Forward by_first = s.with(Forward{});
    by_first.x = view(arrays.x.data(), s.x());
    by_first.weight = view(arrays.weight.data(), s.weight());
    by_first.y = view(first.data(), s.y());
    for (Forward* each : {&args, &by_first}) {
      each->bias = view(bias.data(), {s.filters});
      if (!whole) continue;
      each->activation = convolution::Activation::silu;
      each->residual = each == &args ? last(residual, s.y()) : view(arrays.grad.data(), s.y());
    }
    conv2d::forward(by_first, here());
    conv2d::forward(args, execution);
    EXPECT_TRUE(same(y, turned(first, s.y()))) << what << " whole " << whole;
  }
  Backward back = s.with(Backward{});
  back.grad_y = last(grad, s.y());
  back.x = args.x;
  back.weight = args.weight;
  back.grad_x = last(to_x, s.x());
  back.grad_weight = last(to_weight, s.weight());
  conv2d::backward(back, execution);
  if (s.mode == PaddingMode::zeros) { EXPECT_TRUE(same(to_x, turned(of.x, s.x()))) << what; }
  EXPECT_TRUE(same(to_weight, turned(of.weight, s.weight()))) << what;
}

TEST(Convolution, ChannelsMayLieLast) {
  for (const std::int64_t filters : {1, 6, 20})
    expect_last_as_first({.batch = 2,
                          .channels = 5,
                          .filters = filters,
                          .height = 9,
                          .width = 14,
                          .taps_h = 3,
                          .taps_w = 3,
                          .padding = 1});
}

// Channels beyond one block of them, taps of each kind, and rows of all lengths; more positions
// than a panel has, and a run of panels.
TEST(Convolution, DepthwiseChannelsThatLieLastHaveTheBitsOfThoseThatLieFirst) {
  const auto depthwise = [](std::int64_t channels, Shape s) {
    s.channels = s.filters = s.groups = channels;
    return s;
  };
  for (const Isa isa : Machine::isas_here()) {
    const Execution execution = lab::execution_for(isa, 2);
    for (std::int64_t width = 1; width < 20; ++width) {
      expect_last_as_first(
          depthwise(
              21,
              {.batch = 2, .height = 5, .width = width, .taps_h = 3, .taps_w = 3, .padding = 1}),
          execution);
      expect_last_as_first(depthwise(67, {.batch = 1,
                                          .height = 7,
                                          .width = width + 3,
                                          .taps_h = 5,
                                          .taps_w = 5,
                                          .padding = 2}),
                           execution);
    }
    expect_last_as_first(depthwise(90, {.batch = 2,
                                        .height = 9,
                                        .width = 33,
                                        .taps_h = 3,
                                        .taps_w = 3,
                                        .stride = 2,
                                        .padding = 1}),
                         execution);
    expect_last_as_first(depthwise(33, {.batch = 1,
                                        .height = 19,
                                        .width = 22,
                                        .taps_h = 3,
                                        .taps_w = 4,
                                        .dilation = 2,
                                        .padding = 3,
                                        .extra = -1}),
                         execution);
    expect_last_as_first(depthwise(48, {.batch = 1,
                                        .height = 6,
                                        .width = 12,
                                        .taps_h = 3,
                                        .taps_w = 3,
                                        .padding = 2,
                                        .mode = PaddingMode::reflect}),
                         execution);
    expect_last_as_first(
        depthwise(600,
                  {.batch = 3, .height = 6, .width = 5, .taps_h = 3, .taps_w = 3, .padding = 1}),
        execution);
    expect_last_as_first(
        depthwise(18,
                  {.batch = 3, .height = 60, .width = 61, .taps_h = 3, .taps_w = 3, .padding = 1}),
        execution);
    expect_last_as_first(
        depthwise(5,
                  {.batch = 2, .height = 8, .width = 600, .taps_h = 1, .taps_w = 3, .stride = 3}),
        execution);
  }
}

TEST(Convolution, GroupsAreConvolutionsOfTheirOwn) {
  const Shape s{.channels = 6,
                .filters = 9,
                .height = 8,
                .width = 19,
                .taps_h = 3,
                .taps_w = 3,
                .groups = 3,
                .padding = 1};
  const Arrays arrays(s);
  const Floats all = convolved(s, arrays);
  const Gradients of = gradients(s, arrays);
  Shape part = s;
  part.groups = 1;
  part.channels = 2;
  part.filters = 3;
  for (std::size_t group = 0; group < 3; ++group) {
    Arrays own(part);
    const auto take = [&](Floats& to, const Floats& from) {
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(group * to.size()), to.size(),
                  to.begin());
    };
    take(own.x, arrays.x);
    take(own.weight, arrays.weight);
    take(own.grad, arrays.grad);
    const Floats y = convolved(part, own);
    const Gradients found = gradients(part, own);
    EXPECT_EQ(std::memcmp(y.data(), all.data() + group * y.size(), y.size() * 4), 0);
    EXPECT_EQ(std::memcmp(found.x.data(), of.x.data() + group * found.x.size(), found.x.size() * 4),
              0);
    EXPECT_EQ(std::memcmp(found.weight.data(), of.weight.data() + group * found.weight.size(),
                          found.weight.size() * 4),
              0);
  }
}

TEST(Convolution, OtherPaddingIsWhatStandsThere) {
  for (const PaddingMode mode :
       {PaddingMode::reflect, PaddingMode::replicate, PaddingMode::circular})
    for (const std::int64_t filters : {1, 4}) {
      const Shape s{.channels = 2,
                    .filters = filters,
                    .height = 7,
                    .width = 9,
                    .taps_h = 3,
                    .taps_w = 5,
                    .padding = 3,
                    .extra = 1,
                    .mode = mode};
      const Arrays arrays(s);
      Shape wide = s;
      wide.height += 7, wide.width += 7, wide.padding = 0, wide.extra = 0;
      wide.mode = PaddingMode::zeros;
      Arrays padded(wide);
      padded.weight = arrays.weight;
      const auto from = [&](std::int64_t i, std::int64_t count) {
        i -= 3;
        if (i >= 0 && i < count) return i;
        if (mode == PaddingMode::circular) return (i + count) % count;
        if (mode == PaddingMode::replicate) return i < 0 ? 0 : count - 1;
        return i < 0 ? -i : 2 * count - 2 - i;
      };
      std::size_t at = 0;
      for (std::int64_t c = 0; c < 2; ++c)
        for (std::int64_t h = 0; h < 14; ++h)
          for (std::int64_t w = 0; w < 16; ++w, ++at)
            padded.x[at] =
                arrays.x[static_cast<std::size_t>((c * 7 + from(h, 7)) * 9 + from(w, 9))];
      EXPECT_TRUE(same(convolved(s, arrays), convolved(wide, padded)));
      padded.grad = arrays.grad;
      EXPECT_TRUE(same(gradients(s, arrays).weight, gradients(wide, padded).weight));
    }
}

// In every variant, and where the last of many channels alone has it (burn #5385).
TEST(Convolution, PaddingIsAProductWithZero) {
  for (const std::int64_t channels : {1, 3, 40}) {
    const Shape s{.channels = channels,
                  .filters = 2,
                  .height = 6,
                  .width = 11,
                  .taps_h = 3,
                  .taps_w = 3,
                  .padding = 1};
    Arrays arrays(s);
    // The first tap of the second filter, of the last channel.
    arrays.weight[static_cast<std::size_t>((2 * channels - 1) * 9)] = kInfinity;
    Floats y(static_cast<std::size_t>(Shape::count(s.y())));
    const Operation& operation = conv2d::forward_operation();
    const Arguments args = operation.make_arguments();
    *static_cast<Forward*>(args.get()) = forward_of(s, arrays, y);
    for_each_way(operation, args, [&](const std::string& way) {
      for (std::size_t row = 0; row < 6; ++row)
        for (std::size_t col = 0; col < 11; ++col) {
          EXPECT_TRUE(std::isfinite(y[row * 11 + col])) << way;
          const float value = y[66 + row * 11 + col];
          EXPECT_EQ(std::isnan(value), row == 0 || col == 0) << way << ' ' << row << ' ' << col;
          EXPECT_EQ(std::isinf(value), row > 0 && col > 0) << way << ' ' << row << ' ' << col;
        }
    });
  }
}

// A piece with what came before it, as far as windows reach, continues the last bit for bit.
TEST(Convolution, PiecesOfAStreamAreTheWhole) {
  constexpr std::int64_t kChannels = 3, kFilters = 5, kLength = 1000, kTaps = 4, kPast = 2 * 3;
  const Floats x = numbers(kChannels * kLength), weight = numbers(kFilters * kChannels * kTaps, 2);
  const auto causal = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t past = std::min<std::int64_t>(begin, kPast), length = end - begin + past;
    Floats y(static_cast<std::size_t>(kFilters * (end - begin)), kNan);
    conv1d::ForwardArgs args;
    args.x =
        view(x.data() + begin - past, {1, kChannels, length}, {kChannels * kLength, kLength, 1});
    args.weight = view(weight.data(), {kFilters, kChannels, kTaps});
    args.y = view(y.data(), {1, kFilters, end - begin});
    args.dilation = 2;
    args.padding = kPast - past;
    args.extra_padding = past - kPast;
    conv1d::forward(args, here());
    return y;
  };
  const Floats whole = causal(0, kLength);
  for (const std::int64_t length : {1, 7, 64, 333}) {
    for (std::int64_t begin = 0; begin < kLength; begin += length) {
      const std::int64_t end = std::min(kLength, begin + length);
      const Floats piece = causal(begin, end);
      for (std::int64_t filter = 0; filter < kFilters; ++filter)
        ASSERT_EQ(std::memcmp(piece.data() + filter * (end - begin),
                              whole.data() + filter * kLength + begin,
                              static_cast<std::size_t>(end - begin) * 4),
                  0)
            << begin;
    }
  }
}

TEST(Convolution, TheResidualMayBecomeTheResult) {
  const Shape s{.channels = 3,
                .filters = 4,
                .height = 9,
                .width = 30,
                .taps_h = 3,
                .taps_w = 3,
                .padding = 1};
  const Arrays arrays(s);
  Floats y = arrays.grad, apart(y.size());
  Forward args = s.with(Forward{});
  args.x = view(arrays.x.data(), s.x());
  args.weight = view(arrays.weight.data(), s.weight());
  args.residual = view(arrays.grad.data(), s.y());
  args.y = view(apart.data(), s.y());
  conv2d::forward(args, here());
  args.residual = args.y = view(y.data(), s.y());
  conv2d::forward(args, here());
  EXPECT_TRUE(same(y, apart));
}

// pytorch #134908 and #141561: sizes that leave nothing were computed, or crashed.
TEST(Convolution, SizesThatLeaveNothingAreErrorsWithTheirFormula) {
  const auto message = [](const Shape& s) {
    const Floats data(1000);
    Forward args = s.with(Forward{});
    args.x = view(data.data(), s.x());
    args.weight = view(data.data(), s.weight());
    args.y = view(data.data(), {s.batch, s.filters, 1, 1});
    try {
      conv2d::forward(args, here());
    } catch (const InvalidArgument& error) { return std::string(error.what()); }
    return std::string();
  };
  Shape s{.height = 2, .width = 9, .taps_h = 3, .taps_w = 3};
  EXPECT_EQ(message(s),
            "conv2d: height 2, kernel_h 3, dilation_h 1 and padding 0 + 0 leave no window: "
            "(2 + 0 + 0 - 1 * (3 - 1) - 1) / 1 + 1 = 0; must be at least 1");
  s.height = 9;
  s.dilation = 6;
  EXPECT_NE(message(s).find("(9 + 0 + 0 - 6 * (3 - 1) - 1) / 1 + 1 = -3"), std::string::npos);
  s.dilation = 1;
  s.mode = PaddingMode::reflect;
  s.padding = 9;
  EXPECT_EQ(message(s), "conv2d: padding_h is 9; height 9 reflects less than that many");
  s.mode = PaddingMode::circular;
  s.padding = 10;
  EXPECT_EQ(message(s), "conv2d: padding_h is 10; height 9 goes round at most that many");
  s.padding = -1;
  EXPECT_EQ(message(s), "conv2d: padding_h is -1; allowed: 0 to 2^40");
  s.padding = 0;
  s.stride = 0;
  EXPECT_EQ(message(s), "conv2d: stride_h is 0; allowed: 1 to 2^40");
  s.stride = 1;
  s.groups = 2;
  EXPECT_EQ(message(s), "conv2d: x has 1 channels; groups is 2, which must divide them");
}

}  // namespace
}  // namespace isobit::convolutions
