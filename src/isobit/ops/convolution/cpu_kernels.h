// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels*.cpp offer once for each instruction set. Sums, weights and staged elements are
// floats, or doubles of doubles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"

namespace isobit::convolution {

// Rows of weights times lines that lie anyhow: c[i * pitch + j] = the sum over k of
// a[k][i] b[offsets[k] + j]. Panels of a have at most `rows` rows, as equal as they can be, with
// room for `rows`. Whole vectors of b are read and of c written: `cols` elements may follow both.
struct Product {
  const void *a, *b;
  const std::int64_t* offsets;
  void* c;
  std::int64_t pitch, m, n, k;                         // at most 512 k of gathered columns
  enum Start { from_zero, onto_sum, going_on } start;  // onto_sum: a sum of its own, then added
  // Where columns are gathered: those of c are lines of so many columns of b, which begin there.
  const std::int64_t* lines = nullptr;
  std::int64_t line_cols = 0;
};
// So many panels of a are worth a panel of b: lines that do not straddle two of the caches'.
inline constexpr std::int64_t kWorthPacking = 6;

struct ProductKernel {
  std::int64_t rows, cols;
  void (*multiply)(const Product& product);
  // The same with one row of a, whose elements lie a panel's row apart, and for each row of c a b
  // that lies so many elements behind the last.
  void (*multiply_one)(const Product& product, std::int64_t b_step);
};

// One filter along a row of results, or along two whose windows are a row of sources apart: tap row
// v of `lead` is what tap row v - 1 of `trail` meets.
struct Rows {
  const void* source;           // of the first tap row of lead
  const std::int64_t* offsets;  // of what a tap row has
  std::int64_t row_step, in_row, tap_rows;
  const void* weights;  // tap row after tap row
  void *lead, *trail;   // sums; trail may be null
  std::int64_t count;   // of results; as many vectors are written as have one
};
using RowsKernel = void (*)(const Rows& rows);

// to[i] = from[i * stride], widened.
using StageKernel = void (*)(const std::byte* from, std::int64_t stride, std::int64_t count,
                             void* to);

ISOBIT_IN_EACH_ISA(const ProductKernel& product_kernel(DType real);
                   RowsKernel rows_kernel(DType real); StageKernel stage_kernel(DType element);)

}  // namespace isobit::convolution
