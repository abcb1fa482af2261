// SPDX-License-Identifier: Apache-2.0
// Depthwise where channels come last in memory: channels side by side, each in a lane of its own.
#include "isobit/ops/convolution/cpu_windows.h"

namespace isobit::convolution {
namespace {

constexpr std::int64_t kMostChannels = 512;           // at a time
constexpr std::int64_t kFewChannels = 64;             // of which blocks are multiples
constexpr std::int64_t kMostWeights = 1 << 17;        // bytes of a block's, where that is enough
constexpr std::int64_t kMostSums = 4096;              // that wait to become results
constexpr std::int64_t kMostPixelsK = order::kPanel;  // of one filter: one chain

inline PixelsKernel pixels_kernel_for(DType element, DType to, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, pixels_kernel(element, to));
}

class DepthwisePixels {
 public:
  DepthwisePixels(const Problem& problem, const Machine& machine)
      : p_(problem),
        size_(size_of(problem.real())),
        finished_(as_pixels(problem)),
        finish_(finished_, machine.isa),
        turn_(turn_kernel_for(problem.element, machine.isa)),
        at_once_(
            problem.activation == Activation::none && !problem.residual && !problem.pre &&
            (problem.result.dtype == problem.element || problem.result.dtype == problem.real())),
        multiply_(pixels_kernel_for(
            problem.element, at_once_ ? problem.result.dtype : problem.real(), machine.isa)) {
    const auto in_blocks = [](std::int64_t channels) {
      return parts_of(channels, kFewChannels) * kFewChannels;
    };
    const std::int64_t most =
        std::clamp(kMostWeights / (problem.k() * size_) / kFewChannels * kFewChannels, kFewChannels,
                   kMostChannels);
    block_ = in_blocks(parts_of(problem.groups, parts_of(problem.groups, most)));
    rows_ = parts_of(problem.groups, block_) * problem.batch * problem.h.results;
    const double work = static_cast<double>(problem.batch * problem.positions()) *
                        static_cast<double>(problem.groups) *
                        static_cast<double>(std::max<std::int64_t>(16, problem.k())) / 8;
    tasks_ = simd::task_count(
        machine, static_cast<std::int64_t>(std::min(work, 0x1p60)),
        std::min(rows_, std::max<std::int64_t>(1, matmul::kMostMemory / task_bytes())));
  }

  std::size_t workspace() const { return static_cast<std::size_t>(tasks_ * task_bytes()); }

  void run(const Execution& execution) const {
    std::atomic<bool> finite = true;
    execution.parallel_for(tasks_, [&](std::int64_t task) {
      const simd::FloatMode mode;
      const Room room(*this, execution.workspace + task * task_bytes());
      std::memset(room.zeros, 0, static_cast<std::size_t>(block_ * size_));
      std::int64_t packed = -1;
      for (std::int64_t i = rows_ * task / tasks_; i < rows_ * (task + 1) / tasks_; ++i) {
        const std::int64_t of_block = p_.batch * p_.h.results, block = i / of_block;
        if (block != packed && !pack(block, room)) finite = false;
        packed = block;
        row(block, i % of_block / p_.h.results, i % p_.h.results, room);
      }
    });
    // A window that reaches beyond the gradient has no products there; zeros would be some.
    if (p_.gradient && !finite) compute_directly(p_, execution);
  }

 private:
  // A task's memory: weights of a block of channels, taps of a run of pixels, and their sums.
  struct Room {
    std::byte *weights, *of_phase, *bias, *zeros, *sums;
    TapOfPixels* taps;
    std::size_t bytes;

    Room(const DepthwisePixels& work, std::byte* memory) {
      Pieces pieces(memory);
      const std::int64_t line = work.block_ * work.size_;
      weights = pieces.take(work.p_.k() * line);
      of_phase = pieces.take(work.has_phases() ? work.p_.k() * line : 0);
      bias = pieces.take(line);
      zeros = pieces.take(line);
      sums = pieces.take(work.at_once_ ? 0 : work.most_pixels() * line);
      taps = reinterpret_cast<TapOfPixels*>(
          pieces.take(work.p_.k() * static_cast<std::int64_t>(sizeof(TapOfPixels))));
      bytes = pieces.taken();
    }
  };
  std::int64_t task_bytes() const { return static_cast<std::int64_t>(Room(*this, nullptr).bytes); }
  std::int64_t channels_of(std::int64_t block) const {
    return std::min(block_, p_.groups - block * block_);
  }
  bool has_phases() const { return p_.gradient && (p_.h.stride > 1 || p_.w.stride > 1); }
  std::int64_t most_pixels() const {
    return at_once_ ? p_.w.results : std::max<std::int64_t>(1, kMostSums / block_);
  }

