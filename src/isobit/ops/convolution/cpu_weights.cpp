// SPDX-License-Identifier: Apache-2.0
// The gradient of weights: a product over all positions, of the gradient of y and windows of x. The
// image is staged with its channels last, so that taps of a row and channels are one line. Of
// depthwise convolutions some groups are side by side, each in a lane of its own.
#include "isobit/ops/convolution/cpu_windows.h"

namespace isobit::convolution {
namespace {

constexpr std::int64_t kMostSums = 1 << 20;    // bytes of a task's sums
constexpr std::int64_t kMostStaged = 1 << 18;  // and of its staged images, where that is enough
constexpr std::int64_t kMostOuts = 96;         // filters at a time
constexpr std::int64_t kFewOuts = 2;
constexpr std::int64_t kWorthTurning = 4;  // taps, which a vector holds side by side

class WeightSums {
 public:
  WeightSums(const Problem& problem, const Machine& machine)
      : p_(problem),
        isa_(machine.isa),
        kernel_(product_kernel_for(problem.real(), machine.isa)),
        stage_(stage_kernel_for(problem.element, machine.isa)),
        turn_(turn_kernel_for(problem.element, machine.isa)),
        size_(size_of(problem.real())),
        abreast_(is_depthwise(problem) ? kAbreast : 1),
        channels_(abreast_ * problem.ins),
        joined_(problem.w.dilation == 1 && abreast_ == 1),
        lanes_(joined_ ? problem.w.taps * problem.ins : channels_),
        in_row_(joined_ ? 1 : problem.w.taps),
        positions_(problem.batch * problem.positions()),
        outs_(std::min(problem.outs, kMostOuts)),
        taps_(problem.h.taps),
        gathers_(gathers(kernel_.cols)),
        segment_(abreast_ > 1 ? abreast_
                 : gathers_   ? lanes_
                              : parts_of(lanes_, kernel_.cols) * kernel_.cols),
        buffers_(matmul::Runs::buffers(positions_)) {
    const auto halve = [](std::int64_t& count) { count = parts_of(count, 2); };
    // All taps of a filter lie side by side in memory: fewer filters first, in whole panels.
    const auto too_many = [&] { return sums_bytes() * (buffers_ + 1) > kMostSums; };
    while (too_many() && outs_ > 2 * kernel_.rows)
      outs_ = std::max<std::int64_t>(2, outs_ / 2 / kernel_.rows) * kernel_.rows;
    while (too_many() && taps_ > 1) halve(taps_);
    while (too_many() && outs_ > kernel_.rows) outs_ = kernel_.rows;
    const std::int64_t wanted = std::min<std::int64_t>(machine.threads, units_at_most());
    while (units() < wanted && outs_ > kernel_.rows) halve(outs_);
    while (units() < wanted && taps_ > 1) halve(taps_);
    while (units() < wanted && outs_ > 1) halve(outs_);
    share_equally(machine.threads);
    while (staged_bytes() > kMostStaged && piece_ > 16) piece_ /= 2;
    const double work = static_cast<double>(positions_) *
                        static_cast<double>(problem.groups * problem.outs) *
                        static_cast<double>(std::max<std::int64_t>(16, problem.k())) / 8;
    tasks_ = simd::task_count(
        machine, static_cast<std::int64_t>(std::min(work, 0x1p60)),
        std::min(units(), std::max<std::int64_t>(1, matmul::kMostMemory / task_bytes())));
  }

  bool fits() const { return task_bytes() <= matmul::kMostMemory; }
  std::size_t workspace() const { return static_cast<std::size_t>(tasks_ * task_bytes()); }

  void run(const Execution& execution) const {
    execution.parallel_for(tasks_, [&](std::int64_t task) {
      const simd::FloatMode mode;
      std::byte* const room = execution.workspace + task * task_bytes();
      for (std::int64_t i = units() * task / tasks_; i < units() * (task + 1) / tasks_; ++i) {
        const std::int64_t of_taps = parts_of(p_.h.taps, taps_), of_outs = parts_of(p_.outs, outs_);
        const std::int64_t tap = i % of_taps * taps_, out = i / of_taps % of_outs * outs_;
        const std::int64_t group = i / of_taps / of_outs * abreast_;
        const Unit unit{group, std::min(abreast_, p_.groups - group),
                        out,   std::min(outs_, p_.outs - out),
                        tap,   std::min(taps_, p_.h.taps - tap)};
        matmul::with_types(p_.element,
                           [&]<class T, class Real>(T, Real) { compute<T, Real>(unit, room); });
      }
    });
  }

