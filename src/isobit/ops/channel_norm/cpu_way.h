// SPDX-License-Identifier: Apache-2.0
// How a call of group_norm or batch_norm is computed: what is summed side by side, copied first, or
// written later.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "isobit/norms/cpu_summed_rows.h"
#include "isobit/ops/channel_norm/cpu_specified.h"
#include "isobit/ops/channel_norm/cpu_staged.h"
#include "isobit/ops/channel_norm/cpu_turned.h"

namespace isobit::channel_norm {

using norms::Cut;

// Whether channels stand side by side in memory, as they must to be summed abreast, and nothing
// else does.
template <class... Arrays>
bool channels_last(const Given& given, const Arrays&... arrays) {
  if (given.channels == 1 || given.extent == 0) return false;
  const auto last = [&](const Images& array) {
    return !array || (array.c == 1 && (array.l != 1 || given.extent == 1));
  };
  return last(given.x) && (last(arrays) && ...);
}
inline bool channels_last(const ForwardProblem& p) { return channels_last(p, p.y); }
inline bool channels_last(const BackwardProblem& p) { return channels_last(p, p.grad_y, p.grad_x); }

inline bool sums_nothing(const ForwardProblem& p) { return !p.training; }
inline bool sums_nothing(const BackwardProblem& p) { return !p.training && !p.wants_sums(); }

// Rows of a group whose channels follow each other in memory, of so few elements each that vectors
// go over several: such a row is one channel, whose elements have a weight each.
template <class... Arrays>
bool joins(const Given& p, std::int64_t most, const Arrays&... arrays) {
  if (p.groups == 0 || p.channels == p.groups || p.extent == 0 || p.extent > most) return false;
  const auto follow = [&](const Images& array) {
    return !array || (array.c == p.extent && (array.l == 1 || p.extent == 1));
  };
  return follow(p.x) && (follow(arrays) && ...);
}
inline constexpr std::int64_t kMostForward = 32,
                              kMostBackward = 128;  // or weights cost more than is won
inline bool joins(const ForwardProblem& p) { return joins(p, kMostForward, p.y); }
inline bool joins(const BackwardProblem& p) { return joins(p, kMostBackward, p.grad_y, p.grad_x); }

inline void join(Given& p, std::initializer_list<Images*> arrays) {
  p.extent *= p.channels / p.groups;
  p.channels = p.groups;
  for (Images* array : arrays) array->c = p.extent, array->l = 1;
}
inline ForwardProblem joined(ForwardProblem p) {
  join(p, {&p.x, &p.y});
  return p;
}
inline BackwardProblem joined(BackwardProblem p) {
  join(p, {&p.x, &p.grad_y, &p.grad_x});
  return p;
}

// How a call is computed: by the specification, or in vectors.
struct Way {
  bool specified;
  Staging staging;
  Turning turning;
  bool spread;  // weights are those of elements, and rows joined
  bool lines;   // are written where they lie, some channels of an image at a time
  bool by_channels;
  bool wide;  // channels last are written when all rows have been summed, more of them abreast

  template <class Problem>
  Way(const Problem& p, bool specified, const Machine& machine)
      : specified(specified),
        staging(specified ? Staging() : Staging(p, machine)),
        turning(specified ? Turning() : Turning(p, machine)),
        spread(!specified && !staging && joins(p)),
        lines((turning && p.groups == 0) || (!specified && takes_lines(p, machine))),
        by_channels(!specified && (turning || channels_last(p))),
        wide(by_channels && !turning && !lines && (p.groups == 0 ? is_wide(p, machine) : !spread)) {
  }

