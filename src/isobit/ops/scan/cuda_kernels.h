// SPDX-License-Identifier: Apache-2.0
// The kernels of scan for GPUs that keep its order: a row a thread, a row a block, many blocks a
// row in three launches or in one.
#pragma once

#include "isobit/ops/scan/cuda_rows.h"

namespace isobit::scan {

constexpr int kWidest = 256;  // threads of a block, each warp of which has a block of the order

// A row a thread, group after group: along an outer dim neighbours read neighbours.
template <class M, class X, class Y>
struct RowScan {
  static constexpr int kMostThreads = kWidest;
  using Value = typename M::Value;
  // A group of larger values, those of products of doubles, takes more registers than there are.
  static constexpr bool kInRegisters = sizeof(Value) <= 16;
  Rows<M, X, Y> rows;
  int warps;

  ISOBIT_EITHER std::byte* memory(simt::Carver& carver) const {
    return carver.take<std::byte>(warps * rows.staged_bytes());
  }
  ISOBIT_DEVICE void operator()(std::byte* shared) const {
    const std::int64_t step = simt::blocks() * simt::threads();
    std::int64_t first = simt::block() * simt::threads() + simt::thread() - simt::lane();
    for (; first < rows.count; first += step) {
      const std::int64_t left = rows.count - first;
      const int count = left < simt::kWarpThreads ? static_cast<int>(left) : simt::kWarpThreads;
      const Row<M, X, Y> row = rows[first + (simt::lane() < count ? simt::lane() : 0)];
      if (row.reset == nullptr)
        scan_segment(row, Together(rows, row, count, rows.staged(shared)));
      else if (simt::lane() < count)
        scan_row(row);
    }
  }

 private:
  // The rows of a warp whose groups pass through shared memory, array by array: those that are
  // adjacent along the row.
  struct Together {
    int count = 0;  // 0: each row is alone
    bool x = false, y = false, x_on_pieces = false, y_on_pieces = false;
    std::byte* staged = nullptr;

    // Whether this lane has one.
    ISOBIT_DEVICE bool has_row() const { return count == 0 || simt::lane() < count; }

    Together() = default;
    ISOBIT_DEVICE Together(const Rows<M, X, Y>& rows, const Row<M, X, Y>& row, int count,
                           std::byte* staged)
        : count(count), x(rows.along.x == 1), y(rows.along.y == 1), staged(staged) {
      if (rows.index != nullptr) y = y && rows.along.index == 1;
      const bool whole = count == simt::kWarpThreads && row.step > 0;
      x_on_pieces = simt::ballot(whole && tile::on_pieces(row.x)) == simt::kAllLanes;
      y_on_pieces = simt::ballot(whole && tile::on_pieces(row.y) && tile::on_pieces(row.index)) ==
                    simt::kAllLanes;
    }
  };

  // Out of line, beside the usual way, whose registers are nearly all that there are.
  ISOBIT_DEVICE_NOINLINE static void scan_row(const Row<M, X, Y>& row) {
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
      scan_segment(segment, {});
      begin = end;
    }
  }
  // Whether a segment begins at i, counted from where the scan begins.
  ISOBIT_DEVICE static bool resets(const Row<M, X, Y>& row, std::int64_t i) {
    const std::int64_t at = row.first + i * row.step;
    const std::int64_t flag = row.step > 0 ? at : at + 1;
    return row.reset[flag * (row.reset_stride * row.step)] != 0;
  }

