// SPDX-License-Identifier: Apache-2.0
// Windows as matrices without a matrix: a tile of results reads an image that is staged once, with
// its padding, and row k of the matrix is that image from offset k on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>

#include "isobit/core/pieces.h"
#include "isobit/ops/convolution/cpu_parts.h"
#include "isobit/ops/matmul/cpu_panels.h"

namespace isobit::convolution {

// What columns cost, in thirds of a whole panel of them; half of one costs two.
inline std::int64_t thirds_of_panels(std::int64_t count, std::int64_t cols) {
  const std::int64_t rest = count % cols;
  return count / cols * 3 + (rest == 0 ? 0 : 2 * rest <= cols ? 2 : 3);
}

// Results of one dimension that use the same taps: all of forward; of a gradient every `stride`-th.
// Result j has index first + j * step; tap u is tap_first + u * tap_step, and there the source is
// j * scale + shift + u * tap_shift.
struct Phase {
  std::int64_t first = 0, step = 1, count = 0;
  std::int64_t scale = 1;
  std::int64_t tap_first = 0, tap_step = 1, taps = 0;
  std::int64_t shift = 0, tap_shift = 1;

  static std::int64_t how_many(const Axis& axis, bool gradient) {
    return gradient ? std::min(axis.stride, axis.results) : 1;
  }
  // The residue of the one in which a tap lands, or -1.
  static std::int64_t of_tap(const Axis& axis, bool gradient, std::int64_t tap) {
    const std::int64_t most = how_many(axis, gradient);
    for (std::int64_t residue = 0; residue < most; ++residue)
      if (Phase(axis, gradient, residue).has(tap)) return residue;
    return -1;
  }
  Phase(const Axis& axis, bool gradient, std::int64_t residue) {
    if (!gradient) {
      count = axis.results;
      scale = axis.stride;
      taps = axis.taps;
      shift = -axis.padding;
      tap_shift = axis.dilation;
      return;
    }
    first = residue;
    step = axis.stride;
    count = (axis.results - residue + step - 1) / step;
    tap_step = step / std::gcd(step, axis.dilation);
    const std::int64_t most = std::min(axis.taps, tap_step);
    const auto place = [&](std::int64_t tap) {
      return residue + axis.padding - tap * axis.dilation;
    };
    while (tap_first < most && place(tap_first) % step != 0) ++tap_first;
    if (tap_first == most) return;
    taps = (axis.taps - 1 - tap_first) / tap_step + 1;
    shift = place(tap_first) / step;
    tap_shift = -(axis.dilation / (step / tap_step));
  }
  // The least source of result j, at any tap.
  std::int64_t least(std::int64_t j) const {
    return j * scale + shift + std::min<std::int64_t>(0, (taps - 1) * tap_shift);
  }
  // The results whose tap u meets one of so many sources, and nothing beyond them.
  struct Range {
    std::int64_t begin, end;
  };
  Range landing(std::int64_t u, std::int64_t sources) const {
    const std::int64_t of_first = shift + u * tap_shift;
    const auto up = [&](std::int64_t source) {  // the first result at or behind it
      return source <= of_first ? 0 : std::min(count, (source - of_first - 1) / scale + 1);
    };
    return {up(0), up(sources)};
  }
  // From the least to the greatest of a result.
  std::int64_t reach() const { return taps == 0 ? 0 : std::abs((taps - 1) * tap_shift); }
  // Where tap u stands beyond the least.
  std::int64_t beyond(std::int64_t u) const {
    return tap_shift < 0 ? (taps - 1 - u) * -tap_shift : u * tap_shift;
  }
  // Whether a tap meets sources of this residue, by the scale, behind the least.
  bool meets(std::int64_t residue) const {
    for (std::int64_t u = 0; u < std::min(taps, scale); ++u)
      if (beyond(u) % scale == residue) return true;
    return false;
  }
  // Taps of it before a tap of all.
  std::int64_t before(std::int64_t tap) const {
    return tap <= tap_first ? 0 : std::min(taps, (tap - tap_first - 1) / tap_step + 1);
  }
  bool has(std::int64_t tap) const {
    return tap >= tap_first && (tap - tap_first) % tap_step == 0 && before(tap) < taps;
  }
  // Staged lines of so many results: every scale-th source is adjacent, so that results are.
  std::int64_t lines(std::int64_t results) const {
    return ((results - 1) * scale + reach()) / scale + 1;
  }
};

// The results of two phases, and which k they have.
struct Phases {
  Phase h, w;
  std::int64_t taps_w, ins;

