// SPDX-License-Identifier: Apache-2.0
// flash for GPUs: a block takes some queries of a head, and panel after panel of their keys. Both
// products are made in registers; weights pass from one to the other through shared memory, where
// the sums of a run stand, too.
#pragma once

#include "isobit/ops/attention/cuda_call.h"
#include "isobit/ops/attention/cuda_tiles.h"
#include "isobit/ops/attention/cuda_weights.h"
#include "isobit/tile/register_tile.h"

namespace isobit::attention {

constexpr int kBlock = 256;   // threads, 16 x 16
constexpr int kDepth = 16;    // of a product that shared memory holds at once
constexpr int kColumns = 64;  // of v, of which there is room for a multiple

// kRows queries a thread.
template <class T, int kRows>
struct Flash {
  static constexpr int kMostThreads = kBlock;
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;
  using Chunk = tile::Chunk<Real>;
  static constexpr int kCount = Chunk::kCount, kAcross = tile::kAcross;
  static constexpr int kQueries = kAcross * kRows, kKeys = kPanel / kAcross;
  static constexpr int kQueryPitch = kQueries + kCount, kPitch = kPanel + kCount;
  static constexpr int kMostCols = 8;  // columns of v of a thread at once
  Call<T> call;
  Tiles<T, kQueries> tiles;
  int levels;    // of runs that are not joined yet
  Real* states;  // theirs: block, level, number, thread

  Flash(const Problem& p, std::byte* workspace)
      : call{p}, tiles(p), levels(waiting_of(p)), states(reinterpret_cast<Real*>(workspace)) {}

  struct Memory {
    Real *queries, *weights, *sums, *part;
    const std::byte **k, **v;  // rows of a panel whose keys lie in blocks
    Tile<Real>* tile;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Memory m{};
    m.queries =
        carver.template take<Real>((call.p.head_dim + kDepth - 1) / kDepth * kDepth * kQueryPitch);
    m.weights = carver.template take<Real>(kPanel * kQueries);
    m.sums = carver.template take<Real>(numbers() * kBlock);
    m.part = carver.template take<Real>(kDepth * kPitch);
    m.k = carver.template take<const std::byte*>(call.p.blocks ? kPanel : 0);
    m.v = carver.template take<const std::byte*>(call.p.blocks ? kPanel : 0);
    m.tile = carver.template take<Tile<Real>>(1);
    return m;
  }
  // Sums of weights times v that a thread has, and what is kept of a run beside them.
  ISOBIT_EITHER std::int64_t numbers() const {
    return (call.p.value_dim + kColumns - 1) / kColumns * (kColumns / kAcross) * kRows;
  }
  ISOBIT_EITHER std::int64_t state_size() const { return (numbers() + 2) * kBlock; }

  ISOBIT_DEVICE void operator()(const Memory& m) const {
    tiles.each(call, m.tile, [&](const Tile<Real>& tile) { compute(m, tile); });
  }

 private:
  // What is known of a query, and how it is folded. Of the queries that 16 threads share each knows
  // one, if there are so many: the i-th that of their i-th row.
  struct State {
    Real max, sum;
  };
  struct Folds {
    Real first, second;
  };
  ISOBIT_DEVICE static Real from_row(Real value, int i) {
    return simt::shuffle(value, simt::lane() / kAcross * kAcross + i);
  }

  ISOBIT_DEVICE static int across() { return simt::thread() % kAcross; }
  ISOBIT_DEVICE static int down() { return simt::thread() / kAcross; }
  ISOBIT_DEVICE static int row_of(int i) { return tile::lane_of<Real>(down(), i); }
  ISOBIT_DEVICE static int key_of(int j) { return tile::lane_of<Real>(across(), j); }

