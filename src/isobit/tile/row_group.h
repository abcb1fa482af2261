// SPDX-License-Identifier: Apache-2.0
// The threads that work on one row together, and how they add: lanes of a warp, a block of threads,
// a cluster of blocks. Each adds in the order of core/order.h, so all give the same bits.
//
// A row's blocks of 512 are dealt to workers, which are warps or parts of one. A lane holds pieces
// of a block: one of the first as many as there are lanes, one of the next as many, and so on.
#pragma once

#include <cstdint>

#include "isobit/core/order.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/pairs.h"
#include "isobit/tile/piece.h"

namespace isobit::tile {

inline constexpr int kMostCluster = 8;  // blocks: what every device with clusters takes

namespace detail {

// Folds the lanes of a block, each with the sum of its pieces, and gives everyone the result. What
// is sent halves with each fold: a lane keeps one half of its elements and sends the other.
template <int kLanes, class Real, int kElements>
ISOBIT_DEVICE Real fold_lanes(Real (&piece)[kElements], unsigned lanes) {
  int held = kElements;
#pragma unroll
  for (int distance = kLanes / 2; distance >= 1; distance /= 2) {
    if (held == 1) {
      piece[0] += simt::shuffle_xor(piece[0], distance, lanes);
      continue;
    }
    held /= 2;
    const bool upper = (simt::lane() & distance) != 0;
#pragma unroll
    for (int i = 0; i < kElements / 2; ++i) {
      if (i >= held) break;
      const Real kept = upper ? piece[i + held] : piece[i];
      const Real sent = upper ? piece[i] : piece[i + held];
      piece[i] = kept + simt::shuffle_xor(sent, distance, lanes);
    }
  }
  // The elements of a piece, which are neighbours in the order, went to as many places.
#pragma unroll
  for (int distance = kLanes / 2; distance >= kLanes / kElements; distance /= 2)
    piece[0] += simt::shuffle_xor(piece[0], distance, lanes);
  return piece[0];
}

}  // namespace detail

// kLanes of a warp: 32, or 16 or 8 where a row is no longer than 128 or 64. kWidth: how much of a
// block of the order they hold.
template <int kLanes>
class Lanes {
 public:
  static constexpr int kWorkerLanes = kLanes;
  static constexpr int kWidth = kLanes == simt::kWarpThreads ? int{order::kBlock} : 8 * kLanes;

  template <class Real>
  struct Memory {};
  template <class Real, class Carver>
  ISOBIT_EITHER static Memory<Real> memory(Carver&, int, int) {
    return {};
  }

  static constexpr int groups_of_block(int threads) { return threads / kLanes; }

  // Which of the groups of all blocks this one is, and how many there are.
  ISOBIT_DEVICE static std::int64_t group() {
    return simt::block() * (simt::threads() / kLanes) + simt::thread() / kLanes;
  }
  ISOBIT_DEVICE static std::int64_t groups() { return simt::blocks() * (simt::threads() / kLanes); }
  ISOBIT_DEVICE static int worker() { return 0; }
  ISOBIT_DEVICE static int workers() { return 1; }
  ISOBIT_DEVICE static int lane() { return simt::thread() % kLanes; }
  ISOBIT_DEVICE static bool leads() { return lane() == 0; }

  template <class Real>
  class Adder {
   public:
    ISOBIT_DEVICE explicit Adder(const Memory<Real>&) {}

    // Before the first sum, where others may still read an earlier adder's.
    ISOBIT_DEVICE void begin() const {}
    // Of what folds all that this lane has of a block.
    template <int kElements>
    ISOBIT_DEVICE Real fold(Real (&piece)[kElements]) const {
      return detail::fold_lanes<kLanes>(piece, members());
    }
    template <int kSums, int kBlocks>
    ISOBIT_DEVICE void totals(const Real (&sums)[kSums][kBlocks], int, Real (&totals)[kSums]) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) totals[i] = pairs(sums[i]);
    }

