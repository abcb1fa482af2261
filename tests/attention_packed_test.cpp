// SPDX-License-Identifier: Apache-2.0
// Packed sequences of attention, and keys in blocks, have the bits of sequences alone in every
// variant that takes them, whatever belongs to no sequence; and what would lead out of the arrays
// is refused before anything is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "attention_calls.h"
#include "isobit/core/error.h"

namespace isobit::attention::packed_sequences {
namespace {

using Numbers = std::vector<std::int64_t>;

TensorView of(const Numbers& numbers, std::int64_t rows = 0) {
  const std::int64_t count = std::ssize(numbers);
  TensorView view{
      const_cast<std::int64_t*>(numbers.data()), count * 8, DType::i64, 1, {count}, {1}};
  if (rows > 0) {
    view.rank = 2;
    view.shape = {rows, count / rows};
    view.strides = {count / rows, 1};
  }
  return view;
}

Numbers starts_of(const Numbers& lengths) {
  Numbers starts = {0};
  for (std::int64_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

// Rows [begin, end) of each head, of arrays of `rows` rows a head.
Floats part(const Floats& all, std::int64_t heads, std::int64_t rows, std::int64_t cols,
            std::int64_t begin, std::int64_t end) {
  Floats found;
  for (std::int64_t h = 0; h < heads; ++h) {
    const auto head = all.begin() + h * rows * cols;
    found.insert(found.end(), head + begin * cols, head + end * cols);
  }
  return found;
}
void put(const Floats& rows, Floats& all, std::int64_t batch) {
  std::copy(rows.begin(), rows.end(), all.begin() + batch * std::ssize(rows));
}

constexpr std::int64_t kRestQ = 3, kRestK = 2;  // rows behind the last sequence

struct Packed {
  Numbers queries, keys, query_starts, key_starts;
  Call call;
  Floats slopes;
  Options options;

  Packed(Numbers of_queries, Numbers of_keys, const Options& given)
      : queries(std::move(of_queries)),
        keys(std::move(of_keys)),
        query_starts(starts_of(queries)),
        key_starts(starts_of(keys)),
        call(1, 4, 2, query_starts.back() + kRestQ, key_starts.back() + kRestK, 12, 9),
        slopes(numbers(call.heads, 5)),
        options(given) {
    const auto spoil = [](Floats& rows, std::int64_t heads, std::int64_t length, std::int64_t cols,
                          std::int64_t begin) {
      for (std::int64_t h = 0; h < heads; ++h)
        std::fill_n(rows.begin() + (h * length + begin) * cols, (length - begin) * cols, kNan);
    };
    spoil(call.q, call.heads, call.seq_q, call.dim, query_starts.back());
    spoil(call.k, call.kv_heads, call.seq_k, call.dim, key_starts.back());
    spoil(call.v, call.kv_heads, call.seq_k, call.value_dim, key_starts.back());
  }
  ForwardArgs args(bool with_slopes) {
    ForwardArgs args = call.args(options);
    args.query_starts = of(query_starts);
    args.key_starts = of(key_starts);
    if (with_slopes) args.slopes = view(slopes.data(), {1, call.heads});
    return args;
  }
  Floats rows_of_q(const Floats& all, std::int64_t cols, std::int64_t s) const {
    return part(all, call.heads, call.seq_q, cols, query_starts[s], query_starts[s + 1]);
  }
  Floats rows_of_k(const Floats& all, std::int64_t cols, std::int64_t s) const {
    return part(all, call.kv_heads, call.seq_k, cols, key_starts[s], key_starts[s + 1]);
  }
};

// A sequence by itself: the last of a batch of as many as there are up to it, where its place in
// the batch is what dropout counts.
struct Alone {
  Call call;
  Floats slopes, grad;
  Options options;

  Alone(const Packed& all, std::int64_t s, const Floats& of_y)
      : call(all.options.dropout > 0 ? s + 1 : 1, all.call.heads, all.call.kv_heads, all.queries[s],
             all.keys[s], all.call.dim, all.call.value_dim),
        grad(call.y.size(), 0),
        options(all.options) {
    const std::int64_t last = call.batch - 1;
    put(all.rows_of_q(all.call.q, call.dim, s), call.q, last);
    put(all.rows_of_k(all.call.k, call.dim, s), call.k, last);
    put(all.rows_of_k(all.call.v, call.value_dim, s), call.v, last);
    put(all.rows_of_q(of_y, call.value_dim, s), grad, last);
    for (std::int64_t b = 0; b < call.batch; ++b)
      slopes.insert(slopes.end(), all.slopes.begin(), all.slopes.end());
  }
  ForwardArgs args(bool with_slopes) {
    ForwardArgs args = call.args(options);
    if (with_slopes) args.slopes = view(slopes.data(), {call.batch, call.heads});
    return args;
  }
  Floats last(const Floats& all) const {
    return {all.end() - std::ssize(all) / call.batch, all.end()};
  }
};

Gradients packed_gradients(Packed& packed, const ForwardArgs& forward, const Floats& grad_y,
                           const std::function<void(const BackwardArgs&)>& run) {
  return gradients(packed.call, forward, grad_y, [&](BackwardArgs args) {
    args.query_starts = forward.query_starts;
    args.key_starts = forward.key_starts;
    run(args);
  });
}

int expect_the_bits_of_sequences_alone(const Packed& given, bool with_slopes = false,
                                       bool emulated = true) {
  const Execution plain = lab::execution_for(Isa::scalar, 1);
  const std::int64_t count = std::ssize(given.queries), cols = given.call.value_dim;
  Floats grad = numbers(std::ssize(given.call.y), 7);
  std::vector<Alone> alone;
  std::vector<Gradients> expected;
  for (std::int64_t s = 0; s < count; ++s) {
    alone.emplace_back(given, s, grad);
    Alone& one = alone.back();
    forward(one.args(with_slopes), plain);
    expected.push_back(gradients(one.call, one.args(with_slopes), plain, one.grad));
  }
  int ways = 0;
  for_each_way<ForwardArgs>(
      forward_operation(),
      [&](const auto& name, const auto& run) {
        Packed packed = given;
        if (!run(packed.args(with_slopes))) return;
        ++ways;
        const Call& whole = packed.call;
        for (std::int64_t s = 0; s < count; ++s) {
          const Call& one = alone[s].call;
          EXPECT_TRUE(same(packed.rows_of_q(whole.y, cols, s), alone[s].last(one.y))) << name << s;
          EXPECT_TRUE(same(packed.rows_of_q(whole.lse, 1, s), alone[s].last(one.lse))) << name << s;
          EXPECT_TRUE(same(packed.rows_of_q(whole.max, 1, s), alone[s].last(one.max))) << name << s;
          EXPECT_TRUE(same(packed.rows_of_q(whole.sum, 1, s), alone[s].last(one.sum))) << name << s;
        }
        const std::int64_t end = packed.query_starts.back();
        for (const float y : part(whole.y, whole.heads, whole.seq_q, cols, end, whole.seq_q))
          EXPECT_EQ(y, 0) << name;
        for (const float lse : part(whole.lse, whole.heads, whole.seq_q, 1, end, whole.seq_q))
          EXPECT_EQ(lse, -kInf) << name;
      },
      emulated);
  Packed packed = given;
  const ForwardArgs args = packed.args(with_slopes);
  forward(args, plain);
  for_each_way<BackwardArgs>(
      backward_operation(),
      [&](const auto& name, const auto& run) {
        bool ran = false;
        const Gradients found = packed_gradients(
            packed, args, grad, [&](const BackwardArgs& each) { ran = run(each); });
        if (!ran) return;
        ++ways;
        const Call& whole = packed.call;
        for (std::int64_t s = 0; s < count; ++s) {
          const Gradients& one = expected[s];
          EXPECT_TRUE(same(packed.rows_of_q(found.q, whole.dim, s), alone[s].last(one.q)))
              << name << s;
          EXPECT_TRUE(same(packed.rows_of_k(found.k, whole.dim, s), alone[s].last(one.k)))
              << name << s;
          EXPECT_TRUE(same(packed.rows_of_k(found.v, cols, s), alone[s].last(one.v))) << name << s;
        }
        const auto expect_zeros = [&](const Floats& all, std::int64_t heads, std::int64_t rows,
                                      std::int64_t width, std::int64_t begin) {
          for (const float each : part(all, heads, rows, width, begin, rows))
            EXPECT_EQ(each, 0) << name;
        };
        expect_zeros(found.q, whole.heads, whole.seq_q, whole.dim, packed.query_starts.back());
        expect_zeros(found.k, whole.kv_heads, whole.seq_k, whole.dim, packed.key_starts.back());
        expect_zeros(found.v, whole.kv_heads, whole.seq_k, cols, packed.key_starts.back());
      },
      emulated);
  return ways;
}

const Numbers kQueries = {3, 0, 5, 140, 1, 20}, kKeys = {4, 2, 5, 300, 0, 150};

TEST(AttentionPacked, SequencesHaveTheBitsThatTheyHaveAlone) {
  EXPECT_GT(expect_the_bits_of_sequences_alone({kQueries, kKeys, {}}), 2);
  expect_the_bits_of_sequences_alone({kQueries, kKeys, {.causal = Causal::top_left}}, true);
  expect_the_bits_of_sequences_alone(
      {kQueries, kKeys, {.causal = Causal::bottom_right, .window = 50, .scale = -0.7}}, true);
  expect_the_bits_of_sequences_alone({kQueries, kKeys, {.softcap = 2}});
}

TEST(AttentionPacked, WhatIsDroppedDependsOnTheSequencesNumber) {
  expect_the_bits_of_sequences_alone(
      {kQueries, kKeys, {.causal = Causal::top_left, .dropout = 0.3, .dropout_seed = 4}});
}

// Few enough queries for `decode`, and keys of several runs.
TEST(AttentionPacked, TokensHaveTheBitsThatTheyHaveAlone) {
  for (const std::int64_t window : {0, 2500})
    expect_the_bits_of_sequences_alone({{1, 4, 0, 2, 1},
                                        {300, 4200, 7, 0, 2049},
                                        {.causal = Causal::bottom_right, .window = window}});
}

// So much work that threads share it: the long one together, the others side by side.
TEST(AttentionPacked, ThreadsShareALongSequenceAndTheShortOnes) {
  Numbers queries = {700}, keys = {900};
  for (std::int64_t i = 0; i < 12; ++i) {
    queries.push_back(10 + 9 * i);
    keys.push_back(130 + 7 * i);
  }
  expect_the_bits_of_sequences_alone({queries, keys, {.causal = Causal::top_left}}, false, false);
}

TEST(AttentionPacked, NanStaysBehindAMask) {
  Packed packed(kQueries, kKeys, {.causal = Causal::top_left});
  const std::int64_t key = packed.key_starts[3] + 100;
  for (float* row : {&packed.call.k[key * packed.call.dim], &packed.call.v[key * 9]}) *row = kNan;
  expect_the_bits_of_sequences_alone(packed);
}

TEST(AttentionPacked, NoneAndOnlyEmptyOnesAreCalls) {
  expect_the_bits_of_sequences_alone({{}, {}, {}});
  expect_the_bits_of_sequences_alone({{0, 0}, {0, 0}, {}});
  expect_the_bits_of_sequences_alone({{0, 4}, {3, 0}, {}});
}

std::string said_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) { return error.what(); }
  return "";
}

TEST(AttentionPacked, StartsThatAreNoneAreRefusedBeforeAnythingIsWritten) {
  const auto message = [](const Numbers& of_q, const Numbers& of_k) {
    Packed packed({2, 3}, {4, 3}, {});
    packed.query_starts = of_q;
    packed.key_starts = of_k;
    const std::string said =
        said_of([&] { forward(packed.args(false), lab::execution_for(Isa::scalar, 1)); });
    for (const float y : packed.call.y) EXPECT_TRUE(std::isnan(y) || said.empty());
    Floats grad(packed.call.y.size(), 1);
    const ForwardArgs args = packed.args(false);
    EXPECT_EQ(said_of([&] {
                packed_gradients(packed, args, grad, [&](const BackwardArgs& each) {
                  backward(each, lab::execution_for(Isa::scalar, 1));
                });
              }),
              said);
    return said;
  };
  const Numbers fine = {0, 2, 8};
  EXPECT_EQ(message(fine, {0, 4, 9}), "");
  EXPECT_EQ(message({1, 2, 5}, {0, 4, 7}), "attention: query_starts[0] is 1; must be 0");
  EXPECT_EQ(message({0, 3, 2}, {0, 4, 7}), "attention: query_starts[2] is 2; must be 3 or more");
  EXPECT_EQ(message({0, 2, 9}, {0, 4, 7}), "attention: query_starts ends with 9; q has 8 rows");
  EXPECT_EQ(message(fine, {-1, 4, 7}), "attention: key_starts[0] is -1; must be 0");
  EXPECT_EQ(message(fine, {0, 4, 10}), "attention: key_starts ends with 10; k has 9 rows");
  EXPECT_EQ(message(fine, {0, 4}), "attention: key_starts has shape (2); query_starts has (3)");
  EXPECT_EQ(message({}, {}), "attention: query_starts has shape (0); must be (sequences + 1)");
}

TEST(AttentionPacked, WhatDoesNotGoTogetherIsRefused) {
  const auto message = [](const std::function<void(ForwardArgs&)>& change, std::int64_t batch = 1) {
    Packed packed({2, 3}, {4, 3}, {});
    Call call(batch, 4, 2, 8, 9, 12, 9);
    packed.call = call;
    ForwardArgs args = packed.args(false);
    change(args);
    return said_of([&] { forward(args, lab::execution_for(Isa::scalar, 1)); });
  };
  const Numbers two = {3, 3}, table = {0, 0};
  Floats bias(4 * 8 * 9);
  EXPECT_EQ(message([](ForwardArgs& args) { args.key_starts = {}; }),
            "attention: query_starts is given without key_starts or blocks; what keys the "
            "sequences have must be said too");
  EXPECT_EQ(message([](ForwardArgs& args) { args.query_starts = {}; }),
            "attention: key_starts is given without query_starts");
  EXPECT_EQ(message([&](ForwardArgs& args) { args.key_end = of(two); }),
            "attention: key_end is given beside key_starts, which says what keys the sequences "
            "have");
  EXPECT_EQ(message([&](ForwardArgs& args) { args.blocks = of(table, 2); }),
            "attention: key_starts is given beside blocks; key_end says how many keys they hold");
  EXPECT_EQ(message([&](ForwardArgs& args) { args.bias = view(bias.data(), {1, 4, 8, 9}); }),
            "attention: bias is given beside query_starts; leave it out, or call each sequence by "
            "itself");
  EXPECT_EQ(message([](ForwardArgs&) {}, 2),
            "attention: q has a batch of 2 beside query_starts; must be 1, as packed sequences lie "
            "one behind the other");
}

TEST(AttentionPacked, StartsThatLeadOutOfTheArraysAreClampedOnADevice) {
  Packed right({3, 5}, {4, 5}, {.causal = Causal::top_left});
  right.query_starts = {0, 3, 11};
  right.key_starts = {0, 4, 11};
  Floats grad = numbers(std::ssize(right.call.y), 7);
  const Execution plain = lab::execution_for(Isa::scalar, 1);
  forward(right.args(false), plain);
  const Gradients expected = packed_gradients(
      right, right.args(false), grad, [&](const BackwardArgs& each) { backward(each, plain); });
  int devices = 0;
  const auto spoilt = [&] {
    Packed packed = right;
    packed.query_starts = {-9, 3, 1000};
    packed.key_starts = {std::int64_t{-1} << 60, 4, std::int64_t{1} << 60};
    return packed;
  };
  for_each_way<ForwardArgs>(forward_operation(), [&](const auto& name, const auto& run) {
    Packed packed = spoilt();
    if (name.find(" on emu") == std::string::npos || !run(packed.args(false))) return;
    ++devices;
    EXPECT_TRUE(same(packed.call.y, right.call.y)) << name;
  });
  for_each_way<BackwardArgs>(backward_operation(), [&](const auto& name, const auto& run) {
    Packed packed = spoilt();
    if (name.find(" on emu") == std::string::npos) return;
    packed.call = right.call;
    const Gradients found =
        packed_gradients(packed, packed.args(false), grad,
                         [&](const BackwardArgs& each) { devices += run(each) ? 1 : 0; });
    EXPECT_TRUE(same(found.q, expected.q) && same(found.k, expected.k) && same(found.v, expected.v))
        << name;
  });
#if defined(ISOBIT_EMULATOR)
  EXPECT_EQ(devices, 4);  // three forward, one backward
#endif
}

// Keys of each sequence in blocks of a pool, out of order; all that belongs to no sequence is NaN,
// and places in the table that hold no key lead nowhere.
struct Pooled {
  Call call;  // its k and v are the pools'
  std::int64_t block, places;
  Numbers begin, end, table, query_starts;
  std::vector<Call> alone;
  Options options;

