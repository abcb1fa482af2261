// SPDX-License-Identifier: Apache-2.0
// The gradient of depthwise weights where channels come last in memory: a sum for each tap and
// channel, of what lies where it is.
#include "isobit/ops/convolution/cpu_windows.h"

namespace isobit::convolution {
namespace {

constexpr std::int64_t kMostChannels = 512;  // at a time
constexpr std::int64_t kFewChannels = 16;    // of which blocks are multiples: a line of the caches
constexpr std::int64_t kMostSums = 1 << 19;  // bytes of a block's, where that is enough

inline WeightsOfPixelsKernel weights_of_pixels_kernel_for(DType element, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, weights_of_pixels_kernel(element));
}

class PixelWeights {
 public:
  PixelWeights(const Problem& problem, const Machine& machine)
      : p_(problem),
        isa_(machine.isa),
        size_(size_of(problem.real())),
        positions_(problem.batch * problem.positions()),
        buffers_(matmul::Runs::buffers(positions_)) {
    const std::int64_t of_channel = count_of({p_.k(), size_, buffers_ + 1});
    const std::int64_t most = std::clamp<std::int64_t>(
        kMostSums / std::max<std::int64_t>(1, of_channel), kFewChannels, kMostChannels);
    const std::int64_t threads = std::max<std::int64_t>(1, machine.threads);
    const std::int64_t blocks = std::max(parts_of(p_.groups, most), std::min(threads, p_.groups));
    block_ = parts_of(parts_of(p_.groups, blocks), kFewChannels) * kFewChannels;
    const double work = static_cast<double>(positions_) * static_cast<double>(p_.groups) *
                        static_cast<double>(std::max<std::int64_t>(16, p_.k())) / 8;
    tasks_ =
        simd::task_count(machine, static_cast<std::int64_t>(std::min(work, 0x1p60)),
                         std::min(parts_of(p_.groups, block_),
                                  std::max<std::int64_t>(1, matmul::kMostMemory / task_bytes())));
  }

  bool fits() const { return task_bytes() <= matmul::kMostMemory; }
  std::size_t workspace() const { return static_cast<std::size_t>(tasks_ * task_bytes()); }

  void run(const Execution& execution) const {
    const std::int64_t blocks = parts_of(p_.groups, block_);
    execution.parallel_for(tasks_, [&](std::int64_t task) {
      const simd::FloatMode mode;
      std::byte* const room = execution.workspace + task * task_bytes();
      for (std::int64_t i = blocks * task / tasks_; i < blocks * (task + 1) / tasks_; ++i)
        compute(i * block_, std::min(block_, p_.groups - i * block_), room);
    });
  }

 private:
  std::int64_t sums_bytes() const { return count_of({p_.k(), block_, size_}); }
  std::int64_t zeros_bytes() const { return block_ * size_; }
  std::int64_t taps_bytes() const {
    constexpr std::int64_t kTap = sizeof(TapOfPixels);
    return parts_of(count_of({p_.k(), kTap}), 64) * 64;
  }
  std::int64_t task_bytes() const {
    return zeros_bytes() + taps_bytes() + (buffers_ + 1) * sums_bytes();
  }

  void compute(std::int64_t channel, std::int64_t channels, std::byte* room) const {
    std::memset(room, 0, static_cast<std::size_t>(zeros_bytes()));
    auto* const taps = reinterpret_cast<TapOfPixels*>(room + zeros_bytes());
    std::byte* const chain = room + zeros_bytes() + taps_bytes();
    const auto multiply = [&](std::int64_t k, std::int64_t count, std::byte* to) {
      Piece piece{channel, channels, room, taps, to, false};
      for (std::int64_t done = 0, some = 0; done < count; done += some) {
        const std::int64_t col = (k + done) % p_.w.results;
        some = std::min(count - done, p_.w.results - col);
        of_row(piece, (k + done) / p_.w.results, col, col + some);
      }
    };
    matmul::Runs runs(chain + sums_bytes(), sums_bytes(), sums_bytes() / size_,
                      matmul::add_kernel_for(p_.real(), isa_));
    runs.for_each_panel_alone(positions_, chain, multiply);
    write(channel, channels, runs.total());
  }

