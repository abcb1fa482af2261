// SPDX-License-Identifier: Apache-2.0
// flash by the tensor cores of NVIDIA's GPUs from sm_80 on, of 16-bit elements: a warp takes 16
// queries, whose scores of a panel of keys, and then weights, are in its registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isobit/ops/attention/cuda_call.h"
#include "isobit/ops/attention/cuda_mma_parts.h"
#include "isobit/ops/attention/cuda_narrow.h"
#include "isobit/ops/attention/cuda_tiles.h"
#include "isobit/ops/attention/cuda_weights.h"
#include "isobit/tile/copy_ring.h"
#include "isobit/tile/matrix_tile.h"

namespace isobit::attention {

// kWarps warps of 16 queries.
template <class T, int kWarps>
struct FlashMma {
  static constexpr int kMostThreads = kWarps * simt::kWarpThreads, kQueries = 16 * kWarps;
  static constexpr int kPart = mma::kPart, kPlaces = mma::kPlaces;
  static constexpr int kSteps = kPanel / mma::kStep;
  static constexpr int kOfKeys = kPanel / 8, kOfColumns = mma::kOfPart;
  static constexpr int kInPlace = kPanel * kPart;
  using Real = float;
  using S = tile::Scalar<float>;
  using Chunk = tile::Chunk<float>;
  using Queries = tile::OperandTile<T, kQueries, kPart, true>;
  using Keys = tile::OperandTile<T, kPanel, kPart, true>;
  using Lines = tile::MatrixTile<T, kPanel, kPart>;  // the same of v, key by key
  using Scores = float[kOfKeys][4];
  using Weights = unsigned[kSteps][4];

  Call<T> call;
  Tiles<T, kQueries> tiles;
  int levels;     // of runs that are not joined yet
  float* states;  // theirs: block, level, number, thread
  bool q_in_pieces, k_in_pieces, v_in_pieces, y_in_pieces;

  FlashMma(const Problem& p, std::byte* workspace)
      : call{p},
        tiles(p),
        levels(waiting_of(p)),
        states(reinterpret_cast<float*>(workspace)),
        q_in_pieces(mma::in_pieces(p.q)),
        k_in_pieces(mma::in_pieces(p.k)),
        v_in_pieces(mma::in_pieces(p.v)),
        y_in_pieces(mma::in_pieces(p.y)) {}

  struct Memory {
    T *queries, *places;
    Chunk* sums;
    float* scores;  // a warp's own
    Tile<float>* tile;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Memory m{};
    m.queries = carver.template take<T>(parts_of(call.p.head_dim) * Queries::kElements, 128);
    m.places = carver.template take<T>(kPlaces * kInPlace, 128);
    m.sums = carver.template take<Chunk>(numbers() / Chunk::kCount * kMostThreads);
    m.scores = carver.template take<float>(is_plain() ? 0 : kOfKeys * 4 * kMostThreads);
    m.tile = carver.template take<Tile<float>>(1);
    return m;
  }
  // Bytes of all that.
  ISOBIT_EITHER std::int64_t shared_bytes() const {
    return (parts_of(call.p.head_dim) * Queries::kElements + kPlaces * kInPlace) * 2 +
           (numbers() + (is_plain() ? 0 : kOfKeys * 4)) * 4 * kMostThreads +
           static_cast<std::int64_t>(sizeof(Tile<float>));
  }
  // Whether a range decides which keys are there, and scores are products but for a factor.
  ISOBIT_EITHER bool is_plain() const {
    return !(call.p.softcap != 0 || call.p.bias || call.p.mask || call.p.slopes);
  }
  // Sums of weights times v that a thread has, and what is kept of a run beside them.
  ISOBIT_EITHER std::int64_t numbers() const { return parts_of(call.p.value_dim) * kOfColumns * 4; }
  ISOBIT_EITHER std::int64_t state_size() const { return (numbers() + 4) * kMostThreads; }

  ISOBIT_DEVICE void operator()(const Memory& m) const {
    tiles.each(call, m.tile, [&](const Tile<float>& tile) { compute(m, tile); });
  }

 private:
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
  ISOBIT_DEVICE static int warp() { return mma::warp(); }
  ISOBIT_DEVICE static int row_of(int r) { return mma::row_of(r); }
  ISOBIT_DEVICE static int column() { return mma::column(); }
  ISOBIT_DEVICE static int inside(std::int64_t rest, int most) { return mma::inside(rest, most); }
  ISOBIT_EITHER static std::int64_t parts_of(std::int64_t dim) { return mma::parts_of(dim); }
  ISOBIT_DEVICE int parts_of_k() const { return mma::turns_of(call.p.head_dim); }

