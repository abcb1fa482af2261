// SPDX-License-Identifier: Apache-2.0
// Where backward has what it holds of one head of k: packed panels, sums, tiles.
#pragma once

#include "isobit/ops/attention/cpu_parts.h"
#include "isobit/ops/attention/cpu_squares.h"

namespace isobit::attention {

// From row to row of a tile; a power of two's rows would meet in the caches.
inline constexpr std::int64_t kPitch = kPanel + 16;

// Runs of a block's queries, and of its keys: enough that all threads have some.
inline std::int64_t block_of(std::int64_t threads) {
  return std::max<std::int64_t>(2, std::bit_ceil(static_cast<std::uint64_t>(threads)) / 2);
}

struct Sizes {
  std::int64_t inner;                                 // threads that share a job
  std::int64_t panels_q, panels_k, block_q, block_k;  // panels of all, and of a block
  Squares squares;
  std::int64_t as_a, as_b;        // a panel's rows as rows, and as columns, of a product
  std::int64_t pitch_k, pitch_v;  // of rows of sums
  std::int64_t queries, gradients, sums_k, sums_v, sums_q, levels, levels_q;
  std::int64_t sums;       // that wait in a job
  std::int64_t job, room;  // all of a job's memory, and a thread's

  Sizes(const Problem& p, const matmul::PackKernels& pack, std::int64_t threads)
      : inner(threads),
        panels_q(p.group() * parts_of(p.seq_q, kPanel)),
        panels_k(parts_of(p.seq_k, kPanel)),
        block_q(std::min(panels_q, block_of(inner) * kRun)),
        block_k(std::min(panels_k, block_of(inner) * kRun)),
        squares(block_q == 0 ? 0 : parts_of(panels_q, block_q),
                block_k == 0 ? 0 : parts_of(panels_k, block_k)) {
    const std::int64_t dim = std::max(p.head_dim, p.value_dim);
    const auto across = [&](std::int64_t cols) { return parts_of(cols, pack.cols) * pack.cols; };
    as_a = lines_of(parts_of(kPanel, pack.rows) * pack.row_pitch *
                    std::max<std::int64_t>(dim, kPanel));
    as_b = lines_of(std::max(across(kPanel) * dim, across(dim) * kPanel));
    pitch_k = across(p.head_dim);
    pitch_v = across(p.value_dim);
    queries = 2 * as_a + 2 * as_b + 3 * kPanel;
    sums_k = lines_of(kPanel * pitch_k);
    sums_v = lines_of(kPanel * pitch_v);
    sums_q = sums_k;
    levels = levels_of(parts_of(block_q, kRun));
    levels_q = levels_of(parts_of(block_k, kRun));
    sums = block_k * (levels - 1) * (sums_k + sums_v) + levels_q * sums_q +
           squares.room(Side::keys) * block_k * (sums_k + sums_v) +
           squares.room(Side::queries) * block_q * sums_q;
    gradients = (inner > 1 ? block_k : 1) * kPanel * kPitch;
    job = block_k * (3 * as_b) + lines_of(block_k) + queries + sums + gradients;
    room = kPanel * kPitch + as_a + lines_of(kPanel);
  }

  // The panels of some blocks, and the sums of one of them.
  Range panels_of(Side side, std::int64_t first, std::int64_t count) const {
    const bool keys = side == Side::keys;
    const std::int64_t block = keys ? block_k : block_q, all = keys ? panels_k : panels_q;
    return {first * block, std::min(all, (first + count) * block)};
  }
  std::int64_t sums_of(Side side) const { return side == Side::keys ? sums_k + sums_v : sums_q; }
};

// A head of k, and of it the block and the panel of queries that are taken.
template <class Real>
struct Job {
  const Sizes& sizes;
  Real *memory, *rooms;
  std::int64_t batch, kv_head;
  Range panels{};              // of the block's keys
  Real* of_keys = nullptr;     // sums of theirs
  Real* of_queries = nullptr;  // of the panel's queries; null where they are whole after it
  bool queries_are_finite = true;
  std::int64_t head = 0, query = 0, queries = 0;
  bool first_of_run = false;
  std::int64_t depth = 0;                      // of the run of queries
  std::int64_t depth_of_q = 0, runs_of_q = 0;  // of runs of keys
  bool fresh_q = true;

  // Where a panel of keys lies in its block.
  Real* k_as_cols(std::int64_t panel) const {
    return memory + (panel - panels.begin) * 3 * sizes.as_b;
  }
  Real* v_as_cols(std::int64_t panel) const { return k_as_cols(panel) + sizes.as_b; }
  Real* k_as_rows(std::int64_t panel) const { return v_as_cols(panel) + sizes.as_b; }
  Real* flags() const { return memory + sizes.block_k * 3 * sizes.as_b; }
  Real& flag_of(std::int64_t panel) const { return flags()[panel - panels.begin]; }
  Real* sums_of_k(std::int64_t panel, std::int64_t depth) const {
    const std::int64_t i = panel - panels.begin;
    if (depth == 0) return of_keys + i * sizes.sums_of(Side::keys);
    return flags() + lines_of(sizes.block_k) +
           (i * (sizes.levels - 1) + depth - 1) * sizes.sums_of(Side::keys);
  }
  Real* sums_of_v(std::int64_t panel, std::int64_t depth) const {
    return sums_of_k(panel, depth) + sizes.sums_k;
  }
  Real* q_as_rows() const {
    return flags() + lines_of(sizes.block_k) +
           sizes.block_k * (sizes.levels - 1) * sizes.sums_of(Side::keys);
  }
  Real* y_as_rows() const { return q_as_rows() + sizes.as_a; }
  Real* q_as_terms() const { return y_as_rows() + sizes.as_a; }
  Real* y_as_terms() const { return q_as_terms() + sizes.as_b; }
  Real* numbers() const { return y_as_terms() + sizes.as_b; }
  Real* sums_of_panel() const { return numbers() + 3 * kPanel; }
  Real* sums_of_q(std::int64_t depth) const {
    return depth == 0 && of_queries ? of_queries : sums_of_panel() + depth * sizes.sums_q;
  }
  Real* room_of_keys() const { return sums_of_panel() + sizes.levels_q * sizes.sums_q; }
  Real* room_of_queries() const { return sums_at(Side::keys, sizes.squares.room(Side::keys), 0); }
  Real* gradients_of(std::int64_t panel) const {
    return sums_at(Side::queries, sizes.squares.room(Side::queries), 0) +
           (sizes.inner > 1 ? panel - panels.begin : 0) * kPanel * kPitch;
  }
  Real* weights_of(std::int64_t task) const { return rooms + task * sizes.room; }
  Real* packed_of(std::int64_t task) const { return weights_of(task) + kPanel * kPitch; }
  Real* kept_of(std::int64_t task) const { return packed_of(task) + sizes.as_a; }

  Real* sums_at(Side side, std::int64_t place, std::int64_t panel) const {
    const bool keys = side == Side::keys;
    return (keys ? room_of_keys() : room_of_queries()) +
           (place * (keys ? sizes.block_k : sizes.block_q) + panel) * sizes.sums_of(side);
  }
};

}  // namespace isobit::attention
