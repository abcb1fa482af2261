// SPDX-License-Identifier: Apache-2.0
// The kernels of attention in every schedule: with the processor's bits, whatever is asked for, and
// at the edges of tiles, panels and runs; where values are infinite; and what contents that lead
// out of the arrays become.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "attention_calls.h"
#include "simt/each_kernel.h"

namespace isobit::attention::kernels_of_attention {
namespace {

using lab::kDetectsRaces;
using lab::kDevice;

struct Asked {
  Options options = {};
  bool bias = false, mask = false, slopes = false, range = false, statistics = true;
  bool packed = false, blocks = false;  // k and v are pools of as many blocks as there are batches
};

// A call with what is asked for beside q, k and v.
struct Given {
  Call call;
  Floats bias, slopes;
  std::vector<std::uint8_t> mask;
  std::vector<std::int64_t> begin, end, query_starts, key_starts, table;
  Asked asked;

  Given(const Call& usual, const Asked& wanted) : call(usual), asked(wanted) {
    const std::int64_t scores = call.heads * call.seq_q * call.seq_k;
    bias = numbers(scores, 11);
    if (scores > 3) bias[3] = -kInf;
    slopes = numbers(call.batch * call.heads, 5);
    for (std::int64_t i = 0; i < call.seq_q * call.seq_k; ++i) mask.push_back(i * i % 7 != 2);
    for (std::int64_t b = 0; b < call.batch; ++b) {
      begin.push_back(call.seq_k / 4 * b);
      end.push_back(asked.blocks ? (b + 1) * call.seq_k - 3 : call.seq_k - b);
      for (std::int64_t place = 0; place < call.batch; ++place)
        table.push_back((call.batch - 1 + b + place) % call.batch);
    }
    query_starts = {0, 3, 3, call.seq_q - 1};
    key_starts = {0, call.seq_k / 2, call.seq_k / 2 + 1, call.seq_k - 2};
  }
  static TensorView of(std::vector<std::int64_t>& all) {
    return {all.data(), std::ssize(all) * 8, DType::i64, 1, {std::ssize(all)}, {1}};
  }
  ForwardArgs args() {
    ForwardArgs args = call.args(asked.options);
    const std::int64_t row = call.seq_k, head = call.seq_q * row;
    if (asked.bias)
      args.bias =
          view(bias.data(), {call.batch, call.heads, call.seq_q, call.seq_k}, {0, head, row, 1});
    if (asked.mask)
      args.mask = {
          mask.data(),   head, DType::boolean, 4, {call.batch, call.heads, call.seq_q, row},
          {0, 0, row, 1}};
    if (asked.slopes) args.slopes = view(slopes.data(), {call.batch, call.heads});
    if (asked.range) {
      args.key_begin = of(begin);
      args.key_end = of(end);
    }
    if (asked.blocks) {
      args.blocks = {table.data(),   std::ssize(table) * 8, DType::i64, 2, {call.batch, call.batch},
                     {call.batch, 1}};
      args.key_end = of(end);
    }
    if (asked.packed) {
      args.query_starts = of(query_starts);
      args.key_starts = of(key_starts);
    }
    if (!asked.statistics) args.lse = args.max = args.sum = {};
    return args;
  }
  void forget() {
    for (Floats* each : {&call.y, &call.lse, &call.max, &call.sum})
      each->assign(each->size(), kNan);
  }
};

class AttentionKernels : public testing::Test {
 protected:
  void SetUp() override {
    lab::watch();
    lab::attach_devices();
    ASSERT_NE(attached(kDevice), nullptr);
  }

