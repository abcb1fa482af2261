// SPDX-License-Identifier: Apache-2.0
// The gradient of the weights of one filter of one channel: few sums over many positions. The
// panels of a run are side by side, each in a lane of its own.
#include "isobit/ops/convolution/cpu_windows.h"

namespace isobit::convolution {
namespace {

constexpr std::int64_t kMostGroups = 4, kFewTaps = 15;
constexpr std::int64_t kMostReach = 1024, kMostStride = 4;  // along a row
constexpr std::int64_t kTapRows = 9;                        // at a time
constexpr std::int64_t kChunk = 128;           // slots whose lanes are in the first cache
constexpr std::int64_t kMostTotals = 1 << 20;  // bytes of sums of runs
static_assert(order::kRun == kAbreast);

InterleaveKernel interleave_kernel_for(DType real, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, interleave_kernel(real));
}

// Positions of a run have slots in rows that are as long as what their windows see, so that every
// tap's sources have the same distance everywhere. A gradient in a slot between is +0. A panel's
// slots are those from its first position to that of the next.
class WeightsOfOne {
 public:
  WeightsOfOne(const Problem& problem, const Machine& machine)
      : p_(problem),
        size_(size_of(problem.real())),
        positions_(problem.batch * problem.positions()),
        taps_(problem.h.taps * problem.w.taps),
        runs_(parts_of(positions_, matmul::kRunK)),
        reach_((problem.w.taps - 1) * problem.w.dilation),
        pitch_(pitch_of(problem.w)),
        shift_(-problem.w.window(0, 0) % kAbreast == 0
                   ? 0
                   : kAbreast - -problem.w.window(0, 0) % kAbreast),
        stage_(stage_kernel_for(problem.element, machine.isa)),
        interleave_(interleave_kernel_for(problem.real(), machine.isa)),
        multiply_(abreast_kernel_for(problem.real(), machine.isa)) {
    const double work =
        static_cast<double>(problem.groups * positions_) * static_cast<double>(taps_ + 16) / 8;
    tasks_ =
        simd::task_count(machine, static_cast<std::int64_t>(std::min(work, 0x1p60)),
                         std::min(problem.groups * runs_,
                                  std::max<std::int64_t>(1, matmul::kMostMemory / task_bytes())));
  }

  // Whether slots are not many more than positions, and memory suffices.
  static bool suits(const Problem& p, const Machine& machine) {
    if (p.ins != 1 || p.outs != 1 || p.groups > kMostGroups || p.mode != PaddingMode::zeros)
      return false;
    // Lanes without a panel cost as much as others: with 2 panels 3 x 3 taps took 0.8 of the time
    // of rows of taps side by side, and 5 x 5 took 1.4.
    const std::int64_t taps = p.h.taps * p.w.taps, positions = p.batch * p.positions();
    if (taps == 0 || positions <= (taps <= kFewTaps ? 1 : 2) * order::kPanel) return false;
    if ((p.w.taps - 1) * p.w.dilation > std::min(kMostReach, p.w.results * p.w.stride) ||
        p.w.stride > kMostStride)
      return false;
    const WeightsOfOne sums(p, machine);
    return sums.totals_bytes() <= kMostTotals && sums.task_bytes() <= matmul::kMostMemory;
  }

  std::size_t workspace() const {
    return static_cast<std::size_t>(totals_bytes() + tasks_ * task_bytes());
  }

  // Says whether it could: a source that is not finite may have met a slot between.
  bool run(const Execution& execution) const {
    bool finite = true;
    matmul::with_types(p_.element,
                       [&]<class T, class Real>(T, Real) { finite = run<T, Real>(execution); });
    return finite;
  }

