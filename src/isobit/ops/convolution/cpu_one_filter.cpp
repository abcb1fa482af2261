// SPDX-License-Identifier: Apache-2.0
// One filter at a time, along rows of results that share what they read. Sources are read where
// they lie if they can be; what is near the edges, or has gaps or another type, is staged.
#include "isobit/ops/convolution/cpu_windows.h"

namespace isobit::convolution {
namespace {

constexpr std::int64_t kMostPhases = 1024;
constexpr std::int64_t kMostRowsK = order::kPanel;  // of one filter: one chain
constexpr std::int64_t kVector = 16;                // of which parts of rows are multiples
constexpr std::int64_t kRowsAtOnce = 6;             // that share lines, at most
constexpr std::int64_t kMostRows = 36;              // of a unit
constexpr std::int64_t kMostCols = 8192;            // of a unit that is not staged
constexpr std::int64_t kFewCols = 192;              // which are staged with their edges
constexpr std::int64_t kMostReach = 1024;           // of windows of units that are not
constexpr std::int64_t kBlock = 64;                 // columns that a kernel takes at a time
constexpr std::int64_t kMostSums = 2048;            // that wait to become results

class OneFilter {
 public:
  OneFilter(const Problem& problem, const Machine& machine)
      : p_(problem),
        isa_(machine.isa),
        size_(size_of(problem.real())),
        phases_(Phases::how_many(problem)),
        stage_(problem, machine.isa),
        stage_lines_(stage_kernel_for(problem.element, machine.isa)),
        multiply_(rows_kernel_for(problem.real(), machine.isa)),
        settles_(problem.activation == Activation::none && !problem.residual && !problem.pre &&
                 problem.result.dtype == problem.element && problem.element == problem.real() &&
                 problem.result.w * step_w() == 1) {
    const Phase h(p_.h, p_.gradient, 0), w(p_.w, p_.gradient, 0);
    lies_ = p_.element == p_.real() && p_.source.w == 1 && p_.ins == 1 && w.scale == 1 &&
            reach_w() <= kMostReach && (p_.gradient || p_.mode == PaddingMode::zeros);
    choose_unit(machine, h.count, w.count);
    const double work = static_cast<double>(problem.batch * problem.positions()) *
                        static_cast<double>(problem.groups * problem.outs) *
                        static_cast<double>(std::max<std::int64_t>(16, problem.k())) / 8;
    tasks_ = simd::task_count(
        machine, static_cast<std::int64_t>(std::min(work, 0x1p60)),
        std::min(units(), std::max<std::int64_t>(1, matmul::kMostMemory / task_bytes())));
  }

  bool fits() const { return task_bytes() <= matmul::kMostMemory && phases_ <= kMostPhases; }
  std::size_t workspace() const { return static_cast<std::size_t>(tasks_ * task_bytes()); }

  void run(const Execution& execution) const {
    std::atomic<bool> finite = true;
    execution.parallel_for(tasks_, [&](std::int64_t task) {
      const simd::FloatMode mode;
      Room room(*this, execution.workspace + task * task_bytes());
      if (zeros_bytes() > 0) std::memset(room.zeros, 0, static_cast<std::size_t>(zeros_bytes()));
      for (std::int64_t i = units() * task / tasks_; i < units() * (task + 1) / tasks_; ++i)
        if (!unit(i, room)) finite = false;
    });
    // A window that reaches beyond the gradient has no products there; zeros would be some.
    if (p_.gradient && !finite) compute_directly(p_, execution);
  }

 private:
  std::int64_t step_w() const { return p_.gradient ? p_.w.stride : 1; }
  std::int64_t reach_w() const { return (p_.w.taps - 1) * p_.w.dilation; }

