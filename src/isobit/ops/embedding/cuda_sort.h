// SPDX-License-Identifier: Apache-2.0
// The positions of a call, sorted by token on a GPU: digits of eight bits, the lowest first. Each
// turn keeps the order that it finds among equal digits, so a token's positions ascend.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "isobit/core/pieces.h"
#include "isobit/ops/embedding/problem.h"
#include "isobit/simt/simt.h"

namespace isobit::embedding {

// What a position refers to.
struct Index {
  const std::byte* data;
  bool wide;
  std::int64_t tokens;

  explicit Index(const Given& given)
      : data(given.index), wide(given.wide_index), tokens(given.tokens) {}

  ISOBIT_DEVICE std::int64_t at(std::int64_t i) const {
    return wide ? simt::load(reinterpret_cast<const std::int64_t*>(data) + i)
                : simt::load(reinterpret_cast<const std::int32_t*>(data) + i);
  }
  ISOBIT_DEVICE bool has(std::int64_t token) const { return token >= 0 && token < tokens; }
};

// Keys in ascending order, and where each stood. A key is a token; `tokens` stands for what has no
// part in any sum.
struct Sorted {
  const unsigned *keys, *places;
  std::int64_t rows;

  // How many keys are smaller.
  ISOBIT_DEVICE std::int64_t before(unsigned key) const {
    std::int64_t low = 0, high = rows;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (simt::load(keys + middle) < key)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

namespace sorting {

inline constexpr int kBits = 8, kDigits = 1 << kBits;

ISOBIT_DEVICE int ones(unsigned bits) {
  bits -= bits >> 1 & 0x55555555u;
  bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
  bits = (bits + (bits >> 4)) & 0x0f0f0f0fu;
  return static_cast<int>(bits * 0x01010101u >> 24);
}

// One digit of keys. Of the first turn the keys are those of the index.
struct Turn {
  Index index;
  std::int64_t padding_idx, rows, tile;  // positions of a tile, which a warp takes
  const unsigned *keys, *places;         // null in the first turn
  unsigned *to_keys, *to_places;
  unsigned* counts;  // of each digit in each tile; then how many keys go before those
  int shift;

  ISOBIT_EITHER std::int64_t tiles() const { return (rows + tile - 1) / tile; }
  ISOBIT_DEVICE unsigned key(std::int64_t i) const {
    if (keys != nullptr) return simt::load(keys + i);
    const std::int64_t token = index.at(i);
    return static_cast<unsigned>(index.has(token) && token != padding_idx ? token : index.tokens);
  }
  ISOBIT_DEVICE unsigned place(std::int64_t i) const {
    return places != nullptr ? simt::load(places + i) : static_cast<unsigned>(i);
  }

  // Calls body(i, key, digit, lanes) for the keys of this block's tile, in all lanes of the warp;
  // `lanes` are those that have the same digit, none where there is no key for this one.
  template <class Body>
  ISOBIT_DEVICE void for_each_key(const Body& body) const {
    const std::int64_t begin = simt::block() * tile;
    const std::int64_t end = begin + tile < rows ? begin + tile : rows;
    for (std::int64_t at = begin; at < end; at += simt::kWarpThreads) {
      const std::int64_t i = at + simt::lane();
      const bool there = i < end;
      const unsigned found = there ? key(i) : 0, digit = found >> shift & (kDigits - 1);
      unsigned lanes = simt::ballot(there);
#pragma unroll
      for (int bit = 0; bit < kBits; ++bit) {
        const bool set = (digit >> bit & 1) != 0;
        const unsigned with = simt::ballot(set);
        lanes &= set ? with : ~with;
      }
      body(i, found, digit, there ? lanes : 0u);
      simt::sync_warp();
    }
  }
  // Of some lanes those before this one.
  ISOBIT_DEVICE static unsigned before(unsigned lanes) {
    return lanes & ((1u << simt::lane()) - 1);
  }
};

struct Memory {
  unsigned* numbers;  // of each digit

  template <class Carver>
  ISOBIT_EITHER static Memory take(Carver& carver) {
    Memory memory{};
    memory.numbers = carver.template take<unsigned>(kDigits);
    return memory;
  }
};

struct Count {
  static constexpr int kMostThreads = simt::kWarpThreads;
  Turn turn;

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    return Memory::take(carver);
  }
  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    for (int i = simt::lane(); i < kDigits; i += simt::kWarpThreads) memory.numbers[i] = 0;
    simt::sync_warp();
    turn.for_each_key([&](std::int64_t, unsigned, unsigned digit, unsigned lanes) {
      if (lanes != 0 && Turn::before(lanes) == 0)
        memory.numbers[digit] += static_cast<unsigned>(ones(lanes));
    });
    for (int i = simt::lane(); i < kDigits; i += simt::kWarpThreads)
      turn.counts[simt::block() * kDigits + i] = memory.numbers[i];
  }
};

// Of one block, a thread a digit: keys of smaller digits go first, then those of earlier tiles.
struct Add {
  static constexpr int kMostThreads = kDigits;
  Turn turn;

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    return Memory::take(carver);
  }
  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    unsigned* const mine = turn.counts + simt::thread();
    unsigned total = 0;
    for (std::int64_t tile = 0; tile < turn.tiles(); ++tile) total += mine[tile * kDigits];
    memory.numbers[simt::thread()] = total;
    simt::sync_block();
    unsigned before = 0;
    for (int digit = 0; digit < simt::thread(); ++digit) before += memory.numbers[digit];
    for (std::int64_t tile = 0; tile < turn.tiles(); ++tile) {
      const unsigned count = mine[tile * kDigits];
      mine[tile * kDigits] = before;
      before += count;
    }
  }
};

