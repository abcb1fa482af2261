// SPDX-License-Identifier: Apache-2.0
// Many weights and few results: the windows of all images are packed once and stay in the second
// cache, and weights are packed a few filters at a time, right before they are multiplied.
#include "isobit/ops/convolution/cpu_staged_tile.h"
#include "isobit/ops/convolution/cpu_weight_packer.h"

namespace isobit::convolution {
namespace {

class SmallImages {
 public:
  SmallImages(const Problem& problem, const Machine& machine)
      : p_(problem),
        isa_(machine.isa),
        l2_bytes_(static_cast<std::int64_t>(machine.l2_bytes)),
        kernel_(product_kernel_for(problem.real(), machine.isa)),
        size_(size_of(problem.real())),
        phases_(problem, 0),
        all_{0, problem.batch, 0, 0, phases_.h.count, phases_.w.count},
        pitch_(parts_of(all_.columns(), kernel_.cols) * kernel_.cols),
        panels_(parts_of(problem.outs, kernel_.rows)) {
    const std::int64_t of_panel = std::max<std::int64_t>(1, problem.k() * kernel_.rows * size_);
    panels_at_once_ = std::clamp<std::int64_t>((l2_bytes_ - windows_bytes()) / 2 / of_panel, 1,
                                               std::max<std::int64_t>(1, panels_));
    const double work = static_cast<double>(all_.columns()) *
                        static_cast<double>(problem.groups * problem.outs) *
                        static_cast<double>(std::max<std::int64_t>(16, problem.k())) / 8;
    tasks_ =
        simd::task_count(machine, static_cast<std::int64_t>(std::min(work, 0x1p60)),
                         std::min({std::int64_t{machine.threads}, problem.groups * blocks(),
                                   std::max<std::int64_t>(1, matmul::kMostMemory / task_bytes())}));
    // Threads have equally much to do.
    const std::int64_t wanted = parts_of(tasks_, std::max<std::int64_t>(1, problem.groups));
    panels_at_once_ = std::min(panels_at_once_, parts_of(panels_, wanted));
  }

  bool fits() const { return task_bytes() <= matmul::kMostMemory; }
  // Whether windows stay in the cache, and weights would not.
  bool pays() const {
    const std::int64_t weights = p_.groups * p_.outs * p_.k() * size_;
    return windows_bytes() <= l2_bytes_ * 5 / 8 && weights > l2_bytes_ / 4;
  }
  std::size_t workspace() const { return static_cast<std::size_t>(tasks_ * task_bytes()); }

  void run(const Execution& execution) const {
    std::atomic<bool> finite = true;
    const std::int64_t count = p_.groups * blocks();
    execution.parallel_for(tasks_, [&](std::int64_t task) {
      const simd::FloatMode mode;
      const Room room(*this, execution.workspace + task * task_bytes());
      const StagedTile tile = staged(room);
      const Finisher finish(p_, isa_, 1);
      Windows there{-1, false};
      for (std::int64_t i = count * task / tasks_; i < count * (task + 1) / tasks_; ++i) {
        const std::int64_t group = i / blocks(), panel = i % blocks() * panels_at_once_;
        const Filters filters{
            group, panel * kernel_.rows,
            std::min(panels_at_once_ * kernel_.rows, p_.outs - panel * kernel_.rows)};
        const bool all_finite = pack_weights(filters, room);
        if (!all_finite) finite = false;
        const Windows wanted{group, all_finite && tile.landing().pays(kernel_.cols)};
        if (!(there == wanted)) pack_windows(wanted, tile, room);
        there = wanted;
        multiply(filters, wanted, tile, room, finish);
      }
    });
    // A window that reaches beyond the gradient has no products there; zeros would be some.
    if (p_.gradient && !finite) compute_directly(p_, execution);
  }

 private:
  // Of one group.
  struct Filters {
    std::int64_t group, first, count;
  };
  // Of each tap those where it lands, or all.
  struct Windows {
    std::int64_t group;
    bool where_it_lands;

    bool operator==(const Windows&) const = default;
  };
  std::int64_t blocks() const { return parts_of(panels_, panels_at_once_); }

  // A task's memory.
  std::int64_t windows_bytes() const {  // vectors are put beyond the last
    return parts_of((count_of({p_.k(), pitch_}) + kernel_.cols) * size_, 64) * 64;
  }
  std::int64_t staged_bytes() const {
    const std::int64_t channel = Staged(phases_, all_.h, all_.w).channel;
    return parts_of(
               (StagedTile::elements(p_, all_.images, channel) + 2 * kernel_.cols + 64) * size_,
               64) *
           64;
  }
  std::int64_t numbers_bytes() const {
    return parts_of(StagedTile::numbers(p_.k(), all_.h) * 8, 64) * 64;
  }
  std::int64_t weights_bytes() const {
    return parts_of((panels_at_once_ * kernel_.rows * p_.k() + 16) * size_, 64) * 64;
  }
  std::int64_t sums_pitch() const { return pitch_ + 16; }
  std::int64_t sums_bytes() const {
    return parts_of((panels_at_once_ * kernel_.rows * sums_pitch() + kernel_.cols) * size_, 64) *
           64;
  }
  std::int64_t task_bytes() const {
    return windows_bytes() + staged_bytes() + numbers_bytes() + weights_bytes() +
           (matmul::Runs::buffers(p_.k()) + 1) * sums_bytes() +
           parts_of(Finisher::room(p_), 64) * 64;
  }
  struct Room {
    std::byte *windows, *staged, *numbers, *weights, *finish, *extra, *sums;