  struct Piece {
    std::int64_t channel, channels;
    const std::byte* zeros;
    TapOfPixels* taps;
    std::byte* sums;
    bool goes_on;
  };

  // Positions of one row, of all images' rows.
  void of_row(Piece& piece, std::int64_t row, std::int64_t begin, std::int64_t end) const {
    // Between the edges all taps of a position are there.
    const auto first_at = [&](std::int64_t least) {  // the first whose window begins there or later
      return std::clamp(least <= 0 ? 0 : (least - 1) / p_.w.stride + 1, begin, end);
    };
    const std::int64_t reach = (p_.w.taps - 1) * p_.w.dilation;
    const std::int64_t from = first_at(p_.w.padding);
    const std::int64_t to = std::max(from, first_at(p_.w.sources - reach + p_.w.padding));
    for (std::int64_t col = begin; col < from; ++col) pixels(piece, row, col, 1);
    if (from < to) pixels(piece, row, from, to - from);
    for (std::int64_t col = to; col < end; ++col) pixels(piece, row, col, 1);
  }

  std::int64_t place(const Axis& axis, std::int64_t index) const {
    return padded(p_.mode, index, axis.sources);
  }

  // Several only where all their sources are there.
  void pixels(Piece& piece, std::int64_t row, std::int64_t col, std::int64_t count) const {
    const std::int64_t n = row / p_.h.results, in_image = row % p_.h.results;
    TapOfPixels* tap = piece.taps;
    for (std::int64_t u = 0; u < p_.h.taps; ++u) {
      const std::int64_t h = place(p_.h, p_.h.window(in_image, u));
      for (std::int64_t v = 0; v < p_.w.taps; ++v, ++tap) {
        const std::int64_t w = place(p_.w, p_.w.window(col, v));
        if (h < 0 || w < 0)
          *tap = {piece.zeros, 0};
        else
          *tap = {p_.source.at(n, piece.channel, h, w), p_.source.w * p_.w.stride};
      }
    }
    weights_of_pixels_kernel_for(p_.element,
                                 isa_)({.taps = piece.taps,
                                        .grads = p_.result.at(n, piece.channel, in_image, col),
                                        .grad_step = p_.result.w,
                                        .pixels = count,
                                        .channels = piece.channels,
                                        .sums = piece.sums,
                                        .pitch = block_,
                                        .count_of_taps = tap - piece.taps,
                                        .goes_on = piece.goes_on});
    piece.goes_on = true;
  }

  void write(std::int64_t channel, std::int64_t channels, const std::byte* sums) const {
    matmul::with_types(p_.element, [&]<class T, class Real>(T, Real) {
      auto* const to = reinterpret_cast<T*>(p_.weight.data) + channel * p_.weight.group;
      if (p_.weight.w == 1 && p_.weight.h == p_.w.taps)
        return settle_kernel_for(p_.element,
                                 isa_)({sums, block_, channels, p_.k(), to, p_.weight.group});
      for (std::int64_t tap = 0; tap < p_.k(); ++tap)
        for (std::int64_t c = 0; c < channels; ++c)
          to[c * p_.weight.group + tap / p_.w.taps * p_.weight.h + tap % p_.w.taps * p_.weight.w] =
              narrow<T>(reinterpret_cast<const Real*>(sums)[tap * block_ + c] + Real(0));
    });
  }

  const Problem& p_;
  Isa isa_;
  std::int64_t size_, positions_, buffers_;
  std::int64_t block_ = 0, tasks_ = 1;  // channels of a block
};

}  // namespace

bool weights_of_pixels(const Problem& problem, const Machine& machine) {
  return is_depthwise(problem) && problem.source.c == 1 && problem.result.c == 1 &&
         PixelWeights(problem, machine).fits();
}
std::size_t weights_of_pixels_workspace(const Problem& problem, const Machine& machine) {
  return PixelWeights(problem, machine).workspace();
}
void add_weights_of_pixels(const Problem& problem, const Execution& execution) {
  PixelWeights(problem, execution.machine).run(execution);
}

}  // namespace isobit::convolution
