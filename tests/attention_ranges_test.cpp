// SPDX-License-Identifier: Apache-2.0
// Sequences of attention that are padded on either side have the bits that they have alone, in
// every variant, whatever the padding holds.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "attention_calls.h"
#include "isobit/core/error.h"
#include "workloads.h"

namespace isobit::attention {
namespace {

using Numbers = std::vector<std::int64_t>;

TensorView of(const Numbers& numbers) {
  return {const_cast<std::int64_t*>(numbers.data()),
          std::ssize(numbers) * 8,
          DType::i64,
          1,
          {std::ssize(numbers)},
          {1}};
}

// A batch whose k, v and bias hold NaN outside of each sequence.
struct Padded {
  Call call;
  Numbers begin, end;
  Floats bias, slopes;
  Options options;

  Padded(const Call& usual, Numbers first, Numbers last, const Options& given)
      : call(usual), begin(std::move(first)), end(std::move(last)), options(given) {
    bias = numbers(call.batch * call.heads * call.seq_q * call.seq_k, 11);
    slopes = numbers(call.batch * call.heads, 5);
    const auto spoil = [&](Floats& rows, std::int64_t heads, std::int64_t cols, std::int64_t step) {
      for (std::int64_t b = 0; b < call.batch; ++b)
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t key = 0; key < call.seq_k; ++key)
            if (key < begin[b] || key >= end[b])
              for (std::int64_t c = 0; c < cols; ++c)
                rows[((b * heads + h) * call.seq_k + key) * step + c] = key % 2 == 0 ? kNan : kInf;
    };
    spoil(call.k, call.kv_heads, call.dim, call.dim);
    spoil(call.v, call.kv_heads, call.value_dim, call.value_dim);
    spoil(bias, call.heads * call.seq_q, 1, 1);
  }
  ForwardArgs args(bool with_bias, bool with_slopes) {
    ForwardArgs args = call.args(options);
    args.key_begin = of(begin);
    args.key_end = of(end);
    if (with_bias) args.bias = view(bias.data(), {call.batch, call.heads, call.seq_q, call.seq_k});
    if (with_slopes) args.slopes = view(slopes.data(), {call.batch, call.heads});
    return args;
  }
  std::int64_t keys(std::int64_t b) const { return end[b] - begin[b]; }
};

// One of its sequences by itself.
struct Alone {
  Call call;
  Floats bias, slopes;
  Options options;

  Alone(const Padded& padded, std::int64_t b)
      : call(1, padded.call.heads, padded.call.kv_heads, padded.call.seq_q, padded.keys(b),
             padded.call.dim, padded.call.value_dim),
        options(padded.options) {
    const Call& whole = padded.call;
    call.q = part(whole.q, whole.heads * whole.seq_q * whole.dim, b);
    call.k = rows(whole.k, whole.kv_heads, whole.dim, padded, b);
    call.v = rows(whole.v, whole.kv_heads, whole.value_dim, padded, b);
    bias = rows(padded.bias, whole.heads * whole.seq_q, 1, padded, b);
    slopes = part(padded.slopes, whole.heads, b);
  }
  static Floats part(const Floats& all, std::int64_t size, std::int64_t b) {
    return {all.begin() + b * size, all.begin() + (b + 1) * size};
  }
  // Of each head the rows of the sequence.
  static Floats rows(const Floats& all, std::int64_t heads, std::int64_t cols, const Padded& padded,
                     std::int64_t b) {
    Floats found;
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto head = all.begin() + (b * heads + h) * padded.call.seq_k * cols;
      found.insert(found.end(), head + padded.begin[b] * cols, head + padded.end[b] * cols);
    }
    return found;
  }
  ForwardArgs args(bool with_bias, bool with_slopes) {
    ForwardArgs args = call.args(options);
    if (with_bias) args.bias = view(bias.data(), {1, call.heads, call.seq_q, call.seq_k});
    if (with_slopes) args.slopes = view(slopes.data(), {1, call.heads});
    return args;
  }
};

