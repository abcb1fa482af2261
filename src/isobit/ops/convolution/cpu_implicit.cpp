// SPDX-License-Identifier: Apache-2.0
// The product of weights and windows, where windows are views of staged images.
#include "isobit/ops/convolution/cpu_staged_tile.h"
#include "isobit/ops/convolution/cpu_weight_packer.h"

namespace isobit::convolution {
namespace {

constexpr std::int64_t kMostWeights = 6 << 20;  // bytes of packed weights at a time
constexpr std::int64_t kMostTiles = matmul::kMostMemory - kMostWeights;  // of all threads
constexpr std::int64_t kMostPhases = 1024;
constexpr std::int64_t kMostColumns = 256;  // of several images in a tile

// How a call is divided: into blocks of panels of weights that are packed at a time, and tiles of
// results.
class Work {
 public:
  Work(const Problem& problem, const Machine& machine)
      : p_(problem),
        isa_(machine.isa),
        kernel_(product_kernel_for(problem.real(), machine.isa)),
        size_(size_of(problem.real())),
        cols_(kernel_.cols),
        rows_(kernel_.rows),
        panels_(parts_of(problem.outs, rows_)),
        units_(problem.groups * panels_),
        phases_(Phases::how_many(problem)) {
    of_panel_ = parts_of(problem.k() * rows_ * size_, 64) * 64;
    most_units_ = std::clamp<std::int64_t>(of_panel_ == 0 ? units_ : kMostWeights / of_panel_, 1,
                                           std::max<std::int64_t>(1, units_));
    if (most_units_ > panels_)  // whole groups
      most_units_ = most_units_ / panels_ * panels_;
    choose_tile(machine);
    // As many tasks as there is memory for, and work.
    const double work = static_cast<double>(problem.batch * problem.positions()) *
                        static_cast<double>(problem.groups * problem.outs) *
                        static_cast<double>(std::max<std::int64_t>(16, problem.k())) / 8;
    tasks_ = simd::task_count(
        machine, static_cast<std::int64_t>(std::min(work, 0x1p60)),
        std::min({std::int64_t{machine.threads}, tiles() * groups_at_a_time() * shares_,
                  std::max<std::int64_t>(1, kMostTiles / task_bytes())}));
  }

  bool fits() const {
    return of_panel_ <= kMostWeights && task_bytes() <= kMostTiles && phases_ <= kMostPhases;
  }

  std::size_t workspace() const {
    return static_cast<std::size_t>(most_units_ * of_panel_ + tasks_ * task_bytes());
  }

  void run(const Execution& execution) const {
    std::byte* const weights = execution.workspace;
    std::byte* const rooms = weights + most_units_ * of_panel_;
    std::atomic<bool> finite = true;
    for (std::int64_t unit = 0; unit < units_; unit += most_units_) {
      const std::int64_t end = std::min(units_, unit + most_units_);
      pack(execution, unit, end, weights, finite);
      // A window that reaches beyond the gradient has no products there; zeros would be some.
      if (p_.gradient && !finite) return compute_directly(p_, execution);
      multiply(execution, unit, end, weights, rooms, finite);
    }
  }

 private:
  std::int64_t count_h() const { return Phase(p_.h, p_.gradient, 0).count; }
  std::int64_t count_w() const { return Phase(p_.w, p_.gradient, 0).count; }
  std::int64_t tiles() const {
    return parts_of(p_.batch, images_) * phases_ * parts_of(count_h(), tile_h_) *
           parts_of(count_w(), tile_w_);
  }
  std::int64_t groups_at_a_time() const { return std::max<std::int64_t>(1, most_units_ / panels_); }
  // Panels of one group whose weights are packed at a time.
  std::int64_t panels_at_a_time() const { return std::min(most_units_, panels_); }
  // Channels of results that a tile has.
  std::int64_t outs_at_a_time() const {
    return std::min(p_.outs, parts_of(panels_at_a_time(), shares_) * rows_);
  }