  void expect_the_processors_bits(Given given) {
    forward(given.args(), lab::execution_for(Isa::scalar, 1));
    const Call expected = given.call;  // whose results are forgotten
    expect_bits(expected, given);
  }
  // By every kernel and every value of its knob.
  void expect_bits(const Call& expected, Given& given) {
    const Operation& operation = forward_operation();
    const Execution execution = execution_on(*attached(kDevice), nullptr);
    const Arguments args = operation.make_arguments();
    *static_cast<ForwardArgs*>(args.get()) = given.args();
    given.forget();
    lab::for_each_kernel(operation, args, execution, [&](const auto& name, const auto& way) {
      ASSERT_TRUE(same(given.call.y, expected.y)) << "y by " << way;
      ASSERT_TRUE(same(given.call.lse, expected.lse)) << "lse by " << way;
      ASSERT_TRUE(same(given.call.max, expected.max)) << "max by " << way;
      ASSERT_TRUE(same(given.call.sum, expected.sum)) << "sum by " << way;
      given.forget();
      seen.insert(name);
    });
  }

  std::set<std::string> seen;
};

using enum Causal;

// The detector's memory grows with the square of the blocks, so there are few of them.
TEST_F(AttentionKernels, HaveTheProcessorsBitsInEverySchedule) {
  lab::in_every_schedule([&](bool) {
    for (const Asked& asked :
         {Asked{}, Asked{.options = {.causal = top_left}, .mask = true},
          Asked{.options = {.causal = bottom_right, .window = 100, .dropout = 0.3},
                .bias = true,
                .slopes = true,
                .range = true}}) {
      expect_the_processors_bits({Call(2, 2, 1, 3, 150, 18, 5), asked});
      if (HasFatalFailure()) return;
    }
  });
  EXPECT_EQ(seen, (std::set<std::string>{"decode", "flash", "online_row"}));
}

TEST_F(AttentionKernels, TakePackedSequencesAndBlocksInEverySchedule) {
  const Options options{.causal = bottom_right, .dropout = 0.2};
  lab::in_every_schedule([&](bool) {
    for (const Call& call : {Call(1, 4, 1, 7, 200, 18, 5), Call(1, 1, 1, 7, 4500, 4, 3)}) {
      expect_the_processors_bits({call, {.options = options, .slopes = true, .packed = true}});
      if (HasFatalFailure()) return;
    }
    expect_the_processors_bits(
        {Call(2, 2, 1, 3, 100, 18, 5), {.options = options, .slopes = true, .blocks = true}});
  });
  EXPECT_EQ(seen, (std::set<std::string>{"decode", "flash", "online_row"}));
}

TEST_F(AttentionKernels, GiveGradientsOfPackedSequencesInEverySchedule) {
  Given given(Call(1, 2, 1, 7, 200, 6, 5),
              {.options = {.causal = bottom_right, .window = 90, .dropout = 0.2},
               .slopes = true,
               .packed = true});
  const Execution plain = lab::execution_for(Isa::scalar, 1),
                  device = execution_on(*attached(kDevice), nullptr);
  const ForwardArgs args = given.args();
  forward(args, plain);
  const Floats grad_y = numbers(std::ssize(given.call.y), 7);
  const auto found_by = [&](const Execution& execution, std::string_view variant) {
    return gradients(given.call, args, grad_y, [&](BackwardArgs each) {
      each.query_starts = args.query_starts;
      each.key_starts = args.key_starts;
      const Operation& operation = backward_operation();
      const Arguments all = operation.make_arguments();
      *static_cast<BackwardArgs*>(all.get()) = each;
      const std::vector<VariantInfo> variants = operation.variants();
      const auto at = std::ranges::find_if(variants, [&](const VariantInfo& info) {
        return info.name == variant && info.device == execution.machine.device;
      });
      ASSERT_NE(at, variants.end());
      const int index = static_cast<int>(at - variants.begin());
      operation.run(index, operation.choose(index, all, execution.machine), all, execution);
    });
  };
  const Gradients expected = found_by(plain, "naive");
  lab::in_every_schedule([&](bool) {
    const Gradients found = found_by(device, "dq_dkdv");
    EXPECT_TRUE(same(found.q, expected.q));
    EXPECT_TRUE(same(found.k, expected.k));
    EXPECT_TRUE(same(found.v, expected.v));
  });
}

// Nothing looks at contents before.
TEST_F(AttentionKernels, ClampBlocksThatAreNone) {
  Given given(Call(3, 1, 1, 3, 20, 4, 5), {.blocks = true});
  given.table[0] = 0;
  given.table[4] = 2;
  forward(given.args(), lab::execution_for(Isa::scalar, 1));
  const Call expected = given.call;
  given.table[0] = -7;
  given.table[4] = std::int64_t{1} << 60;
  expect_bits(expected, given);
}

TEST_F(AttentionKernels, TakeWhateverIsAskedFor) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  const Asked all[] = {
      {},
      {.options = {.causal = top_left}},
      {.options = {.causal = bottom_right}, .statistics = false},
      {.options = {.causal = top_left, .window = 40}},
      {.options = {.window = 1}},
      {.options = {.window = 130, .scale = -0.7}, .range = true},
      {.options = {.softcap = 2}},
      {.options = {.causal = bottom_right, .softcap = 0.5}, .bias = true},
      {.mask = true},
      {.options = {.causal = top_left}, .bias = true, .mask = true, .slopes = true},
      {.options = {.causal = bottom_right}, .slopes = true, .range = true},
      {.options = {.dropout = 0.4, .dropout_seed = 9}, .range = true},
      {.options = {.causal = bottom_right, .dropout = 0.9}, .mask = true}};
  for (const Asked& asked : all)
    for (const Call& call : {Call(2, 2, 1, 70, 200, 20, 33), Call(1, 1, 1, 131, 129, 8, 70)}) {
      expect_the_processors_bits({call, asked});
      if (HasFatalFailure()) return;
    }
}

// Rows, keys and columns on both sides of what a thread, a tile and a panel have; or none of them.
TEST_F(AttentionKernels, TakeAnyExtents) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  for (const Call& call :
       {Call(1, 1, 1, 1, 1, 1, 1), Call(1, 2, 2, 64, 128, 16, 64), Call(1, 2, 1, 65, 129, 17, 65),
        Call(1, 1, 1, 9, 127, 256, 256), Call(1, 1, 1, 9, 40, 100, 129), Call(1, 1, 1, 7, 0, 4, 5),
        Call(1, 1, 1, 7, 9, 0, 5), Call(1, 1, 1, 7, 130, 3, 0), Call(1, 3, 3, 128, 5, 5, 128)})
    for (const Causal causal : {no, bottom_right}) {
      expect_the_processors_bits({call, {.options = {.causal = causal}}});
      if (HasFatalFailure()) return;
    }
}

