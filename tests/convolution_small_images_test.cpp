// SPDX-License-Identifier: Apache-2.0
// Images so small that most windows reach beyond their edges: there, a tap is multiplied for the
// results alone for which it meets an element.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "convolution_calls.h"

namespace isobit::convolutions {
namespace {

// Taps of 300 channels share panels of k, those of 512 have one each; the filters are more than a
// few panels for every instruction set.
const Shape kShapes[] = {
    {.batch = 5,
     .channels = 300,
     .filters = 75,
     .height = 4,
     .width = 4,
     .taps_h = 3,
     .taps_w = 3,
     .padding = 1},
    {.batch = 3,
     .channels = 512,
     .filters = 75,
     .height = 2,
     .width = 3,
     .taps_h = 3,
     .taps_w = 3,
     .padding = 1},
    {.batch = 4,
     .channels = 96,
     .filters = 80,
     .height = 7,
     .width = 5,
     .taps_h = 3,
     .taps_w = 3,
     .stride = 2,
     .padding = 1},
    {.batch = 3,
     .channels = 80,
     .filters = 90,
     .height = 6,
     .width = 7,
     .taps_h = 5,
     .taps_w = 4,
     .stride = 3,
     .dilation = 2,
     .padding = 4},
    {.batch = 6,
     .channels = 100,
     .filters = 96,
     .height = 3,
     .width = 3,
     .taps_h = 3,
     .taps_w = 3,
     .dilation = 2,
     .padding = 2},
};
// Of the first filter, and of a middle one's last channel: a corner and an edge meet zeros.
void make_some_infinite(const Shape& s, Arrays& arrays) {
  const std::int64_t taps = s.taps_h * s.taps_w;
  arrays.weight[0] = kInfinity;
  arrays.weight[static_cast<std::size_t>((40 * s.channels + s.channels - 1) * taps + 1)] =
      -kInfinity;
}
// NaN as NaN: which one is no one's promise.
bool alike(const Floats& a, const Floats& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float left, float right) {
    return std::isnan(left) ? std::isnan(right) : same({left}, {right});
  });
}

TEST(SmallImages, WindowsAtTheEdgeHaveTheProductsOfTheDefinition) {
  for (const Shape& s : kShapes)
    for (const bool finite : {true, false}) {
      Arrays arrays(s);
      if (!finite) make_some_infinite(s, arrays);
      Floats expected, y(static_cast<std::size_t>(Shape::count(s.y())));
      for (std::int64_t n = 0; n < s.batch; ++n)
        for (std::int64_t filter = 0; filter < s.filters; ++filter)
          for (std::int64_t row = 0; row < s.out_h(); ++row)
            for (std::int64_t col = 0; col < s.out_w(); ++col)
              expected.push_back(
                  n == 0 || filter % 40 == 0 ? window(s, arrays, n, filter, row, col) + 0.0F : 0);
      const Operation& operation = conv2d::forward_operation();
      const Arguments args = operation.make_arguments();
      *static_cast<Forward*>(args.get()) = forward_of(s, arrays, y);
      for_each_way(operation, args, [&](const std::string& way) {
        const std::int64_t positions = s.out_h() * s.out_w();
        for (std::int64_t plane = 0; plane < s.batch * s.filters; ++plane)
          if (plane >= s.filters && plane % s.filters % 40 != 0)
            std::fill_n(y.begin() + plane * positions, positions, 0.0F);
        EXPECT_TRUE(alike(y, expected)) << way << ' ' << s.channels << ' ' << finite;
      });
    }
}

TEST(SmallImages, GradientsAreTheSameInEveryVariant) {
  for (const Shape& s : kShapes)
    for (const bool finite : {true, false}) {
      Arrays arrays(s);
      if (!finite) make_some_infinite(s, arrays);
      Floats x(arrays.x.size()), weight(arrays.weight.size()), first_x, first_weight;
      const Operation& operation = conv2d::backward_operation();
      const Arguments args = operation.make_arguments();
      auto& call = *static_cast<Backward*>(args.get());
      call = backward_of(s, arrays);
      call.grad_x = view(x.data(), s.x());
      call.grad_weight = view(weight.data(), s.weight());
      for_each_way(operation, args, [&](const std::string& way) {
        if (first_x.empty()) {
          first_x = x;
          first_weight = weight;
          return;
        }
        EXPECT_TRUE(alike(x, first_x)) << way << ' ' << s.channels << ' ' << finite;
        EXPECT_TRUE(same(weight, first_weight)) << way << ' ' << s.channels;
      });
      // Where no tap of an infinite weight lands, there is nothing of it.
      EXPECT_TRUE(std::any_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); }));
    }
}

}  // namespace
}  // namespace isobit::convolutions
