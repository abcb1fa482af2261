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
  const void *a = nullptr, *b = nullptr;
  const std::int64_t* offsets = nullptr;
  void* c = nullptr;
  std::int64_t pitch = 0, m = 0, n = 0, k = 0;  // at most 512 k of gathered columns
  enum Start { from_zero, onto_sum, going_on } start = from_zero;  // onto_sum: its own, then added
  // Where columns are gathered: those of c are lines of so many columns of b, which begin there;
  // and in c there, if they do not follow each other.
  const std::int64_t *lines = nullptr, *places = nullptr;
  std::int64_t line_cols = 0;
  bool is_packed = false;  // b, by ProductKernel::pack
  std::int64_t a_k = 0;    // from a panel of a to the next, where it has more k than these
  // Where a and c are some of the panels of m rows: which; m says how rows are dealt to panels.
  std::int64_t first_panel = 0, panels = 0;
};
// So many panels of a are worth a panel of b: lines that do not straddle two of the caches'.
inline constexpr std::int64_t kWorthPacking = 5;

struct ProductKernel {
  std::int64_t rows, cols;
  void (*multiply)(const Product& product);
  // Packs b, of at most 512 k: `cols` columns after `cols` columns, the last too. Elements behind
  // them are overwritten, up to `cols`.
  void (*pack)(const Product& product, void* to);
  // The same with one row of a, whose elements lie a panel's row apart, and for each row of c a b
  // that lies so many elements behind the last.
  void (*multiply_one)(const Product& product, std::int64_t b_step);
};

// Weights of the rows of a panel of a, of some channels and taps, of which each has a line: that of
// the tap's next channel follows.
struct WeightLines {
  const std::byte* from;
  std::int64_t row, in;          // elements, to the next row or channel; taps are adjacent
  std::int64_t rows, ins, taps;  // how many
  void* const* to;               // for each tap the first channel's
};
using PackWeightsKernel = bool (*)(const WeightLines& lines);  // whether all are finite

// One filter along rows of results: tap row i of row r is a line of sources, lines[r + i]. Whole
// vectors of lines are read: a vector of elements may follow what results need.
struct Rows {
  const void* const* lines;
  const std::int64_t* offsets;  // of what a tap row has
  std::int64_t in_row, tap_rows;
  const void* weights;  // tap row after tap row
  void* const* to;      // rows of `count`
  std::int64_t rows, count;
  bool settles;  // whether sums become results, by adding +0; and then what is not null
  const void* bias;
};
using RowsKernel = void (*)(const Rows& rows);

// Lines of elements, widened; of `cols` those from `begin` to `end`, and zeros around them.
struct Lines {
  const std::byte* from;  // the one that goes to `begin` of the first line
  std::int64_t stride, line_stride;
  void* to;
  std::int64_t lines, begin, end, cols;
};
using StageKernel = void (*)(const Lines& lines);

// Elements of several channels, of which each has its own adjacent, side by side: element j of
// channel c goes to to[j * pitch + c]. Or, with i = j + first, to the plane of i % planes, there to
// to[i / planes * pitch + c].
struct Turned {
  const std::byte* from;
  std::int64_t channel_stride, count, channels;
  void* to;
  std::int64_t pitch;
  std::int64_t planes = 1, plane = 0, first = 0;  // plane: elements from one to the next
};
using TurnKernel = void (*)(const Turned& turned);
// The same of sums that become elements.
using SettleKernel = TurnKernel;

// Sums of channels side by side: those of tap t have, for each position in turn, its gradients
// times the sources that lie offsets[position] + taps[t] behind the first.
inline constexpr std::int64_t kAbreast = 16;
struct Abreast {
  const void *grads, *sources;
  const std::int64_t *offsets, *taps;
  void* sums;
  std::int64_t positions, count;  // of taps
  bool goes_on;                   // from sums that are there
};
using AbreastKernel = void (*)(const Abreast& abreast);
// So many elements of kAbreast lines side by side: a multiple of kAbreast.
using InterleaveKernel = void (*)(const void* const* lines, std::int64_t count, void* to);

// Results of channels side by side, of which each is made of its own source alone. Pixel p of tap t
// lies p * step elements behind the tap's first.
struct TapOfPixels {
  const std::byte* source;
  std::int64_t step;
};
struct Pixels {
  const TapOfPixels* taps;
  const void *weights, *bias;  // for each tap `pitch` channels; what is added to a whole sum
  std::int64_t pitch, count_of_taps;
  std::int64_t sliding;  // so many taps at a time lie a step behind each other; 0: they lie anyhow
  std::int64_t pixels, channels;
  void* to;
  std::int64_t to_step;  // elements, from a pixel to the next
};
using PixelsKernel = void (*)(const Pixels& pixels);
// The gradients of their weights: those of tap t add, for each pixel in turn, its gradients times
// the tap's source.
struct WeightsOfPixels {
  const TapOfPixels* taps;
  const std::byte* grads;
  std::int64_t grad_step, pixels, channels;
  void* sums;  // for each tap `pitch` channels
  std::int64_t pitch, count_of_taps;
  bool goes_on;  // from sums that are there
};
using WeightsOfPixelsKernel = void (*)(const WeightsOfPixels& weights);
// What PixelsKernel has a faster way for.
inline constexpr std::int64_t kSliding[] = {3, 5};

ISOBIT_IN_EACH_ISA(const ProductKernel& product_kernel(DType real);
                   PackWeightsKernel pack_weights_kernel(DType element);
                   RowsKernel rows_kernel(DType real); AbreastKernel abreast_kernel(DType real);
                   InterleaveKernel interleave_kernel(DType real);
                   PixelsKernel pixels_kernel(DType element, DType to);
                   WeightsOfPixelsKernel weights_of_pixels_kernel(DType element);
                   StageKernel stage_kernel(DType element); TurnKernel turn_kernel(DType element);
                   SettleKernel settle_kernel(DType element);)

}  // namespace isobit::convolution
