// SPDX-License-Identifier: Apache-2.0
// The threads that work on one row together, and how they add: lanes of a warp, a block of threads,
// a cluster of blocks. Each adds in the order of core/order.h, so all give the same bits.
//
// A row's blocks of 512 are dealt to workers, which are warps or parts of one. A lane holds octets
// of a block: elements 8*lane and the seven behind it, and in a whole warp those 256 later too.
#pragma once

#include <cstdint>

#include "isobit/core/order.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/octet.h"
#include "isobit/tile/pairs.h"

namespace isobit::tile {

inline constexpr int kMostCluster = 8;  // blocks: what every device with clusters takes

namespace detail {

// Folds the lanes of a block, each with the sum of its octets, and gives everyone the result. What
// is sent halves with each fold: a lane keeps one half of its elements and sends the other.
template <int kLanes, class Real>
ISOBIT_DEVICE Real fold_lanes(Real (&octet)[kOctet], unsigned lanes) {
  int held = kOctet;
#pragma unroll
  for (int distance = kLanes / 2; distance >= 1; distance /= 2) {
    if (held == 1) {
      octet[0] += simt::shuffle_xor(octet[0], distance, lanes);
      continue;
    }
    held /= 2;
    const bool upper = (simt::lane() & distance) != 0;
#pragma unroll
    for (int i = 0; i < kOctet / 2; ++i) {
      if (i >= held) break;
      const Real kept = upper ? octet[i + held] : octet[i];
      const Real sent = upper ? octet[i] : octet[i + held];
      octet[i] = kept + simt::shuffle_xor(sent, distance, lanes);
    }
  }
  // The eight lanes of the order within an octet went to eight places.
#pragma unroll
  for (int distance = kLanes / 2; distance >= kLanes / 8; distance /= 2)
    octet[0] += simt::shuffle_xor(octet[0], distance, lanes);
  return octet[0];
}

}  // namespace detail

// kLanes of a warp: 32, or 16 or 8 where a row is no longer than 128 or 64.
template <int kLanes>
class Lanes {
 public:
  static constexpr int kWorkerLanes = kLanes;

  template <class Real>
  struct Memory {};
  template <class Real, class Carver>
  ISOBIT_EITHER static Memory<Real> memory(Carver&, int, std::int64_t) {
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
    // Of octets that hold all of this lane's part of a block.
    ISOBIT_DEVICE Real fold(Real (&octet)[kOctet]) const {
      return detail::fold_lanes<kLanes>(octet, members());
    }
    template <int kSums, int kBlocks>
    ISOBIT_DEVICE void totals(const Real (&sums)[kSums][kBlocks], std::int64_t,
                              Real (&totals)[kSums]) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) totals[i] = pairs(sums[i]);
    }

    // The same for any number of blocks, one after the other.
    ISOBIT_DEVICE void put(int which, std::int64_t, Real sum) { trees_[which].push(sum); }
    template <int kSums>
    ISOBIT_DEVICE void totals(std::int64_t, Real (&totals)[kSums]) {
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

  // Sums of two kinds for each block of a row, twice: while some still read one, others write.
  template <class Real>
  struct Memory {
    Real* sums;
    std::int64_t capacity;
  };
  // For rows of `blocks` blocks.
  template <class Real, class Carver>
  ISOBIT_EITHER static Memory<Real> memory(Carver& carver, int threads, std::int64_t blocks) {
    const std::int64_t workers = threads / simt::kWarpThreads * Scope::kMostBlocks;
    const std::int64_t capacity = blocks < workers ? workers : blocks;
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
    ISOBIT_DEVICE Real fold(Real (&octet)[kOctet]) const {
      return fold_lanes<simt::kWarpThreads>(octet, simt::kAllLanes);
    }
    template <int kSums, int kBlocks>
    ISOBIT_DEVICE void totals(const Real (&sums)[kSums][kBlocks], std::int64_t blocks,
                              Real (&totals)[kSums]) {
#pragma unroll
      for (int k = 0; k < kBlocks; ++k)
        if (const std::int64_t block = worker() + k * workers(); block < blocks)
#pragma unroll
          for (int i = 0; i < kSums; ++i) put(i, block, sums[i][k]);
      this->totals(blocks, totals);
    }

    // Each block of the row by the worker that has it.
    ISOBIT_DEVICE void put(int which, std::int64_t block, Real sum) {
      if (lane() < Scope::blocks()) *Scope::copy(place(which) + block, lane()) = sum;
    }
    template <int kSums>
    ISOBIT_DEVICE void totals(std::int64_t blocks, Real (&totals)[kSums]) {
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
    ISOBIT_DEVICE static Real total(const Real* sums, std::int64_t count) {
      const int lane = simt::lane();
      const auto at = [&](std::int64_t i) { return i < count ? sums[i] : Real(0); };
      Real value;
      if (count <= simt::kWarpThreads) {
        value = at(lane);
      } else if (count <= 2 * simt::kWarpThreads) {
        value = at(2 * lane) + at(2 * lane + 1);
      } else {
        std::int64_t each = 4;
        while (each * simt::kWarpThreads < count) each *= 2;
        order::PairTree<Real> tree;
        for (std::int64_t i = 0; i < each; ++i) tree.push(at(lane * each + i));
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
