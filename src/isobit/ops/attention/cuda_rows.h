// SPDX-License-Identifier: Apache-2.0
// What a warp does with 16 queries between the two products of tensor cores, and behind them: the
// same however those products are made.
#pragma once

#include <cstdint>

#include "isobit/ops/attention/cuda_call.h"
#include "isobit/ops/attention/cuda_narrow.h"
#include "isobit/ops/attention/cuda_tiles.h"
#include "isobit/ops/attention/cuda_weights.h"
#include "isobit/tile/matrix_tile.h"

namespace isobit::attention {

constexpr int kPart = 64;  // elements of a head that pass through shared memory at once

ISOBIT_EITHER std::int64_t parts_of(std::int64_t dim) { return (dim + kPart - 1) / kPart; }

// A lane has two rows of scores, 8 below each other, and there the two columns 2 * (lane % 4) of
// every eight keys: as the first product leaves them, and the second takes them.
template <class T>
struct WarpRows {
  static constexpr int kStep = 16, kSteps = kPanel / kStep;
  static constexpr int kOfKeys = kPanel / 8, kOfColumns = kPart / 8;
  static constexpr int kInPlace = kPanel * kPart;
  using S = tile::Scalar<float>;
  using Chunk = tile::Chunk<float>;
  using Values = tile::OperandTile<T, kPart, kPanel, false>;
  using Lines = tile::MatrixTile<T, kPanel, kPart>;  // the same of v, key by key
  using Rows = tile::MatrixTile<T, 16, kPart>;       // of y, of a warp
  using Scores = float[kOfKeys][4];
  using Weights = unsigned[kSteps][4];
  using Sums = float[kOfColumns][4];

  Call<T> call;

  // Whether a range decides which keys are there, and scores are products but for a factor.
  ISOBIT_EITHER bool is_plain() const {
    return !(call.p.softcap != 0 || call.p.bias || call.p.mask || call.p.slopes);
  }

  // Of a lane's two rows.
  struct State {
    float max[2], sum[2];
  };
  struct Folds {
    float first[2], second[2];
  };
  struct alignas(8) Pair {
    float left, right;
  };
  ISOBIT_DEVICE static int warp() { return simt::thread() / simt::kWarpThreads; }
  ISOBIT_DEVICE static int row_of(int r) { return warp() * 16 + simt::lane() / 4 + r * 8; }
  ISOBIT_DEVICE static int column() { return simt::lane() % 4 * 2; }
  ISOBIT_DEVICE static int inside(std::int64_t rest, int most) {
    return static_cast<int>(Problem::within(rest, most));
  }
  ISOBIT_DEVICE static bool meets(const Range& seen, int key) {
    return seen.begin < key + kStep && key < seen.end;
  }

  // Every row of every head begins at 16 bytes.
  static bool in_pieces(const Array& array) {
    return array.col == 1 && reinterpret_cast<std::uintptr_t>(array.data) % 16 == 0 &&
           array.batch % 8 == 0 && array.head % 8 == 0 && array.row % 8 == 0;
  }

  // Products become weights, and a part of what is known of their queries.
  // `own` is the warp's own memory, where there is more to scores than products.
  ISOBIT_DEVICE void weigh(float* own, const Tile<float>& tile, std::int64_t first, Scores& scores,
                           State& state, Folds& folds, Weights& weights) const {
    if (is_plain())
      treat(tile, first, scores);
    else
      treat_each(own, tile, first, scores);
    const std::uint64_t kept = call.p.dropout > 0 ? kept_of(tile, first) : ~std::uint64_t{0};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float keys[2 * kOfKeys];
#pragma unroll
      for (int j = 0; j < 2 * kOfKeys; ++j) keys[j] = scores[j / 2][2 * r + j % 2];
      const auto [top, sum] = weigh_panel<float, 4, 2>(keys);
      const auto fold = Fold<S>::of(state.max[r], top);
      state.sum[r] = fold(state.sum[r], sum);
      state.max[r] = fold.max;
      folds.first[r] = fold.first;
      folds.second[r] = fold.second;
      const auto bits = static_cast<unsigned>(kept >> 32 * r);
#pragma unroll
      for (int j = 0; j < kOfKeys; ++j) {
        const auto lifted = [&](int at) {
          return (bits >> at & 1) != 0 ? keys[at] * kLift<T> : -0.0F;
        };
        weights[j / 2][j % 2 * 2 + r] = narrow_pair<T>(lifted(2 * j), lifted(2 * j + 1));
      }
    }
  }