  ISOBIT_DEVICE void compute(const Memory& m, const Tile<Real>& tile) const {
    const Problem& p = call.p;
    const T* q = reinterpret_cast<const T*>(
        p.q.at(tile.in.batch, tile.head, tile.in.queries.begin + tile.first));
#pragma unroll 1
    for (std::int64_t d = 0; d < p.head_dim; d += kDepth)
      tile::bring<kQueries, kDepth, kQueryPitch>(q + d * p.q.col, p.q.row, p.q.col, tile.queries,
                                                 p.head_dim - d, m.queries + d * kQueryPitch);
    const std::int64_t begin = tile.in.held.begin, runs = runs_of(tile);
    State state;
#pragma unroll 1
    for (std::int64_t run = 0; run < runs; ++run) {
      clear(m, state);
#pragma unroll 1
      for (std::int64_t at = 0; at < kRun; ++at) {
        const std::int64_t first = begin + (run * kRun + at) * kPanel;
        if (first < tile.keys.end && first + kPanel > tile.keys.begin) take(m, tile, first, state);
      }
      join_runs(
          states, state_size(), levels, run, run == runs - 1, [&](Real* at) { keep(m, at, state); },
          [&](const Real* at) { fold_from(m, at, state); });
    }
    finish(m, tile, state);
  }

  ISOBIT_DEVICE Chunk* sums_at(const Memory& m, std::int64_t chunk, int row) const {
    return reinterpret_cast<Chunk*>(m.sums) + (chunk * kRows + row) * kBlock + simt::thread();
  }
  ISOBIT_DEVICE std::int64_t chunks() const { return numbers() / kRows / kCount; }

  ISOBIT_DEVICE void clear(const Memory& m, State& state) const {
    state = {-kInfinity<Real>, 0};
#pragma unroll 1
    for (std::int64_t chunk = 0; chunk < chunks(); ++chunk)
#pragma unroll
      for (int i = 0; i < kRows; ++i) simt::store_shared(sums_at(m, chunk, i), Chunk{});
  }

  // A panel of keys.
  ISOBIT_DEVICE void take(const Memory& m, const Tile<Real>& tile, std::int64_t first,
                          State& state) const {
    const Problem& p = call.p;
    if (p.head_dim == 0) simt::sync_block();  // no product waits for those who read weights
    if (p.blocks) find_rows(m, tile, first);
    {
      Real products[kRows][kKeys] = {};
      multiply_keys(m, tile, first, products);
      put(m, products);
    }
    const bool plain = !(tile.scaling.caps || p.bias || p.mask || p.slopes);
    if (!plain) treat_each(m, tile, first);
    Folds folds{};
#pragma unroll 1
    for (int i = 0; i < kRows; i += kCount) {
      Real scores[kCount][kKeys];
      take_back(m, i, scores);
      if (plain) treat(tile, first, i, scores);
      weigh(i, scores, state, folds);
      put(m, scores, i);
    }
    if (p.dropout > 0) drop(m, tile, first);
#pragma unroll 1
    for (std::int64_t col = 0; col < p.value_dim; col += kAcross * kMostCols)
      if (p.value_dim - col > kColumns)
        add_values<kMostCols>(m, tile, first, col, folds);
      else
        add_values<kColumns / kAcross>(m, tile, first, col, folds);
  }

  // Where the rows of a panel lie.
  ISOBIT_DEVICE void find_rows(const Memory& m, const Tile<Real>& tile, std::int64_t first) const {
    const std::int64_t key = first + simt::thread();
    if (simt::thread() < kPanel && key < tile.keys.end) {
      m.k[simt::thread()] = call.key_at(call.p.k, tile.in, tile.kv_head, key);
      m.v[simt::thread()] = call.key_at(call.p.v, tile.in, tile.kv_head, key);
    }
  }