    // The same for any number of blocks, one after the other.
    ISOBIT_DEVICE void put(int which, int, Real sum) { trees_[which].push(sum); }
    template <int kSums>
    ISOBIT_DEVICE void totals(int, Real (&totals)[kSums]) {
      for (int i = 0; i < kSums; ++i) totals[i] = trees_[i].total();
      trees_[0] = trees_[1] = {};
    }

    template <class Choose>
    ISOBIT_DEVICE Real chosen(Real value, const Choose& choose) {
#pragma unroll
      for (int distance = kLanes / 2; distance >= 1; distance /= 2)
        value = choose(value, simt::shuffle_xor(value, distance, members()));
      return value;
    }
    ISOBIT_DEVICE Real of_first(Real value) {
      return simt::shuffle(value, simt::lane() / kLanes * kLanes, members());
    }

   private:
    ISOBIT_DEVICE static unsigned members() {
      if (kLanes == 32) return simt::kAllLanes;
      return ((1u << (kLanes % 32)) - 1) << (simt::lane() / kLanes * kLanes);
    }
    order::PairTree<Real> trees_[2];
  };
};

namespace detail {

// Workers are warps, which meet in shared memory. Scope tells which warps: start() before the first
// write, sync(), rank() and blocks() of those that share, and copy(address, rank), where a block
// finds it.
template <class Scope>
class Warps : public Scope {
 public:
  static constexpr int kWorkerLanes = simt::kWarpThreads;
  static constexpr int kWidth = order::kBlock;

  // Sums of two kinds for each block of a row, twice: while some still read one, others write.
  template <class Real>
  struct Memory {
    Real* sums;
    int capacity;
  };
  // For rows of `blocks` blocks.
  template <class Real, class Carver>
  ISOBIT_EITHER static Memory<Real> memory(Carver& carver, int threads, int blocks) {
    const int workers = threads / simt::kWarpThreads * Scope::kMostBlocks;
    const int most = blocks < workers ? workers : blocks;
    const int capacity = (most + 3) / 4 * 4;  // each begins where four can be loaded
    return {carver.template take<Real>(4 * capacity), capacity};
  }

  static constexpr int groups_of_block(int) { return 1; }

  ISOBIT_DEVICE static std::int64_t group() { return simt::block() / Scope::blocks(); }
  ISOBIT_DEVICE static std::int64_t groups() { return simt::blocks() / Scope::blocks(); }
  ISOBIT_DEVICE static int warps() { return simt::threads() / simt::kWarpThreads; }
  ISOBIT_DEVICE static int worker() {
    return Scope::rank() * warps() + simt::thread() / simt::kWarpThreads;
  }
  ISOBIT_DEVICE static int workers() { return Scope::blocks() * warps(); }
  ISOBIT_DEVICE static int lane() { return simt::lane(); }
  ISOBIT_DEVICE static bool leads() { return worker() == 0 && lane() == 0; }

  template <class Real>
  class Adder {
   public:
    ISOBIT_DEVICE explicit Adder(const Memory<Real>& memory) : memory_(memory) { Scope::start(); }

    ISOBIT_DEVICE void begin() const { Scope::sync(); }
    template <int kElements>
    ISOBIT_DEVICE Real fold(Real (&piece)[kElements]) const {
      return fold_lanes<simt::kWarpThreads>(piece, simt::kAllLanes);
    }
    template <int kSums, int kBlocks>
    ISOBIT_DEVICE void totals(const Real (&sums)[kSums][kBlocks], int blocks,
                              Real (&totals)[kSums]) {
#pragma unroll
      for (int k = 0; k < kBlocks; ++k)
        if (const int block = worker() + k * workers(); block < blocks)
#pragma unroll
          for (int i = 0; i < kSums; ++i) put(i, block, sums[i][k]);
      this->totals(blocks, totals);
    }