  // Positions are the rows of what is finished, and channels its columns.
  static matmul::Problem as_pixels(const Problem& problem) {
    matmul::Problem result = finish_problem(problem).transposed();
    result.n = std::max<std::int64_t>(2, problem.groups);
    return result;
  }

  // Says whether all weights are finite.
  bool pack(std::int64_t block, const Room& room) const {
    const std::int64_t channels = channels_of(block), first = block * block_;
    bool finite = true;
    matmul::with_types(p_.element, [&]<class T, class Real>(T, Real) {
      auto* const weights = reinterpret_cast<Real*>(room.weights);
      const auto* const from = reinterpret_cast<const T*>(p_.weight.data) + first * p_.weight.group;
      if (p_.weight.w == 1 && p_.weight.h == p_.w.taps)
        turn_({reinterpret_cast<const std::byte*>(from), p_.weight.group, p_.k(), channels, weights,
               block_});
      else
        for (std::int64_t tap = 0; tap < p_.k(); ++tap)
          for (std::int64_t c = 0; c < channels; ++c)
            weights[tap * block_ + c] =
                widen<Real>(from[c * p_.weight.group + tap / p_.w.taps * p_.weight.h +
                                 tap % p_.w.taps * p_.weight.w]);
      for (std::int64_t tap = 0; tap < p_.k() && p_.gradient; ++tap)
        finite = finite && all_finite(weights + tap * block_, channels);
      auto* const bias = reinterpret_cast<Real*>(room.bias);
      std::fill_n(bias, channels, -Real(0));  // which changes nothing
      if (at_once_ && p_.bias)
        matmul::with_types(p_.bias.dtype, [&]<class W>(W, auto) {
          for (std::int64_t c = 0; c < channels; ++c)
            bias[c] = widen<Real>(*reinterpret_cast<const W*>(p_.bias.moved(first + c, 0).data));
        });
    });
    return finite;
  }

  std::int64_t place(const Axis& axis, std::int64_t index) const {
    if (index >= 0 && index < axis.sources) return index;
    return p_.gradient ? -1 : padded(p_.mode, index, axis.sources);
  }

  void row(std::int64_t block, std::int64_t n, std::int64_t row, const Room& room) const {
    const Phase h(p_.h, p_.gradient, row % Phase::how_many(p_.h, p_.gradient));
    for (std::int64_t residue = 0; residue < Phase::how_many(p_.w, p_.gradient); ++residue) {
      const Phase w(p_.w, p_.gradient, residue);
      const Run run{block, n, row, h, w, weights_of(h, w, room), room};
      // Between the edges all taps of a pixel are there.
      const auto first_at = [&](std::int64_t least) {  // the first pixel whose least source is
        return std::clamp<std::int64_t>(least <= 0 ? 0 : (least - 1) / w.scale + 1, 0, w.count);
      };
      const std::int64_t begin = first_at(-w.least(0));
      const std::int64_t end = std::max(begin, first_at(p_.w.sources - w.reach() - w.least(0)));
      for (std::int64_t j = 0; j < begin; ++j) pixels(run, j, 1);
      for (std::int64_t j = begin; j < end; j += most_pixels())
        pixels(run, j, std::min(most_pixels(), end - j));
      for (std::int64_t j = end; j < w.count; ++j) pixels(run, j, 1);
    }
  }

  struct Run {
    std::int64_t block, n, row;
    const Phase &h, &w;
    const std::byte* weights;
    const Room& room;
  };

  // Of the taps of a phase: all, where they are.
  const std::byte* weights_of(const Phase& h, const Phase& w, const Room& room) const {
    if (h.taps == p_.h.taps && w.taps == p_.w.taps) return room.weights;
    const std::int64_t line = block_ * size_;
    std::byte* to = room.of_phase;
    for (std::int64_t u = 0; u < h.taps; ++u)
      for (std::int64_t v = 0; v < w.taps; ++v, to += line) {
        const std::int64_t tap =
            (h.tap_first + u * h.tap_step) * p_.w.taps + w.tap_first + v * w.tap_step;
        std::memcpy(to, room.weights + tap * line, static_cast<std::size_t>(line));
      }
    return room.of_phase;
  }