  std::int64_t most_lines(const Axis& axis, std::int64_t results) const {
    const std::int64_t reach = (axis.taps - 1) * axis.dilation;
    return p_.gradient ? results + reach / axis.stride
                       : ((results - 1) * axis.stride + reach) / axis.stride + 1;
  }
  std::int64_t most_staged(std::int64_t h, std::int64_t w) const {
    const std::int64_t scale_h = p_.gradient ? 1 : p_.h.stride;
    const std::int64_t scale_w = p_.gradient ? 1 : p_.w.stride;
    return count_of(
        {p_.ins, count_of({most_lines(p_.h, h), most_lines(p_.w, w), scale_h, scale_w}) + kVector});
  }
  // What is staged: of a unit all, or a part of its columns beside the edges.
  std::int64_t most_staged() const {
    if (!lies_) return most_staged(unit_h_, unit_w_);
    const std::int64_t edges = p_.w.padding + p_.w.padding_end + 2 * reach_w();
    const std::int64_t cols = std::min(unit_w_, kFewCols + 2 * kBlock + edges);
    return count_of({lines(unit_h_), cols + reach_w() + 3 * kVector});
  }
  // Rows of sources that rows of results see.
  std::int64_t lines(std::int64_t rows) const {
    const std::int64_t reach = (p_.h.taps - 1) * p_.h.dilation;
    return p_.gradient ? rows + reach / p_.h.stride : (rows - 1) * p_.h.stride + reach + 1;
  }

  void choose_unit(const Machine& machine, std::int64_t h, std::int64_t w) {
    const auto halve = [](std::int64_t& extent, std::int64_t step) {
      extent = parts_of(parts_of(extent, 2), step) * step;
    };
    unit_h_ = std::clamp<std::int64_t>(h, 1, kMostRows);
    unit_w_ = std::max<std::int64_t>(1, w);
    if (lies_) {
      while (unit_w_ > kMostCols) halve(unit_w_, kVector);
      while (unit_h_ > kRowsAtOnce && most_staged() * size_ > machine.l2_bytes / 4)
        halve(unit_h_, kRowsAtOnce);
    } else {
      const auto staged = [&](std::int64_t rows) { return most_staged(rows, unit_w_) * size_; };
      // The lines of rows at once stay in the first cache, and all of a unit in the second.
      while (unit_w_ > 16 * kVector &&
             staged(std::min(unit_h_, kRowsAtOnce)) > machine.l1_bytes * 5 / 8)
        halve(unit_w_, kVector);
      while (unit_h_ > kRowsAtOnce && staged(unit_h_) > machine.l2_bytes / 4)
        halve(unit_h_, kRowsAtOnce);
      while (staged(unit_h_) > matmul::kMostMemory / 2 && (unit_h_ > 1 || unit_w_ > kVector))
        unit_h_ > 1 ? halve(unit_h_, 1) : halve(unit_w_, kVector);
    }
    // Threads have equally much to do.
    const std::int64_t wanted = machine.threads == 1 ? 1 : 4 * std::int64_t{machine.threads};
    while (units() < wanted && unit_h_ > kRowsAtOnce) halve(unit_h_, kRowsAtOnce);
    while (units() < wanted && unit_w_ > 32 * kVector) halve(unit_w_, kVector);
    if (unit_h_ < h) unit_h_ = parts_of(unit_h_, kRowsAtOnce) * kRowsAtOnce;
  }

  std::int64_t down() const { return parts_of(Phase(p_.h, p_.gradient, 0).count, unit_h_); }
  std::int64_t across() const { return parts_of(Phase(p_.w, p_.gradient, 0).count, unit_w_); }
  std::int64_t units() const { return p_.groups * p_.batch * phases_ * down() * across(); }

  // A task's memory.
  std::int64_t zeros_bytes() const {
    return lies_ && unit_w_ > kFewCols ? (unit_w_ + reach_w() + kVector) * size_ : 0;
  }
  struct Room {
    std::byte *staged, *zeros, *weights, *sums, *finish, *bias;
    std::int64_t* offsets;
    const void** lines;
    void** to;
    std::int64_t packed = -1;  // the filter whose weights are there
    std::int64_t bytes;