  // Phases differ in their taps: bounds of the parts of any, for tiles of h x w results.
  struct Largest {
    std::int64_t staged = 0, sums = 0, entries = 0;
  };
  std::int64_t most_lines(const Axis& axis, std::int64_t results) const {
    const std::int64_t reach = (axis.taps - 1) * axis.dilation;
    return p_.gradient ? results + reach / axis.stride
                       : ((results - 1) * axis.stride + reach) / axis.stride + 1;
  }
  std::int64_t most_taps(const Axis& axis) const {
    return p_.gradient ? parts_of(axis.taps, Phase(axis, true, 0).tap_step) : axis.taps;
  }
  Largest largest(std::int64_t h, std::int64_t w, std::int64_t images = 1) const {
    const std::int64_t rows = most_lines(p_.h, h), cols = most_lines(p_.w, w);
    const std::int64_t scale_h = p_.gradient ? 1 : p_.h.stride;
    const std::int64_t scale_w = p_.gradient ? 1 : p_.w.stride;
    const std::int64_t joined = (h - 1) * std::min(cols, 2 * w) + w;
    return {StagedTile::elements(p_, images, count_of({rows, cols, scale_h, scale_w}) + 16),
            std::max({parts_of(joined, cols_) * cols_, h * parts_of(w, cols_) * cols_,
                      parts_of(images * h * w, cols_) * cols_}) +
                16,
            most_taps(p_.h) * most_taps(p_.w) * p_.ins};
  }

  // Where sums of a channel stand: line after line as staged lines lie, so that vectors go on from
  // line to line; or each line by itself; or gathered, line after line of one image after the
  // other: whichever is the fewest vectors.
  struct Sums {
    enum Order { joined, apart, gathered } order;
    std::int64_t line, pitch, thirds;

    // Of a tile whose staged lines have so many elements, where gathered columns take so many.
    Sums(std::int64_t staged, const TileOfResults& tile, std::int64_t cols, std::int64_t gathering,
         bool may_gather) {
      const std::int64_t h = tile.h, w = tile.w;
      const std::int64_t of_apart = h * thirds_of_panels(w, cols);
      const std::int64_t of_joined = thirds_of_panels((h - 1) * staged + w, cols);
      const bool joins = h > 1 && staged <= 2 * w && of_joined <= of_apart;
      thirds = joins ? of_joined : of_apart;
      // Several images are never anything else.
      if (tile.images > 1 || (may_gather && worth_copying(gathering, thirds))) {
        order = gathered;
        thirds = gathering;
        line = w;
        pitch = parts_of(tile.columns(), cols) * cols + 16;
      } else if (joins) {
        order = joined;
        line = staged;
        pitch = parts_of((h - 1) * line + w, cols) * cols + 16;
      } else {
        order = apart;
        line = parts_of(w, cols) * cols;
        pitch = h * line + 16;
      }
    }
    // Copying columns is worth a tenth of them.
    static bool worth_copying(std::int64_t gathered, std::int64_t otherwise) {
      return gathered * 10 < 9 * otherwise;
    }
  };
  Sums sums_of_tile(const Phases& phases, const TileOfResults& tile) const {
    return {phases.w.lines(tile.w), tile, cols_, Landing(p_, phases, tile).thirds(cols_),
            may_gather()};
  }
  // Columns are gathered where many filters read them.
  bool may_gather() const { return parts_of(outs_at_a_time(), rows_) >= kWorthPacking; }