 private:
  // Of long rows whole lines of the cache, which vectors then do not straddle.
  static std::int64_t pitch_of(const Axis& w) {
    constexpr std::int64_t kLong = 128;
    const std::int64_t least = w.results - 1 + parts_of(1 + (w.taps - 1) * w.dilation, w.stride);
    return least < kLong ? least : parts_of(least, kAbreast) * kAbreast;
  }
  std::int64_t totals_bytes() const {
    return parts_of(count_of({p_.groups, runs_, taps_}) * size_, 64) * 64;
  }
  std::int64_t tap_rows() const { return std::min(kTapRows, p_.h.taps); }
  // Slots of a panel, and of a run; some lanes read on behind the last.
  std::int64_t slots(std::int64_t positions) const {
    return (positions / p_.w.results + 2) * (pitch_ - p_.w.results) + positions;
  }
  std::int64_t stream() const { return slots(matmul::kRunK) + slots(order::kPanel) + 2 * kAbreast; }
  std::int64_t source_stream() const { return shift_ + stream() * p_.w.stride + reach_; }
  // Of a chunk.
  std::int64_t sources() const {
    return parts_of((kChunk - 1) * p_.w.stride + 1 + reach_, kAbreast) * kAbreast;
  }

  struct Room {
    std::byte *grads, *sources, *grad_lanes, *source_lanes, *sums;
    std::int64_t *offsets, *taps;
    std::int64_t bytes;

    Room(const WeightsOfOne& of, std::byte* memory) {
      Pieces pieces(memory);
      grads = pieces.take(of.stream() * of.size_);
      sources = pieces.take(of.tap_rows() * of.source_stream() * of.size_);
      grad_lanes = pieces.take(kChunk * kAbreast * of.size_);
      source_lanes = pieces.take(of.tap_rows() * of.sources() * kAbreast * of.size_);
      sums = pieces.take(of.tap_rows() * of.p_.w.taps * kAbreast * of.size_);
      offsets = reinterpret_cast<std::int64_t*>(pieces.take(kChunk * 8));
      taps = reinterpret_cast<std::int64_t*>(pieces.take(of.tap_rows() * of.p_.w.taps * 8));
      bytes = static_cast<std::int64_t>(pieces.taken());
    }
  };
  std::int64_t task_bytes() const { return Room(*this, nullptr).bytes; }

  template <class T, class Real>
  bool run(const Execution& execution) const {
    auto* const totals = reinterpret_cast<Real*>(execution.workspace);
    std::atomic<bool> numbers = true;
    const std::int64_t count = p_.groups * runs_;
    execution.parallel_for(tasks_, [&](std::int64_t task) {
      const simd::FloatMode mode;
      const Room room(*this, execution.workspace + totals_bytes() + task * task_bytes());
      for (std::int64_t i = 0; i < kChunk; ++i) room.offsets[i] = i * p_.w.stride * kAbreast;
      for (std::int64_t i = count * task / tasks_; i < count * (task + 1) / tasks_; ++i)
        if (!run_of<Real>(i / runs_, i % runs_, room, totals + i * taps_)) numbers = false;
    });
    if (!numbers) return false;
    const simd::FloatMode mode;
    for (std::int64_t group = 0; group < p_.groups; ++group)
      for (std::int64_t tap = 0; tap < taps_; ++tap) {
        order::PairTree<Real> sum;
        for (std::int64_t i = 0; i < runs_; ++i)
          sum.push(totals[(group * runs_ + i) * taps_ + tap]);
        reinterpret_cast<T*>(
            p_.weight.data)[group * p_.weight.group + tap / p_.w.taps * p_.weight.h +
                            tap % p_.w.taps * p_.weight.w] = narrow<T>(sum.total());
      }
    return true;
  }

  // Positions of a run, and the slots of its panels.
  struct Run {
    std::int64_t group, begin, end, first_row, first_col;
    std::int64_t first[kAbreast] = {}, count[kAbreast] = {}, panels = 0, most = 0, slots = 0;
  };
  Run slots_of(std::int64_t group, std::int64_t index) const {
    const std::int64_t begin = index * matmul::kRunK,
                       end = std::min(positions_, begin + matmul::kRunK);
    Run run{group, begin, end, begin / p_.w.results, begin % p_.w.results};
    const auto slot = [&](std::int64_t k) {
      return (k / p_.w.results - run.first_row) * pitch_ + k % p_.w.results - run.first_col;
    };
    run.panels = parts_of(end - begin, order::kPanel);
    for (std::int64_t i = 0; i < run.panels; ++i) {
      const std::int64_t k = begin + i * order::kPanel;
      run.first[i] = slot(k);
      run.count[i] = slot(std::min(end, k + order::kPanel) - 1) + 1 - run.first[i];
      run.most = std::max(run.most, run.count[i]);
    }
    run.slots = run.first[run.panels - 1] + run.count[run.panels - 1];
    for (std::int64_t i = run.panels; i < kAbreast; ++i) {  // zeros follow
      run.first[i] = run.slots;
      run.count[i] = run.most;
    }
    return run;
  }