// Every sequence of the batch, beside itself alone. What is dropped depends on the place in the
// batch, so that of those the first is compared.
void expect_the_bits_of_sequences_alone(const Padded& given, bool with_bias, bool with_slopes) {
  const auto size = [&](std::int64_t cols) { return given.call.heads * given.call.seq_q * cols; };
  const std::int64_t count = given.options.dropout > 0 ? 1 : given.call.batch;
  std::vector<Alone> alone;
  for (std::int64_t b = 0; b < count; ++b) {
    alone.emplace_back(given, b);
    forward(alone.back().args(with_bias, with_slopes), lab::execution_for(Isa::scalar, 1));
  }
  for_each_way<ForwardArgs>(forward_operation(), [&](const auto& name, const auto& run) {
    Padded padded = given;
    if (!run(padded.args(with_bias, with_slopes))) return;
    for (std::int64_t b = 0; b < count; ++b) {
      const Call &whole = padded.call, &one = alone[b].call;
      EXPECT_TRUE(same(Alone::part(whole.y, size(whole.value_dim), b), one.y)) << name << ' ' << b;
      EXPECT_TRUE(same(Alone::part(whole.lse, size(1), b), one.lse)) << name << ' ' << b;
      EXPECT_TRUE(same(Alone::part(whole.max, size(1), b), one.max)) << name << ' ' << b;
      EXPECT_TRUE(same(Alone::part(whole.sum, size(1), b), one.sum)) << name << ' ' << b;
    }
  });
  Padded padded = given;
  const ForwardArgs args = padded.args(with_bias, with_slopes);
  forward(args, lab::execution_for(Isa::scalar, 1));
  const Floats grad = numbers(std::ssize(padded.call.y), 7);
  std::vector<Gradients> expected;
  for (std::int64_t b = 0; b < count; ++b)
    expected.push_back(gradients(alone[b].call, alone[b].args(with_bias, with_slopes),
                                 lab::execution_for(Isa::scalar, 1),
                                 Alone::part(grad, size(padded.call.value_dim), b)));
  for_each_way<BackwardArgs>(backward_operation(), [&](const auto& name, const auto& run) {
    const Gradients found = gradients(padded.call, args, grad,
                                      [&](const BackwardArgs& each) { ASSERT_TRUE(run(each)); });
    const Call& whole = padded.call;
    const auto rows = [&](const Floats& all, std::int64_t heads, std::int64_t cols,
                          std::int64_t b) { return Alone::rows(all, heads, cols, padded, b); };
    for (std::int64_t b = 0; b < count; ++b) {
      EXPECT_TRUE(same(Alone::part(found.q, size(whole.dim), b), expected[b].q)) << name << b;
      EXPECT_TRUE(same(rows(found.k, whole.kv_heads, whole.dim, b), expected[b].k)) << name << b;
      EXPECT_TRUE(same(rows(found.v, whole.kv_heads, whole.value_dim, b), expected[b].v))
          << name << b;
      if (with_bias) {
        EXPECT_TRUE(same(rows(found.bias, whole.heads * whole.seq_q, 1, b), expected[b].bias))
            << name << b;
      }
    }
    const auto expect_zeros = [&](const Floats& all, std::int64_t heads, std::int64_t cols) {
      for (std::int64_t at = 0; at < std::ssize(all); ++at) {
        const std::int64_t key = at / cols % whole.seq_k, b = at / cols / whole.seq_k / heads;
        if (key < padded.begin[b] || key >= padded.end[b]) {
          ASSERT_EQ(all[at], 0) << name << ' ' << at;
        }
      }
    };
    expect_zeros(found.k, whole.kv_heads, whole.dim);
    expect_zeros(found.v, whole.kv_heads, whole.value_dim);
    if (with_bias) expect_zeros(found.bias, whole.heads * whole.seq_q, 1);
  });
}

TEST(AttentionRanges, OfAnyKindHaveTheBitsOfSequencesAlone) {
  const Numbers begin = {37, 0, 130, 200}, end = {299, 290, 131, 200};
  for (const std::int64_t queries : {1, 20}) {
    const Call call(4, 2, 1, queries, 300, 12, 8);
    expect_the_bits_of_sequences_alone({call, begin, end, {}}, false, false);
    expect_the_bits_of_sequences_alone({call, begin, end, {.scale = -0.7, .softcap = 2}}, true,
                                       false);
    expect_the_bits_of_sequences_alone({call, begin, end, {.dropout = 0.3, .dropout_seed = 4}},
                                       false, false);
  }
}