 private:
  struct Unit {
    std::int64_t group, groups, out, outs, tap, taps;  // of filters of a group, and rows of taps
  };
  std::int64_t units() const {
    return parts_of(p_.groups, abreast_) * parts_of(p_.outs, outs_) * parts_of(p_.h.taps, taps_);
  }
  std::int64_t units_at_most() const { return parts_of(p_.groups, abreast_) * p_.outs * p_.h.taps; }
  std::int64_t pitch() const {
    return parts_of(taps_ * in_row_ * segment_, kernel_.cols) * kernel_.cols;
  }
  // Where rows of taps are much less than panels.
  bool gathers(std::int64_t cols) const {
    return joined_ && p_.outs > kFewOuts &&
           10 * thirds_of_panels(p_.h.taps * lanes_, cols) <
               9 * p_.h.taps * thirds_of_panels(lanes_, cols);
  }
  std::int64_t sums_bytes() const {
    return parts_of((outs_ * pitch() + 2 * kernel_.cols) * size_, 64) * 64;
  }
  // Filters in equal parts, and as many as threads can share.
  void share_equally(std::int64_t threads) {
    std::int64_t parts = parts_of(p_.outs, outs_);
    const std::int64_t others = units() / parts;
    while (parts * others % threads != 0 && parts_of(p_.outs, parts + 1) >= kernel_.rows) ++parts;
    outs_ = parts_of(p_.outs, parts);
  }
  // Sources along a dimension that so many results and taps see.
  static std::int64_t seen(const Axis& axis, std::int64_t results, std::int64_t taps) {
    return (results - 1) * axis.stride + (taps - 1) * axis.dilation + 1;
  }
  // Of as many positions as are staged at a time: a part of a row, or rows.
  std::int64_t staged_elements() const {
    const std::int64_t in_row = std::min(piece_, p_.w.results);
    // A piece may begin and end within a row.
    const std::int64_t rows = in_row < p_.w.results ? 1 : parts_of(piece_, p_.w.results) + 1;
    return count_of({seen(p_.h, std::min(rows, p_.h.results), taps_), seen(p_.w, in_row, p_.w.taps),
                     channels_});
  }
  std::int64_t staged_bytes() const {
    return parts_of((staged_elements() + 4 * kernel_.cols) * size_, 64) * 64;
  }
  std::int64_t grads_bytes() const {
    const std::int64_t of_position =
        abreast_ > 1 ? abreast_ : parts_of(outs_, kernel_.rows) * kernel_.rows;
    return parts_of(of_position * piece_ * size_, 64) * 64;
  }
  std::int64_t offsets_bytes() const {  // of positions, and of taps
    return parts_of((piece_ + taps_ * p_.w.taps) * 8, 64) * 64;
  }
  std::int64_t task_bytes() const {
    return staged_bytes() + grads_bytes() + offsets_bytes() + (buffers_ + 1) * sums_bytes();
  }

