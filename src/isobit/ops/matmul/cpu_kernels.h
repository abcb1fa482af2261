// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels*.cpp offer once for each instruction set. Sums are floats, or doubles of
// doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/ops/matmul/matmul.h"

namespace isobit::matmul {

// A part of a, whose lanes are rows, or of b, whose lanes are columns.
struct Lanes {
  const std::byte* data;
  std::int64_t stride, k_stride;  // elements from lane to lane, and along k
  std::int64_t count;
};

// Packed parts of a and b that are multiplied: c[i * c_pitch + j] = the sum over k, or that much
// more.
struct Block {
  const void *a, *b;
  void* c;
  std::int64_t c_pitch, m, n, k;
  bool adds;
  // Of elements alone. k of a chain: sums of chains are added one after the other.
  std::int64_t panel = std::numeric_limits<std::int64_t>::max();
  // c has no more than n columns; elsewhere it has whole vectors of them.
  bool in_results = false;
  // These are the last sums, which become results, with a bias, as FinishKernel makes them.
  bool ends = false;
  const void* bias = nullptr;
};

// Packed parts. Those of a are panels of at most `rows` rows, as equal as they can be, with room
// for `row_pitch`; those of b are panels of `cols` columns, the last of `width` if it has no more.
struct PackKernels {
  std::int64_t rows, row_pitch, cols, width;
  void (*pack_a)(const Lanes& lanes, std::int64_t k, void* to);
  void (*pack_b)(const Lanes& lanes, std::int64_t k, void* to);
  void (*multiply)(const Block& block);
  // In the order of core/amx.h, of bf16 alone. c is then the sum of all steps before, or nothing.
  void (*multiply_in_steps)(const Block& block);
};

// The same for pairs of elements along k, in panels of the same shapes. Packing returns the
// smallest biased exponent of an element that is not 0.
struct PairKernels {
  // What the exponents of both must come to, lest a sum be subnormal: a product has 15 places after
  // its first, and is at least 2^(a - 127) 2^(b - 127).
  static constexpr int kLeastExponents = 2 * 127 + 14 - 126;

  int (*pack_a)(const Lanes& lanes, std::int64_t k, void* to);
  int (*pack_b)(const Lanes& lanes, std::int64_t k, void* to);
  void (*multiply)(const Block& block);
  void (*multiply_widened)(const Block& block);  // any elements: a as PackKernels pack it
  // A panel of b with so many columns, as PackKernels pack it.
  void (*widen_b)(const void* pairs, std::int64_t cols, std::int64_t k, void* to);
  // As many instructions of either kind, to be timed: a pair is two products.
  void (*add_pairs)();
  void (*add_products)();
};

// Parts of a and b as tiles of AMX, and sums that are written, or added to. Panels are 16 lanes,
// one tile a step of k after the other. c has whole panels of rows and columns.
struct Tiles {
  const void *a, *b;
  std::int64_t a_pitch, b_pitch;  // bytes from panel to panel
  float* c;
  std::int64_t c_pitch, m, n, steps;
  bool adds;
};
struct TileKernels {
  static constexpr std::int64_t kLanes = 16, kBytes = 1024;  // of a tile

  // What a panel or the last step lacks is 0.
  void (*pack_a)(const Lanes& lanes, std::int64_t k, void* to, std::int64_t pitch);
  void (*pack_b)(const Lanes& lanes, std::int64_t k, void* to, std::int64_t pitch);
  void (*multiply)(const Tiles& tiles);
  bool (*works)();  // whether the processor, which has AMX, adds as core/amx.h says
};

// A few rows of a, as sums, times b as it lies in memory: one panel of k, or more, whose sums are
// added one after the other.
struct Few {
  const void* a;
  std::int64_t a_pitch, m, k;
  Lanes b;
  void* sums;
  std::int64_t pitch;  // of sums
};
struct FewKernels {
  void (*along)(const Few& few);   // columns of b are adjacent
  void (*across)(const Few& few);  // elements of a column of b are adjacent
  std::int64_t across_k;           // that `across` takes at a time; `along` takes a panel
};

// Matrices that are multiplied as they lie in memory, to sums or, where nothing is done to them but
// that a bias is added, results. Rows of b and c have adjacent elements.
struct Direct {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  std::int64_t a_row = 0, a_k = 0, b_k = 0, c_row = 0;  // elements from one to the next
  std::int64_t m = 0, n = 0, k = 0;
  bool adds = false;  // to the sums that are there
  bool are_results = false;
  const void* bias = nullptr;  // of results
};
using DirectKernel = void (*)(const Direct& direct);

// A row of sums that becomes a row of y. All arrays have adjacent elements; the bias may be one.
struct Row {
  void* sums;
  std::int64_t count;
  const std::byte *bias, *c, *residual;  // or null
  bool one_bias;
  std::byte *pre, *y;
};
struct Epilogue {
  Activation activation;
  double alpha, beta;
};
using FinishKernel = void (*)(const Epilogue& epilogue, const Row& row);
// to[i] = from[i] + to[i].
using AddKernel = void (*)(const void* from, void* to, std::int64_t count);
// to = the sum of rows, one after the other, of a type whose elements a row has side by side.
using SumRowsKernel = void (*)(const std::byte* from, std::int64_t pitch, std::int64_t rows,
                               void* to, std::int64_t count);
// to = grad activation'(pre), rounded to the type of both, as sums are.
using SlopeKernel = void (*)(const std::byte* grad, const std::byte* pre, void* to,
                             std::int64_t count);
// Sums in another type.
using NarrowKernel = void (*)(const void* from, void* to, std::int64_t count);

ISOBIT_IN_EACH_ISA(const PackKernels& pack_kernels(DType a);
                   const PairKernels* pair_kernels(DType a);  // null where there are none
                   const TileKernels* tile_kernels();         // likewise
                   const FewKernels& few_kernels(DType a);
                   DirectKernel direct_kernel(DType a);  // f32 or f64
                   FinishKernel finish_kernel(DType real, DType bias, DType y);
                   AddKernel add_kernel(DType real); SumRowsKernel sum_rows_kernel(DType dtype);
                   SlopeKernel slope_kernel(Activation activation, DType grad);
                   NarrowKernel narrow_kernel(DType to);)

}  // namespace isobit::matmul