  ISOBIT_DEVICE void compute(const Memory& m, const Tile<float>& tile) const {
    bring_queries(m, tile);
    const std::int64_t begin = tile.in.held.begin, runs = runs_of(tile);
    const int of_k = parts_of_k(), parts = of_k + static_cast<int>(parts_of(call.p.value_dim));
    State state;
#pragma unroll 1
    for (std::int64_t run = 0; run < runs; ++run) {
      clear(m, state);
      // Of its panels those of which any key is seen.
      const std::int64_t start = begin + run * kRun * kPanel;
      const std::int64_t low = (tile.keys.begin - start) / kPanel;
      const int before = inside(low, kRun);
      const int behind = inside((tile.keys.end - start + kPanel - 1) / kPanel, kRun);
      const std::int64_t first = start + before * kPanel;
      Scores scores;
      Weights weights;
      Folds folds{};
      int panel = 0, part = 0;
      tile::in_turns<kPlaces>(
          behind > before ? std::int64_t{behind - before} * parts : 0,
          [&](std::int64_t turn, int place) {
            const int of_panel = static_cast<int>(turn) / parts;
            bring(tile, first + of_panel * kPanel, static_cast<int>(turn) - of_panel * parts,
                  m.places + place * kInPlace);
          },
          [&](int place) {
            const std::int64_t key = first + panel * kPanel;
            T* const there = m.places + place * kInPlace;
            const Range seen = seen_by_warp(tile, key);
            if (part < of_k) {
              if (part == 0) {
#pragma unroll
                for (auto& each : scores)
#pragma unroll
                  for (float& score : each) score = 0;
              }
              multiply_keys(m, there, part, seen, scores);
              if (part == of_k - 1) weigh(m, tile, key, scores, state, folds, weights);
            } else {
              add_values(m, there, part - of_k, seen, weights, folds);
            }
            if (++part == parts) part = 0, ++panel;
          });
      join_runs(
          states, state_size(), levels, run, run == runs - 1,
          [&](float* at) { keep(m, at, state); }, [&](const float* at) { fold(m, at, state); });
    }
    finish(m, tile, state);
  }

  ISOBIT_DEVICE void bring_queries(const Memory& m, const Tile<float>& tile) const {
    const Array& q = call.p.q;
    const auto* from = reinterpret_cast<const T*>(
        q.at(tile.in.batch, tile.head, tile.in.queries.begin + tile.first));
#pragma unroll 1
    for (std::int64_t d = 0; d < call.p.head_dim; d += kPart)
      Queries(m.queries + d / kPart * Queries::kElements)
          .template bring<kMostThreads>(from + d * q.col, q.row, q.col, tile.queries,
                                        inside(call.p.head_dim - d, kPart), q_in_pieces);
    simt::commit_copies();
  }

  // Some elements of the keys, or of the values, of a panel.
  ISOBIT_DEVICE void bring(const Tile<float>& tile, std::int64_t first, int part, T* to) const {
    const Problem& p = call.p;
    const bool of_k = part < parts_of_k();
    const Array array = of_k ? p.k : p.v;
    const std::int64_t d = std::int64_t{of_k ? part : part - parts_of_k()} * kPart;
    const int keys = inside(tile.keys.end - first, kPanel);
    const int length = inside((of_k ? p.head_dim : p.value_dim) - d, kPart);
    const bool in_pieces = of_k ? k_in_pieces : v_in_pieces;
    const auto line = [&](int key) {
      return reinterpret_cast<const T*>(call.key_at(array, tile.in, tile.kv_head, first + key)) +
             d * array.col;
    };
    if (p.blocks)
      Lines(to).template bring_each_line<kMostThreads>(line, reinterpret_cast<const T*>(array.data),
                                                       array.col, keys, length, in_pieces);
    else
      Lines(to).template bring<kMostThreads>(line(0), array.row, array.col, keys, length,
                                             in_pieces);
  }

  // Keys of a panel that a query of the warp may see.
  ISOBIT_DEVICE Range seen_by_warp(const Tile<float>& tile, std::int64_t first) const {
    const std::int64_t query = tile.first + warp() * 16;
    return {call.keys_of(tile.in, query).begin - first,
            call.keys_of(tile.in, query + 15).end - first};
  }

  ISOBIT_DEVICE void multiply_keys(const Memory& m, T* place, int part, const Range& seen,
                                   Scores& scores) const {
    mma::multiply_part<T>(Queries(m.queries + part * Queries::kElements), Keys(place),
                          inside(call.p.head_dim - part * kPart, kPart), seen, scores);
  }