struct Move {
  static constexpr int kMostThreads = simt::kWarpThreads;
  Turn turn;

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    return Memory::take(carver);
  }
  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    for (int i = simt::lane(); i < kDigits; i += simt::kWarpThreads)
      memory.numbers[i] = turn.counts[simt::block() * kDigits + i];
    simt::sync_warp();
    turn.for_each_key([&](std::int64_t i, unsigned key, unsigned digit, unsigned lanes) {
      const unsigned first = memory.numbers[digit], before = Turn::before(lanes);
      simt::sync_warp();  // all have read what one of them now changes
      if (lanes == 0) return;
      const unsigned to = first + static_cast<unsigned>(ones(before));
      turn.to_keys[to] = key;
      turn.to_places[to] = turn.place(i);
      if (before == 0) memory.numbers[digit] = first + static_cast<unsigned>(ones(lanes));
    });
  }
};

}  // namespace sorting

// The memory and the launches of a sort.
class Sort {
 public:
  Sort(const BackwardProblem& problem, Pieces& memory)
      : tile_((std::max<std::int64_t>(1024, problem.rows / 512) + 31) / 32 * 32) {
    const auto numbers = [&](std::int64_t count) {
      return reinterpret_cast<unsigned*>(
          memory.take(count * static_cast<std::int64_t>(sizeof(unsigned))));
    };
    for (unsigned*& keys : keys_) keys = numbers(problem.rows);
    for (unsigned*& places : places_) places = numbers(problem.rows);
    counts_ = numbers((problem.rows + tile_ - 1) / tile_ * sorting::kDigits);
  }

  Sorted operator()(const BackwardProblem& problem, simt::Stream stream) const {
    using namespace sorting;
    const int bits = std::bit_width(static_cast<std::uint64_t>(problem.tokens));
    int from = 0;
    for (int shift = 0; problem.rows > 0 && (shift == 0 || shift < bits); shift += kBits) {
      const Turn turn{Index(problem),
                      problem.padding_idx,
                      problem.rows,
                      tile_,
                      shift == 0 ? nullptr : keys_[from],
                      shift == 0 ? nullptr : places_[from],
                      keys_[1 - from],
                      places_[1 - from],
                      counts_,
                      shift};
      const simt::LaunchShape shape{.blocks = turn.tiles(), .threads = simt::kWarpThreads};
      simt::launch(stream, shape, Count{turn});
      simt::launch(stream, {.blocks = 1, .threads = kDigits}, Add{turn});
      simt::launch(stream, shape, Move{turn});
      from = 1 - from;
    }
    return {keys_[from], places_[from], problem.rows};
  }

 private:
  std::int64_t tile_;
  unsigned *keys_[2], *places_[2], *counts_;
};

}  // namespace isobit::embedding
