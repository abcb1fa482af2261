// SPDX-License-Identifier: Apache-2.0
// The kernels of scan for GPUs that keep its order: a row a thread, a row a block, many blocks a
// row in three launches or in one.
#pragma once

#include "isobit/ops/scan/cuda_rows.h"

namespace isobit::scan {

constexpr int kWarps = 8;  // of a thread block: a tile is so many blocks of the order
constexpr int kTileLevel = 3;
constexpr int kTileThreads = kWarps * simt::kWarpThreads;

// A row a thread, group after group: along an outer dim neighbours read neighbours.
template <class M, class X, class Y>
struct RowScan {
  static constexpr int kMostThreads = 128;
  using Value = typename M::Value;
  Rows<M, X, Y> rows;

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t step = simt::blocks() * simt::threads();
    for (std::int64_t row = simt::block() * simt::threads() + simt::thread(); row < rows.count;
         row += step)
      scan_row(rows[row]);
  }

 private:
  ISOBIT_DEVICE static void scan_row(Row<M, X, Y> row) {
    const std::int64_t length = row.length;
    std::int64_t begin = 0;
    while (begin < length) {
      std::int64_t end = begin + 1;
      // In reverse a flag ends the segment that begins behind it.
      while (end < length && (row.reset == nullptr || !resets(row, end))) ++end;
      if (row.reset == nullptr) end = length;
      Row<M, X, Y> segment = row;
      segment.x += begin * row.x_stride;
      segment.y += begin * row.y_stride;
      if (row.index != nullptr) segment.index += begin * row.index_stride;
      segment.first = row.first + begin * row.step;
      segment.length = end - begin;
      scan_segment(segment);
      begin = end;
    }
  }
  // Whether a segment begins at i, counted from where the scan begins.
  ISOBIT_DEVICE static bool resets(const Row<M, X, Y>& row, std::int64_t i) {
    const std::int64_t at = row.first + i * row.step;
    const std::int64_t flag = row.step > 0 ? at : at + 1;
    return row.reset[flag * (row.reset_stride * row.step)] != 0;
  }

  ISOBIT_DEVICE static void scan_segment(const Row<M, X, Y>& row) {
    Tree<M> tree;
    Value nodes[5], e = M::neutral(), carry = M::neutral(), waiting = row.before();
    for (std::int64_t start = 0; start < row.length; start += kGroup) {
      Value values[kGroup];
#pragma unroll
      for (int i = 0; i < kGroup; ++i) values[i] = row.read(start + i);
      sklansky<M>(values);
      const Value base = M::combine(carry, e);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        if (start + i >= row.length) break;
        const Value scanned = M::combine(base, values[i]);
        const Value result = row.init == nullptr ? scanned : M::combine(row.before(), scanned);
        row.put(start + i, row.exclusive ? waiting : result);
        waiting = result;
      }
      const int group = static_cast<int>(start / kGroup % kGroups);
      Value total = values[kGroup - 1];
      e = total;
#pragma unroll
      for (int level = 0; level < 5; ++level)
        if (group >> level & 1) e = M::combine(nodes[level], e);
      if (group + 1 < kGroups) {
        int level = 0;
        for (; group >> level & 1; ++level) total = M::combine(nodes[level], total);
        nodes[level] = total;
      } else {
        tree.push(M::carry(e));
        carry = M::value(tree.carry());
        e = M::neutral();
      }
    }
  }
};

// A row a block of threads, tile after tile.
template <class M, class X, class Y>
struct OneBlock {
  static constexpr int kMostThreads = kTileThreads;
  using Carry = typename M::Carry;
  Rows<M, X, Y> rows;

  struct Memory {
    Carry *totals, *carries;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Carry* totals = carver.template take<Carry>(kWarps);
    return {totals, carver.template take<Carry>(kWarps)};
  }

  ISOBIT_DEVICE void operator()(const Memory& shared) const {
    const int warp = simt::thread() / simt::kWarpThreads;
    for (std::int64_t index = simt::block(); index < rows.count; index += simt::blocks()) {
      const Row<M, X, Y> row = rows[index];
      Tree<M> tree;  // thread 0's
      for (std::int64_t tile = 0; tile * kWarps * kBlock < row.length; ++tile) {
        const std::int64_t at = tile * kWarps + warp;
        const WarpBlock<M> block(row, at);
        if (simt::lane() == 0) shared.totals[warp] = M::carry(block.total);
        simt::sync_block();
        if (simt::thread() == 0)
          for (int i = 0; i < kWarps; ++i) {
            shared.carries[i] = tree.carry();
            tree.push(shared.totals[i]);
          }
        simt::sync_block();
        block.write(row, at, M::value(shared.carries[warp]));
      }
      simt::sync_block();
    }
  }
};

// The three launches of reduce_then_scan: the blocks' totals, what comes before each, the results.
template <class M, class X, class Y>
struct BlockTotals {
  static constexpr int kMostThreads = kTileThreads;
  Rows<M, X, Y> rows;
  std::int64_t in_row;
  typename M::Carry* totals;

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t first = simt::block() * kWarps + simt::thread() / simt::kWarpThreads;
    for (std::int64_t at = first; at < rows.count * in_row; at += simt::blocks() * kWarps) {
      const WarpBlock<M> block(rows[at / in_row], at % in_row);
      if (simt::lane() == 0) totals[at] = M::carry(block.total);
    }
  }
};

