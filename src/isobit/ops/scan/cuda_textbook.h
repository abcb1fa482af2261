// SPDX-License-Identifier: Apache-2.0
// The two scans of textbooks, which combine floats in orders of their own: Hillis and Steele's, of
// few steps, and Blelloch's, of little work. A row a block of threads, tile after tile.
#pragma once

#include "isobit/ops/scan/cuda_rows.h"

namespace isobit::scan {

constexpr int kTextbookThreads = 256;

template <class M>
struct HillisSteele {
  using Value = typename M::Value;
  // Scans `now`, and says where the result is.
  ISOBIT_DEVICE static const Value* run(Value* now, Value* next) {
    const int thread = simt::thread();
    for (int distance = 1; distance < kTextbookThreads; distance *= 2) {
      next[thread] =
          thread >= distance ? M::combine(now[thread - distance], now[thread]) : now[thread];
      simt::sync_block();
      Value* const other = now;
      now = next;
      next = other;
    }
    return now;
  }
};

// Up and down a tree, which leaves the exclusive scan; each element is added to its own.
template <class M>
struct Blelloch {
  using Value = typename M::Value;
  ISOBIT_DEVICE static const Value* run(Value* now, Value* next) {
    const int thread = simt::thread();
    next[thread] = now[thread];
    for (int half = 1; half < kTextbookThreads; half *= 2) {
      simt::sync_block();
      if (const int at = (thread + 1) * 2 * half - 1; at < kTextbookThreads)
        now[at] = M::combine(now[at - half], now[at]);
    }
    simt::sync_block();
    if (thread == 0) now[kTextbookThreads - 1] = M::neutral();
    for (int half = kTextbookThreads / 2; half >= 1; half /= 2) {
      simt::sync_block();
      if (const int at = (thread + 1) * 2 * half - 1; at < kTextbookThreads) {
        const Value left = now[at - half];
        now[at - half] = now[at];
        now[at] = M::combine(now[at], left);
      }
    }
    simt::sync_block();
    next[thread] = M::combine(now[thread], next[thread]);
    simt::sync_block();
    return next;
  }
};

enum class Steps { hillis_steele, blelloch };

// What both do around a tile.
template <class M, class X, class Y>
struct Textbook {
  static constexpr int kMostThreads = kTextbookThreads;
  using Value = typename M::Value;
  Rows<M, X, Y> rows;
  Steps steps;

  struct Memory {
    Value *now, *next;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Value* now = carver.template take<Value>(kTextbookThreads);
    return {now, carver.template take<Value>(kTextbookThreads)};
  }

  ISOBIT_DEVICE void operator()(const Memory& shared) const {
    const int thread = simt::thread();
    for (std::int64_t index = simt::block(); index < rows.count; index += simt::blocks()) {
      const Row<M, X, Y> row = rows[index];
      Value carry = M::neutral();
      if (thread == 0) row.begin();
      for (std::int64_t start = 0; start < row.length; start += kTextbookThreads) {
        shared.now[thread] = row.read(start + thread);
        simt::sync_block();
        const Value* const scanned = steps == Steps::blelloch
                                         ? Blelloch<M>::run(shared.now, shared.next)
                                         : HillisSteele<M>::run(shared.now, shared.next);
        if (start + thread < row.length)
          row.write(start + thread, M::combine(carry, scanned[thread]));
        carry = M::combine(carry, scanned[kTextbookThreads - 1]);
        simt::sync_block();
      }
    }
  }
};

}  // namespace isobit::scan