  void choose_tile(const Machine& machine) {
    std::int64_t h = std::max<std::int64_t>(1, count_h()), w = std::max<std::int64_t>(1, count_w());
    const auto halve = [](std::int64_t& extent, std::int64_t step) {
      extent = parts_of(parts_of(extent, 2), step) * step;
    };
    const auto staged = [&] { return largest(h, w).staged * size_; };
    constexpr std::int64_t kMostPositions = 1024;
    const Phases phases(p_, 0);
    const auto too_large = [&] {  // all of a tile stays in the second cache
      return h * w > kMostPositions || staged() > machine.l2_bytes / 2 ||
             sums_of_tile(phases, {0, 1, 0, 0, h, w}).pitch * outs_at_a_time() * size_ >
                 machine.l2_bytes / 4;
    };
    while (too_large() && (h > 1 || w > 4 * cols_)) {
      if (h > 1 && (h * w > 4 * cols_ || w <= cols_))
        halve(h, 1);
      else if (w > 4 * cols_)
        halve(w, cols_);
      else
        break;
    }
    while (staged() > kMostTiles / 2 && (h > 1 || w > cols_)) {
      if (h > 1)
        halve(h, 1);
      else
        halve(w, cols_);
    }
    tile_h_ = h;
    tile_w_ = std::min(w, std::max<std::int64_t>(1, count_w()));
    // Threads have equally much to do. Where all images would be one tile, they share the filters,
    // so that each reads its own alone, as far as there are enough.
    const bool few = count_of({p_.batch, count_h(), count_w()}) <= kMostColumns;
    if (few) choose_shares(machine);
    const std::int64_t wanted = machine.threads == 1 || few ? 1 : 4 * std::int64_t{machine.threads};
    while (tiles() * groups_at_a_time() < wanted && tile_h_ > 2) halve(tile_h_, 2);
    while (tiles() * groups_at_a_time() < wanted && tile_w_ > 8 * cols_) halve(tile_w_, cols_);
    tile_h_ = parts_of(count_h(), std::max<std::int64_t>(1, parts_of(count_h(), tile_h_)));
    tile_h_ = std::max<std::int64_t>(1, tile_h_);
    buffers_ = matmul::Runs::buffers(p_.k()) + (may_gather() ? 1 : 0);
    choose_images(machine);
    largest_ = largest(tile_h_, tile_w_, images_);
  }

  void choose_shares(const Machine& machine) {
    constexpr std::int64_t kFewestPanels = 4;
    const std::int64_t wanted = parts_of(machine.threads, groups_at_a_time());
    shares_ = std::clamp<std::int64_t>(panels_at_a_time() / kFewestPanels, 1, wanted);
  }

  // Several small images are one tile, as far as threads have enough tiles and room.
  void choose_images(const Machine& machine) {
    if (tile_h_ < count_h() || tile_w_ < count_w() || !may_gather()) return;
    const std::int64_t columns = tile_h_ * tile_w_, outs = outs_at_a_time();
    const std::int64_t staged = largest(tile_h_, tile_w_).staged * size_;
    const std::int64_t sums = columns * outs * size_;
    const std::int64_t tiles_wanted = parts_of(machine.threads, groups_at_a_time() * shares_);
    images_ = std::min({p_.batch / tiles_wanted, kMostColumns / columns,
                        std::int64_t{machine.l2_bytes} / std::max(staged, sums),
                        kMostTiles / machine.threads / (staged + buffers_ * sums)});
    images_ = std::max<std::int64_t>(1, images_);
    images_ = parts_of(p_.batch, parts_of(p_.batch, images_));
    const Phases phases(p_, 0);
    const auto sums_of = [&](std::int64_t images) {
      return sums_of_tile(phases, {0, images, 0, 0, tile_h_, tile_w_});
    };
    const Sums one = sums_of(1);
    const std::int64_t thirds = sums_of(images_).thirds, apart = images_ * one.thirds;
    // Columns of one that are copied anyway are copied faster side by side.
    const bool pays =
        one.order == Sums::gathered ? thirds <= apart : Sums::worth_copying(thirds, apart);
    if (!pays) images_ = 1;
  }

  // A task's memory.
  std::int64_t staged_bytes() const {  // vectors may read beyond it
    return parts_of((largest_.staged + 2 * cols_ + 64) * size_, 64) * 64;
  }
  std::int64_t offsets_bytes() const {  // and where lines begin
    return parts_of(StagedTile::numbers(largest_.entries, tile_h_) * 8, 64) * 64;
  }
  std::int64_t sums_bytes() const {
    return parts_of(largest_.sums * outs_at_a_time() * size_ + 64 * size_, 64) * 64;
  }
  std::int64_t task_bytes() const {
    return staged_bytes() + offsets_bytes() + buffers_ * sums_bytes() +
           parts_of(Finisher::room(p_), 64) * 64;
  }