  ISOBIT_DEVICE void multiply_keys(const Memory& m, const Tile<Real>& tile, std::int64_t first,
                                   Real (&scores)[kRows][kKeys]) const {
    const Problem& p = call.p;
    const std::byte* const k = p.blocks ? nullptr : call.key_at(p.k, tile.in, tile.kv_head, first);
#pragma unroll 1
    for (std::int64_t d = 0; d < p.head_dim; d += kDepth) {
      simt::sync_block();  // what was there has been read; where rows are has been written
      const std::int64_t keys = tile.keys.end - first, depth = p.head_dim - d;
      if (p.blocks)
        tile::bring<kPanel, kDepth, kPitch>(
            p.k.col == 1, keys, depth,
            [&](int key, int at) {
              return simt::Conversions::template widen<Real>(
                  reinterpret_cast<const T*>(m.k[key])[(d + at) * p.k.col]);
            },
            m.part);
      else
        tile::bring<kPanel, kDepth, kPitch>(reinterpret_cast<const T*>(k) + d * p.k.col, p.k.row,
                                            p.k.col, keys, depth, m.part);
      simt::sync_block();
#pragma unroll
      for (int at = 0; at < kDepth; ++at) {
        Real rows[kRows], cols[kKeys];
        tile::take(m.queries + (d + at) * kQueryPitch, down(), rows);
        tile::take(m.part + at * kPitch, across(), cols);
        tile::multiply_add(rows, cols, scores);
      }
    }
  }

  // Products become exponents: -infinity for what is not there.
  ISOBIT_DEVICE void treat(const Tile<Real>& tile, std::int64_t first, int row,
                           Real (&scores)[kCount][kKeys]) const {
    const Scaling<Real> scaling = tile.scaling;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const Range keys = call.keys_of(tile.in, tile.first + row_of(row + i));
      const int begin = static_cast<int>(Problem::within(keys.begin - first, kPanel));
      const int end = static_cast<int>(Problem::within(keys.end - first, kPanel));
#pragma unroll
      for (int j = 0; j < kKeys; ++j)
        scores[i][j] = begin <= key_of(j) && key_of(j) < end ? exponent_of<S>(scaling, scores[i][j])
                                                             : -kInfinity<Real>;
    }
  }
  // The same of what has more to it, where they wait: a warp takes its queries, a chunk of them
  // after the other, and their keys side by side, as what is added to them lies in memory. Of these
  // eight threads have keys that are mixed differently.
  ISOBIT_DEVICE void treat_each(const Memory& m, const Tile<Real>& tile, std::int64_t first) const {
    constexpr int kMixed = 8, kAtOnce = simt::kWarpThreads;
    const Scaling<Real> scaling = tile.scaling;
    const int lane = simt::lane(), turn = lane / kMixed;
    const int of_lane = (turn / kCount * kMixed + lane % kMixed) * kCount + turn % kCount;
    const int down_of_warp = simt::thread() / kAtOnce * (kAtOnce / kAcross);
    simt::sync_warp();  // all have been put there
#pragma unroll 1
    for (int i = 0; i < kAtOnce / kAcross * kRows; i += kCount) {
      const int row = tile::lane_of<Real>(down_of_warp + i / kRows, i % kRows);
      typename Call<T>::Row rows[kCount];
#pragma unroll
      for (int e = 0; e < kCount; ++e) rows[e] = attention::row_of(call, tile, row + e);
#pragma unroll 1
      for (int key = of_lane; key < kPanel; key += kAtOnce) {
        auto* const at = reinterpret_cast<Chunk*>(weight_at(m, row, key));
        Chunk scores = simt::load_shared(at);
#pragma unroll
        for (int e = 0; e < kCount; ++e)
          scores.elements[e] =
              call.exponent(scaling, tile.in, rows[e], first + key, scores.elements[e]);
        simt::store_shared(at, scores);
      }
    }
    simt::sync_warp();
  }

