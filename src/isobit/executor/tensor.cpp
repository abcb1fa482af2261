// SPDX-License-Identifier: Apache-2.0
// Products of small matrices by a warp. No manual says how a tensor core adds: this is a published
// model (MMA-Sim) of sm_80 and sm_90, which no GPU has confirmed here.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "isobit/executor/warp.h"

namespace isobit::executor {
namespace {

// Lane 8m + r gives the address of row r of matrix m. slots 0 to 3: the words; 4: the address.
template <bool kTransposed>
void load_eights(Warp& warp, const Instruction& instruction) {
  if (warp.lanes != kAllLanes) fail(warp, instruction, "not all lanes of the warp take part");
  const std::uint32_t* rows = warp.in<std::uint32_t>(instruction.slots[4]);
  std::uint16_t elements[32][8];
  for (int row = 0; row < 8 * instruction.count; ++row) {
    if (rows[row] % 16 != 0) fail(warp, instruction, "a misaligned row");
    if (std::uint64_t{rows[row]} + 16 > static_cast<std::uint64_t>(current.shape.shared_bytes))
      fail(warp, instruction, "a row beyond shared memory");
    std::memcpy(elements[row], warp.block->shared + rows[row], 16);
  }
  for (int m = 0; m < instruction.count; ++m) {
    std::uint32_t* to = warp.out<std::uint32_t>(instruction.slots[m]);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int line = lane / 4;
      const int pair = lane % 4 * 2;
      const std::uint16_t first =
          kTransposed ? elements[8 * m + pair][line] : elements[8 * m + line][pair];
      const std::uint16_t second =
          kTransposed ? elements[8 * m + pair + 1][line] : elements[8 * m + line][pair + 1];
      to[lane] = first | std::uint32_t{second} << 16;
    }
  }
}

// A finite number as significand * 2^(exponent - fraction bits), with its leading digit.
struct Term {
  std::int64_t significand;  // with its sign
  int exponent;              // of the digit before the point
  int fraction;              // bits behind the point
};

struct Format {
  int fraction, bias;
};
constexpr Format kF16 = {10, 15}, kBf16 = {7, 127}, kF32 = {23, 127};

struct Number {
  bool is_nan, is_infinite, is_negative;
  Term term;
};

Number taken_apart(std::uint32_t bits, int size, Format format) {
  const int exponents = size - 1 - format.fraction;
  const int largest = (1 << exponents) - 1;
  const int exponent = static_cast<int>(bits >> format.fraction) & largest;
  const std::int64_t fraction = bits & ((1U << format.fraction) - 1);
  const bool negative = (bits >> (size - 1) & 1) != 0;
  const std::int64_t significand =
      exponent == 0 ? fraction : fraction | std::int64_t{1} << format.fraction;
  return {exponent == largest && fraction != 0,
          exponent == largest && fraction == 0,
          negative,
          {negative ? -significand : significand, std::max(exponent, 1) - format.bias,
           format.fraction}};
}

// sums of terms, each cut to so many bits behind the point of the largest; rounded toward zero.
float aligned_sum(const std::vector<Term>& terms, int kept) {
  int largest = std::numeric_limits<int>::min();
  for (const Term& term : terms)
    if (term.significand != 0) largest = std::max(largest, term.exponent);
  std::int64_t sum = 0;
  for (const Term& term : terms) {
    if (term.significand == 0) continue;
    const int shift = kept - term.fraction - (largest - term.exponent);
    const std::int64_t size = std::abs(term.significand);
    const std::int64_t cut = shift >= 0 ? size << shift : shift > -63 ? size >> -shift : 0;
    sum += term.significand < 0 ? -cut : cut;
  }
  if (sum == 0) return 0.0F;
  const auto size = static_cast<std::uint64_t>(std::abs(sum));
  const int excess = std::max(static_cast<int>(std::bit_width(size)) - 24, 0);
  const auto cut = static_cast<double>(size >> excess << excess);
  const double value = std::ldexp(cut, largest - kept);
  auto rounded = static_cast<float>(value);
  if (static_cast<double>(rounded) > value) rounded = std::nextafter(rounded, 0.0F);
  return sum < 0 ? -rounded : rounded;
}

float product_of_rows(const std::uint16_t* a, const std::uint16_t* b, float c, int count,
                      Format format, int kept) {
  std::vector<Term> terms;
  const Number start = taken_apart(std::bit_cast<std::uint32_t>(c), 32, kF32);
  bool invalid = start.is_nan;
  bool plus = start.is_infinite && !start.is_negative;
  bool minus = start.is_infinite && start.is_negative;
  terms.push_back(start.term);
  for (int k = 0; k < count; ++k) {
    const Number x = taken_apart(a[k], 16, format), y = taken_apart(b[k], 16, format);
    const bool zero = x.term.significand == 0 || y.term.significand == 0;
    const bool infinite = x.is_infinite || y.is_infinite;
    const bool negative = x.is_negative != y.is_negative;
    invalid |= x.is_nan || y.is_nan;
    if (infinite) {
      const bool zero_times = (x.is_infinite && !y.is_infinite && y.term.significand == 0) ||
                              (y.is_infinite && !x.is_infinite && x.term.significand == 0);
      invalid |= zero_times;
      plus |= !negative;
      minus |= negative;
    } else if (!zero) {
      terms.push_back({x.term.significand * y.term.significand, x.term.exponent + y.term.exponent,
                       x.term.fraction + y.term.fraction});
    }
  }
  if (invalid || (plus && minus)) return std::bit_cast<float>(0x7fff'ffffU);
  if (plus || minus)
    return minus ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  return aligned_sum(terms, kept);
}

// d (slots 0 to 3) = a (4 to 7), 16 x 16, times b (8, 9), 16 x 8, plus c (10 to 13).
void multiply_add(Warp& warp, const Instruction& instruction, Format format) {
  if (warp.lanes != kAllLanes) fail(warp, instruction, "not all lanes of the warp take part");
  std::uint16_t a[16][16], b[8][16];  // b by columns
  float c[16][8];
  const auto half = [&](Slot slot, int lane, int which) {
    return static_cast<std::uint16_t>(warp.in<std::uint32_t>(slot)[lane] >> (16 * which));
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    const int line = lane / 4;
    const int pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i)
      for (int which = 0; which < 2; ++which)
        a[line + 8 * (i % 2)][pair + which + 8 * (i / 2)] =
            half(instruction.slots[4 + i], lane, which);
    for (int i = 0; i < 2; ++i)
      for (int which = 0; which < 2; ++which)
        b[line][pair + which + 8 * i] = half(instruction.slots[8 + i], lane, which);
    for (int i = 0; i < 4; ++i)
      c[line + 8 * (i / 2)][pair + i % 2] = warp.in<float>(instruction.slots[10 + i])[lane];
  }
  const bool since_sm90 = current.capability >= 90;
  const int kept = since_sm90 ? 25 : 24;
  const int together = since_sm90 ? 16 : 8;
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      for (int k = 0; k < 16; k += together)
        c[row][column] =
            product_of_rows(&a[row][k], &b[column][k], c[row][column], together, format, kept);
  for (int i = 0; i < 4; ++i) {
    float* to = warp.out<float>(instruction.slots[i]);
    for (int lane = 0; lane < kLanes; ++lane)
      to[lane] = c[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2];
  }
}

}  // namespace

void load_matrices(Warp& warp, const Instruction& instruction) {
  load_eights<false>(warp, instruction);
}
void load_matrices_transposed(Warp& warp, const Instruction& instruction) {
  load_eights<true>(warp, instruction);
}
void multiply_add_f16(Warp& warp, const Instruction& instruction) {
  multiply_add(warp, instruction, kF16);
}
void multiply_add_bf16(Warp& warp, const Instruction& instruction) {
  multiply_add(warp, instruction, kBf16);
}

}  // namespace isobit::executor
