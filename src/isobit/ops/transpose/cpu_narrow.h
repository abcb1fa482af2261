// SPDX-License-Identifier: Apache-2.0
// Matrices of two to four rows or columns, as pixels and their channels are: lines are taken apart
// or put together by shuffles whose places are known when they are compiled. Included by what is
// compiled once for each instruction set.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "isobit/ops/transpose/cpu_kernels.h"
#include "isobit/simd/vec.h"

namespace isobit::transpose::ISOBIT_ISA {

// kLines lines of elements T in vectors, and the same elements in turn: of the first in each line,
// of the second in each, and so on.
template <class T, int kLines>
class Narrow {
  static constexpr int kCount = 16 / sizeof(T);
  using V [[gnu::vector_size(16)]] = T;
  using Places = std::make_integer_sequence<int, kCount>;

 public:
  // Lines are `step` bytes apart.
  ISOBIT_INLINE static void take_apart(const std::byte* from, std::byte* lines, std::int64_t step,
                                       std::int64_t count) {
    std::int64_t i = 0;
    for (; i + kCount <= count; i += kCount) {
      V in[kLines];
      std::memcpy(in, from + i * kTurn, sizeof in);
      each([&](auto line) ISOBIT_INLINE_LAMBDA {
        const V out = line_of<decltype(line)::value>(in, Places());
        std::memcpy(lines + line * step + i * kSize, &out, sizeof out);
      });
    }
    for (; i < count; ++i)
      for (int line = 0; line < kLines; ++line)
        std::memcpy(lines + line * step + i * kSize, from + i * kTurn + line * kSize, kSize);
  }
  ISOBIT_INLINE static void put_together(const std::byte* lines, std::int64_t step, std::byte* to,
                                         std::int64_t count) {
    std::int64_t i = 0;
    for (; i + kCount <= count; i += kCount) {
      V in[kLines];
      for (int line = 0; line < kLines; ++line)
        std::memcpy(&in[line], lines + line * step + i * kSize, sizeof in[line]);
      each([&](auto part) ISOBIT_INLINE_LAMBDA {
        const V out = part_of<decltype(part)::value>(in, Places());
        std::memcpy(to + i * kTurn + part * std::int64_t{sizeof out}, &out, sizeof out);
      });
    }
    for (; i < count; ++i)
      for (int line = 0; line < kLines; ++line)
        std::memcpy(to + i * kTurn + line * kSize, lines + line * step + i * kSize, kSize);
  }

 private:
  static constexpr std::int64_t kSize = sizeof(T), kTurn = kLines * kSize;

  template <class Body>
  ISOBIT_INLINE static void each(const Body& body) {
    [&]<int... i>(std::integer_sequence<int, i...>) ISOBIT_INLINE_LAMBDA {
      (body(std::integral_constant<int, i>()), ...);
    }(std::make_integer_sequence<int, kLines>());
  }

  // The p-th element of a line is the (p * kLines + kLine)-th in turn. Of two vectors a shuffle
  // takes what they have; then of each further one what it has.
  template <int kLine, int... p>
  ISOBIT_INLINE static V line_of(const V (&in)[kLines], std::integer_sequence<int, p...>) {
    constexpr auto at = [](int place) { return place * kLines + kLine; };
    V out = __builtin_shufflevector(in[0], in[1], (at(p) < 2 * kCount ? at(p) : -1)...);
    if constexpr (kLines > 2)
      out = __builtin_shufflevector(out, in[2], (at(p) / kCount == 2 ? at(p) - kCount : p)...);
    if constexpr (kLines > 3)
      out = __builtin_shufflevector(out, in[3], (at(p) / kCount == 3 ? at(p) - 2 * kCount : p)...);
    return out;
  }
  // The p-th element of a part is the (kPart * kCount + p)-th in turn.
  template <int kPart, int... p>
  ISOBIT_INLINE static V part_of(const V (&in)[kLines], std::integer_sequence<int, p...>) {
    constexpr auto line = [](int place) { return (kPart * kCount + place) % kLines; };
    constexpr auto at = [](int place) { return (kPart * kCount + place) / kLines; };
    V out = __builtin_shufflevector(in[0], in[1], (line(p) < 2 ? line(p) * kCount + at(p) : -1)...);
    if constexpr (kLines > 2)
      out = __builtin_shufflevector(out, in[2], (line(p) == 2 ? kCount + at(p) : p)...);
    if constexpr (kLines > 3)
      out = __builtin_shufflevector(out, in[3], (line(p) == 3 ? kCount + at(p) : p)...);
    return out;
  }
};

template <class T, int kLines>
ISOBIT_INLINE bool transpose_narrow(const Block& block) {
  constexpr std::int64_t kSize = sizeof(T);
  if (block.cols == kLines && block.x_stride == kLines)
    Narrow<T, kLines>::take_apart(block.x, block.y, block.y_stride * kSize, block.rows);
  else if (block.rows == kLines && block.y_stride == kLines)
    Narrow<T, kLines>::put_together(block.x, block.x_stride * kSize, block.y, block.cols);
  else
    return false;
  return true;
}

// Whether it was one of them.
template <class T>
ISOBIT_INLINE bool transpose_narrow(const Block& block) {
  return transpose_narrow<T, 2>(block) || transpose_narrow<T, 3>(block) ||
         transpose_narrow<T, kMostNarrow>(block);
}

}  // namespace isobit::transpose::ISOBIT_ISA
