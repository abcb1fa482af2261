// SPDX-License-Identifier: Apache-2.0
// Keys in blocks of a pool have the bits of keys in a row in every variant that takes them,
// whatever belongs to no sequence; and blocks that are none are refused before anything is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "attention_sequences.h"

namespace isobit::attention::keys_in_blocks {
namespace {

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

// A panel whose last key alone is in another block.
TEST(AttentionBlocks, MayHoldOneKeyInTheLast) {
  for (const std::int64_t queries : {1, 20})
    expect_the_bits_of_keys_in_a_row(
        {{queries, queries, queries}, {0, 0, 0}, {65, 129, 64}, 64, false, {}});
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
}  // namespace isobit::attention::keys_in_blocks