  template <class T, class Real>
  void compute(const Unit& unit, std::byte* room) const {
    auto* const staged = reinterpret_cast<Real*>(room);
    auto* const grads = reinterpret_cast<Real*>(room + staged_bytes());
    auto* const offsets = reinterpret_cast<std::int64_t*>(room + staged_bytes() + grads_bytes());
    std::byte* const chain = room + staged_bytes() + grads_bytes() + offsets_bytes();
    StagedLines there;
    const auto multiply = [&](std::int64_t k, std::int64_t count, std::byte* to) {
      for (std::int64_t done = 0; done < count;) {
        const std::int64_t some = piece_at(k + done, count - done);
        stage<T>(unit, k + done, some, staged, there, offsets);
        pack<T>(unit, k + done, some, grads);
        const std::int64_t step = seen(p_.w, cols_at(k + done, some), p_.w.taps) * channels_;
        const auto start = done == 0 ? Product::from_zero : Product::going_on;
        if (abreast_ > 1) {
          std::int64_t* const taps = offsets + piece_;
          for (std::int64_t i = 0; i < unit.taps * in_row_; ++i)
            taps[i] = i / in_row_ * p_.h.dilation * step + i % in_row_ * p_.w.dilation * channels_;
          abreast_kernel_for(p_.real(), isa_)(
              {grads, staged, offsets, taps, to, some, unit.taps * in_row_, done > 0});
          done += some;
          continue;
        }
        if (gathers_) {
          std::int64_t* const lines = offsets + piece_;
          for (std::int64_t tap = 0; tap < unit.taps; ++tap)
            lines[tap] = tap * p_.h.dilation * step;
          kernel_.multiply({.a = grads,
                            .b = staged,
                            .offsets = offsets,
                            .c = to,
                            .pitch = pitch(),
                            .m = unit.outs,
                            .n = unit.taps * lanes_,
                            .k = some,
                            .start = start,
                            .lines = lines,
                            .line_cols = lanes_});
          done += some;
          continue;
        }
        for (std::int64_t i = 0; i < in_row_; ++i) {
          const Real* const seen_by = staged + i * p_.w.dilation * p_.ins;
          std::byte* const sums = to + i * segment_ * size_;
          if (unit.outs <= kFewOuts) {  // rows of taps in the place of filters
            for (std::int64_t out = 0; out < unit.outs; ++out)
              kernel_.multiply_one({grads + out, seen_by, offsets, sums + out * pitch() * size_,
                                    in_row_ * segment_, unit.taps, lanes_, some, start},
                                   p_.h.dilation * step);
            continue;
          }
          for (std::int64_t tap = 0; tap < unit.taps; ++tap)
            kernel_.multiply({grads, seen_by + tap * p_.h.dilation * step, offsets,
                              sums + tap * in_row_ * segment_ * size_, pitch(), unit.outs, lanes_,
                              some, start});
        }
        done += some;
      }
    };
    matmul::Runs runs(chain + sums_bytes(), sums_bytes(), sums_bytes() / size_,
                      matmul::add_kernel_for(p_.real(), isa_));
    runs.for_each_panel_alone(positions_, chain, multiply);
    write<T>(unit, reinterpret_cast<const Real*>(runs.total()));
  }

  // Positions from one on that are staged together: of one image, and of one row or of whole rows.
  std::int64_t piece_at(std::int64_t k, std::int64_t most) const {
    most = std::min(most, piece_);
    const std::int64_t in_row = p_.w.results - k % p_.w.results;
    if (piece_ < p_.w.results) return std::min(most, in_row);
    const std::int64_t in_image = p_.positions() - k % p_.positions();
    return std::min(most, in_image);
  }
  // Results of a row from whose sources a piece is staged: all, where it has several rows.
  std::int64_t cols_at(std::int64_t k, std::int64_t count) const {
    return k % p_.w.results + count <= p_.w.results && piece_ < p_.w.results ? count : p_.w.results;
  }

  // Lines of sources that are staged, of one image; n is -1 where they are parts of lines.
  struct StagedLines {
    std::int64_t n = -1, first = 0, count = 0;
  };

