// SPDX-License-Identifier: Apache-2.0
// What blocks of gradients by tensor cores take, queries or keys, and which panels of the others
// meet them; numbers as operands of 16 bits; and where a warp lays its scores.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "isobit/ops/attention/cuda_call.h"
#include "isobit/ops/attention/cuda_mma_parts.h"
#include "isobit/ops/attention/cuda_narrow.h"
#include "isobit/ops/attention/cuda_tiles.h"

namespace isobit::attention {

constexpr int kSide = 64;  // rows of a panel

// Some rows of a head, and what meets them: of queries the keys, of keys the queries. It waits in
// shared memory, for want of registers.
struct GradientTile {
  Sequence in;
  Scaling<float> scaling;
  std::int64_t head, kv_head;  // of keys, the first head that shares them
  std::int64_t first, at;      // row of the sequence, and of the array
  int rows;
  std::int64_t start, panels;  // where the first of the panels begins
};

// One panel: of a head, from which row of the sequence on.
struct Panel {
  std::int64_t head, first;
};

// What is known of a query.
struct alignas(16) QueryStatistics {
  float max, inverse, mean;
  unsigned keys;  // where those that it sees begin and end among the block's
};

// kRows rows of queries, or of keys.
template <class T, int kRows, bool kOfKeys>
struct GradientRows {
  Call<T> call;
  std::int64_t of_head;  // tiles

  explicit GradientRows(const Problem& p)
      : call{p}, of_head(starts() ? parts().places() : (all_rows() + kRows - 1) / kRows) {}

  // Scores are products of those numbered 0, gradients of weights of those numbered 1.
  ISOBIT_EITHER const Array& rows_of(int i) const {
    return i == 0 ? (kOfKeys ? call.p.k : call.p.q) : (kOfKeys ? call.p.v : call.p.grad_y);
  }
  ISOBIT_EITHER const Array& columns_of(int i) const {
    return i == 0 ? (kOfKeys ? call.p.q : call.p.k) : (kOfKeys ? call.p.grad_y : call.p.v);
  }
  ISOBIT_EITHER std::int64_t dim(int i) const {
    return i == 0 ? call.p.head_dim : call.p.value_dim;
  }
  ISOBIT_EITHER std::int64_t tiles() const {
    return call.p.batch * (kOfKeys ? call.p.kv_heads : call.p.heads) * of_head;
  }

  ISOBIT_DEVICE GradientTile tile_at(std::int64_t head, std::int64_t place) const {
    const Problem& p = call.p;
    const std::int64_t heads = kOfKeys ? p.kv_heads : p.heads, batch = head / heads;
    const Parts::Part part = starts() ? parts().at(starts(), place) : Parts::Part{batch, place};
    GradientTile tile{};
    tile.in = call.sequence(part.sequence);
    tile.scaling = call.scaling();
    const Sequence& in = tile.in;
    tile.head = head - batch * heads;
    tile.kv_head = kOfKeys ? tile.head : call.kv_head(tile.head);
    if (kOfKeys) tile.head *= p.group();
    // Rows of keys are all that there are, those that the sequence does not have among them.
    Range all = kOfKeys ? Range{0, p.seq_k} : in.queries;
    if (kOfKeys && p.key_starts) {
      all.begin = Problem::within(Problem::number(p.key_starts, part.sequence), p.seq_k);
      if (part.sequence < p.sequences) all.end = all.begin + in.held.end;
    }
    tile.first = part.number * kRows;
    tile.at = all.begin + tile.first;
    const std::int64_t left = all.count() - tile.first;
    tile.rows = part.number < 0 ? 0 : mma::inside(left, kRows);
    if (kOfKeys) {
      const Range queries = queries_of(in, tile.first, tile.first + tile.rows);
      set_panels(tile, 0, queries);
    } else {
      set_panels(
          tile, in.held.begin,
          {call.keys_of(in, tile.first).begin, call.keys_of(in, tile.first + tile.rows - 1).end});
    }
    return tile;
  }
  // Panels are counted from `origin`.
  ISOBIT_DEVICE static void set_panels(GradientTile& tile, std::int64_t origin, const Range& seen) {
    tile.start = origin + (seen.count() == 0 ? 0 : (seen.begin - origin) / kSide * kSide);
    tile.panels = seen.count() == 0 ? 0 : (seen.end - tile.start + kSide - 1) / kSide;
  }
  // Queries that may see some keys.
  ISOBIT_DEVICE Range queries_of(const Sequence& in, std::int64_t first, std::int64_t end) const {
    const Problem& p = call.p;
    const std::int64_t count = in.queries.count();
    if (end <= in.held.begin || first >= in.held.end) return {0, 0};
    Range queries{0, count};
    if (p.causal)
      queries.begin = Problem::within(first - in.offset, count);
    else if (p.window > 0)
      queries.begin = Problem::within(first - in.offset - p.window + 1, count);
    if (p.window > 0) queries.end = Problem::within(end - 1 - in.offset + p.window, count);
    return queries;
  }