    Room(const OneFilter& of, std::byte* memory) {
      Pieces pieces(memory);
      const auto pointers = [](std::int64_t count) {
        return count * static_cast<std::int64_t>(sizeof(void*));
      };
      staged = pieces.take((of.most_staged() + 2 * kVector) * of.size_);
      zeros = pieces.take(of.zeros_bytes());
      weights = pieces.take(of.p_.k() * of.size_);
      sums = pieces.take(of.settles_ ? 0 : of.rows_of_sums() * of.unit_w_ * of.size_);
      finish = pieces.take(of.settles_ ? 0 : Finisher::room(of.p_));
      bias = pieces.take(of.size_);
      offsets = reinterpret_cast<std::int64_t*>(pieces.take(of.p_.w.taps * of.p_.ins * 8));
      lines = reinterpret_cast<const void**>(pieces.take(pointers(of.unit_h_ + of.p_.h.taps)));
      to = reinterpret_cast<void**>(pieces.take(pointers(of.unit_h_)));
      bytes = static_cast<std::int64_t>(pieces.taken());
    }
  };
  std::int64_t task_bytes() const { return Room(*this, nullptr).bytes; }
  // Rows whose sums stay in the first cache until they are results.
  std::int64_t rows_of_sums() const {
    return std::min(unit_h_, std::max(kRowsAtOnce, kMostSums / unit_w_));
  }

  // Results of a unit: of a phase, rows and columns from (row, col) on.
  struct Unit {
    std::int64_t group, n;
    const Phases& phases;
    std::int64_t phase, row, rows;
  };

  // Says whether all weights are finite.
  bool unit(std::int64_t index, Room& room) const {
    const std::int64_t col = index % across() * unit_w_, row = index / across() % down() * unit_h_;
    index /= across() * down();
    const std::int64_t phase = index % phases_, n = index / phases_ % p_.batch;
    const Phases phases(p_, phase);
    const std::int64_t rows = std::min(unit_h_, phases.h.count - row),
                       end = std::min(col + unit_w_, phases.w.count);
    if (rows <= 0 || end <= col) return true;
    const Unit unit{index / phases_ / p_.batch, n, phases, phase, row, rows};
    if (!lies_) return staged(unit, col, end, room);
    // Columns whose windows are inside, whole vectors of them; at edges what is left is blocks.
    const Phase& w = phases.w;
    const std::int64_t least = w.least(0),
                       inside = parts_of(std::max<std::int64_t>(0, -least), kVector) * kVector,
                       block = shares(phases.h) ? kBlock : 2 * kBlock;
    const std::int64_t left = col < inside ? std::max(col + block, inside) : col;
    const std::int64_t last = std::min(end, p_.w.sources - w.reach() - least);
    const std::int64_t right = last - (last - left) % (last < end ? block : kVector);
    if (end - col <= kFewCols || right - left < block) return aside(unit, col, end, room);
    bool finite = true;
    if (col < left) finite = aside(unit, col, left, room);
    finite = lying(unit, left, right, room) && finite;
    return right == end || (aside(unit, right, end, room) && finite);
  }

  // Lines of sources that are copied with the zeros around them, to where vectors of them are lines
  // of the cache if they are so where they lie.
  bool aside(const Unit& unit, std::int64_t col, std::int64_t end, Room& room) const {
    const Phase &h = unit.phases.h, &w = unit.phases.w;
    const std::int64_t from = w.least(col), shift = (from % kVector + kVector) % kVector;
    const std::int64_t first = from - shift;
    const std::int64_t cols = parts_of(shift + end - col + w.reach(), kVector) * kVector;
    const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, cols),
                       stop = std::clamp<std::int64_t>(p_.w.sources - first, begin, cols);
    const std::int64_t row = h.least(unit.row), lines = (unit.rows - 1) * h.scale + h.reach() + 1;
    const std::int64_t top = std::clamp<std::int64_t>(-row, 0, lines),
                       bottom = std::clamp<std::int64_t>(p_.h.sources - row, top, lines);
    const auto zero = [&](std::int64_t line, std::int64_t count) {
      std::memset(room.staged + line * cols * size_, 0,
                  static_cast<std::size_t>(count * cols * size_));
    };
    zero(0, top);
    if (top < bottom)
      stage_lines_({p_.source.at(unit.n, unit.group, row + top, first + begin), 1, p_.source.h,
                    room.staged + top * cols * size_, bottom - top, begin, stop, cols});
    zero(bottom, lines - bottom);
    for (std::int64_t v = 0; v < w.taps; ++v) room.offsets[v] = w.beyond(v) + shift;
    return multiply(unit, col, end, room, [&](std::int64_t of, std::int64_t tap) {
      return room.staged + (of * h.scale + h.beyond(tap)) * cols * size_;
    });
  }