template <class M>
struct BlockCarries {
  static constexpr int kMostThreads = 128;
  std::int64_t rows, in_row;
  typename M::Carry* totals;  // and then what comes before each

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t step = simt::blocks() * simt::threads();
    for (std::int64_t row = simt::block() * simt::threads() + simt::thread(); row < rows;
         row += step) {
      Tree<M> tree;
      for (std::int64_t at = row * in_row; at < (row + 1) * in_row; ++at) {
        const typename M::Carry total = totals[at];
        totals[at] = tree.carry();
        tree.push(total);
      }
    }
  }
};

template <class M, class X, class Y>
struct BlockResults {
  static constexpr int kMostThreads = kTileThreads;
  Rows<M, X, Y> rows;
  std::int64_t in_row;
  const typename M::Carry* carries;

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t first = simt::block() * kWarps + simt::thread() / simt::kWarpThreads;
    for (std::int64_t at = first; at < rows.count * in_row; at += simt::blocks() * kWarps) {
      const Row<M, X, Y> row = rows[at / in_row];
      const WarpBlock<M> block(row, at % in_row);
      block.write(row, at % in_row, M::value(carries[at]));
    }
  }
};

// Zeros before a launch that counts and waits.
struct Clear {
  static constexpr int kMostThreads = 256;
  unsigned* words;
  std::int64_t count;

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t step = simt::blocks() * simt::threads();
    for (std::int64_t i = simt::block() * simt::threads() + simt::thread(); i < count; i += step)
      words[i] = 0;
  }
};

// One launch, a tile a block. Tile t of a row publishes one node of the tree: that of 2^k tiles
// which ends with it, k being the ones at the end of t. It waits for the nodes of the ones in t: 32
// at most, all of tiles before it, which tickets hand out first. So carries have the order of the
// tree, whoever is first.
template <class M, class X, class Y>
struct Lookback {
  static constexpr int kMostThreads = kTileThreads;
  using Carry = typename M::Carry;
  Rows<M, X, Y> rows;
  std::int64_t in_row;
  Carry* nodes;
  unsigned *published, *ticket;

  struct Memory {
    Carry *totals, *before;
    unsigned* tile;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Carry* totals = carver.template take<Carry>(kWarps);
    Carry* before = carver.template take<Carry>(simt::kWarpThreads);
    return {totals, before, carver.template take<unsigned>(1)};
  }

  ISOBIT_DEVICE void operator()(const Memory& shared) const {
    if (simt::thread() == 0) *shared.tile = simt::add_acquire_release(ticket, 1);
    simt::sync_block();
    const std::int64_t all = *shared.tile, index = all / in_row;
    const auto tile = static_cast<unsigned>(all - index * in_row);
    const Row<M, X, Y> row = rows[index];
    const int warp = simt::thread() / simt::kWarpThreads;
    const std::int64_t at = std::int64_t{tile} * kWarps + warp;
    const WarpBlock<M> block(row, at);
    if (simt::lane() == 0) shared.totals[warp] = M::carry(block.total);
    simt::sync_block();
    if (warp == 0) look_back(shared, index * in_row, tile);
    simt::sync_block();
    Carry carry{};
    if (simt::lane() == 0) carry = carry_of(shared, tile, warp);
    block.write(row, at, from_lane(M::value(carry), 0));
  }

 private:
  // The nodes before a tile into shared.before, by a warp; that which ends with it is published as
  // soon as it can be.
  ISOBIT_DEVICE void look_back(const Memory& shared, std::int64_t first, unsigned tile) const {
    const auto lane = static_cast<unsigned>(simt::lane());
    int ones = 0;
    while (tile >> ones & 1) ++ones;
    if (simt::lane() < ones) await(shared, first, tile);
    simt::sync_warp();
    if (lane == 0) {
      Tree<M> tree;
      for (int i = 0; i < kWarps; ++i) tree.push(shared.totals[i]);
      Carry node = tree.node(kTileLevel);
      for (int level = 0; level < ones; ++level) node = M::join(shared.before[level], node);
      nodes[first + tile] = node;
      simt::store_release(published + first + tile, 1);
    }
    if (simt::lane() > ones && (tile >> lane & 1)) await(shared, first, tile);
  }
  // The node of this lane's one in `tile`, from the tile that it ends with.
  ISOBIT_DEVICE void await(const Memory& shared, std::int64_t first, unsigned tile) const {
    const auto lane = static_cast<unsigned>(simt::lane());
    const std::int64_t last = first + ((tile >> lane) << lane) - 1;
    while (simt::load_acquire(published + last) == 0) {}
    shared.before[lane] = nodes[last];
  }
  ISOBIT_DEVICE Carry carry_of(const Memory& shared, unsigned tile, int warp) const {
    Tree<M> tree;
    for (int level = 31; level >= 0; --level)
      if (tile >> level & 1) tree.push(shared.before[level], level + kTileLevel);
    for (int i = 0; i < warp; ++i) tree.push(shared.totals[i]);
    return tree.carry();
  }
};

}  // namespace isobit::scan