  template <class T, class Real>
  void stage(const Unit& unit, std::int64_t k, std::int64_t count, Real* to, StagedLines& there,
             std::int64_t* offsets) const {
    const std::int64_t n = k / p_.positions(), in_image = k % p_.positions();
    const std::int64_t first = in_image / p_.w.results,
                       last = (in_image + count - 1) / p_.w.results;
    const std::int64_t cols = cols_at(k, count);
    const std::int64_t col = cols < p_.w.results ? in_image % p_.w.results : 0;
    const std::int64_t width = seen(p_.w, cols, p_.w.taps);
    const std::int64_t rows = seen(p_.h, last - first + 1, unit.taps);
    const std::int64_t channel = unit.group * p_.ins, channels = unit.groups * p_.ins;
    const StagedLines lines{cols == p_.w.results ? n : -1, p_.h.window(first, unit.tap), rows};
    const std::int64_t kept = keep(there, lines, width * channels_, to);
    there = lines;
    for (std::int64_t i = kept; i < rows; ++i) {
      const std::int64_t h = place(p_.h, lines.first + i);
      Real* const line = to + i * width * channels_;
      if (h < 0) {
        std::fill_n(line, width * channels_, Real(0));
        continue;
      }
      const std::int64_t from = p_.w.window(col, 0);
      const auto one = [&](std::int64_t j) {  // beyond the edge
        const std::int64_t w = place(p_.w, from + j);
        for (std::int64_t c = 0; c < channels; ++c)
          line[j * channels_ + c] =
              w < 0 ? Real(0) : element<T, Real>(p_.source, n, channel + c, h, w);
      };
      const std::int64_t begin = std::clamp<std::int64_t>(-from, 0, width),
                         end = std::clamp<std::int64_t>(p_.w.sources - from, begin, width);
      for (std::int64_t j = 0; j < begin; ++j) one(j);
      for (std::int64_t j = end; j < width; ++j) one(j);
      if (begin == end) continue;
      const auto* const inside =
          reinterpret_cast<const T*>(p_.source.at(n, channel, h, from + begin));
      side_by_side<T>(inside, p_.source, end - begin, channels, line + begin * channels_);
    }
    const std::int64_t step = p_.w.stride * channels_, line = p_.h.stride * width * channels_;
    std::int64_t at = in_image % p_.w.results, offset = (at - col) * step, next_line = line;
    for (std::int64_t i = 0; i < count; ++i, ++at, offset += step) {
      if (at == p_.w.results) at = 0, offset = next_line, next_line += line;
      offsets[i] = offset;
    }
  }

  // Moves lines that the last piece has left to where this one has them; how many.
  template <class Real>
  static std::int64_t keep(const StagedLines& there, const StagedLines& wanted, std::int64_t length,
                           Real* to) {
    const std::int64_t behind = wanted.first - there.first;
    if (wanted.n < 0 || wanted.n != there.n || behind < 0 || behind >= there.count) return 0;
    const std::int64_t kept = std::min(there.count - behind, wanted.count);
    if (behind > 0)
      std::memmove(to, to + behind * length,
                   static_cast<std::size_t>(kept * length) * sizeof(Real));
    return kept;
  }

  // Elements of a row, the channels of each side by side.
  template <class T, class Real>
  void side_by_side(const T* from, const Images& images, std::int64_t count, std::int64_t channels,
                    Real* to) const {
    const auto* const bytes = reinterpret_cast<const std::byte*>(from);
    if (channels_ == 1)
      stage_({bytes, images.w, 0, to, 1, 0, count, count});
    else if (images.c == 1)
      stage_({bytes, 1, images.w, to, count, 0, channels, channels_});
    else if (images.w == 1)
      turn_({bytes, images.c, count, channels, to, channels_});
    else
      for (std::int64_t j = 0; j < count; ++j)
        for (std::int64_t c = 0; c < channels; ++c)
          to[j * channels_ + c] = widen<Real>(from[c * images.c + j * images.w]);
  }

  std::int64_t place(const Axis& axis, std::int64_t index) const {
    if (index < -axis.padding || index >= axis.sources + axis.padding_end) return -1;
    return padded(p_.mode, index, axis.sources);
  }

  template <class T, class Real>
  void pack(const Unit& unit, std::int64_t k, std::int64_t count, Real* to) const {
    const std::int64_t rows = kernel_.rows, panels = parts_of(unit.outs, rows);
    const std::int64_t n = k / p_.positions(), in_image = k % p_.positions();
    if (abreast_ > 1) {
      for (std::int64_t done = 0; done < count;) {
        const std::int64_t at = in_image + done, col = at % p_.w.results;
        const std::int64_t some = std::min(count - done, p_.w.results - col);
        const auto* const from =
            reinterpret_cast<const T*>(p_.result.at(n, unit.group, at / p_.w.results, col));
        side_by_side<T>(from, p_.result, some, unit.groups, to + done * channels_);
        done += some;
      }
      return;
    }
    const bool rows_follow_each_other = p_.result.h == p_.w.results * p_.result.w;
    for (std::int64_t done = 0, some = 0; done < count; done += some) {
      const std::int64_t at = in_image + done, col = at % p_.w.results;
      some = rows_follow_each_other ? count : std::min(count - done, p_.w.results - col);
      const std::int64_t channel = unit.group * p_.outs + unit.out;
      const auto* const from =
          reinterpret_cast<const T*>(p_.result.at(n, channel, at / p_.w.results, col));
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        const std::int64_t begin = unit.outs * panel / panels,
                           end = unit.outs * (panel + 1) / panels;
        const T* const outs = from + begin * p_.result.c;
        Real* const line = to + (panel * count + done) * rows;
        if (p_.result.w == 1) {
          turn_({reinterpret_cast<const std::byte*>(outs), p_.result.c, some, end - begin, line,
                 rows});
          continue;
        }
        for (std::int64_t out = 0; out < end - begin; ++out)
          for (std::int64_t i = 0; i < some; ++i)
            line[i * rows + out] = widen<Real>(outs[out * p_.result.c + i * p_.result.w]);
      }
    }
  }