    // Each block of the row by the worker that has it.
    ISOBIT_DEVICE void put(int which, int block, Real sum) {
      if (lane() < Scope::blocks()) *Scope::copy(place(which) + block, lane()) = sum;
    }
    template <int kSums>
    ISOBIT_DEVICE void totals(int blocks, Real (&totals)[kSums]) {
      Scope::sync();
#pragma unroll
      for (int i = 0; i < kSums; ++i) totals[i] = total(place(i), blocks);
      turn_ ^= 1;
    }

    template <class Choose>
    ISOBIT_DEVICE Real chosen(Real value, const Choose& choose) {
#pragma unroll
      for (int distance = 16; distance >= 1; distance /= 2)
        value = choose(value, simt::shuffle_xor(value, distance));
      put(0, worker(), value);
      Scope::sync();
      for (int i = 0; i < workers(); ++i) value = choose(value, place(0)[i]);
      turn_ ^= 1;
      return value;
    }
    // What the group's first thread has.
    ISOBIT_DEVICE Real of_first(Real value) {
      value = simt::shuffle(value, 0);
      if (worker() == 0) put(0, 0, value);
      Scope::sync();
      value = place(0)[0];
      turn_ ^= 1;
      return value;
    }

   private:
    ISOBIT_DEVICE Real* place(int which) const {
      return memory_.sums + (2 * turn_ + which) * memory_.capacity;
    }
    // Every warp adds for itself: a lane its own adjacent sums, then lanes next to each other.
    ISOBIT_DEVICE static Real total(const Real* sums, int count) {
      const int lane = simt::lane();
      const auto at = [&](int i) { return i < count ? sums[i] : Real(0); };
      Real value;
      if (count <= simt::kWarpThreads) {
        value = at(lane);
      } else if (count <= 2 * simt::kWarpThreads) {
        value = at(2 * lane) + at(2 * lane + 1);
      } else {
        // Four at once, and so without conflicts between banks.
        int each = 4;
        while (each * simt::kWarpThreads < count) each *= 2;
        order::PairTree<Real> tree;
        for (int i = lane * each; i < (lane + 1) * each; i += 4) {
          const int left = count - i;
          Real four[4];
          load_shared_piece(sums + i, left <= 0 ? 0 : 4, four);
#pragma unroll
          for (int j = 0; j < 4; ++j)
            if (j >= left) four[j] = 0;
          tree.push(pairs(four));
        }
        value = tree.total();
      }
#pragma unroll
      for (int distance = 1; distance < simt::kWarpThreads; distance *= 2)
        value += simt::shuffle_xor(value, distance);
      return value + Real(0);
    }

    Memory<Real> memory_;
    int turn_ = 0;
  };
};

struct WithinBlock {
  static constexpr int kMostBlocks = 1;
  ISOBIT_DEVICE static void start() {}
  ISOBIT_DEVICE static void sync() { simt::sync_block(); }
  ISOBIT_DEVICE static int rank() { return 0; }
  ISOBIT_DEVICE static int blocks() { return 1; }
  template <class T>
  ISOBIT_DEVICE static T* copy(T* shared, int) {
    return shared;
  }
};
struct WithinCluster {
  static constexpr int kMostBlocks = kMostCluster;
  // Others' shared memory may be written once they are known to run.
  ISOBIT_DEVICE static void start() { simt::sync_cluster(); }
  ISOBIT_DEVICE static void sync() { simt::sync_cluster(); }
  ISOBIT_DEVICE static int rank() { return simt::cluster_rank(); }
  ISOBIT_DEVICE static int blocks() { return simt::cluster_blocks(); }
  template <class T>
  ISOBIT_DEVICE static T* copy(T* shared, int rank) {
    return simt::in_cluster(shared, rank);
  }
};

}  // namespace detail

using BlockOfWarps = detail::Warps<detail::WithinBlock>;
using ClusterOfBlocks = detail::Warps<detail::WithinCluster>;

}  // namespace isobit::tile
