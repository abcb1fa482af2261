// SPDX-License-Identifier: Apache-2.0
// Depthwise where channels come last in memory: channels side by side, each in a lane of its own.
#include "isobit/ops/convolution/cpu_windows.h"

namespace isobit::convolution {
namespace {

constexpr std::int64_t kMostPixels = 64;              // whose sums wait to become results
constexpr std::int64_t kMostPixelsK = order::kPanel;  // of one filter: one chain

inline PixelsKernel pixels_kernel_for(DType element, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, pixels_kernel(element));
}

class DepthwisePixels {
 public:
  DepthwisePixels(const Problem& problem, const Machine& machine)
      : p_(problem),
        size_(size_of(problem.real())),
        blocks_(parts_of(problem.groups, kMostChannels)),
        rows_(blocks_ * problem.batch * problem.h.results),
        finished_(as_pixels(problem)),
        finish_(finished_, machine.isa),
        multiply_(pixels_kernel_for(problem.element, machine.isa)) {
    const double work = static_cast<double>(problem.batch * problem.positions()) *
                        static_cast<double>(problem.groups) *
                        static_cast<double>(std::max<std::int64_t>(16, problem.k())) / 8;
    tasks_ = simd::task_count(machine, static_cast<std::int64_t>(std::min(work, 0x1p60)), rows_);
  }

  std::size_t workspace() const { return static_cast<std::size_t>(tasks_ * task_bytes()); }

  void run(const Execution& execution) const {
    std::atomic<bool> finite = true;
    execution.parallel_for(tasks_, [&](std::int64_t task) {
      const simd::FloatMode mode;
      const Room room(*this, execution.workspace + task * task_bytes());
      std::memset(room.zeros, 0, kZeroBytes);
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
  static constexpr std::int64_t kZeroBytes = kMostChannels * 8;

  // A task's memory: weights of a block of channels, taps of a run of pixels, and their sums.
  struct Room {
    std::byte *weights, *of_phase, *sums, *zeros;
    TapOfPixels* taps;
    std::size_t bytes;

    Room(const DepthwisePixels& work, std::byte* memory) {
      Pieces pieces(memory);
      weights = pieces.take(work.p_.k() * kMostChannels * work.size_);
      of_phase = pieces.take(work.p_.k() * kMostChannels * work.size_);
      sums = pieces.take(kMostPixels * kMostChannels * work.size_);
      zeros = pieces.take(kZeroBytes);
      taps = reinterpret_cast<TapOfPixels*>(
          pieces.take(work.p_.k() * static_cast<std::int64_t>(sizeof(TapOfPixels))));
      bytes = pieces.taken();
    }
  };
  std::int64_t task_bytes() const { return static_cast<std::int64_t>(Room(*this, nullptr).bytes); }
  std::int64_t channels_of(std::int64_t block) const {
    return std::min(kMostChannels, p_.groups - block * kMostChannels);
  }

  // Positions are the rows of what is finished, and channels its columns.
  static matmul::Problem as_pixels(const Problem& problem) {
    matmul::Problem result = finish_problem(problem).transposed();
    result.n = std::max<std::int64_t>(2, problem.groups);
    return result;
  }

  // Says whether all are finite.
  bool pack(std::int64_t block, const Room& room) const {
    const std::int64_t channels = channels_of(block);
    bool finite = true;
    matmul::with_types(p_.element, [&]<class T, class Real>(T, Real) {
      auto* to = reinterpret_cast<Real*>(room.weights);
      for (std::int64_t tap = 0; tap < p_.k(); ++tap, to += kMostChannels)
        for (std::int64_t c = 0; c < kMostChannels; ++c) {
          const auto* from = reinterpret_cast<const T*>(p_.weight.data) +
                             (block * kMostChannels + c) * p_.weight.group +
                             tap / p_.w.taps * p_.weight.h + tap % p_.w.taps * p_.weight.w;
          to[c] = c < channels ? widen<Real>(*from) : Real(0);
        }
      finite = all_finite(reinterpret_cast<const Real*>(room.weights), p_.k() * kMostChannels);
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
        return std::clamp<std::int64_t>(parts_of(std::max<std::int64_t>(0, least), w.scale), 0,
                                        w.count);
      };
      const std::int64_t begin = first_at(-w.least(0));
      const std::int64_t end = std::max(begin, first_at(p_.w.sources - w.reach() - w.least(0)));
      for (std::int64_t j = 0; j < begin; ++j) pixels(run, j, 1);
      for (std::int64_t j = begin; j < end; j += kMostPixels)
        pixels(run, j, std::min(kMostPixels, end - j));
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
    const std::int64_t line = kMostChannels * size_;
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
    const std::int64_t channel = run.block * kMostChannels, channels = channels_of(run.block);
    TapOfPixels* tap = run.room.taps;
    for (std::int64_t u = 0; u < run.h.taps; ++u) {
      const std::int64_t of_row =
          run.row / run.h.step * run.h.scale + run.h.shift + u * run.h.tap_shift;
      const std::int64_t source_row = place(p_.h, of_row);
      for (std::int64_t v = 0; v < run.w.taps; ++v, ++tap) {
        const std::int64_t source_col =
            place(p_.w, j * run.w.scale + run.w.shift + v * run.w.tap_shift);
        if (source_row < 0 || source_col < 0)
          *tap = {run.room.zeros, 0};
        else
          *tap = {p_.source.at(run.n, channel, source_row, source_col), p_.source.w * run.w.scale};
      }
    }
    multiply_({run.room.taps, run.weights, run.room.sums, tap - run.room.taps, count, channels});
    matmul::Arrays arrays =
        arrays_of(p_, run.n, channel, run.row, run.w.first + j * run.w.step, run.w.step);
    for (matmul::Array matmul::Arrays::* array : matmul::Arrays::kAll)
      arrays.*array = (arrays.*array).transposed();
    finish_(arrays, 0, 0, run.room.sums, kMostChannels, count, channels);
  }

  const Problem& p_;
  std::int64_t size_, blocks_, rows_, tasks_ = 1;
  matmul::Problem finished_;
  matmul::Finish finish_;
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