  Phases(const Problem& p, std::int64_t index)
      : h(p.h, p.gradient, index / Phase::how_many(p.w, p.gradient)),
        w(p.w, p.gradient, index % Phase::how_many(p.w, p.gradient)),
        taps_w(p.w.taps),
        ins(p.ins) {}
  static std::int64_t how_many(const Problem& p) {
    return Phase::how_many(p.h, p.gradient) * Phase::how_many(p.w, p.gradient);
  }
  // The one in which a tap lands, or -1.
  static std::int64_t of_tap(const Problem& p, std::int64_t tap_h, std::int64_t tap_w) {
    const std::int64_t of_h = Phase::of_tap(p.h, p.gradient, tap_h),
                       of_w = Phase::of_tap(p.w, p.gradient, tap_w);
    return of_h < 0 || of_w < 0 ? -1 : of_h * Phase::how_many(p.w, p.gradient) + of_w;
  }
  std::int64_t entries() const { return h.taps * w.taps * ins; }
  // Entries before a k of all.
  std::int64_t before(std::int64_t k) const {
    if (ins == 0) return 0;
    const std::int64_t tap = k / ins, tap_h = tap / taps_w, tap_w = tap % taps_w;
    const std::int64_t in_row = h.has(tap_h) ? w.before(tap_w) : 0;
    return (h.before(tap_h) * w.taps + in_row) * ins + (h.has(tap_h) && w.has(tap_w) ? k % ins : 0);
  }
};

// How a tile's part of an image is staged: for each channel, and each residue of rows and columns
// by the scales, lines of adjacent elements.
struct Staged {
  std::int64_t rows = 0, cols = 0;  // lines, and elements of a line
  std::int64_t scale_h = 1, scale_w = 1;
  std::int64_t plane = 0, channel = 0;  // elements

  Staged() = default;
  Staged(const Phases& phases, std::int64_t results_h, std::int64_t results_w)
      : rows(phases.h.lines(results_h)),
        cols(phases.w.lines(results_w)),
        scale_h(phases.h.scale),
        scale_w(phases.w.scale),
        plane(count_of({rows, cols})),
        channel(count_of({plane, scale_h, scale_w})) {
    if (channel % 256 == 0) channel += 16;  // or channels would push each other out of caches
  }
  std::int64_t at(std::int64_t row, std::int64_t col) const {
    return ((row % scale_h) * scale_w + col % scale_w) * plane + row / scale_h * cols +
           col / scale_w;
  }
};

inline const ProductKernel& product_kernel_for(DType real, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, product_kernel(real));
}
inline PackWeightsKernel pack_weights_kernel_for(DType element, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, pack_weights_kernel(element));
}
inline RowsKernel rows_kernel_for(DType real, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, rows_kernel(real));
}
inline AbreastKernel abreast_kernel_for(DType real, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, abreast_kernel(real));
}
inline TurnKernel turn_kernel_for(DType element, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, turn_kernel(element));
}
inline SettleKernel settle_kernel_for(DType element, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, settle_kernel(element));
}
inline StageKernel stage_kernel_for(DType element, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, stage_kernel(element));
}

// Fills staged lines.
class Stager {
 public:
  Stager(const Problem& problem, Isa isa)
      : p_(problem),
        stage_(stage_kernel_for(problem.element, isa)),
        size_(size_of(problem.real())) {}

  struct Channels {
    std::int64_t n, first, count;  // of an image
  };
  // The part that results from (row, col) of the phases on need.
  void operator()(const Phases& phases, const Staged& to, const Channels& channels,
                  std::int64_t row, std::int64_t col, std::byte* room) const {
    const std::int64_t first_h = phases.h.least(row), first_w = phases.w.least(col);
    for (std::int64_t bh = 0; bh < to.scale_h; ++bh) {
      if (!phases.h.meets(bh)) continue;
      for (std::int64_t bw = 0; bw < to.scale_w; ++bw) {
        if (!phases.w.meets(bw)) continue;
        for (std::int64_t c = 0; c < channels.count; ++c) {
          std::byte* const plane =
              room + (c * to.channel + (bh * to.scale_w + bw) * to.plane) * size_;
          const auto source_of = [&](std::int64_t i) {
            return place(p_.h, first_h + i * to.scale_h + bh);
          };
          for (std::int64_t i = 0; i < to.rows;) {
            std::byte* const line = plane + i * to.cols * size_;
            const std::int64_t h = source_of(i);
            std::int64_t lines = 1;  // that follow each other, as all but those beyond the edge
            while (i + lines < to.rows && h >= 0 && source_of(i + lines) == h + lines * to.scale_h)
              ++lines;
            if (h < 0)
              std::memset(line, 0, static_cast<std::size_t>(to.cols * size_));
            else
              fill(channels.n, channels.first + c, h, lines, to.scale_h, first_w + bw, to.scale_w,
                   to.cols, line);
            i += lines;
          }
        }
      }
    }
  }

