// SPDX-License-Identifier: Apache-2.0
// The order in which backward takes blocks of queries and keys. Each block has a sum for each of
// its queries and of its keys; sums of neighbors are added as pairs, and those again. A square of
// blocks is done before the next square of its size begins:
//
//    1  2 |  5  6          keys to the right,
//    3  4 |  7  8          queries downwards
//   ------+------
//    9 10 | 13 14
//   11 12 | 15 16
//
// So sums wait only for those of the square beside them and below them: at each level half as many
// as at the level above it, and memory grows with the length.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace isobit::attention {

enum class Side { queries, keys };

// What Squares::run does with `count` blocks of a side, from `first` on. A place counts the blocks
// whose sums lie before it in the side's room.
//   block(row, col, queries, keys)       computes a block's sums, to these places
//   clear(side, first, count, place)     zeros instead of sums
//   add(side, first, count, to, from)    sums of sums
//   finish(side, first, count, place)    these sums are whole
//   is_empty(row, rows, col, cols)       whether nothing is there to be summed
//   skip(row, rows, col, cols)           what is to be done there all the same
class Squares {
 public:
  static constexpr std::int64_t kNowhere = -1;  // queries' sums, which are whole after the block

  // So many blocks of queries and of keys.
  Squares(std::int64_t rows, std::int64_t cols)
      : rows_(std::max<std::int64_t>(1, rows)),
        cols_(std::max<std::int64_t>(1, cols)),
        row_levels_(levels(rows_)),
        col_levels_(levels(cols_)) {}

  // Blocks whose sums the rooms hold.
  std::int64_t room(Side side) const {
    return side == Side::keys ? waiting(cols_, row_levels_, row_levels_)
           : col_levels_ == 0 ? 0
                              : waiting(rows_, col_levels_, col_levels_ - 1);
  }

  template <class Steps>
  void run(Steps& steps) const {
    square(steps, std::max(row_levels_, col_levels_), 0, 0, kNowhere, kNowhere);
  }

 private:
  static int levels(std::int64_t blocks) {
    return std::bit_width(static_cast<std::uint64_t>(blocks - 1));
  }
  static std::int64_t side_of(int level) { return std::int64_t{1} << level; }

  // A room begins with the sums of a square of that level, which become whole there; behind them
  // those that wait, at each level below `below`.
  static std::int64_t waiting(std::int64_t blocks, int below, int level) {
    std::int64_t room = std::min(side_of(level), blocks);
    for (int each = 0; each < below; ++each) room += std::min(side_of(each), blocks);
    return room;
  }
  std::int64_t waiting_queries(int level) const { return waiting(rows_, level, col_levels_ - 1); }
  std::int64_t waiting_keys(int level) const { return waiting(cols_, level, row_levels_); }

  // Sums of queries are whole after half of a square that has all columns, if no smaller one has;
  // those of keys after a square that has all rows.
  template <class Steps>
  void square(Steps& steps, int level, std::int64_t row, std::int64_t col, std::int64_t queries,
              std::int64_t keys) const {
    if (level == row_levels_) keys = 0;
    if (level == 0)
      steps.block(row, col, queries, keys);
    else
      quarters(steps, level, row, col, queries, keys);
    if (level == row_levels_)
      steps.finish(Side::keys, col, std::min(side_of(level), cols_ - col), keys);
  }

  template <class Steps>
  void quarters(Steps& steps, int level, std::int64_t row, std::int64_t col, std::int64_t queries,
                std::int64_t keys) const {
    const bool of_queries = level <= col_levels_, of_keys = level <= row_levels_;  // two each
    const std::int64_t half = side_of(level - 1);
    bool has_keys[2] = {};  // sums in their place
    for (std::int64_t r = 0; r < 2 && row + r * half < rows_; ++r) {
      const std::int64_t first_row = row + r * half, rows = std::min(half, rows_ - first_row),
                         to_queries = level == col_levels_ ? 0
                                      : of_queries         ? queries + r * half
                                                           : kNowhere;
      bool has_queries = false;
      for (std::int64_t c = 0; c < 2 && col + c * half < cols_; ++c) {
        const std::int64_t first_col = col + c * half, cols = std::min(half, cols_ - first_col),
                           to_keys = of_keys ? keys + c * half : kNowhere;
        if (of_queries && of_keys && steps.is_empty(first_row, rows, first_col, cols)) {
          steps.skip(first_row, rows, first_col, cols);
          continue;
        }
        const std::int64_t more_queries = has_queries ? waiting_queries(level - 1) : to_queries,
                           more_keys = has_keys[c] ? waiting_keys(level - 1) : to_keys;
        square(steps, level - 1, first_row, first_col, more_queries, more_keys);
        if (has_queries) steps.add(Side::queries, first_row, rows, to_queries, more_queries);
        if (has_keys[c]) steps.add(Side::keys, first_col, cols, to_keys, more_keys);
        has_queries = has_keys[c] = true;
      }
      if (of_queries && !has_queries) steps.clear(Side::queries, first_row, rows, to_queries);
      if (level == col_levels_) steps.finish(Side::queries, first_row, rows, to_queries);
    }
    for (std::int64_t c = 0; of_keys && c < 2 && col + c * half < cols_; ++c)
      if (const std::int64_t first = col + c * half; !has_keys[c])
        steps.clear(Side::keys, first, std::min(half, cols_ - first), keys + c * half);
  }

  std::int64_t rows_, cols_;
  int row_levels_, col_levels_;
};

}  // namespace isobit::attention
