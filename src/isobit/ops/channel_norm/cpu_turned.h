// SPDX-License-Identifier: Apache-2.0
// Channels of images of few elements, in which one after the other leaves vectors empty: some at a
// time are turned to come last in memory, and summed side by side.
#pragma once

#include <algorithm>
#include <cstdint>

#include "isobit/ops/channel_norm/cpu_staged.h"

namespace isobit::channel_norm {

// Whether lines of channels follow each other, of so many elements at most.
template <class... Arrays>
bool lie_in_lines(const Given& p, std::int64_t most, const Arrays&... arrays) {
  const auto follow = [&](const Images& array) {
    return !array || (array.l == 1 && array.c == p.extent);
  };
  return 1 < p.extent && p.extent <= most && (follow(arrays) && ...);
}
inline bool lie_in_lines(const ForwardProblem& p, std::int64_t most) {
  return lie_in_lines(p, most, p.x, p.y);
}
inline bool lie_in_lines(const BackwardProblem& p, std::int64_t most) {
  return lie_in_lines(p, most, p.x, p.grad_y, p.grad_x);
}

// Which channels are turned at a time, and where to: where rows are summed, or, of groups, what
// shares a weight.
class Turning {
 public:
  Turning() = default;
  Turning(const ForwardProblem& p, const Machine& machine) {
    if (p.groups == 0 && p.training) choose(p, machine, 1, norms::kMostAbreast, kFew);
  }
  Turning(const BackwardProblem& p, const Machine& machine) {
    if (p.groups == 0)
      choose(p, machine, 2, norms::kMostAbreast, kFew);
    else if (p.wants_sums())
      choose(p, machine, 2, kGroupedAbreast, kFewest);
  }

  explicit operator bool() const { return abreast_ != 0; }
  std::int64_t abreast() const { return abreast_; }
  std::int64_t bytes() const { return tasks_ * arrays_ * bytes_; }

  // Calls body(problem, unit) for every unit of a cut, with copies of what p reads.
  template <class Problem, class Body>
  void for_each_unit(const Problem& p, const norms::Cut& cut, const Execution& execution,
                     std::byte* memory, const Body& body) const {
    const Copies copy = copies_for(p.dtype, execution.machine.isa);
    execution.parallel_for(tasks_, [&](std::int64_t task) {
      const simd::FloatMode mode;
      const std::int64_t units = cut.units();
      for (std::int64_t unit = units * task / tasks_; unit < units * (task + 1) / tasks_; ++unit) {
        const norms::Part part = cut.part(unit, 0);
        const Channels channels{
            p, copy, part.first, part.rows, memory + task * arrays_ * bytes_, bytes_};
        body(with_copies(channels, p), unit);
      }
    });
  }

 private:
  // Elements of an image; of groups, whose statistics change with the image, only where a vector
  // would be half empty.
  static constexpr std::int64_t kFew = 32, kFewest = 8;
  static constexpr std::int64_t kLeast = 16;  // channels, or vectors would be empty

  template <class Problem>
  void choose(const Problem& p, const Machine& machine, std::int64_t copies, std::int64_t most,
              std::int64_t few) {
    if (p.batch == 0 || !lie_in_lines(p, few)) return;
    const std::int64_t of_channel = p.batch * p.extent * size_of(p.dtype);
    const std::int64_t wanted =
        simd::task_count(machine, p.channels * p.batch * p.extent, p.channels);
    std::int64_t abreast = std::min(most, p.channels);
    const auto units = [&] { return (p.channels + abreast - 1) / abreast; };
    while (abreast >= kLeast && (abreast * of_channel * copies > kCached ||
                                 abreast * p.extent > kMostLanes || units() < wanted))
      abreast /= 2;
    if (abreast < kLeast) return;
    abreast_ = abreast;
    arrays_ = copies;
    bytes_ = abreast * of_channel;
    tasks_ = std::min(wanted, units());
  }

  // Some channels, and the memory of a task.
  struct Channels {
    const Given& given;
    const Copies& copy;
    std::int64_t first, count;
    std::byte* memory;
    std::int64_t bytes;

    // What is written is written where it lies.
    static Images room_for(const Images& array, std::int64_t) { return array; }
    Images fetched(const Images& from, std::int64_t index) const {
      const Images to{memory + index * bytes, given.extent * count, 1, count, first};
      for (std::int64_t n = 0; n < given.batch; ++n) {
        const Row channels{n, first, false, count, given.extent};
        copy.scatter(from.data + channels.place(from, 0, 0) * size_of(given.dtype), channels, to);
      }
      return to;
    }
  };

  std::int64_t abreast_ = 0, arrays_ = 0, bytes_ = 0, tasks_ = 0;
};

}  // namespace isobit::channel_norm