// Padding on the left: the last query still stands at the last key.
TEST(AttentionRanges, ThatEndWithTheKeysKeepTheirPositions) {
  const Numbers begin = {129, 0, 280}, end = {300, 300, 300};
  for (const std::int64_t queries : {2, 20})
    for (const std::int64_t window : {0, 50}) {
      const Options options{.causal = Causal::bottom_right, .window = window};
      expect_the_bits_of_sequences_alone({Call(3, 2, 1, queries, 300, 12, 8), begin, end, options},
                                         window == 0, true);
    }
}

// Padding on the right: the first query still stands at the first key.
TEST(AttentionRanges, ThatBeginWithTheKeysKeepTheirPositions) {
  const Numbers begin = {0, 0, 0}, end = {300, 131, 7};
  for (const std::int64_t window : {0, 50}) {
    const Options options{.causal = Causal::top_left, .window = window};
    expect_the_bits_of_sequences_alone({Call(3, 2, 1, 20, 300, 12, 8), begin, end, options},
                                       window == 0, false);
  }
}

// Runs of panels are counted from the first key too.
TEST(AttentionRanges, OfManyRunsHaveTheBitsOfSequencesAlone) {
  const Numbers begin = {1, 2047}, end = {4199, 4200};
  for (const std::int64_t queries : {1, 9}) {
    if (queries > 1 && lab::thinned()) continue;
    expect_the_bits_of_sequences_alone({Call(2, 1, 1, queries, 4200, 3, 2), begin, end, {}}, false,
                                       false);
  }
}

TEST(AttentionRanges, ThatAreNoneAreRefusedBeforeAnythingIsWritten) {
  const auto message = [](Numbers begin, Numbers end) -> std::string {
    Padded padded(Call(2, 2, 1, 3, 7, 8, 6), {0, 0}, {7, 7}, {});
    padded.begin = std::move(begin);
    padded.end = std::move(end);
    std::string said;
    try {
      forward(padded.args(false, false), lab::execution_for(Isa::scalar, 1));
    } catch (const InvalidArgument& error) { said = error.what(); }
    if (said.empty()) return said;
    for (const float y : padded.call.y) EXPECT_TRUE(std::isnan(y));
    return said;
  };
  EXPECT_EQ(message({0, 7}, {7, 7}), "");
  EXPECT_EQ(message({0, 8}, {7, 7}),
            "attention: key_begin[1] is 8; must be from 0 to 7, the number of keys");
  EXPECT_EQ(message({-1, 0}, {7, 7}),
            "attention: key_begin[0] is -1; must be from 0 to 7, the number of keys");
  EXPECT_EQ(message({0, 0}, {7, 9}),
            "attention: key_end[1] is 9; must be from 0 to 7, the number of keys");
  EXPECT_EQ(
      message({0, 5}, {7, 4}),
      "attention: key_begin[1] is 5; key_end[1] is 4; a sequence may not end before it begins");
  EXPECT_EQ(message({0}, {7, 7}),
            "attention: key_begin has shape (1); a number of each sequence of q has (2)");
}

// On a device nobody reads them beforehand: there they are taken for the nearest that are right.
TEST(AttentionRanges, ThatAreNoneAreClampedOnADevice) {
  int devices = 0;
  for_each_way<ForwardArgs>(
      forward_operation(),
      [&](const auto& name, const auto& run) {
        if (name.find("on emu") == std::string::npos) return;
        const Call call(3, 2, 1, 3, 150, 8, 6);
        Padded wrong(call, {0, 0, 0}, {150, 150, 150}, {}), right = wrong;
        wrong.begin = {-5, std::int64_t{1} << 62, 20};
        wrong.end = {std::int64_t{1} << 62, 3, 10};
        right.begin = {0, 150, 20};
        right.end = {150, 150, 20};
        ++devices;
        ASSERT_TRUE(run(wrong.args(false, false)));
        ASSERT_TRUE(run(right.args(false, false)));
        EXPECT_TRUE(same(wrong.call.y, right.call.y)) << name;
        EXPECT_TRUE(same(wrong.call.lse, right.call.lse)) << name;
      },
      true);
#if defined(ISOBIT_EMULATOR)
  EXPECT_EQ(devices, 3);
#endif
}

}  // namespace
}  // namespace isobit::attention
