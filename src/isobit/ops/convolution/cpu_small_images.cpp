// SPDX-License-Identifier: Apache-2.0
// Many weights and few results: the windows of all images are packed once and stay in the second
// cache, and weights are packed a few filters at a time, right before they are multiplied.
#include "isobit/ops/convolution/cpu_windows.h"

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
        staged_(phases_, phases_.h.count, phases_.w.count),
        columns_(problem.batch * problem.positions()),
        pitch_(parts_of(columns_, kernel_.cols) * kernel_.cols),
        panels_(parts_of(problem.outs, kernel_.rows)) {
    const std::int64_t of_panel = std::max<std::int64_t>(1, problem.k() * kernel_.rows * size_);
    panels_at_once_ = std::clamp<std::int64_t>((l2_bytes_ - windows_bytes()) / 2 / of_panel, 1,
                                               std::max<std::int64_t>(1, panels_));
    const double work = static_cast<double>(columns_) *
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
      const Finisher finish(p_, isa_, 1);
      std::int64_t packed = -1;  // the group whose windows are there
      for (std::int64_t i = count * task / tasks_; i < count * (task + 1) / tasks_; ++i) {
        const std::int64_t group = i / blocks(), panel = i % blocks() * panels_at_once_;
        if (group != packed) pack_windows(group, room);
        packed = group;
        const Filters filters{
            group, panel * kernel_.rows,
            std::min(panels_at_once_ * kernel_.rows, p_.outs - panel * kernel_.rows)};
        if (!pack_weights(filters, room)) finite = false;
        multiply(filters, room, finish);
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
  std::int64_t blocks() const { return parts_of(panels_, panels_at_once_); }
  std::int64_t of_image() const { return count_of({p_.ins, staged_.channel}); }

  // A task's memory.
  std::int64_t windows_bytes() const {  // vectors are put beyond the last
    return parts_of((count_of({p_.k(), pitch_}) + kernel_.cols) * size_, 64) * 64;
  }
  std::int64_t staged_bytes() const {
    return parts_of((count_of({p_.batch, of_image()}) + 2 * kernel_.cols + 64) * size_, 64) * 64;
  }
  std::int64_t offsets_bytes() const {  // of entries, and of lines
    return parts_of((p_.k() + p_.batch * phases_.h.count) * 8, 64) * 64;
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
    return windows_bytes() + staged_bytes() + offsets_bytes() + weights_bytes() +
           matmul::Runs::buffers(p_.k()) * sums_bytes() + parts_of(Finisher::room(p_), 64) * 64;
  }
  struct Room {
    std::byte *windows, *staged, *offsets, *weights, *finish, *sums;

    Room(const SmallImages& of, std::byte* from)
        : windows(from),
          staged(windows + of.windows_bytes()),
          offsets(staged + of.staged_bytes()),
          weights(offsets + of.offsets_bytes()),
          finish(weights + of.weights_bytes()),
          sums(finish + parts_of(Finisher::room(of.p_), 64) * 64) {}
  };

  void pack_windows(std::int64_t group, const Room& room) const {
    const Stager stage(p_, isa_);
    for (std::int64_t n = 0; n < p_.batch; ++n)
      stage(phases_, staged_, n, group * p_.ins, 0, 0, room.staged + n * of_image() * size_);
    auto* const offsets = reinterpret_cast<std::int64_t*>(room.offsets);
    find_offsets(phases_, staged_, offsets);
    std::int64_t* const lines = offsets + p_.k();
    for (std::int64_t i = 0; i < p_.batch * phases_.h.count; ++i)
      lines[i] = i / phases_.h.count * of_image() + i % phases_.h.count * staged_.cols;
    for (std::int64_t k = 0; k < p_.k(); k += order::kPanel)
      kernel_.pack({.b = room.staged,
                    .offsets = offsets + k,
                    .n = columns_,
                    .k = std::min<std::int64_t>(order::kPanel, p_.k() - k),
                    .lines = lines,
                    .line_cols = phases_.w.count},
                   room.windows + k * pitch_ * size_);
  }

  bool pack_weights(const Filters& filters, const Room& room) const {
    const matmul::PackKernels& kernels = matmul::pack_kernels_for(p_.element, isa_);
    bool finite = true;
    matmul::with_types(p_.element, [&]<class T, class Real>(T, Real) {
      finite = WeightPacker<T, Real>(p_, phases_, filters.group, filters.first, filters.count,
                                     kernel_.rows, kernels, reinterpret_cast<Real*>(room.weights))
                   .pack();
    });
    return finite;
  }

  void multiply(const Filters& filters, const Room& room, const Finisher& finish) const {
    matmul::Runs runs(room.sums, sums_bytes(), sums_bytes() / size_,
                      matmul::add_kernel_for(p_.real(), isa_));
    const std::int64_t rows = parts_of(filters.count, kernel_.rows) * kernel_.rows;
    runs.for_each_panel(p_.k(), [&](std::int64_t k, std::int64_t count) {
      kernel_.multiply({.a = room.weights + k * rows * size_,
                        .b = room.windows + k * pitch_ * size_,
                        .c = runs.now(),
                        .pitch = sums_pitch(),
                        .m = filters.count,
                        .n = columns_,
                        .k = count,
                        .start = k % matmul::kRunK == 0 ? Product::from_zero : Product::onto_sum,
                        .is_packed = true});
    });
    // Lines of an image that follow each other are one.
    const std::int64_t lines = finish.lines_follow_each_other() ? 1 : phases_.h.count;
    const std::int64_t cols = p_.positions() / std::max<std::int64_t>(1, lines);
    std::byte* const total = runs.total();
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
  Staged staged_;
  std::int64_t columns_, pitch_, panels_, panels_at_once_ = 1, tasks_ = 1;
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
