// SPDX-License-Identifier: Apache-2.0
// Backward of long sequences takes blocks of queries and keys in an order of its own: the sums are
// those of one row of blocks after the other.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attention_calls.h"
#include "isobit/ops/attention/cpu_squares.h"

namespace isobit::attention {
namespace {

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() ? b : b.empty() ? a : '(' + a + '+' + b + ')';
}

// Instead of sums: which blocks are in them, in the shape of their tree.
class Recorder {
 public:
  Recorder(std::int64_t rows, std::int64_t cols, const Squares& squares,
           std::set<std::pair<std::int64_t, std::int64_t>> empty)
      : rows_(rows),
        cols_(cols),
        empty_(std::move(empty)),
        rooms_{std::vector<std::string>(static_cast<std::size_t>(squares.room(Side::queries))),
               std::vector<std::string>(static_cast<std::size_t>(squares.room(Side::keys)))} {}

  std::map<std::int64_t, std::string>& of(Side side) { return sums_[side == Side::keys]; }

  void block(std::int64_t row, std::int64_t col, std::int64_t queries, std::int64_t keys) {
    EXPECT_TRUE(taken_.emplace(row, col).second) << row << ' ' << col;
    if (queries == Squares::kNowhere)
      of(Side::queries)[row] = std::to_string(col);
    else
      at(Side::queries, queries) = std::to_string(col);
    at(Side::keys, keys) = std::to_string(row);
  }
  void clear(Side side, std::int64_t, std::int64_t count, std::int64_t place) {
    for (std::int64_t i = 0; i < count; ++i) at(side, place + i) = "";
  }
  void add(Side side, std::int64_t, std::int64_t count, std::int64_t to, std::int64_t from) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::string& sum = at(side, to + i);
      const std::string& more = at(side, from + i);
      sum = joined(sum, more);
    }
  }
  void finish(Side side, std::int64_t first, std::int64_t count, std::int64_t place) {
    for (std::int64_t i = 0; i < count; ++i) {
      EXPECT_FALSE(of(side).contains(first + i));
      of(side)[first + i] = at(side, place + i);
    }
  }
  bool is_empty(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) const {
    EXPECT_LE(row + rows, rows_);
    EXPECT_LE(col + cols, cols_);
    for (std::int64_t r = row; r < row + rows; ++r)
      for (std::int64_t c = col; c < col + cols; ++c)
        if (!empty_.contains({r, c})) return false;
    return true;
  }
  void skip(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
    for (std::int64_t r = row; r < row + rows; ++r)
      for (std::int64_t c = col; c < col + cols; ++c)
        EXPECT_TRUE(taken_.emplace(r, c).second) << r << ' ' << c;
  }

 private:
  std::string& at(Side side, std::int64_t place) {
    return rooms_[side == Side::keys].at(static_cast<std::size_t>(place));
  }
  std::int64_t rows_, cols_;
  std::set<std::pair<std::int64_t, std::int64_t>> empty_, taken_;
  std::vector<std::string> rooms_[2];
  std::map<std::int64_t, std::string> sums_[2];
};

// The tree of neighbors: of an even block and the next, of such pairs, and so on.
std::string tree(std::int64_t first, std::int64_t count, std::int64_t all,
                 const std::function<bool(std::int64_t)>& is_there) {
  if (first >= all) return "";
  if (count == 1) return is_there(first) ? std::to_string(first) : "";
  return joined(tree(first, count / 2, all, is_there),
                tree(first + count / 2, count / 2, all, is_there));
}

