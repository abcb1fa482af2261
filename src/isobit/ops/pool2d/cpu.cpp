// SPDX-License-Identifier: Apache-2.0
// The CPU variants: vectors, and the specification. How images, channels and rows are dealt to
// threads.
#include <algorithm>
#include <limits>

#include "isobit/ops/pool2d/cpu_kernels.h"
#include "isobit/ops/pool2d/formula.h"
#include "isobit/ops/pool2d/problem.h"
#include "isobit/simd/tasks.h"

namespace isobit::pool2d {
namespace {

// The specification of one result.
template <class T, class Real>
void specified_result(const Problem& p, std::int64_t n, std::int64_t c, std::int64_t row,
                      std::int64_t col) {
  const Window h = p.h.window(row), w = p.w.window(col);
  const Range down = p.h.seen(h), across = p.w.seen(w);
  const auto for_each_tap = [&](const auto& visit) {
    for (std::int64_t i = down.begin; i < down.end; ++i)
      for (std::int64_t j = across.begin; j < across.end; ++j) {
        const std::int64_t r = h.first + i * p.h.dilation, s = w.first + j * p.w.dilation;
        visit(i * w.taps + j, r * p.w.sources + s, widen<Real>(*p.x.at<const T>(n, c, r, s)));
      }
  };
  T& y = *p.y.at<T>(n, c, row, col);
  if (p.reduction == Reduction::average) {
    Sum<Real> sum;
    for_each_tap([&](std::int64_t tap, std::int64_t, Real value) { sum.add(tap, value); });
    y = narrow<T>(sum.value() / static_cast<Real>(p.divisor_of(h, w)));
    return;
  }
  Real largest = -std::numeric_limits<Real>::infinity();
  std::int64_t index = -1;
  for_each_tap([&](std::int64_t, std::int64_t place, Real value) {
    if (index >= 0 && !larger(value, largest)) return;
    largest = value;
    index = place;
  });
  y = narrow<T>(largest);
  if (p.index.data != nullptr) *p.index.at<std::int64_t>(n, c, row, col) = index;
}

// The specification of the gradient of one element.
template <class T, class Real>
void specified_gradient(const Problem& p, std::int64_t n, std::int64_t c, std::int64_t row,
                        std::int64_t col) {
  const Range down = p.h.reaching(row), across = p.w.reaching(col);
  Sum<Real> sum;
  for (std::int64_t i = down.begin; i < down.end; ++i)
    for (std::int64_t j = across.begin; j < across.end; ++j) {
      const Window h = p.h.window(i), w = p.w.window(j);
      if (!p.h.has(h, row) || !p.w.has(w, col)) continue;
      Real term = widen<Real>(*p.y.at<const T>(n, c, i, j));
      if (p.reduction == Reduction::average)
        term /= static_cast<Real>(p.divisor_of(h, w));
      else if (*p.index.at<const std::int64_t>(n, c, i, j) != row * p.w.sources + col)
        continue;
      sum.add((i - down.begin) * across.count() + j - across.begin, term);
    }
  *p.x.at<T>(n, c, row, col) = narrow<T>(sum.value());
}

// Calls body(n, c, row, col) for all of an array.
template <class Body>
void for_all(const Problem& p, std::int64_t rows, std::int64_t cols, const Execution& execution,
             const Body& body) {
  const std::int64_t count = p.planes() * rows;
  const std::int64_t tasks = simd::task_count(execution.machine, 8 * count * cols, count);
  simd::in_parts(execution, tasks, count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t plane = at / rows;
      for (std::int64_t col = 0; col < cols; ++col)
        body(plane / p.channels, plane % p.channels, at % rows, col);
    }
  });
}

template <class Call>
void with_type(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::f16:  return call(f16{}, float{});
    case DType::bf16: return call(bf16{}, float{});
    case DType::f64:  return call(double{}, double{});
    default:          return call(float{}, float{});
  }
}