 private:
  // The element for one of any index, or -1 for a zero. Lines may go on behind what is padded.
  std::int64_t place(const Axis& axis, std::int64_t index) const {
    const std::int64_t count = axis.sources;
    if (index >= 0 && index < count) return index;
    if (p_.gradient || index < -axis.padding || index >= count + axis.padding_end) return -1;
    return padded(p_.mode, index, count);
  }
  // `count` elements each of so many lines, of rows from h on.
  void fill(std::int64_t n, std::int64_t channel, std::int64_t h, std::int64_t lines,
            std::int64_t step_h, std::int64_t first, std::int64_t step, std::int64_t count,
            std::byte* to) const {
    const auto up = [&](std::int64_t index) {  // the first at or behind an index
      return std::clamp<std::int64_t>(index <= first ? 0 : (index - first + step - 1) / step, 0,
                                      count);
    };
    const std::int64_t begin = up(0), end = std::max(begin, up(p_.w.sources));
    stage_({p_.source.at(n, channel, h, first + begin * step), p_.source.w * step,
            p_.source.h * step_h, to, lines, begin, end, count});
    if (p_.gradient || p_.mode == PaddingMode::zeros) return;
    for (std::int64_t line = 0; line < lines; ++line)
      for (std::int64_t i = 0; i < count; ++i) {
        if (i == begin) i = end;
        const std::int64_t w = i < count ? place(p_.w, first + i * step) : -1;
        if (w >= 0)
          stage_({p_.source.at(n, channel, h + line * step_h, w), 1, 0,
                  to + (line * count + i) * size_, 1, 0, 1, 1});
      }
  }

  const Problem& p_;
  StageKernel stage_;
  std::int64_t size_;
};

template <class Real>
bool all_finite(const Real* from, std::int64_t count) {
  constexpr std::int64_t kChains = 16;  // sums that do not wait for each other
  Real off[kChains] = {};
  for (std::int64_t i = 0; i < count; i += kChains)
    for (std::int64_t j = 0; j < std::min(kChains, count - i); ++j)
      off[j] += from[i + j] - from[i + j];  // not 0 where it is not finite
  return std::all_of(off, off + kChains, [](Real sum) { return sum == 0; });
}

// Offsets of all entries in staged images, side by side.
inline void find_offsets(const Phases& phases, const Staged& staged, std::int64_t images,
                         std::int64_t* to) {
  for (std::int64_t u = 0; u < phases.h.taps; ++u)
    for (std::int64_t v = 0; v < phases.w.taps; ++v) {
      const std::int64_t at = staged.at(phases.h.beyond(u), phases.w.beyond(v));
      for (std::int64_t c = 0; c < phases.ins; ++c) *to++ = (at + c * staged.channel) * images;
    }
}

// Lines of sums, one a channel, become lines of results.
class Finisher {
 public:
  Finisher(const Problem& problem, Isa isa, std::int64_t step)
      : p_(problem),
        step_(step),
        lines_(as_lines(problem, step)),
        channels_(lines_.transposed()),
        finish_lines_(lines_, isa),
        finish_channels_(channels_, isa),
        size_(size_of(problem.real())) {
    const auto last = [](const Images& images) { return !images || images.c == 1; };
    const auto follow = [&](const Images& images) {
      return !images || problem.h.results == 1 || images.h == problem.w.results * images.w;
    };
    lines_follow_ =
        step == 1 && follow(problem.residual) && follow(problem.result) && follow(problem.pre);
    plain_ = step > 1 && problem.activation == Activation::none && !problem.bias &&
             !problem.residual && !problem.pre && problem.result.dtype == problem.element;
    by_channels_ = problem.outs > 1 && problem.result.w * step != 1 && last(problem.result) &&
                   last(problem.residual) && last(problem.pre);
  }

