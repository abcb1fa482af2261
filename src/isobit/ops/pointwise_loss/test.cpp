// SPDX-License-Identifier: Apache-2.0
// What only pointwise_loss promises: digits of small losses, where distances bend, and its rules.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/ops/pointwise_loss/pointwise_loss.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::pointwise_loss {
namespace {

using Floats = std::vector<float>;

TensorView view(Floats& values) {
  return vector_view(values.data(), std::ssize(values) * 4, DType::f32, std::ssize(values));
}

struct Call {
  Kind kind;
  Floats x, target;
  double beta = 1;
  Floats pos_weight = {}, weight = {}, grad = {};

  // NaN is no number that is equal to itself.
  static bool same(const Floats& a, const Floats& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  // On every instruction set, with the same bits.
  template <class Run>
  Floats everywhere(const Run& run) {
    Floats first;
    for (const Isa isa : Machine::isas_here()) {
      Floats found(x.size());
      Execution execution = simd::here(1);
      execution.machine.isa = isa;
      run(found, execution);
      EXPECT_TRUE(first.empty() || same(found, first)) << name_of(isa);
      first = found;
    }
    return first;
  }

  Floats losses() {
    return everywhere([&](Floats& found, const Execution& execution) {
      ForwardArgs args{.x = view(x),
                       .target = view(target),
                       .loss = view(found),
                       .function = kind,
                       .beta = beta};
      if (!pos_weight.empty()) args.pos_weight = view(pos_weight);
      if (!weight.empty()) args.weight = view(weight);
      forward(args, execution);
    });
  }
  Floats slopes() {
    return everywhere([&](Floats& found, const Execution& execution) {
      Floats grads = grad.empty() ? Floats(x.size(), 1.0f) : grad;
      BackwardArgs args{.x = view(x),
                        .target = view(target),
                        .grad_loss = view(grads),
                        .grad_x = view(found),
                        .function = kind,
                        .beta = beta};
      if (!pos_weight.empty()) args.pos_weight = view(pos_weight);
      if (!weight.empty()) args.weight = view(weight);
      backward(args, execution);
    });
  }
};

std::string complaint(Call call) {
  try {
    call.losses();
  } catch (const InvalidArgument& error) { return error.what(); }
  return "nothing";
}

TEST(PointwiseLoss, DistancesBendAtBeta) {
  Call smooth{.kind = Kind::smooth_l1, .x = {0, 0.5f, -1, 2, -8}, .target = Floats(5), .beta = 2};
  EXPECT_EQ(smooth.losses(), (Floats{0, 0.0625f, 0.25f, 1, 7}));
  EXPECT_EQ(smooth.slopes(), (Floats{0, 0.25f, -0.5f, 1, -1}));
  Call huber = smooth;
  huber.kind = Kind::huber;
  EXPECT_EQ(huber.losses(), (Floats{0, 0.125f, 0.5f, 2, 14}));
  EXPECT_EQ(huber.slopes(), (Floats{0, 0.5f, -1, 2, -2}));
  smooth.beta = 0;  // that of l1
  EXPECT_EQ(smooth.losses(), (Floats{0, 0.5f, 1, 2, 8}));
  EXPECT_EQ(smooth.slopes(), (Floats{0, 1, -1, 1, -1}));
}

// Of large logits the loss is as small as e^-x.
TEST(PointwiseLoss, SmallCrossEntropiesKeepTheirDigits) {
  Call call{.kind = Kind::bce_with_logits, .x = {20, 60, -20, -60}, .target = {1, 1, 0, 0}};
  const Floats losses = call.losses(), slopes = call.slopes();
  for (std::size_t i = 0; i < 4; ++i) {
    const double exact = std::log1p(std::exp(-std::fabs(double{call.x[i]})));
    EXPECT_NEAR(losses[i], exact, 4e-7 * exact) << call.x[i];
  }
  for (std::size_t i = 0; i < 4; ++i) {
    const double exact = std::exp(-std::fabs(double{call.x[i]}));
    EXPECT_NEAR(slopes[i], i < 2 ? -exact : exact, 4e-7 * exact) << call.x[i];
  }
  call.pos_weight = {3, 3, 3, 3};
  EXPECT_NEAR(call.losses()[0], 3 * losses[0], 1e-6 * losses[0]);
  EXPECT_EQ(call.losses()[2], losses[2]);
}

void expect_near(const Floats& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-6 * std::fabs(expected[i])) << i;
}

// As near, or rounded to the nearest of what is below the normal numbers.
void expect_near_or_next(const Floats& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 5e-7 * std::fabs(expected[i]) + 0x0.8p-149) << i;
}

// A small weight brings back what a large logit takes out of the range; and of targets and weights
// that are large, only products with e^-|x| are within it.
TEST(PointwiseLoss, CrossEntropiesWithPosWeightAreFiniteWhereverTheirTrueValueIs) {
  Call call{.kind = Kind::bce_with_logits,
            .x = {3e38f, -3e38f, 1000, 50, -1e-10f, 90, -90, 3e38f},
            .target = {-1.5f, 2, 1e20f, 1e20f, 1e20f, 1.5f, 1.5f, 1},
            .pos_weight = {1, 3, 1e30f, 1e30f, 1e30f, 3e38f, 3e38f, 1e30f},
            .weight = {0.1f, 0.01f, 1, 1, 1e-20f, 1, 1e-3f, 1}};
  std::vector<double> losses, slopes;
  for (std::size_t i = 0; i < call.x.size(); ++i) {
    const double x = call.x[i], t = call.target[i], q = call.pos_weight[i], w = call.weight[i];
    const double decay = std::exp(-std::fabs(x)), share = 1 + (q - 1) * t;
    const double straight = x < 0 ? -q * t : 1 - t;
    losses.push_back(w * (straight * x + share * std::log1p(decay)));
    slopes.push_back(w * (straight + (x < 0 ? share : -share) * decay / (1 + decay)));
  }
  expect_near(call.losses(), losses);
  expect_near(call.slopes(), slopes);
  // Where no order of version 1 gives a number.
  EXPECT_EQ(call.losses(),
            (Floats{0x1.c363cep+125f, 0x1.b1558ep+123f, -0x1.52d02cp+76f, 0x1.f291eep+93f,
                    0x1.17f5bcp+99f, -0x1.650cd8p+5f, 0x1.e78044p+124f, 0}));
  EXPECT_EQ(call.slopes(), (Floats{0x1p-2f, -0x1.eb851ep-5f, -0x1.5af1d8p+66f, -0x1.f291f6p+93f,
                                   -0x1.93e592p+98f, -0x1.bcca4p-1f, -0x1.5aaadap+118f, 0}));
}

