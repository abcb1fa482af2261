// SPDX-License-Identifier: Apache-2.0
// Packed sequences of attention have the bits of sequences alone in every variant that takes them,
// whatever belongs to no sequence; and what would lead out of the arrays is refused before anything
// is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "attention_sequences.h"

namespace isobit::attention::packed_sequences {
namespace {

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

// Prompts and single tokens in one call, of which each goes its own way.
TEST(AttentionPacked, PromptsAndTokensHaveTheBitsThatTheyHaveAlone) {
  for (const double dropout : {0.0, 0.3})
    expect_the_bits_of_sequences_alone({{1, 40, 2, 0, 1},
                                        {4200, 90, 300, 5, 1},
                                        {.causal = Causal::bottom_right, .dropout = dropout}},
                                       false, false);
}

TEST(AttentionPacked, KeysOfFewQueriesAreReadWhereTheyLie) {
  const auto variant_of = [](const Numbers& queries, const Numbers& keys) {
    Packed packed(queries, keys, {});
    const Operation& operation = forward_operation();
    const Arguments given = operation.make_arguments();
    *static_cast<ForwardArgs*>(given.get()) = packed.args(false);
    const int chosen = operation.default_variant(given, Machine::here());
    return std::string(operation.variants()[static_cast<std::size_t>(chosen)].name);
  };
  EXPECT_EQ(variant_of({1, 1, 2}, {300, 4000, 7}), "decode");
  EXPECT_EQ(variant_of({1, 40, 2}, {300, 90, 7}), "mixed");
  EXPECT_EQ(variant_of({40, 1}, {90, 0}), "flash");
}

// Each took as much memory for runs of keys as the longest.
TEST(AttentionPacked, ManyShortSequencesBesideALongOneTakeLittleMemory) {
  const auto bytes_of = [](std::int64_t shorts) {
    Numbers queries(static_cast<std::size_t>(shorts + 1), 1), keys(queries.size(), 5);
    keys[0] = 20'000;
    Packed packed(queries, keys, {});
    std::int64_t bytes = 0;
    Execution execution = lab::execution_for(Isa::scalar, 1);
    execution.allocator = {[](void* self, std::size_t count) {
                             *static_cast<std::int64_t*>(self) += static_cast<std::int64_t>(count);
                             return std::malloc(count);
                           },
                           [](void*, void* memory, std::size_t) { std::free(memory); }, &bytes};
    forward(packed.args(false), execution);
    return bytes;
  };
  const std::int64_t alone = bytes_of(0);
  EXPECT_GT(alone, 0);
  EXPECT_LT(bytes_of(100) - alone, 64 << 10);
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
  for_each_way<ForwardArgs>(
      forward_operation(),
      [&](const auto& name, const auto& run) {
        Packed packed = spoilt();
        if (name.find(" on emu") == std::string::npos || !run(packed.args(false))) return;
        ++devices;
        EXPECT_TRUE(same(packed.call.y, right.call.y)) << name;
      },
      true);
  for_each_way<BackwardArgs>(
      backward_operation(),
      [&](const auto& name, const auto& run) {
        Packed packed = spoilt();
        if (name.find(" on emu") == std::string::npos) return;
        packed.call = right.call;
        const Gradients found =
            packed_gradients(packed, packed.args(false), grad,
                             [&](const BackwardArgs& each) { devices += run(each) ? 1 : 0; });
        EXPECT_TRUE(same(found.q, expected.q) && same(found.k, expected.k) &&
                    same(found.v, expected.v))
            << name;
      },
      true);
#if defined(ISOBIT_EMULATOR)
  EXPECT_EQ(devices, 4);  // three forward, one backward
#endif
}

}  // namespace
}  // namespace isobit::attention::packed_sequences
