// SPDX-License-Identifier: Apache-2.0
// Slopes of attention are the bias that they stand for, to the bit, in every variant.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "attention_calls.h"
#include "isobit/core/error.h"
#include "isobit/isobit.h"

namespace isobit::attention {
namespace {

// What slopes stand for, number by number.
Floats bias_of(const Call& call, const Floats& slopes) {
  Floats bias;
  for (const float slope : slopes)
    for (std::int64_t i = 0; i < call.seq_q; ++i)
      for (std::int64_t j = 0; j < call.seq_k; ++j)
        bias.push_back(slope * -std::fabs(static_cast<float>(i + call.seq_k - call.seq_q - j)));
  return bias;
}

ForwardArgs with_slopes(Call& call, const Floats& slopes, const Options& options) {
  ForwardArgs args = call.args(options);
  args.slopes = view(slopes.data(), {call.batch, call.heads});
  return args;
}
ForwardArgs with_bias(Call& call, const Floats& bias, const Options& options) {
  ForwardArgs args = call.args(options);
  args.bias = view(bias.data(), {call.batch, call.heads, call.seq_q, call.seq_k});
  return args;
}

const Options kOptions[] = {{},
                            {.causal = Causal::top_left, .window = 40},
                            {.causal = Causal::bottom_right, .softcap = 3},
                            {.window = 60, .dropout = 0.3, .dropout_seed = 9}};

std::vector<Call> calls() {
  return {Call(2, 4, 2, 2, 300, 12, 8), Call(2, 4, 2, 150, 170, 12, 8), Call(2, 2, 1, 40, 7, 5, 3)};
}
Floats slopes_of(const Call& call) {
  Floats slopes = numbers(call.batch * call.heads, 5);
  slopes[0] = 0.0078125f, slopes[1] = -0.01f;
  return slopes;
}

TEST(AttentionSlopes, AreTheBiasThatTheyStandFor) {
  int ways = 0;
  for (const Options& options : kOptions)
    for (const Call& call : calls())
      for_each_way<ForwardArgs>(forward_operation(), [&](const auto& name, const auto& run) {
        Call sloped = call, biased = call;
        const Floats slopes = slopes_of(call), bias = bias_of(call, slopes);
        if (!run(with_slopes(sloped, slopes, options))) return;
        ++ways;
        ASSERT_TRUE(run(with_bias(biased, bias, options)));
        EXPECT_TRUE(same(sloped.y, biased.y)) << name;
        EXPECT_TRUE(same(sloped.lse, biased.lse)) << name;
        EXPECT_TRUE(same(sloped.max, biased.max)) << name;
        EXPECT_TRUE(same(sloped.sum, biased.sum)) << name;
      });
  EXPECT_GE(ways, 40);
}

TEST(AttentionSlopes, HaveTheGradientsOfTheirBias) {
  for (const Options& options : kOptions)
    for (const Call& call : calls()) {
      Call sloped = call, biased = call;
      const Floats slopes = slopes_of(call), bias = bias_of(call, slopes);
      const ForwardArgs by_slopes = with_slopes(sloped, slopes, options),
                        by_bias = with_bias(biased, bias, options);
      forward(by_slopes, lab::execution_for(Isa::scalar, 1));
      forward(by_bias, lab::execution_for(Isa::scalar, 1));
      const Floats grad = numbers(std::ssize(call.y), 7);
      for_each_way<BackwardArgs>(backward_operation(), [&](const auto& name, const auto& run) {
        const auto computed = [&](Call& of, const ForwardArgs& args) {
          return gradients(of, args, grad, [&](const BackwardArgs& given) { run(given); });
        };
        const Gradients found = computed(sloped, by_slopes), expected = computed(biased, by_bias);
        EXPECT_TRUE(same(found.q, expected.q)) << name;
        EXPECT_TRUE(same(found.k, expected.k)) << name;
        EXPECT_TRUE(same(found.v, expected.v)) << name;
      });
    }
}

// A bias that makes a key absent does so beside a slope that would make it present.
TEST(AttentionSlopes, LeaveAbsentWhatABiasMadeSo) {
  for_each_way<ForwardArgs>(forward_operation(), [&](const auto& name, const auto& run) {
    Call call(1, 1, 1, 2, 150, 4, 4);
    const Floats bias(2 * 150, -kInf), slopes = {-kInf};
    ForwardArgs args = with_bias(call, bias, {});
    args.slopes = view(slopes.data(), {1, 1});
    ASSERT_TRUE(run(args)) << name;
    for (const float y : call.y) EXPECT_EQ(y, 0) << name;
  });
}

// An infinite slope leaves the key at the query's own position alone: others are not there.
TEST(AttentionSlopes, OfInfinityMakeAllOthersAbsent) {
  for_each_way<ForwardArgs>(forward_operation(), [&](const auto& name, const auto& run) {
    Call call(1, 1, 1, 3, 140, 4, 4);
    const Floats slopes = {kInf}, bias = bias_of(call, slopes);
    Call biased = call;
    ASSERT_TRUE(run(with_slopes(call, slopes, {}))) << name;
    ASSERT_TRUE(run(with_bias(biased, bias, {}))) << name;
    EXPECT_TRUE(same(call.y, biased.y)) << name;
    EXPECT_TRUE(std::isnan(call.y[0])) << name;  // infinity times 0
  });
}

// One slope for each head, whatever the batch: a stride of 0.
TEST(AttentionSlopes, MayRepeatAlongTheBatch) {
  for_each_isa([&](const Execution& execution) {
    Call whole(3, 2, 1, 20, 33, 8, 8), repeated = whole;
    const Floats slopes = {0.5f, 0.03125f, 0.5f, 0.03125f, 0.5f, 0.03125f};
    forward(with_slopes(whole, slopes, {}), execution);
    ForwardArgs args = repeated.args();
    args.slopes = view(slopes.data(), {3, 2}, {0, 1});
    forward(args, execution);
    EXPECT_TRUE(same(whole.y, repeated.y));
  });
}

TEST(AttentionSlopes, ThatDoNotFitAreRefused) {
  const auto message = [](const std::function<void(TensorView&)>& spoil) -> std::string {
    Call call(1, 4, 2, 3, 5, 8, 6);
    Floats slopes(8);
    ForwardArgs args = with_slopes(call, slopes, {});
    spoil(args.slopes);
    try {
      forward(args, lab::execution_for(Isa::scalar, 1));
    } catch (const InvalidArgument& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(message([](TensorView&) {}), "");
  EXPECT_EQ(message([](TensorView& slopes) { slopes.shape[1] = 3; }),
            "attention: slopes has shape (1, 3); a slope of each head of q has (1, 4)");
  EXPECT_NE(message([](TensorView& slopes) {
              slopes.dtype = DType::f64;
              slopes.shape[1] = 2;
            }).find("attention: slopes has dtype f64"),
            std::string::npos);
}

// Programs that were compiled before know a shorter struct; what lies behind it is not read.
TEST(AttentionSlopes, AreLeftOutOfTheStructsThatWereThereBefore) {
  Call call(1, 1, 1, 2, 3, 4, 4), again = call;
  const auto tensor = [](const TensorView& view) {
    isobit_tensor result{view.data, view.bytes, ISOBIT_F32, view.rank, {}, {}};
    std::ranges::copy(view.shape, result.shape);
    std::ranges::copy(view.strides, result.strides);
    return result;
  };
  const ForwardArgs given = call.args();
  forward(again.args(), lab::execution_for(Isa::scalar, 1));
  const isobit_tensor q = tensor(given.q), k = tensor(given.k), v = tensor(given.v),
                      y = tensor(given.y);
  const auto* nowhere = reinterpret_cast<const isobit_tensor*>(std::uintptr_t{8});
  isobit_attention_forward_args args{};
  args.struct_size = offsetof(isobit_attention_forward_args, slopes);
  args.q = &q, args.k = &k, args.v = &v, args.y = &y;
  args.slopes = nowhere;
  EXPECT_EQ(isobit_attention_forward(&args, nullptr), ISOBIT_OK) << isobit_last_error();
  EXPECT_TRUE(same(call.y, again.y));
  for (const int wrong : {-8, 4}) {
    args.struct_size = offsetof(isobit_attention_forward_args, slopes) + wrong;
    EXPECT_EQ(isobit_attention_forward(&args, nullptr), ISOBIT_INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace isobit::attention
