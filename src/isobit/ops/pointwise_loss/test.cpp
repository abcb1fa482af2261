// SPDX-License-Identifier: Apache-2.0
// What only pointwise_loss promises: digits of small losses, where distances bend, and its rules.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
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
  Floats pos_weight = {};

  // On every instruction set, with the same bits.
  template <class Run>
  Floats everywhere(const Run& run) {
    Floats first;
    for (const Isa isa : Machine::isas_here()) {
      Floats found(x.size());
      Execution execution = simd::here(1);
      execution.machine.isa = isa;
      run(found, execution);
      EXPECT_TRUE(first.empty() || found == first) << name_of(isa);
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
      forward(args, execution);
    });
  }
  Floats slopes() {
    return everywhere([&](Floats& found, const Execution& execution) {
      Floats ones(x.size(), 1.0f);
      BackwardArgs args{.x = view(x),
                        .target = view(target),
                        .grad_loss = view(ones),
                        .grad_x = view(found),
                        .function = kind,
                        .beta = beta};
      if (!pos_weight.empty()) args.pos_weight = view(pos_weight);
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
