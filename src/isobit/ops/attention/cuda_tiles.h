// SPDX-License-Identifier: Apache-2.0
// How blocks share out the queries of a call, some of a head at a time, and how many of them have
// memory for the runs of keys that wait to be joined.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "isobit/ops/attention/cuda_call.h"

namespace isobit::attention {

// Some queries of a head. It waits in shared memory, for want of registers.
template <class Real>
struct Tile {
  Sequence in;
  Scaling<Real> scaling;
  std::int64_t head, kv_head, first;  // query
  int queries;
  Range keys;  // that any of them sees
};

// Of so many tiles a head: which head and place has the one with this index. The last queries see
// most keys where some see few: they begin.
struct HeadAndPlace {
  std::int64_t head, place;

  ISOBIT_EITHER HeadAndPlace(std::int64_t index, std::int64_t of_head)
      : head(index / of_head), place((head + 1) * of_head - 1 - index) {}
};

// Calls body(tile) for the tiles of this block: make(index) gives them, and `shared` is where one
// stands meanwhile. Before it all threads have done with the one before.
template <class Tile, class Make, class Body>
ISOBIT_DEVICE void each_tile(std::int64_t count, Tile* shared, const Make& make, const Body& body) {
#pragma unroll 1
  for (std::int64_t index = simt::block(); index < count; index += simt::blocks()) {
    simt::sync_block();  // what was there has been read
    if (simt::thread() == 0) *shared = make(index);
    simt::sync_block();
    body(*shared);
  }
}

// Tiles of `kQueries` of a head: of packed sequences as many as they may take.
template <class T, int kQueries>
struct Tiles {
  std::int64_t of_head;

  explicit Tiles(const Problem& p)
      : of_head(p.query_starts ? parts(p).places() : (p.seq_q + kQueries - 1) / kQueries) {}

  ISOBIT_EITHER std::int64_t count(const Problem& p) const { return p.batch * p.heads * of_head; }

  // Calls body(tile) for those of this block, as each_tile does.
  template <class Body>
  ISOBIT_DEVICE void each(const Call<T>& call, Tile<RealOf<T>>* shared, const Body& body) const {
    each_tile(
        count(call.p), shared, [&](std::int64_t index) { return at(call, index); },
        [&](const Tile<RealOf<T>>& made) {
          if (made.queries > 0) body(made);
        });
  }

  // One of them; it may have no queries.
  ISOBIT_DEVICE Tile<RealOf<T>> at(const Call<T>& call, std::int64_t index) const {
    const HeadAndPlace found(index, of_head);
    return tile(call, found.head / call.p.heads, found.head % call.p.heads, found.place);
  }

 private:
  ISOBIT_EITHER static Parts parts(const Problem& p) { return {p.seq_q, p.sequences, kQueries}; }
  ISOBIT_DEVICE static Tile<RealOf<T>> tile(const Call<T>& call, std::int64_t batch,
                                            std::int64_t head, std::int64_t place) {
    const Problem& p = call.p;
    const Parts::Part part =
        p.query_starts ? parts(p).at(p.query_starts, place) : Parts::Part{batch, place};
    Tile<RealOf<T>> tile{call.sequence(part.sequence),
                         call.scaling(),
                         head,
                         call.kv_head(head),
                         part.number * kQueries,
                         0,
                         {0, 0}};
    const std::int64_t left = tile.in.queries.count() - tile.first;
    tile.queries = static_cast<int>(part.number < 0 ? 0 : Problem::within(left, kQueries));
    tile.keys = {call.keys_of(tile.in, tile.first).begin,
                 call.keys_of(tile.in, tile.first + tile.queries - 1).end};
    return tile;
  }
};

// What makes products of a query of a tile exponents; one that is not there sees no key.
template <class T, class Real>
ISOBIT_DEVICE typename Call<T>::Row row_of(const Call<T>& call, const Tile<Real>& tile, int i) {
  if (i >= tile.queries) return {};
  return call.row(tile.in, tile.head, tile.first + i, call.keys_of(tile.in, tile.first + i));
}

// Of a tile's keys: there is one run at least.
template <class Real>
ISOBIT_DEVICE std::int64_t runs_of(const Tile<Real>& tile) {
  const std::int64_t seen = tile.keys.end - tile.in.held.begin;
  return seen <= 0 ? 1 : (seen + kPanel * kRun - 1) / (kPanel * kRun);
}

// Panels of a run of which any key is seen by a tile.
struct Panels {
  std::int64_t first;  // key
  int count;
};
template <class Real>
ISOBIT_DEVICE Panels panels_of(const Tile<Real>& tile, std::int64_t run) {
  const auto inside = [](std::int64_t panel) {
    return static_cast<int>(Problem::within(panel, kRun));
  };
  const std::int64_t start = tile.in.held.begin + run * kRun * kPanel;
  const int before = inside((tile.keys.begin - start) / kPanel);
  const int behind = inside((tile.keys.end - start + kPanel - 1) / kPanel);
  return {start + before * kPanel, behind > before ? behind - before : 0};
}

// Runs that may wait to be joined at once.
inline int waiting_of(const Problem& p) {
  return static_cast<int>(std::bit_width(
      static_cast<std::uint64_t>(p.seq_k <= 0 ? 0 : (p.seq_k - 1) / (kPanel * kRun))));
}

// Runs by adjacent pairs: those before this one that it completes a pair with become a part of it.
// The last one takes all that are left. `states` are a block's, `size` numbers each; `keep` puts
// what is at hand there, and `fold` what is there in front of what is at hand.
template <class Real, class Keep, class Fold>
ISOBIT_DEVICE void join_runs(Real* states, std::int64_t size, int levels, std::int64_t run,
                             bool is_last, const Keep& keep, const Fold& fold) {
#pragma unroll 1
  for (int level = 0; level < levels; ++level) {
    Real* const at = states + (simt::block() * levels + level) * size + simt::thread();
    if (run >> level & 1) {
      fold(at);
    } else if (!is_last) {
      keep(at);
      return;
    }
  }
}

// Where there are several runs, a block has memory for those that wait: then there are few blocks.
template <class Kernel>
std::int64_t blocks_of(const Kernel& kernel, const Machine& machine) {
  constexpr std::int64_t kTurns = 2;  // blocks of a multiprocessor
  const std::int64_t most =
      kernel.levels > 0 ? kTurns * machine.gpu.multiprocessors : simt::kMostBlocks;
  return std::min(kernel.tiles.count(kernel.call.p), most);
}
// Numbers that those blocks keep.
template <class Kernel>
std::int64_t room_for_runs(const Kernel& kernel, const Machine& machine) {
  return blocks_of(kernel, machine) * kernel.levels * kernel.state_size();
}

}  // namespace isobit::attention
