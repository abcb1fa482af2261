// SPDX-License-Identifier: Apache-2.0
// Tiles whose rows are fetched in bulk while another tile is turned.
#pragma once

#include <cstdint>

#include "isobit/ops/transpose/cuda_tiles.h"
#include "isobit/simt/simt.h"

namespace isobit::transpose {

// Each row of a tile of x lands in one piece, so its vectors cannot be exchanged; but rows may
// start where they like. Those of each group that a thread turns start one vector later than those
// of the group before. So eight threads of eight groups, which read one vector each, find eight
// different groups of banks, and lie side by side in a row of y, to which they store from
// registers.
template <class From, class To>
struct Bulk {
  static constexpr int kMostThreads = 512;  // they leave a thread 128 registers
  using Turn = transpose::Turn<From, To>;
  using X = typename Turn::X;
  using Y = typename Turn::Y;
  static constexpr int kRows = Turn::kRows, kCols = Turn::kCols;

  Tiles<From, To> tiles;
  int threads, across_log, down_log;  // threads beside each other in a row of x, and in one of y
  int places;                         // tiles in shared memory; a power of two

  Bulk(const Problem& problem, int across_log, int down_log, int places)
      : tiles(problem, kRows << down_log, kCols << across_log),
        threads(1 << (across_log + down_log)),
        across_log(across_log),
        down_log(down_log),
        places(places) {}

  struct Memory {
    X* vectors;
    simt::Arrival* arrived;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    X* vectors = carver.template take<X>(std::int64_t{places} * vectors_of_place(), 128);
    return {vectors, carver.template take<simt::Arrival>(places)};
  }

  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    if (simt::thread() == 0) {
#pragma unroll 1
      for (int place = 0; place < places; ++place) simt::arrival_init(&memory.arrived[place], 1);
      simt::publish_arrivals();
    }
    simt::sync_block();
    const int ahead = places - 1;
#pragma unroll 1
    for (int turn = 0; turn < ahead; ++turn)
      order(memory, turn, simt::block() + turn * simt::blocks());
    unsigned turn = 0;
#pragma unroll 1
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      order(memory, turn + ahead, index + ahead * simt::blocks());
      const int place = place_of(turn);
      const bool odd = (turn & static_cast<unsigned>(places)) != 0;
      simt::arrival_wait(&memory.arrived[place], odd ? 1 : 0);
      turn_tile(tiles[index], memory.vectors + place * vectors_of_place());
      simt::sync_block();  // nobody needs the place any more
      ++turn;
    }
  }

 private:
  ISOBIT_EITHER int vectors_of_place() const {
    return (kRows << (down_log + across_log)) + (1 << down_log);
  }
  ISOBIT_DEVICE int place_of(unsigned turn) const {
    return static_cast<int>(turn & static_cast<unsigned>(places - 1));
  }
  ISOBIT_DEVICE int row_at(int row) const { return (row << across_log) + row / kRows; }

  // The lanes of one warp order a row each.
  ISOBIT_DEVICE void order(const Memory& memory, unsigned turn, std::int64_t index) const {
    if (simt::thread() >= simt::kWarpThreads || index >= tiles.count()) return;
    const Tile<From, To> tile = tiles[index];
    const int place = place_of(turn), bytes = tile.cols * static_cast<int>(sizeof(From));
    simt::Arrival* arrived = &memory.arrived[place];
    if (simt::thread() == 0) simt::arrival_expect(arrived, tile.rows * bytes);
    simt::sync_warp();
    X* vectors = memory.vectors + place * vectors_of_place();
#pragma unroll 1
    for (int row = simt::thread(); row < tile.rows; row += simt::kWarpThreads)
      simt::copy_bulk(vectors + row_at(row), tile.x + row * tiles.rows.x_stride, bytes, arrived);
  }

  ISOBIT_DEVICE void turn_tile(const Tile<From, To>& tile, const X* vectors) const {
    const int row = simt::thread() & ((1 << down_log) - 1), col = simt::thread() >> down_log;
    if (row * kRows >= tile.rows) return;
    Words x[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      x[k] = words_of(simt::load_shared(vectors + row_at(row * kRows + k) + col));
    To* to = tile.y + col * kCols * tiles.cols.y_stride + row * kRows;
    Turn::run(x, [&](int k, const Y& y) {
      if (col * kCols + k < tile.cols)
        simt::store_once(reinterpret_cast<Y*>(to + k * tiles.cols.y_stride), y);
    });
  }
};

}  // namespace isobit::transpose
