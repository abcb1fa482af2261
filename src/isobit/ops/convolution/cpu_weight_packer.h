// SPDX-License-Identifier: Apache-2.0
// Weights as panels, in the order in which tiles of sums read them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "isobit/ops/convolution/cpu_windows.h"

namespace isobit::convolution {

// Weights of some channels of results as panels of at most `rows`, as equal as they can be: those
// of one phase after the other; of each 512 k one panel after the other, of each entry one weight a
// row. Says whether all are finite.
class WeightPacker {
 public:
  WeightPacker(const Problem& problem, std::int64_t group, std::int64_t first, std::int64_t count,
               Isa isa, std::byte* to)
      : p_(problem),
        pack_(pack_weights_kernel_for(problem.element, isa)),
        element_(size_of(problem.element)),
        weights_(problem.weight.data +
                 (group * problem.weight.group + first * problem.weight.out) * element_),
        count_(count),
        rows_(product_kernel_for(problem.real(), isa).rows),
        panels_(parts_of(count, rows_)),
        of_row_(rows_ * size_of(problem.real())),
        to_(to) {}

  bool pack() { return pack(0, panels_); }

  // Some of the panels, which others need not be there for.
  bool pack(std::int64_t begin, std::int64_t end) {
    // Some taps and channels at a time, since they lie side by side in memory; and what is near in
    // memory soon.
    const bool panels_are_near = p_.weight.out < p_.weight.in;
    const std::int64_t taps = p_.h.taps * p_.w.taps, parts = parts_of(p_.ins, kIns);
    const std::int64_t panels = end - begin;
    for (std::int64_t tap = 0; tap < taps; tap += kTaps) {
      Taps some(*this, tap, std::min(kTaps, taps - tap));
      for (std::int64_t i = 0; i < panels * parts; ++i)
        if (panels_are_near)
          pack(some, begin + i % panels, i / panels * kIns);
        else
          pack(some, begin + i / parts, i % parts * kIns);
    }
    return finite_;
  }

 private:
  static constexpr std::int64_t kTaps = 16, kIns = 16;

  // Entries of a phase in a block of 512 k, and those before it.
  struct Entries {
    std::int64_t block = -1, before = 0, count = 0;
  };
  struct Tap {
    std::int64_t k, offset;
    std::int64_t phase, before = 0;  // and its entries before the tap
    std::byte* to = nullptr;         // of the phase; nowhere if it has no result
    Entries entries = {};            // of the block where the tap was packed last
  };
  struct Taps {
    std::int64_t count;
    bool adjacent = true;
    Tap all[kTaps];

    Taps(const WeightPacker& of, std::int64_t first, std::int64_t count) : count(count) {
      const Problem& p = of.p_;
      for (std::int64_t t = 0; t < count; ++t) {
        const std::int64_t h = (first + t) / p.w.taps, w = (first + t) % p.w.taps;
        all[t] = {(h * p.w.taps + w) * p.ins, h * p.weight.h + w * p.weight.w,
                  Phases::of_tap(p, h, w)};
        adjacent = adjacent && all[t].offset == all[0].offset + t;
        if (all[t].phase < 0) continue;
        all[t].before = Phases(p, all[t].phase).before(all[t].k);
        std::int64_t entries = 0;  // of other phases
        for (std::int64_t i = 0; i < all[t].phase; ++i) entries += Phases(p, i).entries();
        all[t].to = of.to_ + entries * of.panels_ * of.of_row_;
      }
    }
  };

  // Where the entry of a tap and channel goes, and how many follow it there.
  std::byte* line_of(Tap& tap, std::int64_t panel, std::int64_t in, std::int64_t* left) const {
    const std::int64_t k = tap.k + in, block = k / order::kPanel;
    *left = std::min((block + 1) * order::kPanel, tap.k + p_.ins) - k;
    if (tap.to == nullptr) return nullptr;
    if (tap.entries.block != block) {  // seldom: counting them takes divisions
      const Phases phases(p_, tap.phase);
      const std::int64_t before = phases.before(block * order::kPanel);
      tap.entries = {block, before, phases.before((block + 1) * order::kPanel) - before};
    }
    return tap.to +
           (tap.entries.before * (panels_ - 1) + panel * tap.entries.count + tap.before + in) *
               of_row_;
  }

  void pack(Taps& taps, std::int64_t panel, std::int64_t in) {
    constexpr std::int64_t kMostRows = 16;
    alignas(64) std::byte nowhere[(kIns + 1) * kMostRows * sizeof(double)];
    const std::int64_t begin = count_ * panel / panels_, end = count_ * (panel + 1) / panels_;
    const std::int64_t last = std::min(p_.ins, in + kIns);
    if (taps.adjacent && p_.weight.in == taps.count) fetch_next(taps, begin, end, last);
    for (std::int64_t some = 0; in < last; in += some) {
      void* to[kTaps];
      some = last - in;
      for (std::int64_t t = 0; t < taps.count; ++t) {
        std::int64_t left = 0;
        to[t] = line_of(taps.all[t], panel, in, &left);
        if (to[t] == nullptr) to[t] = nowhere;
        some = std::min(some, left);
      }
      // All taps by one call, or each.
      const std::int64_t at_once = taps.adjacent ? taps.count : 1;
      for (std::int64_t t = 0; t < taps.count; t += at_once) {
        const std::int64_t offset = begin * p_.weight.out + in * p_.weight.in + taps.all[t].offset;
        const WeightLines lines{weights_ + offset * element_,
                                p_.weight.out,
                                p_.weight.in,
                                end - begin,
                                some,
                                at_once,
                                to + t};
        finite_ = pack_(lines) && finite_;
      }
    }
  }

  // Rows are far from each other: processors do not foresee so many.
  void fetch_next(const Taps& taps, std::int64_t begin, std::int64_t end, std::int64_t in) const {
    if (in >= p_.ins) return;
    constexpr std::int64_t kLine = 64;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t offset = row * p_.weight.out + in * p_.weight.in + taps.all[0].offset;
      for (std::int64_t i = 0; i < kIns * taps.count * element_ + kLine; i += kLine)
        __builtin_prefetch(weights_ + offset * element_ + i);
    }
  }

  const Problem& p_;
  PackWeightsKernel pack_;
  std::int64_t element_;
  const std::byte* weights_;
  std::int64_t count_, rows_, panels_, of_row_;
  std::byte* to_;
  bool finite_ = true;
};

}  // namespace isobit::convolution
