// SPDX-License-Identifier: Apache-2.0
// What only group_norm and batch_norm promise: LayerNorm's bits of what is normalised together,
// whatever the order in memory; running statistics; rows of which each is for itself.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/dispatch/operation.h"
#include "isobit/ops/batch_norm/batch_norm.h"
#include "isobit/ops/group_norm/group_norm.h"
#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::channel_norm {
namespace {

using Floats = std::vector<float>;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Extents {
  std::int64_t batch, channels, extent;

  std::int64_t count() const { return batch * channels * extent; }
  // Where an element stands with the channels last in memory.
  std::int64_t last(std::int64_t i) const {
    const std::int64_t l = i % extent, c = i / extent % channels, n = i / extent / channels;
    return (n * extent + l) * channels + c;
  }
};

TensorView view_of(Floats& values, std::vector<std::int64_t> shape) {
  TensorView view;
  view.data = values.data();
  view.bytes = std::ssize(values) * 4;
  view.rank = static_cast<int>(shape.size());
  std::int64_t step = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.shape[i] = shape[i];
    view.strides[i] = step;
    step *= shape[i];
  }
  return view;
}
TensorView images(Floats& values, const Extents& e, bool last) {
  TensorView view = view_of(values, {e.batch, e.channels, e.extent});
  if (last) view.strides = {e.channels * e.extent, 1, e.channels};
  return view;
}
TensorView vector(Floats& values) { return view_of(values, {std::ssize(values)}); }

Floats ordered(const Floats& values, const Extents& e, bool last) {
  if (!last) return values;
  Floats result(values.size());
  for (std::int64_t i = 0; i < e.count(); ++i) result[e.last(i)] = values[i];
  return result;
}
Floats back(const Floats& values, const Extents& e, bool last) {
  if (!last) return values;
  Floats result(values.size());
  for (std::int64_t i = 0; i < e.count(); ++i) result[i] = values[e.last(i)];
  return result;
}

Floats waves(std::int64_t count, float scale = 1) {
  Floats result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(scale * std::sin(static_cast<float>(i * i % 1009)));
  return result;
}
// Channels that are not usual among others: constant, huge, far from zero, nearly constant.
Floats channels_of_every_kind(const Extents& e) {
  Floats x = waves(e.count());
  for (std::int64_t i = 0; i < e.count(); ++i) {
    float& value = x[i];
    switch (i / e.extent % e.channels) {
      case 1:  value = 3; break;
      case 2:  value *= 1e30f; break;
      case 3:  value += 1e6f; break;
      case 4:  value = i % 7 == 0 ? 1 : std::nextafter(1.0f, 2.0f); break;
      case 5:  value *= 1e-30f; break;
      default: break;
    }
  }
  return x;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

// Calls body(run), where run(operation, args) computes by one variant on one instruction set, also
// in pieces of rows.
template <class Body>
void in_every_way(const Body& body) {
  for (const Isa isa : Machine::isas_here())
    for (const auto& [variant, threads] : {std::pair(0, 1), {0, 5}, {1, 1}}) {
      SCOPED_TRACE(std::string(name_of(isa)) + (variant == 0 ? " simd " : " scalar ") +
                   std::to_string(threads));
      body(
          [&, variant = variant, threads = threads](const Operation& operation, const auto& given) {
            Execution execution = simd::here(threads);
            execution.machine.isa = isa;
            execution.machine.elements_a_thread = 1;
            const Arguments args = operation.make_arguments();
            *static_cast<std::decay_t<decltype(given)>*>(args.get()) = given;
            operation.run(variant, {}, args, execution);
          });
    }
}

Floats layernorm_of(Floats rows, std::int64_t cols, Floats* grad_y = nullptr,
                    Floats* weights = nullptr) {
  const std::int64_t count = std::ssize(rows) / cols;
  Floats y(rows.size());
  if (grad_y == nullptr) {
    layernorm::ForwardArgs args;
    args.x = view_of(rows, {count, cols});
    args.y = view_of(y, {count, cols});
    layernorm::forward(args, simd::here(1));
    return y;
  }
  layernorm::BackwardArgs args;
  args.x = view_of(rows, {count, cols});
  args.grad_y = view_of(*grad_y, {count, cols});
  args.grad_x = view_of(y, {count, cols});
  args.weight = vector(*weights);
  layernorm::backward(args, simd::here(1));
  return y;
}

// Channels before images, and back.
Floats exchanged(const Floats& values, std::int64_t a, std::int64_t b, std::int64_t extent) {
  Floats result;
  for (std::int64_t j = 0; j < b; ++j)
    for (std::int64_t i = 0; i < a; ++i)
      for (std::int64_t l = 0; l < extent; ++l) result.push_back(values[(i * b + j) * extent + l]);
  return result;
}

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
  struct Case {
    Extents e;
    std::int64_t of_group;
  };
  for (const auto& [e, of_group] : {Case{{8, 32, 70}, 4},
                                    {{9, 24, 3}, 2},
                                    {{1, 6, 700}, 2},
                                    {{2, 64, 17}, 2},
                                    {{5, 40, 1}, 20},
                                    {{3, 48, 2}, 12},
                                    {{4, 32, 4}, 8},
                                    {{3, 21, 130}, 7}}) {
    const Floats x = channels_of_every_kind(e), grad = waves(e.count(), 0.5f);
    Floats weight = waves(e.channels), bias = waves(e.channels, 2);
    Floats expected;
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
      Floats given = ordered(x, e, last), of_y = ordered(grad, e, last), y(x.size());
      Floats grad_weight(4), grad_bias(4);
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
  for (const Extents& e :
       {Extents{3, 70, 200}, {2, 6, 700}, {7, 20, 9}, {20, 70, 4}, {9, 16, 16}, {70, 33, 2}}) {
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