void run_scalar(const ForwardArgs&, const Problem& p, const Plan&, const Execution& execution) {
  with_type(p.dtype, [&]<class T, class Real>(T, Real) {
    for_all(p, p.h.results, p.w.results, execution,
            [&](auto... place) { specified_result<T, Real>(p, place...); });
  });
}
void run_scalar(const BackwardArgs&, const Problem& p, const Plan&, const Execution& execution) {
  with_type(p.dtype, [&]<class T, class Real>(T, Real) {
    for_all(p, p.h.sources, p.w.sources, execution,
            [&](auto... place) { specified_gradient<T, Real>(p, place...); });
  });
}

// How a call is cut: blocks of channels, and bands of rows of them.
struct Cut {
  bool channels;  // in vectors
  std::int64_t block, rows, band;

  std::int64_t blocks(const Problem& p) const { return (p.channels + block - 1) / block; }
  std::int64_t bands() const { return (rows + band - 1) / band; }
  std::int64_t units(const Problem& p) const { return p.batch * blocks(p) * bands(); }
};

// Rows of results. Windows of bins side by side are not evenly spaced: then channels are staged.
Cut cut_of(const ForwardArgs&, const Problem& p) {
  const bool channels = p.w.bins || (p.x.c == 1 && p.channels > 1 && p.x.w != 1);
  // Enough for a thread, so that few rows are staged twice.
  const std::int64_t band =
      std::clamp<std::int64_t>((16 << 10) / (p.w.results * p.w.stride), 4, 1 << 20);
  return {channels, channels ? kBlock : 1, p.h.results, channels ? 1 : band};
}
// Rows of x, as many as a first-level cache has room for.
Cut cut_of(const BackwardArgs&, const Problem& p) {
  const bool channels = p.x.c == 1 && p.y.c == 1 && p.channels > 1 && p.x.w != 1;
  const std::int64_t block = channels || p.takes_whole_planes() ? kBlock : 1;
  const std::int64_t band = std::max<std::int64_t>((16 << 10) / (p.w.sources * block), 1);
  return {channels, block, p.h.sources, std::min(band, p.h.sources)};
}

// Elements of what is computed in, and 8 bytes for each place, in doubles: none is too large.
struct Scratches {
  double elements, places;
};
Scratches scratch_of(const ForwardArgs&, const Problem& p, const Cut& cut) {
  const auto cols = static_cast<double>(p.w.sources);
  if (cut.channels)
    return {p.x.c == 1 || p.takes_whole_planes()
                ? 0
                : static_cast<double>(staged_rows(p.h)) * cols * double{kBlock},
            0};
  const Staging staging(p);
  const auto slots = static_cast<double>(staging.slots), line = static_cast<double>(staging.line);
  return {slots * static_cast<double>(staging.slot()) + cols + kBlock + line,
          static_cast<double>(p.w.taps) + 2 * slots + line};
}
Scratches scratch_of(const BackwardArgs&, const Problem& p, const Cut& cut) {
  const auto size = static_cast<double>(cut.band) * static_cast<double>(p.w.sources);
  if (cut.channels) return {size * double{kBlock} + kBlock, 0};
  const double line = static_cast<double>(p.w.results) + kBlock;
  return {size + kBlock + 2 * line, line};
}
template <class Args>
double bytes_of(const Problem& p) {
  const Cut cut = cut_of(Args{}, p);
  const Scratches scratch = scratch_of(Args{}, p, cut);
  return scratch.elements * (p.dtype == DType::f64 ? 8 : 4) + scratch.places * 8 + 64;
}
template <class Args>
std::int64_t scratch_bytes(const Problem& p) {
  return (static_cast<std::int64_t>(bytes_of<Args>(p)) + 63) / 64 * 64;
}

template <class Args>
std::int64_t tasks_of(const Problem& p, const Cut& cut, const Machine& machine) {
  const std::int64_t elements =
      p.planes() * (p.h.results * p.w.results + p.h.sources * p.w.sources);
  return simd::task_count(machine, 2 * elements, std::max<std::int64_t>(1, cut.units(p)));
}
template <class Args>
std::size_t workspace(const Problem& p, const Plan&, const Machine& machine) {
  return static_cast<std::size_t>(tasks_of<Args>(p, cut_of(Args{}, p), machine) *
                                  scratch_bytes<Args>(p));
}

