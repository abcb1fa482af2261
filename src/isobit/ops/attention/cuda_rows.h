// SPDX-License-Identifier: Apache-2.0
// What a warp does with 16 queries between the two products of tensor cores, and behind them: the
// same however those products are made.
#pragma once

#include <cstdint>

#include "isobit/ops/attention/cuda_call.h"
#include "isobit/ops/attention/cuda_mma_parts.h"
#include "isobit/ops/attention/cuda_narrow.h"
#include "isobit/ops/attention/cuda_tiles.h"
#include "isobit/ops/attention/cuda_weights.h"
#include "isobit/tile/matrix_tile.h"

namespace isobit::attention {

using mma::column, mma::in_pieces, mma::inside, mma::kPart, mma::meets, mma::parts_of, mma::row_of,
    mma::warp;

// A lane has two rows of scores, 8 below each other, and there the two columns 2 * (lane % 4) of
// every eight keys: as the first product leaves them, and the second takes them.
template <class T>
struct WarpRows {
  static constexpr int kStep = mma::kStep, kSteps = kPanel / kStep;
  static constexpr int kOfKeys = kPanel / 8, kOfColumns = mma::kOfPart;
  static constexpr int kInPlace = kPanel * kPart;
  using S = tile::Scalar<float>;
  using Chunk = tile::Chunk<float>;
  using Rows = tile::MatrixTile<T, 16, kPart>;  // of y, of a warp
  using Scores = float[kOfKeys][4];
  using Weights = unsigned[kSteps][4];
  using Sums = mma::Sums;

  Call<T> call;

  ISOBIT_EITHER bool is_plain() const { return mma::is_plain(call.p); }

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
  ISOBIT_DEVICE void put_part(T* rows, const Tile<float>& tile, int part, const float (&inverse)[2],
                              bool y_in_pieces, const SumsOf& sums_of) const {
    const Problem& p = call.p;
    const std::int64_t first = tile.in.queries.begin + tile.first + warp() * 16;
    mma::put_part<T>(rows, p.y, p.y.at(tile.in.batch, tile.head, first), tile.queries - warp() * 16,
                     p.value_dim, y_in_pieces, part, [&](int j, unsigned(&words)[2]) {
                       const Chunk sums = sums_of(j);
#pragma unroll
                       for (int r = 0; r < 2; ++r)
                         words[r] = narrow_pair<T>(y_of<S>(sums.elements[2 * r], inverse[r]),
                                                   y_of<S>(sums.elements[2 * r + 1], inverse[r]));
                     });
  }
};

}  // namespace isobit::attention