  template <class Real>
  bool run_of(std::int64_t group, std::int64_t index, const Room& room, Real* totals) const {
    const Run run = slots_of(group, index);
    for_each_rows(run, [&](const Rows& rows) { stage_grads(run, rows, room.grads); });
    const std::int64_t grads = run.slots + run.most + kAbreast;
    std::memset(room.grads + run.slots * size_, 0,
                static_cast<std::size_t>((grads - run.slots) * size_));
    const std::int64_t behind = (run.most + kAbreast) * p_.w.stride + reach_;
    const auto end_with_zeros = [&](std::byte* to, std::int64_t staged) {
      std::memset(to + staged * size_, 0, static_cast<std::size_t>(behind * size_));
    };
    // Tap rows of one image that move by one are the same stream from later rows on.
    const std::int64_t width = p_.w.results, height = p_.h.results;
    const std::int64_t rows =
        (run.end - 1) / width - run.first_row + 1 + count_of({p_.h.taps - 1, p_.h.dilation});
    const bool shares =
        p_.h.stride == 1 && run.begin / width / height == (run.end - 1) / width / height &&
        shift_ + count_of({rows, pitch_, p_.w.stride}) + behind <= tap_rows() * source_stream();
    const std::int64_t shift = shares || run.first_col == 0 ? shift_ : 0;
    std::byte* const sources = room.sources + shift * size_;
    if (shares) {
      stage_sources(run, {run.first_row / height, run.first_row % height, rows, 0, width, 0}, 0,
                    sources);
      end_with_zeros(sources, rows * pitch_ * p_.w.stride);
    }
    bool numbers = true;
    for (std::int64_t tap = 0; tap < p_.h.taps; tap += tap_rows()) {
      const std::int64_t taps = std::min(tap_rows(), p_.h.taps - tap);
      const std::byte* streams[kTapRows];
      for (std::int64_t u = 0; u < taps; ++u) {
        if (shares) {
          streams[u] =
              sources + (run.first_col + (tap + u) * p_.h.dilation * pitch_) * p_.w.stride * size_;
          continue;
        }
        std::byte* const to = sources + u * source_stream() * size_;
        for_each_rows(run, [&](const Rows& some) { stage_sources(run, some, tap + u, to); });
        end_with_zeros(to, (run.slots + pitch_ - width) * p_.w.stride);
        streams[u] = to;
      }
      add_taps<Real>(run, taps, streams, room);
      const auto* const sums = reinterpret_cast<const Real*>(room.sums);
      for (std::int64_t t = 0; t < taps * p_.w.taps; ++t) {
        Real total = 0;
        for (std::int64_t i = 0; i < run.panels; ++i) total = total + sums[t * kAbreast + i];
        numbers = numbers && total == total;
        totals[tap * p_.w.taps + t] = total;
      }
    }
    return numbers;
  }

  template <class Real>
  void add_taps(const Run& run, std::int64_t taps, const std::byte* const* streams,
                const Room& room) const {
    const std::int64_t lanes = sources() * kAbreast;  // of a tap row
    for (std::int64_t t = 0; t < taps * p_.w.taps; ++t)
      room.taps[t] = t / p_.w.taps * lanes + t % p_.w.taps * p_.w.dilation * kAbreast;
    const auto interleave = [&](const std::byte* stream, std::int64_t at, std::int64_t scale,
                                std::int64_t count, std::byte* to) {
      const void* lines[kAbreast];
      for (std::int64_t i = 0; i < kAbreast; ++i)
        lines[i] = stream + (run.first[i] + at) * scale * size_;
      interleave_(lines, count, to);
    };
    for (std::int64_t at = 0; at < run.most; at += kChunk) {
      const std::int64_t count = std::min(kChunk, run.most - at);
      interleave(room.grads, at, 1, parts_of(count, kAbreast) * kAbreast, room.grad_lanes);
      // Lanes that end before others.
      auto* const grads = reinterpret_cast<Real*>(room.grad_lanes);
      for (std::int64_t i = 0; i < kAbreast; ++i)
        for (std::int64_t j = std::max<std::int64_t>(0, run.count[i] - at); j < count; ++j)
          grads[j * kAbreast + i] = 0;
      const std::int64_t seen = (count - 1) * p_.w.stride + 1 + reach_;
      for (std::int64_t u = 0; u < taps; ++u)
        interleave(streams[u], at, p_.w.stride, parts_of(seen, kAbreast) * kAbreast,
                   room.source_lanes + u * lanes * size_);
      multiply_({room.grad_lanes, room.source_lanes, room.offsets, room.taps, room.sums, count,
                 taps * p_.w.taps, at > 0});
    }
  }

