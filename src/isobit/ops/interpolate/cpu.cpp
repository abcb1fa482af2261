// SPDX-License-Identifier: Apache-2.0
// The CPU variants: vectors, and the specification. How images, channels and rows are dealt to
// threads, and the tables of what results are made of.
#include <algorithm>

#include "isobit/ops/interpolate/cpu_kernels.h"
#include "isobit/ops/interpolate/formula.h"
#include "isobit/ops/interpolate/problem.h"
#include "isobit/simd/tasks.h"

namespace isobit::interpolate {
namespace {

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
            [&](std::int64_t n, std::int64_t c, std::int64_t row, std::int64_t col) {
              const Real y =
                  interpolated<Real>(p.h, p.w, row, col, [&](std::int64_t i, std::int64_t j) {
                    return widen<Real>(*p.x.at<const T>(n, c, i, j));
                  });
              *p.y.at<T>(n, c, row, col) = narrow<T>(y);
            });
  });
}
void run_scalar(const BackwardArgs&, const Problem& p, const Plan&, const Execution& execution) {
  with_type(p.dtype, [&]<class T, class Real>(T, Real) {
    for_all(p, p.h.sources, p.w.sources, execution,
            [&](std::int64_t n, std::int64_t c, std::int64_t row, std::int64_t col) {
              const Real x =
                  gathered<Real>(p.h, p.w, row, col, [&](std::int64_t i, std::int64_t j) {
                    return widen<Real>(*p.y.at<const T>(n, c, i, j));
                  });
              *p.x.at<T>(n, c, row, col) = narrow<T>(x);
            });
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

bool channels_last(const Problem& p) {
  return p.x.c == 1 && p.y.c == 1 && p.channels > 1 && p.x.w != 1;
}
// Rows of results, enough for a thread, so that few rows of x are interpolated twice.
Cut cut_of(const ForwardArgs&, const Problem& p) {
  if (channels_last(p)) return {true, 16 * kBlock, p.h.results, 1};
  const std::int64_t band = std::max<std::int64_t>((16 << 10) / p.w.results, 4);
  return {false, 1, p.h.results, std::min(band, p.h.results)};
}
// Rows of x, as many as a first-level cache has room for.
Cut cut_of(const BackwardArgs&, const Problem& p) {
  const bool channels = channels_last(p);
  const std::int64_t block = channels ? kBlock : 1;
  const std::int64_t band = std::max<std::int64_t>((8 << 10) / (p.w.sources * block), 1);
  return {channels, block, p.h.sources, std::min(band, p.h.sources)};
}

// Elements of what is computed in, in doubles: none is too large.
double scratch_of(const ForwardArgs&, const Problem& p, const Cut& cut) {
  if (cut.channels) return 0;
  return static_cast<double>(kMostTaps * whole_blocks(p.w.results) + whole_blocks(p.w.sources + 1));
}
double scratch_of(const BackwardArgs&, const Problem& p, const Cut& cut) {
  const auto line = static_cast<double>(whole_blocks(p.w.sources * cut.block));
  return static_cast<double>(whole_blocks(p.w.results)) +
         2 * line * static_cast<double>(cut.band + 1);
}
template <class Args>
double bytes_of(const Problem& p) {
  return scratch_of(Args{}, p, cut_of(Args{}, p)) * (p.dtype == DType::f64 ? 8 : 4) + 64;
}
template <class Args>
std::int64_t scratch_bytes(const Problem& p) {
  return (static_cast<std::int64_t>(bytes_of<Args>(p)) + 63) / 64 * 64;
}

// What stands in front of the tasks' scratch: of the types' sizes the largest.
struct Layout {
  std::int64_t line, across, places, weights, bytes;

  Layout(const Problem& p, bool with_lanes) {
    constexpr std::int64_t kTaps = sizeof(Taps<double>);
    line = whole_blocks(p.w.results);
    across = whole_blocks(p.h.results) * kTaps;
    places = across + line * kTaps;
    weights = places + (with_lanes ? p.w.taps() * line * 8 : 0);
    bytes = weights + (with_lanes ? p.w.taps() * line * 8 : 0);
  }
};
template <class Args>
bool with_lanes(const Cut& cut) {
  return std::is_same_v<Args, ForwardArgs> && !cut.channels;
}

template <class Args>
std::int64_t tasks_of(const Problem& p, const Cut& cut, const Machine& machine) {
  const std::int64_t elements =
      p.planes() * (p.h.results * p.w.results + p.h.sources * p.w.sources);
  return simd::task_count(machine, 2 * elements, std::max<std::int64_t>(1, cut.units(p)));
}
template <class Args>
std::size_t workspace(const Problem& p, const Plan&, const Machine& machine) {
  const Cut cut = cut_of(Args{}, p);
  return static_cast<std::size_t>(Layout(p, with_lanes<Args>(cut)).bytes +
                                  tasks_of<Args>(p, cut, machine) * scratch_bytes<Args>(p));
}

constexpr double kMostBytes = 64 << 20;

template <class Args>
std::string declines_simd(const Problem& p, const Machine&) {
  const double results = static_cast<double>(p.h.results) + static_cast<double>(p.w.results);
  const double tables = results * sizeof(Taps<double>) + static_cast<double>(p.w.results) * 16 * 4;
  return bytes_of<Args>(p) + tables <= kMostBytes
             ? ""
             : "its tables and a thread's rows need more than 64 MiB";
}

template <class Real>
void fill(const Axis& axis, std::byte* to) {
  auto* const taps = reinterpret_cast<Taps<Real>*>(to);
  for (std::int64_t i = 0; i < axis.results; ++i) taps[i] = taps_of<Real>(axis, i);
}
// Columns to whole blocks have no taps.
template <class Real>
void fill_lanes(const Axis& axis, const std::byte* from, std::int64_t line, std::byte* places,
                std::byte* weights) {
  const auto* const taps = reinterpret_cast<const Taps<Real>*>(from);
  auto* const place = reinterpret_cast<std::int64_t*>(places);
  auto* const weight = reinterpret_cast<Real*>(weights);
  for (int tap = 0; tap < axis.taps(); ++tap)
    for (std::int64_t i = 0; i < line; ++i) {
      const bool there = i < axis.results && tap < taps[i].count;
      place[tap * line + i] = there ? taps[i].first + tap : axis.sources;
      weight[tap * line + i] = there ? taps[i].weight[tap] : Real(-0.0);
    }
}

Tables tables_of(const Problem& p, bool lanes, std::byte* to) {
  const simd::FloatMode mode;
  const Layout layout(p, lanes);
  with_type(p.dtype, [&]<class T, class Real>(T, Real) {
    fill<Real>(p.h, to);
    fill<Real>(p.w, to + layout.across);
    if (lanes)
      fill_lanes<Real>(p.w, to + layout.across, layout.line, to + layout.places,
                       to + layout.weights);
  });
  Tables tables{.down = to, .across = to + layout.across, .line = layout.line};
  if (lanes) {
    tables.places = reinterpret_cast<const std::int64_t*>(to + layout.places);
    tables.weights = to + layout.weights;
  }
  return tables;
}

Kernel kernel_for(const ForwardArgs&, DType dtype, bool channels, Isa isa) {
  if (channels) { ISOBIT_RETURN_FOR_ISA(isa, forward_channels(dtype)); }
  ISOBIT_RETURN_FOR_ISA(isa, forward_rows(dtype));
}
Kernel kernel_for(const BackwardArgs&, DType dtype, bool channels, Isa isa) {
  if (channels) { ISOBIT_RETURN_FOR_ISA(isa, backward_channels(dtype)); }
  ISOBIT_RETURN_FOR_ISA(isa, backward_rows(dtype));
}

template <class Args>
void run_simd(const Args& args, const Problem& p, const Plan&, const Execution& execution) {
  const Cut cut = cut_of(args, p);
  const bool lanes = with_lanes<Args>(cut);
  const std::int64_t units = cut.units(p), tasks = tasks_of<Args>(p, cut, execution.machine);
  const std::int64_t bytes = scratch_bytes<Args>(p);
  const Tables tables = tables_of(p, lanes, execution.workspace);
  std::byte* const scratch = execution.workspace + Layout(p, lanes).bytes;
  const Kernel kernel = kernel_for(args, p.dtype, cut.channels, execution.machine.isa);
  execution.parallel_for(tasks, [&](std::int64_t task) {
    const simd::FloatMode mode;
    for (std::int64_t unit = units * task / tasks; unit < units * (task + 1) / tasks; ++unit) {
      const std::int64_t band = unit % cut.bands(), rest = unit / cut.bands();
      const std::int64_t first = rest % cut.blocks(p) * cut.block;
      kernel({.problem = p,
              .tables = tables,
              .image = rest / cut.blocks(p),
              .channel = first,
              .channels = std::min(cut.block, p.channels - first),
              .rows = {band * cut.band, std::min(cut.rows, (band + 1) * cut.band)},
              .scratch = scratch + task * bytes});
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

}  // namespace isobit::interpolate