// A distance that is no number, of numbers; and what flows in times a weight that brings it back.
TEST(PointwiseLoss, NothingLeavesTheRangeBeforeTheResultDoes) {
  Call call{
      .kind = Kind::l1, .x = {3e38f, -3e38f}, .target = {-3e38f, 2e38f}, .weight = {0.25f, 0.5f}};
  expect_near(call.losses(), {1.5e38, 2.5e38});
  call.kind = Kind::smooth_l1;
  call.beta = 1e38;
  expect_near(call.losses(), {1.375e38, 2.25e38});
  call.kind = Kind::huber;
  call.beta = 0.5;
  expect_near(call.losses(), {0.75e38, 1.25e38});
  call.weight = {1e-40f, 1e-40f};
  call.kind = Kind::mse;
  const double w = call.weight[0];
  expect_near(call.losses(), {w * 6e38 * 6e38, w * 5e38 * 5e38});
  call.grad = {1e30f, 1e-30f};
  expect_near(call.slopes(), {w * 1e30 * 1.2e39, w * 1e-30 * -1e39});
  call.kind = Kind::bce_with_logits;
  call.x = {88, -88};
  call.target = {1, 0};
  call.weight = call.grad = {1e20f, 1e20f};
  expect_near(call.slopes(), {-1e40 * std::exp(-88.0), 1e40 * std::exp(-88.0)});
}

// What a step has below the smallest normal number, a large factor brings back.
TEST(PointwiseLoss, StepsBelowTheRangeKeepTheirDigits) {
  Call entropy{.kind = Kind::bce_with_logits,
               .x = {96, -100, 120, -1e30f, 100},
               .target = {1, 0, 1, 1e-20f, 1},
               .pos_weight = {123, 1, 1e30f, 1e-22f, 1},
               .weight = {1, 1e10f, 1, 1, 1e20f}};
  std::vector<double> losses, slopes;
  for (std::size_t i = 0; i < entropy.x.size(); ++i) {
    const double x = entropy.x[i], t = entropy.target[i], q = entropy.pos_weight[i];
    const double decay = std::exp(-std::fabs(x)), share = 1 + (q - 1) * t;
    const double straight = x < 0 ? -q * t : 1 - t, weight = entropy.weight[i];
    losses.push_back(weight * (straight * x + share * std::log1p(decay)));
    slopes.push_back(weight * (straight + (x < 0 ? share : -share) * decay / (1 + decay)));
  }
  expect_near_or_next(entropy.losses(), losses);
  expect_near_or_next(entropy.slopes(), slopes);

  Call square{.kind = Kind::mse, .x = {1e10f}, .target = {0}, .weight = {3e-45f}};
  const double tiny = square.weight[0];
  expect_near_or_next(square.losses(), {tiny * 1e20});
  square.x = {3e-25f};
  square.weight = {1e3f};
  const double x = square.x[0];
  expect_near_or_next(square.losses(), {1e3 * x * x});
  square.grad = {3e-20f};
  expect_near_or_next(square.slopes(), {2e3 * x * square.grad[0]});
  square.x = {1e20f};
  square.weight = square.grad = {1e-22f};
  expect_near_or_next(square.slopes(), {2 * double{square.grad[0]} * square.grad[0] * 1e20});

  Call bent{.kind = Kind::smooth_l1, .x = {1}, .target = {0}, .beta = 1e38, .weight = {1e20f}};
  expect_near_or_next(bent.losses(), {1e20 / 2e38});
  bent.grad = {1e10f};
  bent.x = {1e-5f};
  expect_near_or_next(bent.slopes(), {1e30 * double{bent.x[0]} / 1e38});
  bent.kind = Kind::huber;
  bent.x = {5e15f};
  bent.weight = {3e-45f};
  expect_near_or_next(bent.losses(), {tiny * 5e15 * 5e15 / 2});
}

TEST(PointwiseLoss, EachRuleIsToldByName) {
  const Call call{.kind = Kind::huber, .x = {1}, .target = {2}, .beta = 0};
  EXPECT_EQ(complaint(call), "pointwise_loss: beta is 0; must be above 0 in huber");
  Call other = call;
  other.kind = Kind::smooth_l1;
  EXPECT_EQ(complaint(other), "nothing");
  other.beta = -1;
  EXPECT_EQ(complaint(other), "pointwise_loss: beta is -1; must not be negative");
  other.pos_weight = {1};
  EXPECT_EQ(complaint(other), "pointwise_loss: pos_weight is given; it belongs to bce_with_logits");
  other.kind = static_cast<Kind>(5);
  EXPECT_EQ(complaint(other), "pointwise_loss: function is 5; allowed: 0 to 4");
}

}  // namespace
}  // namespace isobit::pointwise_loss
