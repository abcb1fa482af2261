// SPDX-License-Identifier: Apache-2.0
// Rows of groups whose elements lie apart, as where channels come last in memory: some at a time
// are copied to where their elements are adjacent, and what is computed of them is copied back.
#pragma once

#include <algorithm>
#include <cstdint>

#include "isobit/core/isas.h"
#include "isobit/norms/cpu_summed_rows.h"
#include "isobit/ops/channel_norm/problem.h"
#include "isobit/simd/tasks.h"

namespace isobit::channel_norm {

// Copies all elements of adjacent channels of an image, which are neighbours in the one array, to
// or from lines of adjacent elements.
struct Copies {
  void (*gather)(const Images& from, const Row& channels, std::byte* to);
  void (*scatter)(const std::byte* from, const Row& channels, const Images& to);
};

ISOBIT_IN_EACH_ISA(Copies copies(DType dtype);)

inline Copies copies_for(DType dtype, Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, copies(dtype)); }

inline constexpr std::int64_t kCached = 512 << 10;  // bytes that stay in a second-level cache

// The problem with copies of what is read and room for what is written: of x and what becomes of
// it, or of x and of grad_y, which becomes grad_x.
template <class Slots>
ForwardProblem with_copies(const Slots& slots, ForwardProblem p) {
  p.x = slots.fetched(p.x, 0);
  p.y = slots.room_for(p.y, 0);
  return p;
}
template <class Slots>
BackwardProblem with_copies(const Slots& slots, BackwardProblem p) {
  p.x = slots.fetched(p.x, 0);
  p.grad_y = slots.fetched(p.grad_y, 1);
  p.grad_x = slots.room_for(p.grad_x, 1);
  return p;
}
template <class Slots>
void put_back(const Slots& slots, const ForwardProblem& p) {
  slots.put(0, p.y);
}
template <class Slots>
void put_back(const Slots& slots, const BackwardProblem& p) {
  slots.put(1, p.grad_x);
}

inline bool lies_apart(const Given& p, const Images& array) {
  return array && array.c == 1 && array.l != 1 && p.extent > 1;
}

// Which rows are copied at a time, and where to.
class Staging {
 public:
  Staging() = default;
  Staging(const ForwardProblem& p, const Machine& machine)
      : Staging(p, machine, 1, lies_apart(p, p.x) || lies_apart(p, p.y)) {}
  Staging(const BackwardProblem& p, const Machine& machine)
      : Staging(p, machine, 2,
                lies_apart(p, p.x) || lies_apart(p, p.grad_y) || lies_apart(p, p.grad_x)) {}

  explicit operator bool() const { return groups_ != 0; }
  std::int64_t bytes() const { return tasks_ * arrays_ * bytes_; }

  // Calls body(problem, row) for every row, with arrays of `p` or copies of what is in them, which
  // are copied back if they are written.
  template <class Problem, class Body>
  void for_each_row(const Problem& p, bool written, const Execution& execution, std::byte* memory,
                    const Body& body) const {
    const Copies copy = copies_for(p.dtype, execution.machine.isa);
    execution.parallel_for(tasks_, [&](std::int64_t task) {
      const simd::FloatMode mode;
      std::byte* const own = memory + task * arrays_ * bytes_;
      for (std::int64_t unit = units_ * task / tasks_; unit < units_ * (task + 1) / tasks_;
           ++unit) {
        const std::int64_t first = unit * groups_;
        Row rows = p.row(first);
        rows.segments *= groups_;
        const Slots slots{p, copy, rows, own, bytes_};
        const Problem staged = with_copies(slots, p);
        for (std::int64_t i = 0; i < groups_; ++i) body(staged, first + i);
        if (written) put_back(slots, p);
      }
    });
  }

 private:
  static constexpr std::int64_t kChannels = 16;  // whose elements fill a line of memory
  static constexpr std::int64_t kMost = std::int64_t{8} << 20;

  Staging(const Given& p, const Machine& machine, std::int64_t arrays, bool apart)
      : arrays_(arrays) {
    if (!apart || p.groups == 0 || p.rows() == 0) return;
    const std::int64_t of_group = p.channels / p.groups;
    const std::int64_t bytes = of_group * p.extent * size_of(p.dtype);
    if (bytes > kMost) return;
    groups_ = 1;
    const auto fits = [&](std::int64_t groups) {
      return p.groups % groups == 0 && groups * bytes <= kCached &&
             p.rows() / groups >= 2 * machine.threads;
    };
    for (std::int64_t groups = 2; (groups / 2) * of_group < kChannels; groups *= 2)
      if (fits(groups)) groups_ = groups;
    units_ = p.rows() / groups_;
    tasks_ = simd::task_count(machine, p.rows() * of_group * p.extent, units_);
    bytes_ = (groups_ * bytes + 63) / 64 * 64;
  }

  // Some rows, and the memory of a task. Arrays that do not lie apart are not copied.
  struct Slots {
    const Given& given;
    const Copies& copy;
    const Row& rows;
    std::byte* memory;
    std::int64_t bytes;

    Images room_for(const Images& array, std::int64_t index) const {
      if (!lies_apart(given, array)) return array;
      return {memory + index * bytes, 0, rows.extent, 1, rows.channel * rows.extent};
    }
    Images fetched(const Images& from, std::int64_t index) const {
      const Images to = room_for(from, index);
      if (lies_apart(given, from)) copy.gather(from, rows, to.data);
      return to;
    }
    void put(std::int64_t index, const Images& to) const {
      if (lies_apart(given, to)) copy.scatter(memory + index * bytes, rows, to);
    }
  };

  std::int64_t arrays_ = 0, groups_ = 0, units_ = 0, tasks_ = 0, bytes_ = 0;
};

}  // namespace isobit::channel_norm