constexpr double kMostScratch = 16 << 20;  // bytes a task: more than a second cache, by far

std::string too_wide(double bytes) {
  return bytes <= kMostScratch ? "" : "its windows need more than 16 MiB for a thread's rows";
}
// Numbers of taps are counted in what is computed in.
std::string declines(const ForwardArgs&, const Problem& p) {
  const auto taps = [](const Axis& axis) {
    return axis.bins ? ceil_of(axis.sources, axis.results) + 1 : axis.taps;
  };
  if (static_cast<double>(taps(p.h)) * static_cast<double>(taps(p.w)) > 0x1p24)
    return "a window has more than 2^24 taps";
  return "";
}
// Windows give to elements one by one: sums are not cut into panels.
std::string declines(const BackwardArgs&, const Problem& p) {
  const auto most = [](const Axis& axis) {
    if (axis.bins) return axis.results / axis.sources + 2;
    return std::min(axis.results, ceil_of((axis.taps - 1) * axis.dilation + 1, axis.stride));
  };
  const std::int64_t h = most(p.h), w = most(p.w);
  return h <= kPanel && w <= kPanel && h * w <= kPanel
             ? ""
             : "elements may be in more than 512 windows each";
}
template <class Args>
std::string declines_simd(const Problem& p, const Machine&) {
  const std::string why = declines(Args{}, p);
  return why.empty() ? too_wide(bytes_of<Args>(p)) : why;
}

Kernel kernel_for(const ForwardArgs&, const Problem& p, bool channels, Isa isa) {
  if (channels) { ISOBIT_RETURN_FOR_ISA(isa, forward_channels(p.dtype, p.reduction)); }
  ISOBIT_RETURN_FOR_ISA(isa, forward_rows(p.dtype, p.reduction));
}
Kernel kernel_for(const BackwardArgs&, const Problem& p, bool channels, Isa isa) {
  if (channels) { ISOBIT_RETURN_FOR_ISA(isa, backward_channels(p.dtype, p.reduction)); }
  ISOBIT_RETURN_FOR_ISA(isa, backward_rows(p.dtype, p.reduction));
}

template <class Args>
void run_simd(const Args& args, const Problem& p, const Plan&, const Execution& execution) {
  const Cut cut = cut_of(args, p);
  const std::int64_t units = cut.units(p), tasks = tasks_of<Args>(p, cut, execution.machine);
  const std::int64_t bytes = scratch_bytes<Args>(p);
  const Kernel kernel = kernel_for(args, p, cut.channels, execution.machine.isa);
  execution.parallel_for(tasks, [&](std::int64_t task) {
    const simd::FloatMode mode;
    for (std::int64_t unit = units * task / tasks; unit < units * (task + 1) / tasks; ++unit) {
      const std::int64_t band = unit % cut.bands(), rest = unit / cut.bands();
      const std::int64_t first = rest % cut.blocks(p) * cut.block;
      kernel({.problem = p,
              .image = rest / cut.blocks(p),
              .channel = first,
              .channels = std::min(cut.block, p.channels - first),
              .rows = {band * cut.band, std::min(cut.rows, (band + 1) * cut.band)},
              .scratch = execution.workspace + task * bytes});
    }
  });
}

template <class Args>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "simd",
     .each_isa = true,
     .declines = declines_simd<Args>,
     .workspace = workspace<Args>,
     .run = run_simd<Args>},
    {.name = "scalar",
     .run = [](const Args& args, const Problem& problem, const Plan& plan,
               const Execution& execution) { run_scalar(args, problem, plan, execution); }},
};

}  // namespace

std::span<const ForwardVariant> cpu_forward_variants() { return kVariants<ForwardArgs>; }
std::span<const BackwardVariant> cpu_backward_variants() { return kVariants<BackwardArgs>; }

}  // namespace isobit::pool2d