  // Of as many queries as are given; in a batch they are alike.
  Pooled(const Numbers& queries, Numbers first, Numbers last, std::int64_t keys_of_a_block,
         bool packed, const Options& given)
      : call(1, 4, 2, 1, 1, 12, 9),
        block(keys_of_a_block),
        begin(std::move(first)),
        end(std::move(last)),
        options(given) {
    const std::int64_t count = std::ssize(queries);
    places = 1 + *std::max_element(end.begin(), end.end()) / block;
    const std::int64_t pool = count * places + 1;
    const std::int64_t total = std::accumulate(queries.begin(), queries.end(), std::int64_t{0});
    call = packed ? Call(1, 4, 2, total, 1, 12, 9) : Call(count, 4, 2, queries[0], 1, 12, 9);
    call.k.assign(static_cast<std::size_t>(pool * 2 * block * 12), kNan);
    call.v.assign(static_cast<std::size_t>(pool * 2 * block * 9), kNan);
    if (packed) query_starts = starts_of(queries);
    table.assign(static_cast<std::size_t>(count * places), -1);
    for (std::int64_t s = 0; s < count; ++s) {
      Call& one = alone.emplace_back(1, 4, 2, queries[s], end[s] - begin[s], 12, 9);
      one.k = numbers(std::ssize(one.k), static_cast<std::uint32_t>(20 + s));
      one.v = numbers(std::ssize(one.v), static_cast<std::uint32_t>(40 + s));
      for (std::int64_t key = begin[s]; key < end[s]; ++key) {
        const std::int64_t place = key / block;
        const std::int64_t found = pool - 1 - (place * count + s);
        table[s * places + place] = found;
        for (std::int64_t h = 0; h < 2; ++h) {
          const std::int64_t from = h * one.seq_k + key - begin[s],
                             to = (found * 2 + h) * block + key % block;
          std::copy_n(one.k.begin() + from * 12, 12, call.k.begin() + to * 12);
          std::copy_n(one.v.begin() + from * 9, 9, call.v.begin() + to * 9);
        }
      }
      one.q = packed ? part(call.q, 4, total, 12, query_starts[s], query_starts[s + 1])
                     : Floats(call.q.begin() + s * std::ssize(one.q),
                              call.q.begin() + (s + 1) * std::ssize(one.q));
    }
  }
  ForwardArgs args() {
    ForwardArgs args = call.args(options);
    const std::int64_t pool = std::ssize(call.k) / (2 * block * 12);
    args.k = view(call.k.data(), {pool, 2, block, 12});
    args.v = view(call.v.data(), {pool, 2, block, 9});
    args.blocks = of(table, std::ssize(end));
    args.key_begin = of(begin);
    args.key_end = of(end);
    if (!query_starts.empty()) args.query_starts = of(query_starts);
    return args;
  }
  Floats rows_of(const Floats& all, std::int64_t cols, std::int64_t s) const {
    if (!query_starts.empty())
      return part(all, 4, call.seq_q, cols, query_starts[s], query_starts[s + 1]);
    const std::int64_t size = 4 * call.seq_q * cols;
    return {all.begin() + s * size, all.begin() + (s + 1) * size};
  }
};

int expect_the_bits_of_keys_in_a_row(Pooled given) {
  for (Call& one : given.alone)
    forward(one.args(given.options), lab::execution_for(Isa::scalar, 1));
  int ways = 0;
  for_each_way<ForwardArgs>(forward_operation(), [&](const auto& name, const auto& run) {
    Pooled pooled = given;
    if (!run(pooled.args())) return;
    ++ways;
    for (std::int64_t s = 0; s < std::ssize(given.alone); ++s) {
      const Call& one = given.alone[s];
      EXPECT_TRUE(same(pooled.rows_of(pooled.call.y, 9, s), one.y)) << name << ' ' << s;
      EXPECT_TRUE(same(pooled.rows_of(pooled.call.lse, 1, s), one.lse)) << name << ' ' << s;
      EXPECT_TRUE(same(pooled.rows_of(pooled.call.sum, 1, s), one.sum)) << name << ' ' << s;
    }
  });
  return ways;
}

TEST(AttentionBlocks, OfAnySizeHaveTheBitsOfKeysInARow) {
  const Options options{.causal = Causal::bottom_right, .window = 200};
  for (const std::int64_t block : {1, 16, 100, 128, 256, 5000})
    for (const std::int64_t queries : {1, 20})
      EXPECT_GT(expect_the_bits_of_keys_in_a_row({{queries, queries, queries},
                                                  {0, 0, 0},
                                                  {300, 0, 131},
                                                  block,
                                                  false,
                                                  queries == 1 ? Options{} : options}),
                2);
}

TEST(AttentionBlocks, OfPackedSequencesAndManyRunsHaveTheBitsOfKeysInARow) {
  expect_the_bits_of_keys_in_a_row(
      {{1, 30, 0, 4}, {0, 0, 0, 0}, {2300, 300, 5, 4}, 48, true, {.causal = Causal::bottom_right}});
  expect_the_bits_of_keys_in_a_row({{1, 2}, {0, 0}, {4200, 77}, 16, true, {.softcap = 3}});
}

// A rolling cache, of which the first keys are gone: their blocks may be too.
TEST(AttentionBlocks, MayBeginAtAnyKey) {
  for (const std::int64_t block : {16, 128, 256})
    for (const std::int64_t queries : {1, 3})
      expect_the_bits_of_keys_in_a_row({{queries, queries},
                                        {40, 130},
                                        {300, 290},
                                        block,
                                        false,
                                        {.causal = Causal::bottom_right}});
}

TEST(AttentionBlocks, MayHoldNanBehindAMask) {
  Pooled pooled({20, 20}, {0, 0}, {150, 150}, 16, false, {.causal = Causal::bottom_right});
  const std::int64_t key = 140, found = pooled.table[key / 16];
  pooled.call.v[((found * 2) * 16 + key % 16) * 9] = kNan;
  pooled.alone[0].v[key * 9] = kNan;
  EXPECT_GT(expect_the_bits_of_keys_in_a_row(pooled), 2);
}

TEST(AttentionBlocks, ThatAreNoneAreRefusedBeforeAnythingIsWritten) {
  const auto message = [](const std::function<void(Pooled&)>& change,
                          const std::function<void(ForwardArgs&)>& change_args = {}) {
    Pooled pooled({2, 2}, {0, 0}, {20, 5}, 16, false, {});
    change(pooled);
    ForwardArgs args = pooled.args();
    if (change_args) change_args(args);
    const std::string said = said_of([&] { forward(args, lab::execution_for(Isa::scalar, 1)); });
    for (const float y : pooled.call.y) EXPECT_TRUE(std::isnan(y) || said.empty());
    return said;
  };
  const auto nothing = [](Pooled&) {};
  EXPECT_EQ(message(nothing), "");
  EXPECT_EQ(message([](Pooled& pooled) { pooled.table[1] = 5; }),
            "attention: blocks[0, 1] is 5; must be from 0 to below 5, the number of blocks of k");
  EXPECT_EQ(message([](Pooled& pooled) { pooled.table[2] = -1; }),
            "attention: blocks[1, 0] is -1; must be from 0 to below 5, the number of blocks of k");
  EXPECT_EQ(message([](Pooled& pooled) { pooled.end[0] = 33; }),
            "attention: key_end[0] is 33; must be from 0 to 32, the number of keys");
  EXPECT_EQ(message(nothing, [](ForwardArgs& args) { args.key_begin = args.key_end = {}; }),
            "attention: blocks is given without key_end, the number of keys of each sequence");
  EXPECT_EQ(message(nothing,
                    [](ForwardArgs& args) {
                      args.blocks.shape = {1, 4};
                      args.blocks.strides = {4, 1};
                    }),
            "attention: blocks has 1 rows; there are 2 sequences");
}

}  // namespace
}  // namespace isobit::attention::packed_sequences