// 2, 3, 4 and 5 runs: pairs of pairs, and what is left of them.
TEST_F(AttentionKernels, JoinRunsByPairs) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  for (const std::int64_t keys : {2049, 4097, 8192, 8193})
    for (const std::int64_t window : {0, 2500}) {
      if (window > 0 && keys != 8193) continue;
      expect_the_processors_bits(
          {Call(1, 1, 1, 5, keys, 4, 3), {.options = {.causal = bottom_right, .window = window}}});
      if (HasFatalFailure()) return;
    }
}

// What a query does not see is not multiplied, though the weights beside it are.
TEST_F(AttentionKernels, InfiniteValuesSpoilOnlyWhoSeesThem) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  for (const double dropout : {0.0, 0.5})
    for (const bool masked : {false, true}) {
      Given given(Call(1, 2, 1, 70, 140, 9, 70),
                  {.options = {.causal = bottom_right, .dropout = dropout}, .mask = masked});
      given.call.v[135 * 70 + 3] = kInf;
      given.call.v[80 * 70 + 69] = kNan;
      given.call.k[130 * 9] = kNan;
      expect_the_processors_bits(given);
      if (HasFatalFailure()) return;
    }
}

// Some panels have all of the weight, the others none.
TEST_F(AttentionKernels, RescaleTheSumsOfAllPanels) {
  for (const std::int64_t panel : {0, 1, 2}) {
    Given given(Call(1, 1, 1, 6, 384, 4, 6), {});
    for (std::int64_t i = 0; i < 128 * 4; ++i) given.call.k[panel * 512 + i] *= 60;
    expect_the_processors_bits(given);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace isobit::attention::kernels_of_attention