  // Rows of groups are not abreast: they have elements of several channels.
  Cut of_rows(const Given& p, const Machine& machine) const {
    const std::int64_t abreast = p.groups != 0 ? 1
                                 : turning     ? turning.abreast()
                                 : lines       ? of_lines(p)
                                 : by_channels ? kMostAbreast
                                               : 1;
    return {p.rows(), p.rows() == 0 ? 0 : p.row(0).count(), abreast, machine,
            specified || staging || lines};
  }
  // Of channels that are written, but not summed.
  Cut of_written(const Given& p, const Machine& machine) const {
    return {p.channels, p.batch * p.extent, kMostWritten, machine, false};
  }
  // Of groups.
  Cut of_channels(const Given& p, const Machine& machine) const {
    const std::int64_t abreast = !by_channels               ? 1
                                 : p.extent < order::kBlock ? kGroupedAbreast
                                                            : kMostAbreast;
    return {p.channels, p.batch * p.extent, abreast, machine, specified || turning};
  }
  // Whether a group is taken in all images, and then the sums of its channels, which caches may
  // hold by then.
  bool takes_groups(const BackwardProblem& p, const Cut& of_rows, const Cut& of_channels) const {
    return p.groups != 0 && p.wants_sums() && !staging && !by_channels && of_rows.whole() &&
           of_channels.whole() && (of_rows.tasks == 1 || p.groups >= 2 * of_rows.tasks);
  }
  template <class T, class Real>
  Writers writers_of_rows(const Given& p, Isa isa) const {
    return lines  ? lines_for(p.dtype, isa)
           : wide ? abreast_for(p.dtype, isa).writers
                  : kernels_of_rows<T, Real>(p, isa).writers;
  }
  // What is copied back comes from a cache.
  bool streams(const Given& p, std::int64_t arrays, const Machine& machine) const {
    const std::int64_t bytes = p.batch * p.channels * p.extent * size_of(p.dtype);
    const bool pays = p.extent >= order::kBlock;  // shorter lines mostly lose
    return pays && (!staging || wide) && machine.leaves_caches(arrays * bytes);
  }
  template <class T, class Real>
  Kernels kernels_of_rows(const Given& p, Isa isa) const {
    return p.groups == 0 ? kernels_of_channels<T, Real>(p, isa)
                         : along<T, Real>(p.dtype, isa, spread);
  }
  template <class T, class Real>
  Kernels kernels_of_channels(const Given& p, Isa isa) const {
    return by_channels ? abreast_for(p.dtype, isa) : along<T, Real>(p.dtype, isa);
  }

 private:
  template <class Problem>
  static bool is_wide(const Problem& p, const Machine& machine) {
    return p.channels > kMostAbreast && (sums_nothing(p) || leaves_second_cache(p, machine));
  }
  // Whether a unit's part of x is gone from a second cache when its sums are known.
  static bool leaves_second_cache(const Given& p, const Machine& machine) {
    return p.batch * p.extent * kMostAbreast * size_of(p.dtype) > machine.l2_bytes;
  }
  // Channels at a time where their lines are written alone, and whether all threads have some.
  static std::int64_t of_lines(const Given& p) {
    return std::min(kMostAbreast, kMostLanes / p.extent);
  }
  template <class Problem>
  static bool takes_lines(const Problem& p, const Machine& machine) {
    if (!sums_nothing(p) || !lie_in_lines(p, kLongestLine)) return false;
    const std::int64_t units = (p.channels + of_lines(p) - 1) / of_lines(p);
    return units >= simd::task_count(machine, p.channels * p.batch * p.extent, p.channels);
  }
  template <class T, class Real>
  Kernels along(DType dtype, Isa isa, bool spread = false) const {
    return specified ? specified::kKernels<T, Real> : along_for(dtype, isa, spread);
  }
  static Writers lines_for(DType dtype, Isa isa) {
    ISOBIT_RETURN_FOR_ISA(isa, writers_of_lines(dtype));
  }
  static Kernels along_for(DType dtype, Isa isa, bool spread) {
    ISOBIT_RETURN_FOR_ISA(isa, kernels_along(dtype, spread));
  }
  static Kernels abreast_for(DType dtype, Isa isa) {
    ISOBIT_RETURN_FOR_ISA(isa, kernels_abreast(dtype));
  }
};

}  // namespace isobit::channel_norm
