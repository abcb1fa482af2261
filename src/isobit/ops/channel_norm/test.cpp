// SPDX-License-Identifier: Apache-2.0
// What batch_norm promises: LayerNorm's bits of what is normalised together, whatever the order in
// memory; running statistics; rows of which each is for itself. And what both say of wrong calls.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/ops/batch_norm/batch_norm.h"
#include "isobit/ops/channel_norm/test_images.h"
#include "isobit/ops/group_norm/group_norm.h"

namespace isobit::channel_norm {
namespace {

TEST(BatchNorm, AChannelHasTheBitsOfLayerNormOfAllItsImages) {
  for (const Extents& e :
       {Extents{3, 70, 200}, {600, 70, 1}, {2, 6, 2500}, {5, 7, 3}, {9, 20, 4}, {70, 70, 16}}) {
    const Floats x = channels_of_every_kind(e);
    const Floats expected =
        exchanged(layernorm_of(exchanged(x, e.batch, e.channels, e.extent), e.batch * e.extent),
                  e.channels, e.batch, e.extent);
    in_every_way([&](const auto& run) {
      for (const bool last : {false, true}) {
        Floats given = ordered(x, e, last), y(x.size());
        batch_norm::ForwardArgs args;
        args.x = images(given, e, last);
        args.y = images(y, e, last);
        args.training = true;
        run(batch_norm::forward_operation(), args);
        EXPECT_TRUE(same_bits(back(y, e, last), expected)) << e.extent << " " << last;
      }
    });
  }
}

// What both passes give, one array after the other.
Floats gradients(const auto& run, const Floats& x, const Extents& e, bool last, bool training,
                 bool keeps_moments = false) {
  Floats given = ordered(x, e, last), of_y = ordered(waves(e.count(), 0.5f), e, last);
  Floats weight = waves(e.channels), bias = waves(e.channels, 2), grad_x(x.size()), y(x.size());
  Floats grad_weight(e.channels), grad_bias(e.channels), mean = waves(e.channels), var;
  for (const float value : waves(e.channels)) var.push_back(1 + value * value);
  Floats next_mean = mean, next_var = var, moments(3 * e.channels);
  batch_norm::ForwardArgs forward;
  forward.x = images(given, e, last);
  forward.weight = vector(weight);
  forward.bias = vector(bias);
  forward.running_mean = vector(mean);
  forward.running_var = vector(var);
  forward.y = images(y, e, last);
  if (training) {
    forward.next_mean = vector(next_mean);
    forward.next_var = vector(next_var);
  }
  if (keeps_moments) forward.moments = view_of(moments, {e.channels, 3});
  forward.training = training;
  run(batch_norm::forward_operation(), forward);
  batch_norm::BackwardArgs backward;
  backward.x = images(given, e, last);
  backward.grad_y = images(of_y, e, last);
  backward.weight = vector(weight);
  if (!training) {
    backward.running_mean = vector(mean);
    backward.running_var = vector(var);
  }
  backward.grad_x = images(grad_x, e, last);
  backward.grad_weight = vector(grad_weight);
  backward.grad_bias = vector(grad_bias);
  backward.moments = forward.moments;
  backward.training = training;
  run(batch_norm::backward_operation(), backward);
  Floats all = back(y, e, last);
  for (const Floats& more : {back(grad_x, e, last), grad_weight, grad_bias, next_mean, next_var})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(BatchNorm, HasTheSameBitsWhereverChannelsStand) {
  for (const Extents& e : {Extents{3, 70, 200},
                           {2, 80, 520},
                           {2, 6, 700},
                           {7, 20, 9},
                           {20, 70, 4},
                           {9, 16, 16},
                           {70, 33, 2}}) {
    const Floats x = channels_of_every_kind(e);
    for (const bool training : {true, false}) {
      Floats expected;
      in_every_way([&](const auto& run) {
        for (const bool last : {false, true})
          for (const bool keeps_moments : {false, training}) {
            const Floats found = gradients(run, x, e, last, training, keeps_moments);
            if (expected.empty()) expected = found;
            EXPECT_TRUE(same_bits(found, expected)) << last << training << keeps_moments;
          }
      });
    }
  }
}

TEST(BatchNorm, BackwardBelievesTheMomentsThatItIsGiven) {
  in_every_way([&](const auto& run) {
    Floats x = {1, 3, 5, 7}, grad_y = {4, 0, 0, 0}, grad_x(4), moments, before;
    batch_norm::BackwardArgs args{.x = images(x, {4, 1, 1}, false),
                                  .grad_y = images(grad_y, {4, 1, 1}, false),
                                  .grad_x = images(grad_x, {4, 1, 1}, false),
                                  .training = true};
    for (const float squares : {20.0f, 80.0f}) {  // of x, and of another sigma
      moments = {4, 0, squares};
      args.moments = view_of(moments, {1, 3});
      run(batch_norm::backward_operation(), args);
      EXPECT_NE(std::exchange(before, grad_x), grad_x);
    }
  });
}

TEST(BatchNorm, MoreImagesThanACacheHoldsAreNotTurned) {
  const Extents e{33000, 16, 2};
  const Floats x = channels_of_every_kind(e);
  const auto run = [](const Operation& operation, const auto& given) {
    const Arguments args = operation.make_arguments();
    *static_cast<std::decay_t<decltype(given)>*>(args.get()) = given;
    operation.run(0, {}, args, simd::here(1));
  };
  EXPECT_TRUE(same_bits(gradients(run, x, e, false, true), gradients(run, x, e, true, true)));
}

TEST(BatchNorm, ANaNStaysInItsChannel) {
  const Extents e{2, 70, 30};
  const Floats clean = waves(e.count());
  Floats dirty = clean;
  dirty[5 * e.extent + 3] = kNaN;  // of channel 5
  in_every_way([&](const auto& run) {
    for (const bool last : {false, true}) {
      const Floats before = gradients(run, clean, e, last, true);
      const Floats after = gradients(run, dirty, e, last, true);
      for (std::int64_t i = 0; i < 2 * e.count(); ++i) {
        if (i / e.extent % e.channels == 5)
          ASSERT_TRUE(std::isnan(after[i])) << i;
        else
          ASSERT_EQ(after[i], before[i]) << i;
      }
      for (std::int64_t c = 0; c < e.channels; ++c)
        ASSERT_EQ(std::isnan(after[2 * e.count() + c]), c == 5);
    }
  });
}

struct Running {
  Floats mean, var;
};
Running moved(const auto& run, Floats x, const Extents& e, Running running, double momentum) {
  Floats y(x.size());
  batch_norm::ForwardArgs args;
  args.x = images(x, e, false);
  args.y = images(y, e, false);
  args.running_mean = args.next_mean = vector(running.mean);
  args.running_var = args.next_var = vector(running.var);
  args.training = true;
  args.momentum = momentum;
  run(batch_norm::forward_operation(), args);
  return running;
}

TEST(BatchNorm, RunningStatisticsTakeTheVarianceOfASample) {
  in_every_way([&](const auto& run) {
    const Running all = moved(run, {1, 3, 5, 7, 5, 5, 5, 5}, {1, 2, 4}, {{8, 8}, {6, 6}}, 1);
    EXPECT_EQ(all.mean, (Floats{4, 5}));
    EXPECT_FLOAT_EQ(all.var[0], 20.0f / 3);
    EXPECT_EQ(all.var[1], 0);
    const Running half = moved(run, {1, 3, 5, 7, 5, 5, 5, 5}, {1, 2, 4}, {{8, 8}, {6, 6}}, 0.5);
    EXPECT_EQ(half.mean, (Floats{6, 6.5f}));
    EXPECT_EQ(half.var[1], 3);
    const Running none = moved(run, {}, {0, 2, 4}, {{8, 8}, {6, 6}}, 0.5);
    EXPECT_EQ(none.mean, (Floats{8, 8}));
    EXPECT_EQ(none.var, (Floats{6, 6}));
    const Running one = moved(run, {3, 4}, {1, 2, 1}, {{8, 8}, {6, 6}}, 0.5);
    EXPECT_EQ(one.mean, (Floats{5.5f, 6}));
    EXPECT_TRUE(std::isnan(one.var[0]));  // one value has no variance of a sample
    // Far from zero, and where the square leaves the range of a float.
    const Running far =
        moved(run, {1e6f + 1, 1e6f + 3, 3e18f, 5e18f}, {1, 2, 2}, {{0, 0}, {0, 0}}, 1);
    EXPECT_EQ(far.var[0], 2);
    EXPECT_FLOAT_EQ(far.var[1], 2e36f);
  });
}

TEST(BatchNorm, EvaluationTakesTheRunningStatistics) {
  in_every_way([&](const auto& run) {
    for (const bool last : {false, true}) {
      Floats x = {1, 3, 5, 7}, y(4), mean = {1, 2}, var = {4, 16}, mean_out(2), rstd(2);
      batch_norm::ForwardArgs args;
      args.x = images(x, {1, 2, 2}, last);
      args.y = images(y, {1, 2, 2}, last);
      args.running_mean = vector(mean);
      args.running_var = vector(var);
      args.mean = vector(mean_out);
      args.rstd = vector(rstd);
      args.eps = 0;
      run(batch_norm::forward_operation(), args);
      EXPECT_EQ(y, last ? (Floats{0, 0.25f, 2, 1.25f}) : (Floats{0, 1, 0.75f, 1.25f}));
      EXPECT_EQ(mean_out, mean);
      EXPECT_EQ(rstd, (Floats{0.5f, 0.25f}));
    }
  });
}

std::string refused(const auto& forward, const auto& args) {
  try {
    forward(args, simd::here(1));
  } catch (const InvalidArgument& error) { return error.what(); }
  return "nothing";
}

TEST(ChannelNorms, TellWhatIsWrong) {
  Floats x(24), y(24), four(4);
  group_norm::ForwardArgs group;
  group.x = images(x, {2, 4, 3}, false);
  group.y = images(y, {2, 4, 3}, false);
  group.groups = 3;
  EXPECT_EQ(refused(group_norm::forward, group),
            "group_norm: x has 4 channels, which 3 groups cannot share");
  group.groups = 2;
  group.mean = view_of(four, {4});
  EXPECT_EQ(refused(group_norm::forward, group).substr(0, 24), "group_norm: mean has sha");
  group.mean = {};
  group.moments = view_of(x, {2, 2, 2});
  EXPECT_EQ(refused(group_norm::forward, group),
            "group_norm: moments has shape (2, 2, 2); what x has of them has (2, 2, 3)");
  batch_norm::ForwardArgs batch;
  batch.x = images(x, {1, 24, 1}, false);
  batch.y = images(y, {1, 24, 1}, false);
  batch.training = false;
  EXPECT_EQ(refused(batch_norm::forward, batch),
            "batch_norm: running_mean is missing; without training nothing else is known");
  batch.x = images(x, {2, 4, 3}, false);
  batch.y = images(y, {2, 4, 3}, false);
  batch.running_mean = batch.running_var = batch.next_var = vector(four);
  EXPECT_EQ(refused(batch_norm::forward, batch),
            "batch_norm: next_var is given, but without training nothing changes");
  batch.next_var = {};
  batch.moments = view_of(y, {4, 3});
  EXPECT_EQ(refused(batch_norm::forward, batch),
            "batch_norm: moments is given, but without training nothing is summed");
  batch.moments = {};
  batch.running_mean = {};
  batch.training = true;
  batch.next_mean = vector(four);
  EXPECT_EQ(refused(batch_norm::forward, batch),
            "batch_norm: running_mean is missing; next_mean is what becomes of it");
}

}  // namespace
}  // namespace isobit::channel_norm
