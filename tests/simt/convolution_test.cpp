// SPDX-License-Identifier: Apache-2.0
// The kernels of convolutions in every schedule: with the processor's bits, whatever the window;
// where weights are infinite; where columns come in several parts.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "convolution_calls.h"
#include "isobit/lab/devices.h"
#include "simt/each_kernel.h"

namespace isobit::convolutions {
namespace {

using lab::for_each_kernel;
using lab::kDetectsRaces;
using lab::kDevice;

class ConvolutionKernels : public testing::Test {
 protected:
  void SetUp() override {
    lab::watch();
    lab::attach_devices();
    ASSERT_NE(attached(kDevice), nullptr);
  }
  static Execution there() { return execution_on(*attached(kDevice), nullptr); }

  void expect_the_processors_bits(const Shape& s, const Arrays& arrays,
                                  const Execution& execution) {
    const Floats expected = convolved(s, arrays);
    Floats y(expected.size());
    const Operation& forward = conv2d::forward_operation();
    const Arguments forwards = forward.make_arguments();
    auto& call = *static_cast<Forward*>(forwards.get());
    call = s.with(Forward{});
    call.x = view(arrays.x.data(), s.x());
    call.weight = view(arrays.weight.data(), s.weight());
    call.y = view(y.data(), s.y());
    for_each_kernel(forward, forwards, execution, [&](const std::string& name, const auto& way) {
      ASSERT_TRUE(same(y, expected)) << "fwd " << way;
      y.assign(y.size(), kNan);
      seen.insert("fwd " + name);
    });

    const Gradients of = gradients(s, arrays);
    Gradients found = of;
    const Operation& backward = conv2d::backward_operation();
    const Arguments backwards = backward.make_arguments();
    auto& back = *static_cast<Backward*>(backwards.get());
    back = s.with(Backward{});
    back.grad_y = view(arrays.grad.data(), s.y());
    back.x = call.x;
    back.weight = call.weight;
    back.grad_x = view(found.x.data(), s.x());
    back.grad_weight = view(found.weight.data(), s.weight());
    back.grad_bias = view(found.bias.data(), {s.filters});
    for_each_kernel(backward, backwards, execution, [&](const std::string& name, const auto& way) {
      ASSERT_TRUE(same(found.x, of.x)) << "grad_x " << way;
      ASSERT_TRUE(same(found.weight, of.weight)) << "grad_weight " << way;
      ASSERT_TRUE(same(found.bias, of.bias)) << "grad_bias " << way;
      for (Floats* all : {&found.x, &found.weight, &found.bias}) all->assign(all->size(), kNan);
      seen.insert("bwd " + name);
    });
  }

  std::set<std::string> seen;
};

// The detector's memory grows with the square of the blocks, so there are few of them.
const Shape kShapes[] = {
    // Depthwise: two tiles across, and more rows than threads stand on.
    {.channels = 2,
     .filters = 2,
     .height = 11,
     .width = 40,
     .taps_h = 3,
     .taps_w = 3,
     .groups = 2,
     .padding = 1},
    // Several filters of one channel; what is between strides.
    {.channels = 1,
     .filters = 3,
     .height = 9,
     .width = 20,
     .taps_h = 3,
     .taps_w = 2,
     .stride = 2,
     .dilation = 2,
     .padding = 3},
    // One row, so that results of a thread are beside each other.
    {.batch = 2, .channels = 1, .filters = 1, .height = 1, .width = 300, .taps_h = 1, .taps_w = 4},
    {.channels = 3, .filters = 5, .height = 5, .width = 6, .taps_h = 3, .taps_w = 3, .padding = 1},
    {.channels = 4,
     .filters = 6,
     .height = 7,
     .width = 8,
     .taps_h = 3,
     .taps_w = 2,
     .groups = 2,
     .stride = 2,
     .dilation = 2,
     .padding = 2},
    {.channels = 2,
     .filters = 3,
     .height = 5,
     .width = 6,
     .taps_h = 3,
     .taps_w = 3,
     .padding = 2,
     .mode = PaddingMode::reflect},
};

TEST_F(ConvolutionKernels, HaveTheProcessorsBitsInEverySchedule) {
  lab::in_every_schedule([&](bool) {
    for (const Shape& s : kShapes) {
      expect_the_processors_bits(s, Arrays(s), there());
      if (HasFatalFailure()) return;
    }
  });
  EXPECT_EQ(seen, (std::set<std::string>{"fwd depthwise_tiled", "fwd implicit", "fwd tiled_halo",
                                         "fwd im2col", "fwd direct", "bwd depthwise_tiled",
                                         "bwd implicit", "bwd direct"}));
}

// More than a tile of filters; than a panel, and than a run of them, of terms and of positions.
TEST_F(ConvolutionKernels, AddPanelsAndRunsInTheirOrder) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  const Shape shapes[] = {
      {.channels = 3,
       .filters = 70,
       .height = 5,
       .width = 30,
       .taps_h = 3,
       .taps_w = 3,
       .padding = 1},
      {.channels = 70, .filters = 2, .height = 4, .width = 5, .taps_h = 3, .taps_w = 3},
      {.channels = 1000, .filters = 2, .height = 4, .width = 3, .taps_h = 3, .taps_w = 3},
      {.batch = 2,
       .channels = 4,
       .filters = 3,
       .height = 65,
       .width = 67,
       .taps_h = 2,
       .taps_w = 3},
      // A window of more than a panel is not one chain.
      {.channels = 1, .filters = 1, .height = 25, .width = 26, .taps_h = 24, .taps_w = 24}};
  for (const Shape& s : shapes) {
    expect_the_processors_bits(s, Arrays(s), there());
    if (HasFatalFailure()) return;
  }
}

// Absent taps meet no weight: neither zeros between strides, nor those beyond the edge.
TEST_F(ConvolutionKernels, InfiniteWeightsSpoilOnlyWhatTheyMeet) {
  lab::in_every_schedule([&](bool) {
    for (const std::int64_t groups : {1, 3})
      for (const std::int64_t stride : {1, 2}) {
        const Shape s{.channels = 3,
                      .filters = 3,
                      .height = 7,
                      .width = 9,
                      .taps_h = 3,
                      .taps_w = 3,
                      .groups = groups,
                      .stride = stride,
                      .padding = 1};
        Arrays arrays(s);
        arrays.weight[0] = kInfinity;
        expect_the_processors_bits(s, arrays, there());
        if (HasFatalFailure()) return;
      }
  });
}

TEST_F(ConvolutionKernels, ColumnsMayComeInSeveralParts) {
  const Shape s{.channels = 70,
                .filters = 2,
                .height = 12,
                .width = 15,
                .taps_h = 3,
                .taps_w = 3,
                .padding = 1};
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  Execution execution = there();
  execution.machine.gpu.l2_bytes = 1 << 10;
  expect_the_processors_bits(s, Arrays(s), execution);
}

}  // namespace
}  // namespace isobit::convolutions
