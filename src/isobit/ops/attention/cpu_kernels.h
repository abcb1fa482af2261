// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels*.cpp offer once for each instruction set: what becomes of tiles of scores and of
// sums; the products themselves are matmul's. Numbers are floats, or doubles beside f64.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/ops/matmul/cpu_kernels.h"

namespace isobit::attention {

// Products that become exponents: of a query along keys, or of a key along queries. What is outside
// of [begin, end) is not allowed.
struct Line {
  const void* products;
  void* exponents;  // may be products
  std::int64_t count, begin, end;
  const std::byte *bias, *mask;  // or null
  std::int64_t bias_step, mask_step;
  const std::byte* slope = nullptr;  // a number, or null
  std::int64_t distance = 0;  // of the first key from its query, and one more of each after it
};

// Exponents whose rows are keys and whose columns are queries, which become weights. Rows below
// kPanel that there are not count as +0, and are written.
struct Columns {
  void* values;  // of `cols` in a row
  std::int64_t cols, keys;
  bool are_products;  // which no line has treated
  void *max, *sum;    // of each column
};
// The same of one query's exponents, adjacent.
struct Keys {
  void* values;
  std::int64_t keys;
  bool are_products;
  void *max, *sum;
};

// What is known of queries: the largest exponent and the sum of each and, `rows` times, sums of
// weights times v. Of one query, or of `cols` side by side.
struct State {
  void *max, *sum, *rows;
};

// The results of queries: where they go, and elements from one to the next.
struct Results {
  std::byte *y, *lse, *max, *sum;  // but for y null where they are not wanted
  std::int64_t y_row, y_col, lse_step, max_step, sum_step;
};

// One query's part of a panel, in backward.
struct Gradients {
  const void* exponents;  // null: products
  const void* products;
  const void* kept;  // factors of dropout, or null
  std::int64_t keys;
  const void *max, *inverse, *mean;
  void* weights;       // becomes the probabilities that reach y; may be products
  void* of_weights;    // becomes the gradients of scores
  std::byte* of_bias;  // the same, in the type of x; or null
  std::int64_t of_bias_step;
  bool capped;
};

struct Kernels {
  void (*line)(const void* scaling, const Line& line);
  void (*weigh_columns)(const void* scaling, const Columns& columns);
  void (*weigh_keys)(const void* scaling, const Keys& keys);
  // to = from and to, as one.
  void (*fold)(const State& from, const State& to, std::int64_t rows, std::int64_t cols);
  // Of `count` queries of `cols`.
  void (*finish)(const State& state, std::int64_t rows, std::int64_t cols, std::int64_t count,
                 const Results& results);
  void (*gradients)(const void* scaling, const Gradients& gradients);
  // to = (from + 0) factor, in the type of x.
  void (*write)(const void* from, std::int64_t count, double factor, std::byte* to,
                std::int64_t step);
  // The sum of products of two rows, as numbers.
  void (*dot)(const std::byte* a, std::int64_t a_step, const std::byte* b, std::int64_t b_step,
              std::int64_t count, void* to);
  // Whether all of some elements are finite.
  bool (*finite)(const std::byte* from, std::int64_t step, std::int64_t count);
  // Numbers are rounded to the type of x.
  void (*round)(void* values, std::int64_t count);
};

// Weights as matmul's tiles of b have them, 16 queries a panel: exponents become such weights, and
// what was in their place is used up; or a whole panel's weights that others made. Products of
// tiles stand between begin and end, which give the registers their form and give them back.
struct TileKernels {
  static constexpr std::int64_t kPitch = 4096;  // bytes of a panel

  void (*begin)();
  void (*end)();
  void (*multiply)(const matmul::Tiles& tiles);
  void (*weigh)(const void* scaling, const Columns& columns, void* tiles);
  void (*pack)(const void* weights, std::int64_t cols, void* tiles);
};

ISOBIT_IN_EACH_ISA(const Kernels& kernels(DType x);
                   const TileKernels* tile_kernels();)  // null where there are none

}  // namespace isobit::attention
