// SPDX-License-Identifier: Apache-2.0
// What only group_norm promises: LayerNorm's bits of what is normalised together, whatever the
// order in memory, and weights of channels.
#include "isobit/ops/group_norm/group_norm.h"

#include <gtest/gtest.h>

#include "isobit/ops/channel_norm/test_images.h"

namespace isobit::channel_norm {
namespace {

TEST(GroupNorm, AGroupHasTheBitsOfLayerNorm) {
  for (const Extents& e : {Extents{2, 6, 200}, {3, 12, 7}, {2, 6, 1}, {1, 6, 3000}}) {
    const Floats x = channels_of_every_kind(e);
    const Floats expected = layernorm_of(x, 3 * e.extent);
    in_every_way([&](const auto& run) {
      for (const bool last : {false, true}) {
        Floats given = ordered(x, e, last), y(x.size());
        group_norm::ForwardArgs args;
        args.x = images(given, e, last);
        args.y = images(y, e, last);
        args.groups = e.channels / 3;
        run(group_norm::forward_operation(), args);
        EXPECT_TRUE(same_bits(back(y, e, last), expected)) << e.extent << " " << last;
      }
    });
  }
}

TEST(GroupNorm, TheGradientOfAGroupHasTheBitsOfLayerNorm) {
  const Extents e{3, 4, 130};
  const Floats x = channels_of_every_kind(e), grad = waves(e.count(), 0.5f);
  Floats weight = {2, -1, 0.5f, 3}, repeated, grad_y = grad;
  for (std::int64_t i = 0; i < 4 * e.extent; ++i) repeated.push_back(weight[i / e.extent]);
  const Floats expected = layernorm_of(x, 4 * e.extent, &grad_y, &repeated);
  in_every_way([&](const auto& run) {
    for (const bool last : {false, true}) {
      Floats given = ordered(x, e, last), of_y = ordered(grad, e, last), grad_x(x.size());
      group_norm::BackwardArgs args;
      args.x = images(given, e, last);
      args.grad_y = images(of_y, e, last);
      args.weight = vector(weight);
      args.grad_x = images(grad_x, e, last);
      run(group_norm::backward_operation(), args);
      EXPECT_TRUE(same_bits(back(grad_x, e, last), expected)) << last;
    }
  });
}

TEST(GroupNorm, NeitherWhichArraysHaveChannelsLastNorGivenMomentsChangeBits) {
  const std::pair<Extents, int> cases[] = {{{8, 32, 70}, 4}, {{9, 24, 3}, 2},   {{1, 6, 700}, 2},
                                           {{2, 64, 17}, 2}, {{5, 40, 1}, 20},  {{3, 48, 2}, 12},
                                           {{4, 32, 4}, 8},  {{3, 21, 130}, 7}, {{2, 160, 520}, 5}};
  for (const auto& one : cases) {
    const Extents& e = one.first;
    const int of_group = one.second;
    const Floats x = channels_of_every_kind(e), grad = waves(e.count(), 0.5f);
    Floats weight = waves(e.channels), bias = waves(e.channels, 2), expected;
    in_every_way([&](const auto& run) {
      for (int which = 0; which < 16; ++which) {
        const bool last[] = {(which & 1) != 0, (which & 2) != 0, (which & 4) != 0};
        Floats given = ordered(x, e, last[0]), of_y = ordered(grad, e, last[1]);
        Floats y(x.size()), grad_x(x.size()), grad_weight(e.channels), grad_bias(e.channels);
        group_norm::ForwardArgs forward;
        forward.x = images(given, e, last[0]);
        forward.weight = vector(weight);
        forward.bias = vector(bias);
        forward.y = images(y, e, last[2]);
        forward.groups = e.channels / of_group;
        Floats moments(e.batch * forward.groups * 3);
        forward.moments = view_of(moments, {e.batch, forward.groups, 3});
        run(group_norm::forward_operation(), forward);
        group_norm::BackwardArgs backward;
        backward.x = forward.x;
        backward.weight = forward.weight;
        if (which >= 8) backward.moments = forward.moments;
        backward.groups = forward.groups;
        backward.grad_y = images(of_y, e, last[1]);
        backward.grad_x = images(grad_x, e, last[2]);
        backward.grad_weight = vector(grad_weight);
        backward.grad_bias = vector(grad_bias);
        run(group_norm::backward_operation(), backward);
        Floats found = back(y, e, last[2]);
        for (const Floats& more : {back(grad_x, e, last[2]), grad_weight, grad_bias})
          found.insert(found.end(), more.begin(), more.end());
        if (expected.empty()) expected = found;
        EXPECT_TRUE(same_bits(found, expected)) << e.channels << " " << which;
      }
    });
  }
}

TEST(GroupNorm, EachChannelHasItsOwnWeightAndSums) {
  const Extents e{3, 4, 5};
  Floats weight = {2, -1, 0.5f, 3}, bias = {1, 2, 3, 4};
  Floats x = waves(e.count()), grad = waves(e.count(), 0.5f);
  for (std::int64_t i = 0; i < e.count(); ++i) x[i] += static_cast<float>(i / 20);  // of the image
  const Floats xhat = layernorm_of(x, 2 * e.extent);
  Floats of_weight(4), of_bias(4);
  for (std::int64_t i = 0; i < e.count(); ++i) {
    of_weight[i / e.extent % 4] += grad[i] * xhat[i];
    of_bias[i / e.extent % 4] += grad[i];
  }
  in_every_way([&](const auto& run) {
    for (const bool last : {false, true}) {
      Floats given = ordered(x, e, last), of_y = ordered(grad, e, last);
      Floats y(x.size()), grad_weight(4), grad_bias(4);
      group_norm::ForwardArgs forward;
      forward.x = images(given, e, last);
      forward.weight = vector(weight);
      forward.bias = vector(bias);
      forward.y = images(y, e, last);
      forward.groups = 2;
      run(group_norm::forward_operation(), forward);
      const Floats found = back(y, e, last);
      for (std::int64_t i = 0; i < e.count(); ++i) {
        const std::int64_t c = i / e.extent % 4;
        EXPECT_EQ(found[i], std::fma(xhat[i], weight[c], bias[c])) << i;
      }
      group_norm::BackwardArgs backward;
      backward.x = images(given, e, last);
      backward.grad_y = images(of_y, e, last);
      backward.grad_weight = vector(grad_weight);
      backward.grad_bias = vector(grad_bias);
      backward.groups = 2;
      run(group_norm::backward_operation(), backward);
      for (std::int64_t c = 0; c < 4; ++c) {
        EXPECT_NEAR(grad_weight[c], of_weight[c], 1e-5);
        EXPECT_NEAR(grad_bias[c], of_bias[c], 1e-5);
      }
    }
  });
}

}  // namespace
}  // namespace isobit::channel_norm