TEST(AttentionSquares, SumsAreTreesOfNeighborsInLittleRoom) {
  const std::function<bool(std::int64_t, std::int64_t)> kinds[] = {
      [](std::int64_t, std::int64_t) { return false; },
      [](std::int64_t row, std::int64_t col) { return col > row; },
      [](std::int64_t row, std::int64_t col) { return col > row || row - col > 1; },
      [](std::int64_t row, std::int64_t) { return row % 3 == 1; },
      [](std::int64_t, std::int64_t) { return true; }};
  for (std::int64_t rows = 1; rows < 11; ++rows)
    for (std::int64_t cols = 1; cols < 11; ++cols)
      for (const auto& is_empty : kinds) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols));
        const Squares squares(rows, cols);
        std::set<std::pair<std::int64_t, std::int64_t>> empty;
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < cols; ++c)
            if (is_empty(r, c)) empty.emplace(r, c);
        Recorder recorder(rows, cols, squares, empty);
        squares.run(recorder);
        // Alone in their row or column, blocks are taken in any case.
        const bool skips = rows > 1 && cols > 1;
        ASSERT_EQ(std::ssize(recorder.of(Side::queries)), rows);
        ASSERT_EQ(std::ssize(recorder.of(Side::keys)), cols);
        for (const auto& [row, sum] : recorder.of(Side::queries))
          EXPECT_EQ(sum, tree(0, 16, cols, [&, r = row](std::int64_t col) {
                      return !skips || !is_empty(r, col);
                    }));
        for (const auto& [col, sum] : recorder.of(Side::keys))
          EXPECT_EQ(sum, tree(0, 16, rows, [&, c = col](std::int64_t row) {
                      return !skips || !is_empty(row, c);
                    }));
        EXPECT_LE(squares.room(Side::queries), 3 * rows + (cols > rows ? 4 * rows : 0));
        EXPECT_LE(squares.room(Side::keys), 3 * cols + (rows > cols ? 4 * cols : 0));
      }
}

// `naive` has a row of keys for each query, and all of its sums one after the other.
TEST(AttentionSquares, LongSequencesHaveTheBitsOfOneRowAfterTheOther) {
  struct Case {
    std::int64_t heads, seq_q, seq_k;
    Options options;
  };
  const Case cases[] = {{4, 1100, 4200, {}},
                        {1, 8300, 4200, {.causal = Causal::bottom_right}},
                        {1, 8300, 8300, {.causal = Causal::top_left, .window = 300}}};
  const std::size_t count = lab::thinned() ? 1 : std::size(cases);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [heads, seq_q, seq_k, options] = cases[i];
    Call call(1, heads, 1, seq_q, seq_k, 3, 2);
    const ForwardArgs args = call.args(options);
    forward(args, lab::execution_for(Machine::here().isa, 3));
    const Floats grad = numbers(std::ssize(call.y), 5);
    Gradients first;
    int ways = 0;
    for_each_way<BackwardArgs>(
        backward_operation(),
        [&](const std::string& name, const auto& run) {
          bool ran = false;
          const Gradients found =
              gradients(call, args, grad, [&](const BackwardArgs& each) { ran = run(each); });
          if (!ran) return;
          if (ways++ == 0) first = found;
          EXPECT_TRUE(same(found.q, first.q)) << name << ' ' << i;
          EXPECT_TRUE(same(found.k, first.k)) << name << ' ' << i;
          EXPECT_TRUE(same(found.v, first.v)) << name << ' ' << i;
        },
        false);
    EXPECT_GT(ways, 1);
  }
}

// Bias has a gradient for each pair: also for those that no block sees.
TEST(AttentionSquares, GradientsOfBiasAreZeroWhereNothingIsSeen) {
  Call call(1, 1, 1, 4200, 8300, 1, 1);
  Floats bias(4200 * 8300, 0.5f);
  ForwardArgs args = call.args({.causal = Causal::top_left, .window = 5});
  args.bias = view(bias.data(), {1, 1, 4200, 8300});
  const Execution execution = lab::execution_for(Machine::here().isa, 3);
  forward(args, execution);
  const Gradients found = gradients(call, args, execution, numbers(std::ssize(call.y), 5));
  std::int64_t others = 0;
  for (std::int64_t query = 0; query < 4200; ++query)
    for (std::int64_t key = 0; key < 8300; ++key)
      if (key > query || query - key >= 5)
        others += found.bias[static_cast<std::size_t>(query * 8300 + key)] != 0;
  EXPECT_EQ(others, 0);
}

}  // namespace
}  // namespace isobit::attention