  void pack(const Execution& execution, std::int64_t begin, std::int64_t end, std::byte* to,
            std::atomic<bool>& finite) const {
    const std::int64_t units = end - begin;
    const std::int64_t tasks = simd::task_count(execution.machine, units * p_.k() * rows_, units);
    execution.parallel_for(tasks, [&](std::int64_t task) {
      const simd::FloatMode mode;
      const std::int64_t own_begin = begin + units * task / tasks,
                         own_end = begin + units * (task + 1) / tasks;
      // A part of a group at a time, as multiply() takes them: of it, the panels that are its own.
      const std::int64_t before = own_begin / panels_ - begin / panels_;
      for (std::int64_t i = before; i < before + parts_in(own_begin, own_end); ++i) {
        const Part part = part_at(begin, end, i);
        const std::int64_t panels = parts_of(part.count, rows_);
        const std::int64_t first = std::max(own_begin - part.unit, std::int64_t{0}),
                           last = std::min(own_end - part.unit, panels);
        WeightPacker packer(p_, part.group, part.first, part.count, isa_,
                            to + (part.unit - begin) * of_panel_);
        if (!packer.pack(first, last)) finite = false;
      }
    });
  }

  // Channels of results of one group whose panels are among those from `begin` to `end`.
  struct Part {
    std::int64_t unit, group, first, count;
  };
  // Of a part's panels, those of one of some shares, and their channels.
  struct Share {
    std::int64_t first_panel, panels, first, count;

    Share(const Part& part, std::int64_t rows, std::int64_t index, std::int64_t shares) {
      const std::int64_t all = parts_of(part.count, rows);
      first_panel = all * index / shares;
      panels = all * (index + 1) / shares - first_panel;
      first = part.count * first_panel / all;
      count = part.count * (first_panel + panels) / all - first;
    }
  };
  std::int64_t parts_in(std::int64_t begin, std::int64_t end) const {
    return panels_ == 0 ? 0 : (end - 1) / panels_ - begin / panels_ + 1;
  }
  Part part_at(std::int64_t begin, std::int64_t end, std::int64_t index) const {
    const std::int64_t group = begin / panels_ + index;
    const std::int64_t from = std::max(begin, group * panels_),
                       to = std::min(end, (group + 1) * panels_);
    const std::int64_t first = (from - group * panels_) * rows_,
                       last = std::min(p_.outs, (to - group * panels_) * rows_);
    return {from, group, first, last - first};
  }

  void multiply(const Execution& execution, std::int64_t begin, std::int64_t end,
                const std::byte* weights, std::byte* rooms, bool finite) const {
    const Finisher finish(p_, isa_, p_.gradient ? p_.w.stride : 1);
    const std::int64_t down = parts_of(count_h(), tile_h_), across = parts_of(count_w(), tile_w_);
    const std::int64_t count = parts_in(begin, end) * tiles() * shares_;
    execution.parallel_for(tasks_, [&](std::int64_t task) {
      const simd::FloatMode mode;
      std::byte* const room = rooms + task * task_bytes();
      for (std::int64_t i = count * task / tasks_; i < count * (task + 1) / tasks_; ++i) {
        const std::int64_t col = i % across * tile_w_, row = i / across % down * tile_h_;
        const std::int64_t j = i / across / down % phases_;
        const std::int64_t n = i / across / down / phases_ % parts_of(p_.batch, images_) * images_;
        const Part part = part_at(begin, end, i / tiles() / shares_);
        const Share share(part, rows_, i / tiles() % shares_, shares_);
        if (share.panels == 0) continue;
        const std::byte* at = weights + (part.unit - begin) * of_panel_;
        for (std::int64_t before = 0; before < j; ++before)
          at += Phases(p_, before).entries() * parts_of(part.count, rows_) * rows_ * size_;
        const Phases phases(p_, j);
        const std::int64_t h = std::min(tile_h_, phases.h.count - row),
                           w = std::min(tile_w_, phases.w.count - col);
        if (h <= 0 || w <= 0) continue;
        const TileOfResults tile{n, std::min(images_, p_.batch - n), row, col, h, w};
        multiply_tile(phases, part, share, tile, at, finish, finite, room);
      }
    });
  }

