// SPDX-License-Identifier: Apache-2.0
// Copies of bytes, inline: for rows, of which most are short.
#pragma once

#include <cstring>

#include "isobit/simd/lines.h"
#include "isobit/simd/vec.h"

namespace isobit::simd {

namespace detail {

// Copies 1 to 2 * kBytes bytes where there are at least kBytes, as two pieces that may overlap.
template <int kBytes>
ISOBIT_INLINE bool copy_ends(const std::byte* x, std::byte* y, std::int64_t bytes) {
  if (bytes < kBytes) return false;
  std::byte first[kBytes], last[kBytes];
  std::memcpy(first, x, kBytes);
  std::memcpy(last, x + bytes - kBytes, kBytes);
  std::memcpy(y, first, kBytes);
  std::memcpy(y + bytes - kBytes, last, kBytes);
  return true;
}

}  // namespace detail

// Inline, for most are short: a call of memcpy would take longer than what it does.
ISOBIT_INLINE void copy_bytes(const std::byte* x, std::byte* y, std::int64_t bytes) {
  constexpr int kVector = 16 * Bytes::kLanes;
  std::int64_t i = 0;
  for (; i + kVector <= bytes; i += kVector) Bytes::store(y + i, Bytes::load(x + i));
  if (i == bytes) return;
  if (bytes >= kVector)
    Bytes::store(y + bytes - kVector, Bytes::load(x + bytes - kVector));
  else
    (void)(detail::copy_ends<32>(x, y, bytes) || detail::copy_ends<16>(x, y, bytes) ||
           detail::copy_ends<8>(x, y, bytes) || detail::copy_ends<4>(x, y, bytes) ||
           detail::copy_ends<2>(x, y, bytes) || detail::copy_ends<1>(x, y, bytes));
}

// The same past the caches, where whole lines are written. A fence() must follow.
ISOBIT_INLINE void stream_bytes(const std::byte* x, std::byte* y, std::int64_t bytes) {
  constexpr int kLine = 64, kVector = 16 * Bytes::kLanes;
  std::int64_t i = before_lines(y, bytes);
  copy_bytes(x, y, i);
  for (; i + kLine <= bytes; i += kLine)
#pragma GCC unroll 4
    for (int j = 0; j < kLine; j += kVector)
      Bytes::store<Stores::streaming>(y + i + j, Bytes::load(x + i + j));
  copy_bytes(x + i, y + i, bytes - i);
}

}  // namespace isobit::simd
