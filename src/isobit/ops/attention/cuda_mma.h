// SPDX-License-Identifier: Apache-2.0
// flash by the tensor cores of NVIDIA's GPUs from sm_80 on, of 16-bit elements: a warp takes 16
// queries, whose scores of a panel of keys, and then weights, are in its registers.
#pragma once

#include <cstdint>

#include "isobit/ops/attention/cuda_rows.h"
#include "isobit/tile/copy_ring.h"
#include "isobit/tile/matrix_tile.h"

namespace isobit::attention {

// kWarps warps of 16 queries.
template <class T, int kWarps>
struct FlashMma : WarpRows<T> {
  using Base = WarpRows<T>;
  using Base::call, Base::is_plain, Base::kInPlace, Base::kOfColumns, Base::kOfKeys, Base::put_part,
      Base::put_state, Base::weigh;
  using typename Base::Chunk, typename Base::Folds, typename Base::Rows, typename Base::S,
      typename Base::Scores, typename Base::State, typename Base::Sums, typename Base::Weights;
  static constexpr int kMostThreads = kWarps * simt::kWarpThreads, kQueries = 16 * kWarps;
  static constexpr int kPlaces = mma::kPlaces;
  using Real = float;
  using Queries = tile::OperandTile<T, kQueries, kPart, true>;
  using Keys = tile::OperandTile<T, kPanel, kPart, true>;
  using Lines = tile::MatrixTile<T, kPanel, kPart>;  // the same of v, key by key

  Tiles<T, kQueries> tiles;
  int levels;     // of runs that are not joined yet
  float* states;  // theirs: block, level, number, thread
  bool q_in_pieces, k_in_pieces, v_in_pieces, y_in_pieces;

  FlashMma(const Problem& p, std::byte* workspace)
      : Base{{p}},
        tiles(p),
        levels(waiting_of(p)),
        states(reinterpret_cast<float*>(workspace)),
        q_in_pieces(in_pieces(p.q)),
        k_in_pieces(in_pieces(p.k)),
        v_in_pieces(in_pieces(p.v)),
        y_in_pieces(in_pieces(p.y)) {}

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
  // Sums of weights times v that a thread has, and what is kept of a run beside them.
  ISOBIT_EITHER std::int64_t numbers() const { return parts_of(call.p.value_dim) * kOfColumns * 4; }
  ISOBIT_EITHER std::int64_t state_size() const { return (numbers() + 4) * kMostThreads; }

  ISOBIT_DEVICE void operator()(const Memory& m) const {
    tiles.each(call, m.tile, [&](const Tile<float>& tile) { compute(m, tile); });
  }

 private:
  ISOBIT_DEVICE int parts_of_k() const { return mma::turns_of(call.p.head_dim); }

  ISOBIT_DEVICE void compute(const Memory& m, const Tile<float>& tile) const {
    bring_queries(m, tile);
    const std::int64_t runs = runs_of(tile);
    const int of_k = parts_of_k(), parts = of_k + static_cast<int>(parts_of(call.p.value_dim));
    State state;
#pragma unroll 1
    for (std::int64_t run = 0; run < runs; ++run) {
      clear(m, state);
      const Panels panels = panels_of(tile, run);
      Scores scores;
      Weights weights;
      Folds folds{};
      int panel = 0, part = 0;
      tile::in_turns<kPlaces>(
          std::int64_t{panels.count} * parts,
          [&](std::int64_t turn, int place) {
            const int of_panel = static_cast<int>(turn) / parts;
            bring(tile, panels.first + of_panel * kPanel, static_cast<int>(turn) - of_panel * parts,
                  m.places + place * kInPlace);
          },
          [&](int place) {
            const std::int64_t key = panels.first + panel * kPanel;
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
              if (part == of_k - 1)
                weigh(m.scores + warp() * 16 * kPanel, tile, key, scores, state, folds, weights);
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

  ISOBIT_DEVICE Chunk* sums_at(const Memory& m, int part, int j) const {
    return m.sums + (part * kOfColumns + j) * kMostThreads + simt::thread();
  }

  // The product of weights and some columns of v, which becomes a part of the sums. What is not
  // finite in v reaches the queries that see it alone, so tensor cores have zeros in its place.
  ISOBIT_DEVICE void add_values(const Memory& m, T* place, int part, const Range& seen,
                                const Weights& weights, const Folds& folds) const {
    Sums chain;
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
    Base::template keep_state<kMostThreads>(at, state);
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
    const Folds folds = Base::template fold_state<kMostThreads>(at, state);
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
    float inverse[2];
    put_state(tile, state, inverse);
    simt::sync_block();  // the places have been read
    T* const rows = m.places + warp() * Rows::kElements;
    const int parts = static_cast<int>(parts_of(call.p.value_dim));
#pragma unroll 1
    for (int part = 0; part < parts; ++part)
      put_part(rows, tile, part, inverse, y_in_pieces,
               [&](int j) { return simt::load_shared(sums_at(m, part, j)); });
  }
};

}  // namespace isobit::attention