  bool staged(const Unit& unit, std::int64_t col, std::int64_t end, Room& room) const {
    const Phase &h = unit.phases.h, &w = unit.phases.w;
    const Staged staged(unit.phases, unit.rows, end - col);
    stage_(unit.phases, staged, {unit.n, unit.group * p_.ins, p_.ins}, unit.row, col, room.staged);
    std::int64_t* offset = room.offsets;
    for (std::int64_t v = 0; v < w.taps; ++v)
      for (std::int64_t c = 0; c < p_.ins; ++c)
        *offset++ = staged.at(0, w.beyond(v)) + c * staged.channel;
    return multiply(unit, col, end, room, [&](std::int64_t row, std::int64_t tap) {
      const std::int64_t beyond = h.beyond(tap);
      const std::int64_t at = h.scale == 1 ? beyond * staged.cols : staged.at(beyond, 0);
      return room.staged + (at + row * staged.cols) * size_;
    });
  }

  bool lying(const Unit& unit, std::int64_t col, std::int64_t end, Room& room) const {
    const Phase &h = unit.phases.h, &w = unit.phases.w;
    for (std::int64_t v = 0; v < w.taps; ++v) room.offsets[v] = w.beyond(v);
    const std::byte* const from = p_.source.at(unit.n, unit.group, 0, w.least(col));
    const std::int64_t pitch = p_.source.h * size_;
    return multiply(unit, col, end, room,
                    [&](std::int64_t row, std::int64_t tap) -> const std::byte* {
                      const std::int64_t at = h.least(unit.row + row) + h.beyond(tap);
                      return at < 0 || at >= p_.h.sources ? room.zeros : from + at * pitch;
                    });
  }

  static bool shares(const Phase& h) { return h.scale == 1 && std::abs(h.tap_shift) == 1; }

  // line(row, tap) is where a tap row of a row of results begins.
  template <class Line>
  bool multiply(const Unit& unit, std::int64_t col, std::int64_t end, Room& room,
                const Line& line) const {
    const Phase &h = unit.phases.h, &w = unit.phases.w;
    const bool any = unit.phases.entries() > 0;
    Rows rows{};
    rows.offsets = room.offsets;
    rows.in_row = any ? w.taps * p_.ins : 0;
    rows.tap_rows = any ? h.taps : 1;
    rows.weights = room.weights;
    rows.count = end - col;
    rows.settles = settles_;
    rows.bias = settles_ && p_.bias ? room.bias : nullptr;
    // Rows that meet a line one tap row after the other; those of a gradient from the last on.
    const bool shares = this->shares(h) && any, back = shares && h.tap_shift < 0;
    const std::int64_t at_once = settles_ ? unit.rows : rows_of_sums();
    const std::int64_t pitch = (settles_ ? p_.result.h * h.step : end - col) * size_;
    bool finite = true;
    for (std::int64_t out = 0; out < p_.outs; ++out) {
      finite = pack(unit, out, room) && finite;
      std::byte* const first =
          p_.result.at(unit.n, unit.group * p_.outs + out, h.first + unit.row * h.step, col);
      for (std::int64_t row = 0; row < unit.rows; row += at_once) {
        const std::int64_t some = std::min(at_once, unit.rows - row);
        std::byte* to = settles_ ? first + row * pitch : room.sums;
        for (std::int64_t r = 0; r < some; ++r, to += pitch) room.to[back ? some - 1 - r : r] = to;
        if (shares) {
          for (std::int64_t s = 0; s < some + h.taps - 1; ++s) {
            const std::int64_t r = std::min(s, some - 1);
            room.lines[s] = line(row + (back ? some - 1 - r : r), s - r);
          }
          multiply_some(rows, room.lines, room.to, some);
        } else {
          for (std::int64_t r = 0; r < some; ++r) {
            for (std::int64_t tap = 0; any && tap < h.taps; ++tap)
              room.lines[tap] = line(row + r, tap);
            multiply_some(rows, room.lines, room.to + r, 1);
          }
        }
        if (!settles_) finish(unit, out, row, some, col, end, room);
      }
    }
    return finite;
  }
  void multiply_some(Rows& rows, const void* const* lines, void* const* to,
                     std::int64_t count) const {
    rows.lines = lines;
    rows.to = to;
    rows.rows = count;
    multiply_(rows);
  }

