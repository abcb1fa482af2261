// SPDX-License-Identifier: Apache-2.0
// Products of small matrices by a warp, of whose elements each lane has a few. A word holds two
// adjacent elements of 16 bits. Lane l stands for row l/4, and there for the pair l%4.
#pragma once

#include <bit>

#include "isobit/simt/host/device.h"

namespace isobit::simt {

// Four matrices of 8 x 8 elements from shared memory: lane 8m + r gives the address of row r of
// matrix m, of 16 bytes, and word m gets the lane's pair of it; transposed, the pair of its
// transpose. From sm_75 on.
template <bool kTransposed>
void load_matrices(unsigned (&words)[4], const void* row, Site site = Site::current()) {
  struct alignas(16) Row {
    std::uint16_t elements[8];
  };
  const auto* own = static_cast<const Row*>(row);
  detail::require_aligned(own, site);
  const auto address = std::bit_cast<std::uint64_t>(own);
  const host::Words* const all = host::gather(
      {static_cast<std::uint32_t>(address), static_cast<std::uint32_t>(address >> 32)}, site);
  const int line = lane() / 4, pair = lane() % 4 * 2;
  for (int m = 0; m < 4; ++m) {
    const auto row_at = [&](int index) {
      const host::Words& words_of = all[8 * m + index];
      return std::bit_cast<const Row*>(words_of[0] | std::uint64_t{words_of[1]} << 32);
    };
    std::uint16_t first, second;
    if constexpr (kTransposed) {
      const Row* upper = row_at(pair);
      const Row* lower = row_at(pair + 1);
      first = upper->elements[line];
      second = lower->elements[line];
    } else {
      const Row* from = row_at(line);
      first = from->elements[pair];
      second = from->elements[pair + 1];
    }
    words[m] = first | unsigned{second} << 16;
  }
}

// sums += a * b, 16 x 8 += 16 x 16 * 16 x 8, for f16 or bf16. Word i of a: row l/4, or 8 below for
// odd i; its pair, or 8 to the right from i = 2 on. Word i of b, by columns: column l/4; its pair,
// or 8 below for i = 1. Sums 0 and 1: row l/4, the pair of columns; 2 and 3: 8 below. From sm_80
// on. In what order a device adds, and how it rounds, is its own; here it is core/tensor_core.h's.
template <class T>
void multiply_add(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                  Site site = Site::current()) {
  host::multiply_add(sums, {a[0], a[1], a[2], a[3], b[0], b[1]}, std::is_same_v<T, bf16>, site);
}

}  // namespace isobit::simt