    Room(const SmallImages& of, std::byte* from)
        : windows(from),
          staged(windows + of.windows_bytes()),
          numbers(staged + of.staged_bytes()),
          weights(numbers + of.numbers_bytes()),
          finish(weights + of.weights_bytes()),
          extra(finish + parts_of(Finisher::room(of.p_), 64) * 64),
          sums(extra + of.sums_bytes()) {}
  };
  StagedTile staged(const Room& room) const {
    return {p_,
            phases_,
            all_,
            isa_,
            {room.staged, reinterpret_cast<std::int64_t*>(room.numbers), room.extra, sums_bytes()}};
  }

  // Of an entry all columns have room, whether they are all there or not.
  std::byte* windows_of(std::int64_t entry, const Room& room) const {
    return room.windows + entry * pitch_ * size_;
  }
  void pack_windows(const Windows& windows, const StagedTile& tile, const Room& room) const {
    tile.stage(windows.group);
    for (std::int64_t k = 0; k < p_.k(); k += order::kPanel) {
      Product panel{.k = std::min<std::int64_t>(order::kPanel, p_.k() - k)};
      tile.gather(panel);
      const auto pack = [&](Product& product, std::int64_t entry) {
        product.offsets = tile.offsets() + entry;
        kernel_.pack(product, windows_of(entry, room));
      };
      if (windows.where_it_lands)
        tile.for_each_tap(panel, k, pack);
      else
        pack(panel, k);
    }
  }

  bool pack_weights(const Filters& filters, const Room& room) const {
    return WeightPacker(p_, filters.group, filters.first, filters.count, isa_, room.weights).pack();
  }

  void multiply(const Filters& filters, const Windows& windows, const StagedTile& tile,
                const Room& room, const Finisher& finish) const {
    matmul::Runs runs(room.sums, sums_bytes(), sums_bytes() / size_,
                      matmul::add_kernel_for(p_.real(), isa_));
    const std::int64_t rows = parts_of(filters.count, kernel_.rows) * kernel_.rows;
    runs.for_each_panel(p_.k(), [&](std::int64_t k, std::int64_t count) {
      const Product panel{.a = room.weights + k * rows * size_,
                          .b = windows_of(k, room),
                          .c = runs.now(),
                          .pitch = sums_pitch(),
                          .m = filters.count,
                          .n = all_.columns(),
                          .k = count,
                          .start = k % matmul::kRunK == 0 ? Product::from_zero : Product::onto_sum,
                          .is_packed = true};
      if (!windows.where_it_lands) return kernel_.multiply(panel);
      tile.multiply_where_it_lands(panel, k, [&](Product& product, std::int64_t entry) {
        product.b = windows_of(entry, room);
      });
    });
    // Lines of an image that follow each other are one.
    const std::int64_t lines = finish.lines_follow_each_other() ? 1 : phases_.h.count;
    const std::int64_t cols = p_.positions() / std::max<std::int64_t>(1, lines);
    std::byte* const total = tile.sums_of_images(runs.total(), sums_pitch(), filters.count);
    for (std::int64_t i = 0; i < p_.batch * lines; ++i)
      finish(i / lines, filters.group * p_.outs + filters.first, i % lines, 0,
             total + i * cols * size_, sums_pitch(), filters.count, cols, room.finish);
  }

  const Problem& p_;
  Isa isa_;
  std::int64_t l2_bytes_;
  const ProductKernel& kernel_;
  std::int64_t size_;
  Phases phases_;
  TileOfResults all_;
  std::int64_t pitch_, panels_, panels_at_once_ = 1, tasks_ = 1;
};

std::string obstacle(const Problem& problem, const Machine& machine) {
  if (const char* const padding = obstacle_of_padding(problem); *padding != '\0') return padding;
  if (Phases::how_many(problem) > 1) return "needs gradients of windows that move by one";
  if (!problem.empty() && !SmallImages(problem, machine).fits())
    return "has too little memory for such images";
  return {};
}

}  // namespace

constinit const AnyVariant<Problem> kSmallImages = {
    .name = "small_images",
    .each_isa = true,
    .declines = obstacle,
    .suits =
        [](const Problem& problem, const Machine& machine) {
          return !problem.empty() && Phases::how_many(problem) == 1 &&
                 SmallImages(problem, machine).pays();
        },
    .workspace =
        [](const Problem& problem, const Machine& machine) {
          return problem.empty() ? 0 : SmallImages(problem, machine).workspace();
        },
    .run =
        [](const Problem& problem, const Execution& execution) {
          if (!problem.empty()) SmallImages(problem, execution.machine).run(execution);
        }};

}  // namespace isobit::convolution
