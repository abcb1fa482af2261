// SPDX-License-Identifier: Apache-2.0
// A panel of queries and a panel of keys of which some pairs are not there, behind a diagonal or
// outside of a window: products of packed rows and columns leave them out. That changes no bit,
// since their terms are zeros where elements are finite.
#pragma once

#include <algorithm>
#include <cstdint>

#include "isobit/ops/attention/cpu_parts.h"

namespace isobit::attention {

template <class Real>
class Pairs {
 public:
  // So many queries and keys, from one of each on. Rows and columns are packed by `pack`.
  Pairs(const Problem& problem, const matmul::PackKernels& pack, std::int64_t query,
        std::int64_t queries, std::int64_t key, std::int64_t keys)
      : p_(problem),
        pack_(pack),
        query_(query),
        queries_(queries),
        key_(key),
        keys_(keys),
        all_(p_.keys_of(query + queries - 1).begin <= key && p_.keys_of(query).end >= key + keys) {}

  // A row for each query, a column for each key. What no query of a panel of rows sees is not
  // written.
  void multiply(const Real* queries, const Real* keys, std::int64_t dim, Real* to,
                std::int64_t pitch) const {
    if (all_) return pack_.multiply({queries, keys, to, pitch, queries_, keys_, dim, false});
    const std::int64_t panels = parts_of(queries_, pack_.rows), cols = pack_.cols;
    for (std::int64_t i = 0; i < panels; ++i) {
      const std::int64_t first = queries_ * i / panels, last = queries_ * (i + 1) / panels;
      const Range range = keys_of(first, last);
      const std::int64_t begin = range.begin / cols * cols,  // whole panels of columns
          end = std::min(keys_, parts_of(range.end, cols) * cols);
      if (begin < end)
        pack_.multiply({queries + i * pack_.row_pitch * dim, keys + begin * dim,
                        to + first * pitch + begin, pitch, last - first, end - begin, dim, false});
    }
  }

  // Adds a sum over keys for each of some queries, from one on, and a sum over queries for each
  // key.
  void add_to_queries(const matmul::Block& block, std::int64_t from) const {
    add(block,
        [&](std::int64_t first, std::int64_t last) { return keys_of(from + first, from + last); });
  }
  void add_to_keys(const matmul::Block& block) const {
    add(block, [&](std::int64_t first, std::int64_t last) {
      return within(
          {p_.queries_of(key_ + first).begin - query_, p_.queries_of(key_ + last - 1).end - query_},
          queries_);
    });
  }

 private:
  // Keys that some queries may see, counted from the panel's first.
  Range keys_of(std::int64_t first, std::int64_t last) const {
    return within(
        {p_.keys_of(query_ + first).begin - key_, p_.keys_of(query_ + last - 1).end - key_}, keys_);
  }
  static Range within(const Range& range, std::int64_t count) {
    return {std::clamp<std::int64_t>(range.begin, 0, count),
            std::clamp<std::int64_t>(range.end, 0, count)};
  }

  // For each panel of rows, only where some(first, last) says that terms of its rows are there.
  template <class Some>
  void add(const matmul::Block& block, const Some& some) const {
    if (all_) return pack_.multiply(block);
    const auto *a = static_cast<const Real*>(block.a), *b = static_cast<const Real*>(block.b);
    auto* const c = static_cast<Real*>(block.c);
    const std::int64_t panels = parts_of(block.m, pack_.rows);
    for (std::int64_t i = 0; i < panels; ++i) {
      const std::int64_t first = block.m * i / panels, last = block.m * (i + 1) / panels;
      const Range range = some(first, last);
      for (std::int64_t col = 0; range.begin < range.end && col < block.n; col += pack_.cols) {
        const std::int64_t cols = std::min(pack_.cols, block.n - col),
                           packed = cols <= pack_.width ? pack_.width : pack_.cols;
        pack_.multiply({a + (i * block.k + range.begin) * pack_.row_pitch,
                        b + col * block.k + range.begin * packed, c + first * block.c_pitch + col,
                        block.c_pitch, last - first, cols, range.end - range.begin, true});
      }
    }
  }

  const Problem& p_;
  const matmul::PackKernels& pack_;
  std::int64_t query_, queries_, key_, keys_;
  bool all_;  // whether all pairs are there
};

}  // namespace isobit::attention