  ISOBIT_DEVICE static Panel panel_at(const GradientTile& tile, int index) {
    if (!kOfKeys) return {tile.head, tile.start + std::int64_t{index} * kSide};
    const auto panels = static_cast<int>(tile.panels);
    const int head = index / panels;
    return {tile.head + head, tile.start + std::int64_t{index - head * panels} * kSide};
  }

  // Rows of a panel that a row of the warp meets.
  ISOBIT_DEVICE Range seen_by_warp(const GradientTile& tile, const Panel& panel) const {
    const std::int64_t row = tile.first + mma::warp() * 16;
    Range seen;
    if constexpr (kOfKeys)
      seen = queries_of(tile.in, row, row + 16);
    else
      seen = {call.keys_of(tile.in, row).begin, call.keys_of(tile.in, row + 15).end};
    return {seen.begin - panel.first, seen.end - panel.first};
  }

 private:
  ISOBIT_EITHER const Array& starts() const {
    return kOfKeys ? call.p.key_starts : call.p.query_starts;
  }
  ISOBIT_EITHER std::int64_t all_rows() const { return kOfKeys ? call.p.seq_k : call.p.seq_q; }
  ISOBIT_EITHER Parts parts() const { return {all_rows(), call.p.sequences, kRows}; }
};

constexpr int kEights = kSide / 8;
using GradientWeights = unsigned[kSide / mma::kStep][4];
using GradientScores = float[kEights][4];

// Numbers become operands: of f16, those of a row 2^n times as large, so that the largest is from
// 2^14 to below 2^15. `back` is 2^-n. What is not there or dropped is -0, and nothing else is.
template <class T>
ISOBIT_DEVICE void narrow_rows(const GradientScores& numbers, unsigned kept, GradientWeights& words,
                               float (&back)[2]) {
  using S = tile::Scalar<float>;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float lift = 1;
    back[r] = 1;
    if constexpr (std::is_same_v<T, f16>) {
      unsigned largest = 0;
#pragma unroll
      for (int at = 0; at < 2 * kEights; ++at) {
        const unsigned size = S::bits(numbers[at / 2][2 * r + at % 2]) & 0x7fffffffU;
        largest = largest < size ? size : largest;
      }
#pragma unroll
      for (int apart = 2; apart > 0; apart /= 2) {
        const unsigned other = simt::shuffle_xor(largest, apart);
        largest = largest < other ? other : largest;
      }
      const unsigned exponent = largest >> 23;  // with its bias of 127
      const unsigned lifted = exponent < 15 ? 253 : 268 - exponent;
      lift = std::bit_cast<float>(lifted << 23);
      back[r] = std::bit_cast<float>((254 - lifted) << 23);
    }
    const auto lifted = [&](int j, int e) {
      const int at = 2 * r + e;
      constexpr float kNothing = std::is_same_v<T, f16> ? 0x1p-25F : 0x1p-134F;
      const float number = S::mul(numbers[j][at], lift);
      const bool lost = number < 0 && number >= -kNothing;  // it would become -0
      return (kept >> (4 * j + at) & 1) == 0 ? -0.0F : lost ? 0.0F : number;
    };
#pragma unroll
    for (int j = 0; j < kEights; ++j)
      words[j / 2][j % 2 * 2 + r] = narrow_pair<T>(lifted(j, 0), lifted(j, 1));
  }
}

// Two scores beside each other.
struct alignas(8) ScorePair {
  float elements[2];
};
// A warp's scores, 16 rows of a panel. Columns are mixed by the row: those of rows below each other
// are in different banks, whether they are taken pair by pair, row by row or column by column.
ISOBIT_DEVICE float* score_at(float* scores, int row, int col) {
  return scores + row * kSide + (col ^ (row % 4 * 8 + row / 4 * 2));
}
// visit(pair, j, r) of each two of a thread's: those of the eight j, of its row r.
template <class Visit>
ISOBIT_DEVICE void each_pair(float* scores, const Visit& visit) {
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int j = 0; j < kEights; ++j)
      visit(reinterpret_cast<ScorePair*>(
                score_at(scores, simt::lane() / 4 + 8 * r, 8 * j + mma::column())),
            j, r);
}

}  // namespace isobit::attention