  // Whole rows of one image, or a part of one row.
  struct Rows {
    std::int64_t n, row, rows, col, cols, slot;
  };
  template <class Visit>
  void for_each_rows(const Run& run, const Visit& visit) const {
    const std::int64_t width = p_.w.results, height = p_.h.results;
    for (std::int64_t k = run.begin; k < run.end;) {
      const std::int64_t row = k / width, col = k % width;
      const std::int64_t slot = (row - run.first_row) * pitch_ + col - run.first_col;
      const std::int64_t left = run.end - k;
      const bool part = col > 0 || left < width;
      const std::int64_t rows = part ? 1 : std::min(left / width, height - row % height);
      const std::int64_t cols = part ? std::min(width - col, left) : width;
      visit(Rows{row / height, row % height, rows, col, cols, slot});
      k += rows * cols;
    }
  }

  void stage_grads(const Run& run, const Rows& rows, std::byte* stream) const {
    stage_({p_.result.at(rows.n, run.group, rows.row, rows.col), p_.result.w, p_.result.h,
            stream + rows.slot * size_, rows.rows, 0, rows.cols,
            rows.cols + pitch_ - p_.w.results});
  }

  void stage_sources(const Run& run, const Rows& rows, std::int64_t tap, std::byte* stream) const {
    const Axis &h = p_.h, &w = p_.w;
    const std::int64_t cols = (rows.cols + pitch_ - w.results) * w.stride;
    std::byte* const to = stream + rows.slot * w.stride * size_;
    // Rows whose sources are inside.
    const auto first_at = [&](std::int64_t least) {
      const std::int64_t ahead = least - h.window(rows.row, tap);
      return std::clamp<std::int64_t>(ahead <= 0 ? 0 : parts_of(ahead, h.stride), 0, rows.rows);
    };
    const std::int64_t begin = first_at(0), end = first_at(h.sources);
    const std::int64_t line = cols * size_;
    std::memset(to, 0, static_cast<std::size_t>(begin * line));
    std::memset(to + end * line, 0, static_cast<std::size_t>((rows.rows - end) * line));
    if (begin == end) return;
    const std::int64_t from = w.window(rows.col, 0);
    const std::int64_t inside = std::clamp<std::int64_t>(-from, 0, cols),
                       outside = std::clamp<std::int64_t>(w.sources - from, inside, cols);
    stage_({p_.source.at(rows.n, run.group, h.window(rows.row + begin, tap), from + inside),
            p_.source.w, p_.source.h * h.stride, to + begin * line, end - begin, inside, outside,
            cols});
  }

  const Problem& p_;
  std::int64_t size_, positions_, taps_, runs_, reach_;
  std::int64_t pitch_;  // slots of a row: of a long one whole lines of the cache
  std::int64_t shift_;  // elements before a stream that begins with a row, for the same reason
  StageKernel stage_;
  InterleaveKernel interleave_;
  AbreastKernel multiply_;
  std::int64_t tasks_ = 1;
};

}  // namespace

bool has_weights_of_one(const Problem& problem, const Machine& machine) {
  return WeightsOfOne::suits(problem, machine);
}
std::size_t weights_of_one_workspace(const Problem& problem, const Machine& machine) {
  return WeightsOfOne(problem, machine).workspace();
}
bool add_weights_of_one(const Problem& problem, const Execution& execution) {
  return WeightsOfOne(problem, execution.machine).run(execution);
}

}  // namespace isobit::convolution