  void multiply_tile(const Phases& phases, const Part& part, const Share& share,
                     const TileOfResults& tile, const std::byte* weights, const Finisher& finish,
                     bool finite, std::byte* room) const {
    std::byte *const numbers = room + staged_bytes(), *const buffers = numbers + offsets_bytes();
    std::byte* const extra = buffers + (buffers_ - 1) * sums_bytes();  // if columns are gathered
    const StagedTile staged(p_, phases, tile, isa_,
                            {room, reinterpret_cast<std::int64_t*>(numbers), extra, sums_bytes()});
    staged.stage(part.group);
    const Sums sums = sums_of_tile(phases, tile);
    const bool skips = finite && staged.landing().pays(cols_);
    matmul::Runs runs(buffers, sums_bytes(), sums_bytes() / size_,
                      matmul::add_kernel_for(p_.real(), isa_));
    const std::int64_t padded_count = parts_of(part.count, rows_) * rows_;
    runs.for_each_panel(p_.k(), [&](std::int64_t k, std::int64_t count) {
      const std::int64_t first = phases.before(k), entries = phases.before(k + count) - first;
      const bool begins = k % matmul::kRunK == 0;
      if (entries == 0) {
        if (begins) std::memset(runs.now(), 0, static_cast<std::size_t>(sums_bytes()));
        return;
      }
      Product product{
          .a = weights + (first * padded_count + share.first_panel * rows_ * entries) * size_,
          .offsets = staged.offsets() + first,
          .c = runs.now(),
          .pitch = sums.pitch,
          .m = part.count,
          .n = sums.order == Sums::joined ? (tile.h - 1) * sums.line + tile.w : tile.w,
          .k = entries,
          .start = begins ? Product::from_zero : Product::onto_sum,
          .first_panel = share.first_panel,
          .panels = share.panels};
      if (sums.order == Sums::gathered) {
        staged.gather(product);
        if (!skips) return kernel_.multiply(product);
        return staged.multiply_where_it_lands(product, first,
                                              [&](Product& of_tap, std::int64_t entry) {
                                                of_tap.offsets = staged.offsets() + entry;
                                              });
      }
      for (std::int64_t i = 0; i < (sums.order == Sums::joined ? 1 : tile.h); ++i) {
        product.b = staged.line(i);
        product.c = runs.now() + i * sums.line * size_;
        kernel_.multiply(product);
      }
    });
    std::byte* const total = staged.sums_of_images(runs.total(), sums.pitch, share.count);
    // Lines that follow each other are one.
    const bool joins =
        sums.line == tile.w && tile.w == phases.w.count && finish.lines_follow_each_other();
    const std::int64_t lines = joins ? 1 : tile.h;
    for (std::int64_t i = 0; i < tile.images * lines; ++i)
      finish(tile.n + i / lines, part.group * p_.outs + part.first + share.first,
             phases.h.first + (tile.row + i % lines) * phases.h.step,
             phases.w.first + tile.col * phases.w.step,
             total + i * (joins ? tile.h : 1) * sums.line * size_, sums.pitch, share.count,
             joins ? tile.h * tile.w : tile.w, buffers + buffers_ * sums_bytes());
  }

  const Problem& p_;
  Isa isa_;
  const ProductKernel& kernel_;
  std::int64_t size_, cols_, rows_, panels_, units_, phases_;
  std::int64_t of_panel_ = 0, most_units_ = 0, tile_h_ = 1, tile_w_ = 1, images_ = 1, shares_ = 1,
               tasks_ = 1, buffers_ = 1;
  Largest largest_;
};

std::string obstacle(const Problem& problem, const Machine& machine) {
  if (const char* const padding = obstacle_of_padding(problem); *padding != '\0') return padding;
  if (!problem.empty() && !Work(problem, machine).fits())
    return "has too little memory for such filters";
  return {};
}

}  // namespace

constinit const AnyVariant<Problem> kImplicit = {
    .name = "implicit",
    .each_isa = true,
    .declines = obstacle,
    .workspace =
        [](const Problem& problem, const Machine& machine) {
          return problem.empty() ? 0 : Work(problem, machine).workspace();
        },
    .run =
        [](const Problem& problem, const Execution& execution) {
          if (!problem.empty()) Work(problem, execution.machine).run(execution);
        }};

}  // namespace isobit::convolution
