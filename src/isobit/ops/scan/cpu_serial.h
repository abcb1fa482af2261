// SPDX-License-Identifier: Apache-2.0
// The specification: what formula_order.h says, element by element.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isobit/ops/scan/formula_elements.h"
#include "isobit/ops/scan/formula_monoids.h"
#include "isobit/ops/scan/formula_order.h"

namespace isobit::scan {

// What only the exact monoids have.
template <class M>
concept Indexed = requires(typename M::Value value) { M::index(value); };

template <class M, class Real>
ISOBIT_INLINE typename M::Value lifted(Real x, std::int64_t index) {
  if constexpr (Indexed<M>)
    return M::lift(x, index);
  else
    return M::lift(x);
}

// read(i) gives an element as a Value, write(i, value) takes a result.
template <class M, class Read, class Write>
ISOBIT_INLINE_HOST void scan_serially(std::int64_t length, const Read& read, const Write& write) {
  using Value = typename M::Value;
  if constexpr (Indexed<M>) {
    Value value = M::neutral();
    for (std::int64_t i = 0; i < length; ++i) write(i, value = M::combine(value, read(i)));
  } else {
    Tree<M> tree;
    for (std::int64_t start = 0; start < length; start += kBlock) {
      Value totals[kGroups], parts[kGroups][kGroup];
      for (int group = 0; group < kGroups; ++group) {
        for (int i = 0; i < kGroup; ++i) {
          const std::int64_t at = start + group * kGroup + i;
          parts[group][i] = at < length ? read(at) : M::neutral();
        }
        sklansky<M>(parts[group]);
        totals[group] = parts[group][kGroup - 1];
      }
      sklansky<M>(totals);
      const Value before = M::value(tree.carry());
      for (std::int64_t i = 0; i < kBlock && start + i < length; ++i) {
        const std::int64_t group = i / kGroup;
        const Value base = M::combine(before, group == 0 ? M::neutral() : totals[group - 1]);
        write(start + i, M::combine(base, parts[group][i % kGroup]));
      }
      tree.push(M::carry(totals[kGroups - 1]));
    }
  }
}

}  // namespace isobit::scan
