// SPDX-License-Identifier: Apache-2.0
// What is peculiar to gradients of convolutions: taps that do not land, the order of positions, and
// how much memory is taken.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "convolution_calls.h"

namespace isobit::convolutions {
namespace {

TEST(ConvolutionGradients, TapsThatDoNotLandAreAbsentFromGradients) {
  for (const int which : {0, 1, 2, 3}) {
    const std::int64_t channels = which < 2 ? 3 : 1, stride = 1 + which % 2;
    const Shape s{.channels = channels,
                  .filters = 4,
                  .height = 9,
                  .width = 13,
                  .taps_h = 3,
                  .taps_w = 3,
                  .stride = stride,
                  .padding = 1};
    Arrays arrays(s);
    arrays.weight[0] = kInfinity;  // of the first filter and channel, the first tap
    const Operation& operation = conv2d::backward_operation();
    const Arguments args = operation.make_arguments();
    Floats x(arrays.x.size());
    auto& call = *static_cast<Backward*>(args.get());
    call = backward_of(s, arrays);
    call.grad_x = view(x.data(), s.x());
    for_each_way(operation, args, [&](const std::string& way) {
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t row = 0; row < 9; ++row)
          for (std::int64_t col = 0; col < 13; ++col) {
            const std::int64_t h = row + 1, w = col + 1;  // the window that has it first
            const bool meets = c == 0 && h % stride == 0 && w % stride == 0 &&
                               h / stride < s.out_h() && w / stride < s.out_w();
            const float value = x[static_cast<std::size_t>((c * 9 + row) * 13 + col)];
            EXPECT_EQ(!std::isfinite(value), meets) << way << ' ' << row << ' ' << col;
          }
    });
  }
}

// Panels of positions that lie side by side have places between rows, where they would meet it too.
TEST(ConvolutionGradients, ASourceThatIsNotFiniteIsMetByItsWindowsAlone) {
  const Shape s{.height = 30, .width = 40, .taps_h = 3, .taps_w = 3};
  Arrays arrays(s);
  arrays.x[7 * 40] = kInfinity;  // the first of a row: no window has it in another column
  const Operation& operation = conv2d::backward_operation();
  const Arguments args = operation.make_arguments();
  Floats weight(arrays.weight.size());
  auto& call = *static_cast<Backward*>(args.get());
  call = backward_of(s, arrays);
  call.grad_weight = view(weight.data(), s.weight());
  for_each_way(operation, args, [&](const std::string& way) {
    for (std::size_t tap = 0; tap < weight.size(); ++tap)
      EXPECT_EQ(!std::isfinite(weight[tap]), tap % 3 == 0) << way << ' ' << tap;
  });
}

// Where weights take more than the second cache, and windows less.
TEST(ConvolutionGradients, ManyWeightsAndSmallImagesGiveTheSameBits) {
  const Shape s{.batch = 2,
                .channels = 80,
                .filters = 74,
                .height = 3,
                .width = 3,
                .taps_h = 3,
                .taps_w = 3,
                .groups = 2,
                .padding = 1};
  for (const bool finite : {true, false}) {
    Arrays arrays(s);
    if (!finite) arrays.weight.back() = kInfinity;
    for (const Isa isa : Machine::isas_here())
      for (const int threads : {1, 3}) {
        Execution small = lab::execution_for(isa, threads), large = small;
        small.machine.l2_bytes = 96 << 10;
        large.machine.l2_bytes = 1 << 30;
        const Floats y = convolved(s, arrays, large), x = gradients(s, arrays, large).x;
        EXPECT_TRUE(same(convolved(s, arrays, small), y)) << name_of(isa) << ' ' << threads;
        EXPECT_TRUE(same(gradients(s, arrays, small).x, x)) << name_of(isa) << ' ' << threads;
        // Weights of the first group are finite.
        EXPECT_TRUE(std::all_of(x.begin(), x.begin() + 40 * 9,
                                [](float grad) { return std::isfinite(grad); }));
      }
  }
}

TEST(ConvolutionGradients, GradientsOfWeightsAddPositionsInTheOrderOfProducts) {
  // On both sides of a panel and of a run of positions; in pieces of rows, and of many rows.
  const Shape shapes[] = {{.batch = 3,
                           .channels = 2,
                           .filters = 3,
                           .height = 20,
                           .width = 21,
                           .taps_h = 3,
                           .taps_w = 3,
                           .padding = 1},
                          {.batch = 2,
                           .channels = 1,
                           .filters = 7,
                           .height = 3,
                           .width = 2100,
                           .taps_h = 2,
                           .taps_w = 3},
                          {.batch = 5,
                           .channels = 3,
                           .filters = 2,
                           .height = 50,
                           .width = 49,
                           .taps_h = 3,
                           .taps_w = 2,
                           .dilation = 2,
                           .padding = 1}};
  for (const Shape& s : shapes) {
    const Arrays arrays(s);
    const Gradients found = gradients(s, arrays);
    for (std::int64_t weight = 0; weight < std::ssize(found.weight); ++weight) {
      const std::int64_t j = weight % s.taps_w, i = weight / s.taps_w % s.taps_h,
                         c = weight / s.taps_w / s.taps_h % s.channels,
                         filter = weight / s.taps_w / s.taps_h / s.channels;
      Floats seen, grads;
      for (std::int64_t n = 0; n < s.batch; ++n)
        for (std::int64_t row = 0; row < s.out_h(); ++row)
          for (std::int64_t col = 0; col < s.out_w(); ++col) {
            const std::int64_t h = row + i * s.dilation - s.padding,
                               w = col + j * s.dilation - s.padding;
            const bool inside = h >= 0 && w >= 0 && h < s.height && w < s.width;
            const std::int64_t at = ((n * s.channels + c) * s.height + h) * s.width + w;
            seen.push_back(inside ? arrays.x[static_cast<std::size_t>(at)] : 0);
            grads.push_back(arrays.grad[static_cast<std::size_t>(
                ((n * s.filters + filter) * s.out_h() + row) * s.out_w() + col)]);
          }
      const float expected = order::product<float>(
          std::ssize(seen), [&](std::int64_t k) { return grads[static_cast<std::size_t>(k)]; },
          [&](std::int64_t k) { return seen[static_cast<std::size_t>(k)]; });
      ASSERT_EQ(found.weight[static_cast<std::size_t>(weight)], expected) << weight;
    }
  }
}

TEST(ConvolutionGradients, TakesAtMost16MiBBesideTheArrays) {
  const Shape shapes[] = {
      {.channels = 64, .filters = 64, .height = 56, .width = 56, .taps_h = 3, .taps_w = 3},
      {.channels = 512, .filters = 300, .height = 7, .width = 7, .taps_h = 3, .taps_w = 3},
      {.height = 300, .width = 300, .taps_h = 9, .taps_w = 9},
      {.channels = 48,
       .filters = 48,
       .height = 60,
       .width = 60,
       .taps_h = 3,
       .taps_w = 3,
       .groups = 48},
      {.channels = 8,
       .filters = 8,
       .height = 30,
       .width = 30,
       .taps_h = 4,
       .taps_w = 4,
       .stride = 2}};
  for (const Shape& s : shapes)
    for (const int threads : {1, 64}) {
      const Arrays arrays(s);
      Counted counted;
      Execution execution = here(threads);
      execution.allocator = {Counted::take, Counted::give_back, &counted};
      const Floats y = convolved(s, arrays, execution);
      const Gradients found = gradients(s, arrays, execution);
      EXPECT_LE(counted.most, (16 << 20) + 64) << s.channels << ' ' << threads;
      if (threads == 1) continue;
      const Gradients alone = gradients(s, arrays, here(1));
      EXPECT_TRUE(same(y, convolved(s, arrays, here(1))));
      EXPECT_TRUE(same(found.x, alone.x) && same(found.weight, alone.weight) &&
                  same(found.bias, alone.bias));
    }
}

TEST(ConvolutionGradients, ALargeStrideIsNoLargeCall) {
  const Shape s{.channels = 2,
                .filters = 3,
                .height = 5,
                .width = 3000,
                .taps_h = 2,
                .taps_w = 2,
                .stride = 2900,
                .dilation = 3,
                .padding = 2};
  const Arrays arrays(s);
  const Floats y = convolved(s, arrays);
  EXPECT_EQ(y[0], window(s, arrays, 0, 0, 0, 0));
  EXPECT_EQ(y[1], window(s, arrays, 0, 0, 0, 1));
  const Gradients found = gradients(s, arrays);
  for (const float value : found.x) EXPECT_TRUE(std::isfinite(value));
}

// Extents times strides were counted in numbers that wrap around, which overran the workspace.
TEST(ConvolutionGradients, StridesAndDilationsMayBeAsWideAsNumbersGo) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 32;
  const Shape two = {.height = 2, .width = 2, .taps_h = 2, .taps_w = 2};
  std::vector<Shape> shapes(6, two);
  shapes[0].stride = kHuge;
  shapes[1].stride = kHuge / 2;
  shapes[2].dilation = kHuge - 1, shapes[2].padding = kHuge / 2 - 1;
  shapes[3].dilation = kHuge - 1, shapes[3].padding = kHuge / 2, shapes[3].stride = 2;
  shapes[4] = {.height = 10,
               .width = 10,
               .stride = (std::int64_t{1} << 40) - 1,
               .dilation = std::int64_t{1} << 40};
  // More weights than the second cache takes: the variant for small images would be the fastest.
  shapes[5].channels = shapes[5].filters = 512, shapes[5].stride = kHuge;
  for (const Shape& s : shapes) {
    SCOPED_TRACE(testing::Message() << "stride " << s.stride << ", dilation " << s.dilation);
    const Arrays arrays(s);
    for (const int threads : {1, 3}) {
      const Floats y = convolved(s, arrays, here(threads));
      for (std::int64_t i = 0; i < s.out_h() * s.out_w(); ++i)
        EXPECT_EQ(y[static_cast<std::size_t>(i)],
                  window(s, arrays, 0, 0, i / s.out_w(), i % s.out_w()));
      for (const float value : gradients(s, arrays, here(threads)).weight)
        EXPECT_TRUE(std::isfinite(value));
    }
  }
}

}  // namespace
}  // namespace isobit::convolutions