  // Products become weights, and a part of what is known of their queries.
  ISOBIT_DEVICE void weigh(const Memory& m, const Tile<float>& tile, std::int64_t first,
                           Scores& scores, State& state, Folds& folds, Weights& weights) const {
    if (is_plain())
      treat(tile, first, scores);
    else
      treat_each(m, tile, first, scores);
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
    const Scaling<float> scaling = tile.scaling;
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
  ISOBIT_DEVICE void treat_each(const Memory& m, const Tile<float>& tile, std::int64_t first,
                                Scores& scores) const {
    const Scaling<float> scaling = tile.scaling;
    float* const own = m.scores + warp() * 16 * kPanel;
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

  ISOBIT_DEVICE Chunk* sums_at(const Memory& m, int part, int j) const {
    return m.sums + (part * kOfColumns + j) * kMostThreads + simt::thread();
  }

  // The product of weights and some columns of v, which becomes a part of the sums.
  ISOBIT_DEVICE void add_values(const Memory& m, T* place, int part, const Range& seen,
                                const Weights& weights, const Folds& folds) const {
    mma::Sums chain;
    mma::multiply_panel<T>(place, seen, weights, chain);
#pragma unroll
    for (int j = 0; j < kOfColumns; ++j) {
      Chunk sums = simt::load_shared(sums_at(m, part, j));
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums.elements[e] = S::fma(sums.elements[e], folds.first[e / 2],
                                  S::mul(chain[j][e], folds.second[e / 2] * (1 / kLift<T>)));
      simt::store_shared(sums_at(m, part, j), sums);
    }
  }
  ISOBIT_DEVICE void clear(const Memory& m, State& state) const {
    state = {{-kInfinity<float>, -kInfinity<float>}, {0, 0}};
    const int count = static_cast<int>(numbers()) / Chunk::kCount;
#pragma unroll 1
    for (int i = 0; i < count; ++i) simt::store_shared(sums_at(m, 0, i), Chunk{});
  }
  // Each thread keeps its own numbers.
  ISOBIT_DEVICE void keep(const Memory& m, float* at, const State& state) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      at[2 * r * kMostThreads] = state.max[r];
      at[(2 * r + 1) * kMostThreads] = state.sum[r];
    }
    at += 4 * kMostThreads;
    const int count = static_cast<int>(numbers()) / Chunk::kCount;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const Chunk sums = simt::load_shared(sums_at(m, 0, i));
#pragma unroll
      for (int e = 0; e < Chunk::kCount; ++e, at += kMostThreads) *at = sums.elements[e];
    }
  }
  ISOBIT_DEVICE void fold(const Memory& m, const float* at, State& state) const {
    Folds folds;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto fold = Fold<S>::of(at[2 * r * kMostThreads], state.max[r]);
      state.sum[r] = fold(at[(2 * r + 1) * kMostThreads], state.sum[r]);
      state.max[r] = fold.max;
      folds.first[r] = fold.first;
      folds.second[r] = fold.second;
    }
    at += 4 * kMostThreads;
    const int count = static_cast<int>(numbers()) / Chunk::kCount;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      Chunk sums = simt::load_shared(sums_at(m, 0, i));
#pragma unroll
      for (int e = 0; e < Chunk::kCount; ++e, at += kMostThreads)
        sums.elements[e] =
            S::fma(*at, folds.first[e / 2], S::mul(sums.elements[e], folds.second[e / 2]));
      simt::store_shared(sums_at(m, 0, i), sums);
    }
  }

  ISOBIT_DEVICE void finish(const Memory& m, const Tile<float>& tile, const State& state) const {
    const Problem& p = call.p;
    const std::int64_t first = tile.in.queries.begin + tile.first;
    const float more = p.dropout > 0 ? call.dropout().scale : 1.0F;
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      inverse[r] = S::mul(inverse_of<S>(state.max[r], state.sum[r]), more);
      if (column() == 0 && row_of(r) < tile.queries)
        call.put(tile.in.batch, tile.head, first + row_of(r), state.max[r], state.sum[r]);
    }
    simt::sync_block();  // the places have been read
    mma::put_rows<T>(m.places + warp() * 16 * kPart, p.y,
                     p.y.at(tile.in.batch, tile.head, first + warp() * 16),
                     tile.queries - warp() * 16, p.value_dim, y_in_pieces,
                     [&](int part, int j, unsigned(&words)[2]) {
                       const Chunk sums = simt::load_shared(sums_at(m, part, j));
#pragma unroll
                       for (int r = 0; r < 2; ++r)
                         words[r] = narrow_pair<T>(y_of<S>(sums.elements[2 * r], inverse[r]),
                                                   y_of<S>(sums.elements[2 * r + 1], inverse[r]));
                     });
  }
};

}  // namespace isobit::attention