  // Results from the j-th of a phase on; several only where all their sources are there.
  void pixels(const Run& run, std::int64_t j, std::int64_t count) const {
    const std::int64_t channel = run.block * block_, channels = channels_of(run.block);
    const std::int64_t step = p_.source.w * run.w.scale;
    // From the last pixel back, where taps go back: then they slide forward.
    const bool back = run.w.tap_shift < 0 && count > 1;
    TapOfPixels* tap = run.room.taps;
    for (std::int64_t u = 0; u < run.h.taps; ++u) {
      const std::int64_t of_row =
          run.row / run.h.step * run.h.scale + run.h.shift + u * run.h.tap_shift;
      const std::int64_t source_row = place(p_.h, of_row);
      for (std::int64_t v = 0; v < run.w.taps; ++v, ++tap) {
        const std::int64_t pixel = back ? j + count - 1 : j;
        const std::int64_t source_col =
            place(p_.w, pixel * run.w.scale + run.w.shift + v * run.w.tap_shift);
        if (source_row < 0 || source_col < 0)
          *tap = {run.room.zeros, 0};
        else
          *tap = {p_.source.at(run.n, channel, source_row, source_col), back ? -step : step};
      }
    }
    const bool slides = count > 1 && run.w.scale == 1 && std::abs(run.w.tap_shift) == 1 &&
                        std::ranges::find(kSliding, run.w.taps) != std::end(kSliding);
    const std::int64_t col = run.w.first + j * run.w.step;
    std::byte* const to = at_once_ ? p_.result.at(run.n, channel, run.row, col) : run.room.sums;
    const std::int64_t to_step = at_once_ ? p_.result.w * run.w.step : block_;
    const std::int64_t to_size = at_once_ ? size_of(p_.result.dtype) : size_;
    multiply_({.taps = run.room.taps,
               .weights = run.weights,
               .bias = run.room.bias,
               .pitch = block_,
               .count_of_taps = tap - run.room.taps,
               .sliding = slides ? run.w.taps : 0,
               .pixels = count,
               .channels = channels,
               .to = back ? to + (count - 1) * to_step * to_size : to,
               .to_step = back ? -to_step : to_step});
    if (at_once_) return;
    matmul::Arrays arrays = arrays_of(p_, run.n, channel, run.row, col, run.w.step);
    for (matmul::Array matmul::Arrays::* array : matmul::Arrays::kAll)
      arrays.*array = (arrays.*array).transposed();
    finish_(arrays, 0, 0, run.room.sums, block_, count, channels);
  }

  const Problem& p_;
  std::int64_t size_, block_ = 0, rows_ = 0, tasks_ = 1;  // channels of a block
  matmul::Problem finished_;
  matmul::Finish finish_;
  TurnKernel turn_;
  bool at_once_;  // whether sums become results as they are computed
  PixelsKernel multiply_;
};

bool has_channels_last(const Problem& problem) {
  const auto last = [](const Images& images) { return !images || images.c == 1; };
  return last(problem.source) && last(problem.result) && last(problem.residual) &&
         last(problem.pre);
}
// Without the words of why not, which take memory.
bool suits(const Problem& problem, const Machine&) {
  return is_depthwise(problem) && has_channels_last(problem);
}

std::string obstacle(const Problem& problem, const Machine&) {
  if (!is_depthwise(problem)) return "needs groups of one channel and one filter";
  if (!has_channels_last(problem)) return "needs channels that are adjacent in memory";
  if (const char* const padding = obstacle_of_padding(problem); *padding != '\0') return padding;
  if (problem.k() > kMostPixelsK) return "needs at most 512 weights in a filter";
  return {};
}

}  // namespace

constinit const AnyVariant<Problem> kDepthwise = {
    .name = "depthwise",
    .each_isa = true,
    .declines = obstacle,
    .suits = suits,
    .workspace =
        [](const Problem& problem, const Machine& machine) {
          return problem.empty() ? 0 : DepthwisePixels(problem, machine).workspace();
        },
    .run =
        [](const Problem& problem, const Execution& execution) {
          if (!problem.empty()) DepthwisePixels(problem, execution.machine).run(execution);
        }};

}  // namespace isobit::convolution