  void finish(const Unit& unit, std::int64_t out, std::int64_t row, std::int64_t rows,
              std::int64_t col, std::int64_t end, const Room& room) const {
    const Phase &h = unit.phases.h, &w = unit.phases.w;
    Finisher(p_, isa_, step_w())
        .rows_of_one(unit.n, unit.group * p_.outs + out, h.first + (unit.row + row) * h.step,
                     w.first + col * w.step, h.step, room.sums, rows, end - col, room.finish);
  }

  // The weights of a filter's phase, and its bias.
  bool pack(const Unit& unit, std::int64_t out, Room& room) const {
    const std::int64_t channel = unit.group * p_.outs + out;
    const std::int64_t filter = channel * phases_ + unit.phase;
    if (room.packed == filter) return true;
    room.packed = filter;
    bool finite = true;
    matmul::with_types(p_.element, [&]<class T, class Real>(T, Real) {
      const auto* const from = reinterpret_cast<const T*>(p_.weight.data) +
                               unit.group * p_.weight.group + out * p_.weight.out;
      auto* const to = reinterpret_cast<Real*>(room.weights);
      const Phase &h = unit.phases.h, &w = unit.phases.w;
      std::int64_t count = 0;
      for (std::int64_t u = 0; u < h.taps; ++u)
        for (std::int64_t v = 0; v < w.taps; ++v)
          for (std::int64_t c = 0; c < p_.ins; ++c)
            to[count++] =
                widen<Real>(from[(h.tap_first + u * h.tap_step) * p_.weight.h +
                                 (w.tap_first + v * w.tap_step) * p_.weight.w + c * p_.weight.in]);
      finite = !p_.gradient || all_finite(to, count);
      if (p_.bias) *reinterpret_cast<Real*>(room.bias) = matmul::read<Real>(p_.bias, channel, 0);
    });
    return finite;
  }

  const Problem& p_;
  Isa isa_;
  std::int64_t size_, phases_;
  Stager stage_;
  StageKernel stage_lines_;
  RowsKernel multiply_;
  bool settles_;       // whether sums become results as they are computed
  bool lies_ = false;  // whether windows between the edges are read where they lie
  std::int64_t unit_h_ = 1, unit_w_ = 1, tasks_ = 1;
};

std::string obstacle(const Problem& problem, const Machine& machine) {
  if (const char* const padding = obstacle_of_padding(problem); *padding != '\0') return padding;
  if (problem.k() > kMostRowsK) return "needs at most 512 weights in a filter";
  if (!problem.empty() && !OneFilter(problem, machine).fits())
    return "has too little memory for such filters";
  return {};
}

}  // namespace

constinit const AnyVariant<Problem> kOneFilter = {
    .name = "one_filter",
    .each_isa = true,
    .declines = obstacle,
    .suits = [](const Problem& problem, const Machine&) { return problem.outs <= 2; },
    .workspace =
        [](const Problem& problem, const Machine& machine) {
          return problem.empty() ? 0 : OneFilter(problem, machine).workspace();
        },
    .run =
        [](const Problem& problem, const Execution& execution) {
          if (!problem.empty()) OneFilter(problem, execution.machine).run(execution);
        }};

}  // namespace isobit::convolution