  ISOBIT_DEVICE static void scan_segment(const Row<M, X, Y>& row, const Together& together) {
    Tree<M> tree;
    Value nodes[5], e = M::neutral(), carry = M::neutral();
    Result<M> waiting(row.before());
    for (std::int64_t start = 0; start < row.length; start += kGroup) {
      Value values[kGroup];
      Results<M> results;
      read(row, together, start, values);
      const Value base = M::combine(carry, e);
      const auto finish = [&](int i) {
        const Result<M> result(row.result(M::combine(base, values[i])));
        results.set(i, row.exclusive ? waiting : result);
        waiting = result;
      };
      if constexpr (kInRegisters) {
        sklansky<M>(values);
#pragma unroll
        for (int i = 0; i < kGroup; ++i) finish(i);
      } else {
        sklansky_in_memory<M>(values);
#pragma unroll 1
        for (int i = 0; i < kGroup; ++i) finish(i);
      }
      put(row, together, start, results);
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

  ISOBIT_DEVICE static void read(const Row<M, X, Y>& row, const Together& together,
                                 std::int64_t start, Value (&values)[kGroup]) {
    if (together.x) {
      X elements[kGroup];
      load_groups(GroupsOfRows<const X>{row.x + start * row.x_stride, row.x_stride,
                                        row.length - start, together.count, together.x_on_pieces},
                  together.staged, elements);
      row.lift_group(elements, start, values);
    } else {
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
        values[i] = together.has_row() ? row.read(start + i) : M::neutral();
    }
  }
  ISOBIT_DEVICE static void put(const Row<M, X, Y>& row, const Together& together,
                                std::int64_t start, const Results<M>& results) {
    if (together.y) {
      row.put_groups(
          [&]<class T>(T* data, std::int64_t stride) {
            return GroupsOfRows<T>{data + start * stride, stride, row.length - start,
                                   together.count, together.y_on_pieces};
          },
          together.staged, results);
    } else if (together.has_row()) {
      row.put_one_by_one(start, results);
    }
  }
};

// A row a block of threads, tile after tile.
template <class M, class X, class Y>
struct OneBlock {
  static constexpr int kMostThreads = kWidest;
  using Carry = typename M::Carry;
  Rows<M, X, Y> rows;
  int warps;  // of a block: a tile is so many blocks of the order

  struct Memory {
    Carry *totals, *carries;
    std::byte* staged;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Carry* totals = carver.template take<Carry>(warps);
    Carry* carries = carver.template take<Carry>(warps);
    return {totals, carries, carver.template take<std::byte>(warps * rows.staged_bytes())};
  }

  ISOBIT_DEVICE void operator()(const Memory& shared) const {
    const int warp = simt::thread() / simt::kWarpThreads;
    for (std::int64_t index = simt::block(); index < rows.count; index += simt::blocks()) {
      const Row<M, X, Y> row = rows[index];
      Tree<M> tree;  // thread 0's
      for (std::int64_t tile = 0; tile * warps * kBlock < row.length; ++tile) {
        const std::int64_t at = tile * warps + warp;
        std::byte* const staged = rows.staged(shared.staged);
        const WarpBlock<M> block(row, at, staged);
        if (simt::lane() == 0) shared.totals[warp] = M::carry(block.total);
        simt::sync_block();
        if (simt::thread() == 0) pass(shared.totals, warps, shared.carries, tree);
        simt::sync_block();
        block.write(row, at, M::value(shared.carries[warp]), staged);
      }
      simt::sync_block();
    }
  }

 private:
  // What comes before each block of a tile. Out of line, since a block takes nearly all registers;
  // not given Memory: nvcc 13.0 then leaves that unwritten, and drops what follows the call.
  ISOBIT_DEVICE_NOINLINE static void pass(const Carry* totals, int count, Carry* carries,
                                          Tree<M>& tree) {
    for (int i = 0; i < count; ++i) {
      carries[i] = tree.carry();
      tree.push(totals[i]);
    }
  }
};

// The three launches of reduce_then_scan: the blocks' totals, what comes before each, the results.
// The first and the last read a block alike, so they are one kernel.
template <class M, class X, class Y>
struct Blocks {
  static constexpr int kMostThreads = kWidest;
  Rows<M, X, Y> rows;
  std::int64_t in_row;
  typename M::Carry* carries;  // the totals, and then what comes before each
  int warps;
  bool results;

  ISOBIT_EITHER std::byte* memory(simt::Carver& carver) const {
    return carver.take<std::byte>(warps * rows.staged_bytes());
  }
  ISOBIT_DEVICE void operator()(std::byte* shared) const {
    std::byte* const staged = rows.staged(shared);
    const std::int64_t first = simt::block() * warps + simt::thread() / simt::kWarpThreads;
    for (std::int64_t at = first; at < rows.count * in_row; at += simt::blocks() * warps) {
      const Row<M, X, Y> row = rows[at / in_row];
      const WarpBlock<M> block(row, at % in_row, staged);
      if (results)
        block.write(row, at % in_row, M::value(carries[at]), staged);
      else if (simt::lane() == 0)
        carries[at] = M::carry(block.total);
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
  static constexpr int kMostThreads = kWidest;
  using Carry = typename M::Carry;
  Rows<M, X, Y> rows;
  std::int64_t in_row;
  Carry* nodes;
  unsigned *published, *ticket;
  int level;  // a tile is 2^level blocks of the order, a warp each

  struct Memory {
    Carry *totals, *before;
    std::byte* staged;
    unsigned* tile;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Carry* totals = carver.template take<Carry>(1 << level);
    Carry* before = carver.template take<Carry>(simt::kWarpThreads);
    std::byte* staged = carver.template take<std::byte>(rows.staged_bytes() << level);
    return {totals, before, staged, carver.template take<unsigned>(1)};
  }

  ISOBIT_DEVICE void operator()(const Memory& shared) const {
    if (simt::thread() == 0) *shared.tile = simt::add_acquire_release(ticket, 1);
    simt::sync_block();
    const std::int64_t all = *shared.tile, index = all / in_row;
    const auto tile = static_cast<unsigned>(all - index * in_row);
    const Row<M, X, Y> row = rows[index];
    const int warp = simt::thread() / simt::kWarpThreads;
    const std::int64_t at = (std::int64_t{tile} << level) + warp;
    std::byte* const staged = rows.staged(shared.staged);
    const WarpBlock<M> block(row, at, staged);
    if (simt::lane() == 0) shared.totals[warp] = M::carry(block.total);
    simt::sync_block();
    if (warp == 0) look_back(shared, index * in_row, tile);
    simt::sync_block();
    Carry carry{};
    if (simt::lane() == 0) carry = carry_of(shared, tile, warp);
    block.write(row, at, from_lane(M::value(carry), 0), staged);
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
      for (int i = 0; i < 1 << level; ++i) tree.push(shared.totals[i]);
      Carry node = tree.node(level);
      for (int one = 0; one < ones; ++one) node = M::join(shared.before[one], node);
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
    for (int one = 31; one >= 0; --one)
      if (tile >> one & 1) tree.push(shared.before[one], one + level);
    for (int i = 0; i < warp; ++i) tree.push(shared.totals[i]);
    return tree.carry();
  }
};

}  // namespace isobit::scan