  // Bytes to work in.
  static std::int64_t room(const Problem& problem) {
    return kCols * (problem.outs + 16) * size_of(problem.real());
  }

  // Whether all results of an image are one line.
  bool lines_follow_each_other() const { return lines_follow_; }

  // Of one channel, rows that are `step` apart; their sums are adjacent.
  void rows_of_one(std::int64_t n, std::int64_t channel, std::int64_t row, std::int64_t col,
                   std::int64_t step, std::byte* sums, std::int64_t rows, std::int64_t cols,
                   std::byte* room) const {
    if (by_channels_) {
      for (std::int64_t i = 0; i < rows; ++i)
        (*this)(n, channel, row + i * step, col, sums + i * cols * size_, cols, 1, cols, room);
      return;
    }
    matmul::Arrays arrays = arrays_of(p_, n, channel, row, col, step_);
    bool adjacent = true;
    const auto set = [&](const Images& images, matmul::Array& array) {
      array.row = images.h * step;
      adjacent = adjacent && (!images || array.row == cols * array.col);
    };
    set(p_.residual, arrays.residual);
    set(p_.result, arrays.y);
    set(p_.pre, arrays.pre);
    arrays.bias.row = 0;
    finish_lines_(arrays, 0, 0, sums, cols, adjacent ? 1 : rows, adjacent ? rows * cols : cols);
  }

  void operator()(std::int64_t n, std::int64_t channel, std::int64_t row, std::int64_t col,
                  std::byte* sums, std::int64_t pitch, std::int64_t channels, std::int64_t cols,
                  std::byte* room) const {
    const matmul::Arrays arrays = arrays_of(p_, n, channel, row, col, step_);
    if (plain_ && !by_channels_) return put_apart(arrays.y, sums, pitch, channels, cols);
    if (!by_channels_) return finish_lines_(arrays, 0, 0, sums, pitch, channels, cols);
    matmul::Arrays turned = arrays;
    for (matmul::Array matmul::Arrays::* array : matmul::Arrays::kAll)
      turned.*array = (arrays.*array).transposed();
    for (std::int64_t j = 0; j < cols; j += kCols) {
      const std::int64_t some = std::min(kCols, cols - j);
      if (size_ == 8)
        turn<double>(sums, pitch, j, channels, some, room);
      else
        turn<float>(sums, pitch, j, channels, some, room);
      finish_channels_(turned, j, 0, room, channels + 16, some, channels);
    }
  }

 private:
  static constexpr std::int64_t kCols = 16;

  static matmul::Problem as_lines(const Problem& problem, std::int64_t step) {
    matmul::Problem result = finish_problem(problem);
    for (matmul::Array matmul::Arrays::* array : matmul::Arrays::kAll)
      if (array != &matmul::Arrays::bias) (result.first.*array).col *= step;
    if (result.n == 1) result.n = 2;  // a line may lie beside others
    return result;
  }
  // Sums that become results as they are, every step-th of a short line.
  void put_apart(const matmul::Array& to, const std::byte* sums, std::int64_t pitch,
                 std::int64_t channels, std::int64_t cols) const {
    matmul::with_types(p_.element, [&]<class T, class Real>(T, Real) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const auto* const from = reinterpret_cast<const Real*>(sums) + c * pitch;
        auto* const line = reinterpret_cast<T*>(to.data) + c * to.row;
        for (std::int64_t j = 0; j < cols; ++j) line[j * to.col] = narrow<T>(from[j] + Real(0));
      }
    });
  }
  template <class Real>
  static void turn(const std::byte* sums, std::int64_t pitch, std::int64_t col,
                   std::int64_t channels, std::int64_t cols, std::byte* room) {
    const auto* from = reinterpret_cast<const Real*>(sums) + col;
    auto* to = reinterpret_cast<Real*>(room);
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t j = 0; j < cols; ++j) to[j * (channels + 16) + c] = from[c * pitch + j];
  }

  const Problem& p_;
  std::int64_t step_;
  matmul::Problem lines_, channels_;
  matmul::Finish finish_lines_, finish_channels_;
  std::int64_t size_;
  bool by_channels_, lines_follow_, plain_;
};

}  // namespace isobit::convolution