  template <class T, class Real>
  void write(const Unit& unit, const Real* sums) const {
    auto* const weights = reinterpret_cast<T*>(p_.weight.data) + unit.group * p_.weight.group +
                          unit.out * p_.weight.out;
    // Taps in vectors where they are adjacent: of a filter and channel all, or those of a row.
    const std::int64_t step = joined_ ? p_.ins : segment_, of_row = in_row_ * segment_;
    const bool all =
        unit.taps == 1 || (of_row == p_.w.taps * step && p_.weight.h == p_.w.taps * p_.weight.w);
    const std::int64_t rows = all ? 1 : unit.taps, taps = p_.w.taps * unit.taps / rows;
    const bool turns = abreast_ == 1 && p_.weight.w == 1 && taps >= kWorthTurning;
    const SettleKernel settle = settle_kernel_for(p_.element, isa_);
    for (std::int64_t out = 0; out < unit.outs; ++out)
      for (std::int64_t row = 0; row < rows; ++row) {
        const Real* const from = sums + out * pitch() + row * of_row;
        T* const to = weights + out * p_.weight.out + (unit.tap + row) * p_.weight.h;
        if (turns) {
          settle({reinterpret_cast<const std::byte*>(from), step, p_.ins, taps, to, p_.weight.in});
          continue;
        }
        const std::int64_t channel = abreast_ > 1 ? p_.weight.group : p_.weight.in;
        for (std::int64_t tap = 0; tap < taps; ++tap)
          for (std::int64_t c = 0; c < unit.groups * p_.ins; ++c)
            to[tap / p_.w.taps * p_.weight.h + tap % p_.w.taps * p_.weight.w + c * channel] =
                narrow<T>(from[tap * step + c] + Real(0));
      }
  }

  const Problem& p_;
  Isa isa_;
  const ProductKernel& kernel_;
  StageKernel stage_;
  TurnKernel turn_;
  std::int64_t size_, abreast_;  // groups side by side
  std::int64_t channels_;        // of a staged image
  bool joined_;
  std::int64_t lanes_, in_row_, positions_, outs_, taps_;
  bool gathers_;  // rows of taps as columns that follow each other
  std::int64_t segment_, buffers_;
  std::int64_t piece_ = order::kPanel, tasks_ = 1;
};

}  // namespace

std::size_t weights_workspace(const Problem& problem, const Machine& machine) {
  if (problem.groups * problem.outs * problem.ins == 0) return 0;
  if (pointwise_weights(problem)) return pointwise_weights_workspace(problem, machine);
  if (weights_of_pixels(problem, machine)) return weights_of_pixels_workspace(problem, machine);
  const WeightSums sums(problem, machine);
  const std::size_t bytes = sums.fits() ? sums.workspace() : 0;
  return has_weights_of_one(problem, machine)
             ? std::max(bytes, weights_of_one_workspace(problem, machine))
             : bytes;
}

void add_weights(const Problem& problem, const Execution& execution) {
  if (problem.groups * problem.outs * problem.ins == 0) return;
  if (pointwise_weights(problem)) return add_pointwise_weights(problem, execution);
  if (weights_of_pixels(problem, execution.machine))
    return add_weights_of_pixels(problem, execution);
  if (has_weights_of_one(problem, execution.machine) && add_weights_of_one(problem, execution))
    return;
  const WeightSums sums(problem, execution.machine);
  if (sums.fits()) return sums.run(execution);
  add_weights_directly(problem, execution);
}

}  // namespace isobit::convolution