  ISOBIT_DEVICE static void weigh(int row, Real (&scores)[kCount][kKeys], State& state,
                                  Folds& folds) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const auto [top, sum] = weigh_panel(scores[i]);
      if (across() == row + i) fold_state(state.max, state.sum, top, sum, state, folds);
    }
  }
  ISOBIT_DEVICE static void fold_state(Real max, Real sum, Real other_max, Real other_sum,
                                       State& state, Folds& folds) {
    const auto fold = Fold<S>::of(max, other_max);
    state = {fold.max, fold(sum, other_sum)};
    folds = {fold.first, fold.second};
  }

  // Chunks of queries of a key are mixed by its number: threads side by side, whose keys are
  // neighbours, have theirs in different banks.
  ISOBIT_DEVICE static int mixed(int key) { return key / kCount % 8; }
  ISOBIT_DEVICE static Real* weight_at(const Memory& m, int row, int key) {
    return m.weights + key * kQueries + ((row / kCount) ^ mixed(key)) * kCount + row % kCount;
  }
  // A thread's own numbers, or those of some of its rows.
  template <int kCountOfRows>
  ISOBIT_DEVICE static void put(const Memory& m, const Real (&rows)[kCountOfRows][kKeys],
                                int first = 0) {
#pragma unroll
    for (int j = 0; j < kKeys; ++j)
#pragma unroll
      for (int i = 0; i < kCountOfRows; i += kCount) {
        Chunk chunk;
#pragma unroll
        for (int e = 0; e < kCount; ++e) chunk.elements[e] = rows[i + e][j];
        simt::store_shared(reinterpret_cast<Chunk*>(weight_at(m, row_of(first + i), key_of(j))),
                           chunk);
      }
  }
  ISOBIT_DEVICE static void take_back(const Memory& m, int first, Real (&rows)[kCount][kKeys]) {
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      const auto chunk =
          simt::load_shared(reinterpret_cast<const Chunk*>(weight_at(m, row_of(first), key_of(j))));
#pragma unroll
      for (int e = 0; e < kCount; ++e) rows[e][j] = chunk.elements[e];
    }
  }

  // A thread's own weights.
  ISOBIT_DEVICE void drop(const Memory& m, const Tile<Real>& tile, std::int64_t first) const {
    const Dropout<Real> dropout = call.dropout();
#pragma unroll 1
    for (int at = 0; at < kRows * kKeys; at += kCount) {
      const int row = row_of(at / kKeys), key = key_of(at % kKeys);
      const std::int64_t counted = first - tile.in.held.begin + key;
      const auto words = dropout.words(tile.in.number, tile.head, tile.first + row, counted / 4);
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        Real& weight = *weight_at(m, row, key + e);
        weight = !is_left_out(weight) && dropout.keeps(words, counted + e)
                     ? S::mul(weight, dropout.scale)
                     : -Real(0);
      }
    }
  }

  // The product of weights and some columns of v, which becomes a part of the sums.
  template <int kCols>
  ISOBIT_DEVICE void add_values(const Memory& m, const Tile<Real>& tile, std::int64_t first,
                                std::int64_t col, const Folds& folds) const {
    const Problem& p = call.p;
    const auto* const v = reinterpret_cast<const T*>(
        p.blocks ? nullptr : call.key_at(p.v, tile.in, tile.kv_head, first));
    const int begin = static_cast<int>(Problem::within(tile.keys.begin - first, kPanel));
    const int end = static_cast<int>(Problem::within(tile.keys.end - first, kPanel));
    Real chain[kRows][kCols] = {};
#pragma unroll 1
    for (int key = begin / kDepth * kDepth; key < end; key += kDepth) {
      simt::sync_block();  // what was there has been read; weights have been written
      const std::int64_t cols = p.value_dim - col;
      Real spoilt;
      if (p.blocks)
        spoilt = tile::bring<kAcross * kCols, kDepth, kPitch>(
            p.v.col != 1, cols, end - key,
            [&](int c, int at) {
              return simt::Conversions::template widen<Real>(
                  reinterpret_cast<const T*>(m.v[key + at])[(col + c) * p.v.col]);
            },
            m.part);
      else
        spoilt = tile::bring<kAcross * kCols, kDepth, kPitch>(
            v + key * p.v.row + col * p.v.col, p.v.col, p.v.row, cols, end - key, m.part);
      if (simt::any_in_block(spoilt != 0))
        multiply_what_is_there(m, key, chain);
      else
        multiply_values(m, key, chain);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const Real first_part = from_row(folds.first, i), second_part = from_row(folds.second, i);
#pragma unroll
      for (int j = 0; j < kCols; j += kCount) {
        Chunk* const at = sums_at(m, col / (kAcross * kCount) + j / kCount, i);
        Chunk sums = simt::load_shared(at);
#pragma unroll
        for (int e = 0; e < kCount; ++e)
          sums.elements[e] =
              S::fma(sums.elements[e], first_part, S::mul(chain[i][j + e], second_part));
        simt::store_shared(at, sums);
      }
    }
  }
  template <int kCols>
  ISOBIT_DEVICE static void multiply_values(const Memory& m, int key, Real (&chain)[kRows][kCols]) {
#pragma unroll
    for (int at = 0; at < kDepth; ++at) {
      Real rows[kRows], cols[kCols];
      tile::take(m.weights + (key + at) * kQueries, down(), rows, mixed(key + at));
      tile::take(m.part + at * kPitch, across(), cols);
      tile::multiply_add(rows, cols, chain);
    }
  }
  template <int kCols>
  ISOBIT_DEVICE static void multiply_what_is_there(const Memory& m, int key,
                                                   Real (&chain)[kRows][kCols]) {
#pragma unroll 1
    for (int at = 0; at < kDepth; ++at) {
      Real rows[kRows], cols[kCols];
      tile::take(m.weights + (key + at) * kQueries, down(), rows, mixed(key + at));
      tile::take(m.part + at * kPitch, across(), cols);
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kCols; ++j)
          if (!is_left_out(rows[i])) chain[i][j] = S::fma(rows[i], cols[j], chain[i][j]);
    }
  }

  // Each thread keeps its own numbers.
  ISOBIT_DEVICE void keep(const Memory& m, Real* at, const State& state) const {
    at[0] = state.max;
    at[kBlock] = state.sum;
    at += 2 * kBlock;
#pragma unroll 1
    for (std::int64_t chunk = 0; chunk < chunks(); ++chunk)
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const Chunk sums = simt::load_shared(sums_at(m, chunk, i));
#pragma unroll
        for (int e = 0; e < kCount; ++e, at += kBlock) *at = sums.elements[e];
      }
  }
  ISOBIT_DEVICE void fold_from(const Memory& m, const Real* at, State& state) const {
    Folds folds{};
    fold_state(at[0], at[kBlock], state.max, state.sum, state, folds);
    at += 2 * kBlock;
#pragma unroll 1
    for (std::int64_t chunk = 0; chunk < chunks(); ++chunk)
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const Real first = from_row(folds.first, i), second = from_row(folds.second, i);
        Chunk sums = simt::load_shared(sums_at(m, chunk, i));
#pragma unroll
        for (int e = 0; e < kCount; ++e, at += kBlock)
          sums.elements[e] = S::fma(*at, first, S::mul(sums.elements[e], second));
        simt::store_shared(sums_at(m, chunk, i), sums);
      }
  }

  ISOBIT_DEVICE void finish(const Memory& m, const Tile<Real>& tile, const State& state) const {
    const Problem& p = call.p;
    const std::int64_t first = tile.in.queries.begin + tile.first;
    if (across() < kRows && row_of(across()) < tile.queries)
      call.put(tile.in.batch, tile.head, first + row_of(across()), state.max, state.sum);
    const Real inverses = inverse_of<S>(state.max, state.sum);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const Real inverse = from_row(inverses, i);
      if (row_of(i) >= tile.queries) continue;
      std::byte* const y = p.y.at(tile.in.batch, tile.head, first + row_of(i));
#pragma unroll 1
      for (std::int64_t chunk = 0; chunk < chunks(); ++chunk) {
        const Chunk sums = simt::load_shared(sums_at(m, chunk, i));
        const std::int64_t col = (chunk * kAcross + across()) * kCount;
#pragma unroll
        for (int e = 0; e < kCount; ++e)
          if (col + e < p.value_dim)
            reinterpret_cast<T*>(y)[(col + e) * p.y.col] =
                simt::Conversions::template narrow<T>(y_of<S>(sums.elements[e], inverse));
      }
    }
  }
};

}  // namespace isobit::attention