  // Products become exponents: -infinity for what is not there.
  ISOBIT_DEVICE void treat(const Tile<float>& tile, std::int64_t first, Scores& scores) const {
    Scaling<float> scaling = tile.scaling;
    scaling.caps = false;  // as is known here: so no score has code for a cap
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Range keys = call.keys_of(tile.in, tile.first + row_of(r));
      const int begin = inside(keys.begin - first, kPanel), end = inside(keys.end - first, kPanel);
#pragma unroll
      for (int j = 0; j < kOfKeys; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = 8 * j + column() + e;
          float& score = scores[j][2 * r + e];
          score = begin <= key && key < end ? exponent_of<S>(scaling, score) : -kInfinity<float>;
        }
    }
  }
  // The same of what has more to it, by way of shared memory: there a warp takes one of its queries
  // after the other, and keys side by side, as what is added to them lies in memory.
  ISOBIT_DEVICE void treat_each(float* own, const Tile<float>& tile, std::int64_t first,
                                Scores& scores) const {
    const Scaling<float> scaling = tile.scaling;
    each_pair(own, scores, [](Pair& pair, float& left, float& right) { pair = {left, right}; });
    simt::sync_warp();
#pragma unroll 1
    for (int i = 0; i < 16; ++i) {
      const auto row = attention::row_of(call, tile, warp() * 16 + i);
#pragma unroll 1
      for (int key = simt::lane(); key < kPanel; key += simt::kWarpThreads) {
        float& score = *place_of(own, i, key);
        score = call.exponent(scaling, tile.in, row, first + key, score);
      }
    }
    simt::sync_warp();
    each_pair(own, scores, [](Pair& pair, float& left, float& right) {
      left = pair.left;
      right = pair.right;
    });
  }
  // A thread's scores, two beside each other. Of eights that are mixed alike one has an address,
  // and the others are known distances from there.
  template <class Visit>
  ISOBIT_DEVICE static void each_pair(float* own, Scores& scores, const Visit& visit) {
#pragma unroll
    for (int eight = 0; eight < 4; ++eight) {
      auto* const at =
          reinterpret_cast<Pair*>(place_of(own, simt::lane() / 4, 8 * eight + column()));
#pragma unroll
      for (int j = eight; j < kOfKeys; j += 4)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          visit(at[r * 4 * kPanel + (j - eight) * 4], scores[j][2 * r], scores[j][2 * r + 1]);
    }
  }
  // Eights of keys are mixed by the row: pairs of a column of four rows are in different banks.
  ISOBIT_DEVICE static float* place_of(float* scores, int row, int key) {
    return scores + row * kPanel + (key ^ row % 4 * 8);
  }

  // Which weights are not dropped: a bit each, row by row.
  ISOBIT_DEVICE std::uint64_t kept_of(const Tile<float>& tile, std::int64_t first) const {
    const Dropout<float> dropout = call.dropout();
    std::uint64_t kept = 0;
#pragma unroll 1
    for (int at = 0; at < 2 * kOfKeys; ++at) {
      const std::int64_t query = tile.first + row_of(at / kOfKeys);
      const std::int64_t key = first - tile.in.held.begin + at % kOfKeys * 8 + column();
      const auto words = dropout.words(tile.in.number, tile.head, query, key / 4);
      const unsigned both =
          (dropout.keeps(words, key) ? 1U : 0U) | (dropout.keeps(words, key + 1) ? 2U : 0U);
      kept |= std::uint64_t{both} << 2 * at;
    }
    return kept;
  }

  // Whether a sum of any lane is not finite.
  ISOBIT_DEVICE static bool is_spoilt(const Sums& chain) {
    float spoilt = 0;
#pragma unroll
    for (const auto& each : chain)
#pragma unroll
      for (const float sum : each) spoilt = S::fma(sum, 0.0F, spoilt);
    return simt::ballot(spoilt != 0) != 0;  // NaN is not 0
  }
  ISOBIT_DEVICE static void begin_again(T* place, const Weights& weights, Sums& chain) {
#pragma unroll
    for (auto& each : chain)
#pragma unroll
      for (float& sum : each) sum = 0;
    begin_with_what_is_not_finite<T>(Lines(place), weights, chain);
  }
  ISOBIT_DEVICE static void multiply_values(T* place, const Range& seen, const Weights& weights,
                                            bool endless, Sums& chain) {
    const Values values(place);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (!meets(seen, step * kStep)) continue;
#pragma unroll
      for (int j = 0; j < kOfColumns / 2; ++j) {
        unsigned words[4];
        values.take(16 * j, step * kStep, words);
        if (endless) {
#pragma unroll
          for (unsigned& word : words) word = finite<T>(word);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const unsigned cols[2] = {words[half], words[half + 2]};
          simt::multiply_add<T>(chain[2 * j + half], weights[step], cols);
        }
      }
    }
  }

  // What is known of a lane's rows waits in memory, numbers so far apart, and is folded in front of
  // what is at hand.
  template <int kApart>
  ISOBIT_DEVICE static void keep_state(float* at, const State& state) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      at[2 * r * kApart] = state.max[r];
      at[(2 * r + 1) * kApart] = state.sum[r];
    }
  }
  template <int kApart>
  ISOBIT_DEVICE static Folds fold_state(const float* at, State& state) {
    Folds folds;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto fold = Fold<S>::of(at[2 * r * kApart], state.max[r]);
      state.sum[r] = fold(at[(2 * r + 1) * kApart], state.sum[r]);
      state.max[r] = fold.max;
      folds.first[r] = fold.first;
      folds.second[r] = fold.second;
    }
    return folds;
  }

  // All results but y, and what its sums are multiplied by.
  ISOBIT_DEVICE void put_state(const Tile<float>& tile, const State& state,
                               float (&inverse)[2]) const {
    const float more = call.p.dropout > 0 ? call.dropout().scale : 1.0F;
    const std::int64_t first = tile.in.queries.begin + tile.first;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      inverse[r] = S::mul(inverse_of<S>(state.max[r], state.sum[r]), more);
      if (column() == 0 && row_of(r) < tile.queries)
        call.put(tile.in.batch, tile.head, first + row_of(r), state.max[r], state.sum[r]);
    }
  }
  // A part of a warp's rows of y, of sums_of(j) for each eight columns, by way of shared memory, so
  // that neighbours in a row are neighbours in a warp.
  template <class SumsOf>
  ISOBIT_DEVICE void put_part(const Rows& rows, const Tile<float>& tile, int part,
                              const float (&inverse)[2], bool y_in_pieces,
                              const SumsOf& sums_of) const {
    const Problem& p = call.p;
    std::byte* const y =
        p.y.at(tile.in.batch, tile.head, tile.in.queries.begin + tile.first + warp() * 16);
#pragma unroll
    for (int j = 0; j < kOfColumns; ++j) {
      const Chunk sums = sums_of(j);
#pragma unroll
      for (int r = 0; r < 2; ++r)
        simt::store_shared(
            reinterpret_cast<unsigned*>(rows.piece(8 * r, simt::lane() / 4, j) + column()),
            narrow_pair<T>(y_of<S>(sums.elements[2 * r], inverse[r]),
                           y_of<S>(sums.elements[2 * r + 1], inverse[r])));
    }
    simt::sync_warp();
#pragma unroll 1
    for (int i = simt::lane(); i < 16 * kOfColumns; i += simt::kWarpThreads) {
      const int line = i / kOfColumns, piece = i % kOfColumns;
      const std::int64_t col = part * kPart + piece * tile::kPiece<T>;
      if (warp() * 16 + line >= tile.queries || col >= p.value_dim) continue;
      const auto found = simt::load_shared(
          reinterpret_cast<const tile::RawPiece<T>*>(rows.piece(line / 8 * 8, line % 8, piece)));
      T* const to = reinterpret_cast<T*>(y) + line * p.y.row + col * p.y.col;
      if (y_in_pieces && col + tile::kPiece<T> <= p.value_dim) {
        simt::store(reinterpret_cast<tile::RawPiece<T>*>(to), found);
      } else {
#pragma unroll
        for (int e = 0; e < tile::kPiece<T>; ++e)
          if (col + e < p.value_dim) to[e * p.y.col] = found.elements[e];
      }
    }
    simt::sync_warp();
  }
};

}  // namespace isobit::attention
