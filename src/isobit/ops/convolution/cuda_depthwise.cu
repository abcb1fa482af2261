// SPDX-License-Identifier: Apache-2.0
// Convolutions on GPUs whose results are each made of one channel, as depthwise ones are: a tile of
// the channel with its halo in shared memory, and several results a thread.
#include <algorithm>
#include <cstdint>
#include <string>

#include "isobit/ops/convolution/cuda_call.h"
#include "isobit/ops/convolution/cuda_divider.h"
#include "isobit/ops/convolution/cuda_parts.h"

namespace isobit::convolution {
namespace {

constexpr int kMostEach = 4;
constexpr std::int64_t kMostBytes = 48 << 10;  // at least four blocks a multiprocessor
// The sum of a window is then one chain of fma.
constexpr std::int64_t kMostTaps = order::kPanel;

// How the results of a channel are dealt out: `across` threads beside each other, the others below
// them. Each thread has `each` results, a whole tile of threads apart: beside each other where the
// threads stand on all rows, else below each other.
struct Tiling {
  int threads;
  int across = 8, each = 1;
  bool beside = false;
  std::int64_t height = 0, width = 0;  // of results
  std::int64_t rows = 0, cols = 0;     // that their windows see
  std::int64_t pitch = 0;              // from a row to the next in shared memory

  Tiling(const Problem& problem, int threads) : threads(threads) {
    const std::int64_t results_h = problem.h.results, results_w = problem.w.results;
    while (across < results_w && (across < 32 || threads / across >= 2 * results_h) &&
           across < threads)
      across *= 2;
    const int down = threads / across;
    beside = down >= results_h;
    const std::int64_t parts =
        beside ? (results_w + across - 1) / across : (results_h + down - 1) / down;
    each = static_cast<int>(std::clamp<std::int64_t>(parts, 1, kMostEach));
    for (;; --each) {
      height = down * (beside ? 1 : each);
      width = across * (beside ? each : 1);
      rows = seen(problem, problem.h, height);
      cols = pitch = seen(problem, problem.w, width);
      // The rows of a warp in different banks.
      while (across < 32 && pitch % 32 != across && pitch % 32 != 32 - across) ++pitch;
      if (each == 1 || bytes(problem) <= kMostBytes) return;
    }
  }

  std::int64_t bytes(const Problem& problem) const {
    const std::int64_t size = size_of(problem.real());
    return count_of({rows, pitch, size}) + count_of({weights_of(problem), size}) +
           warps() * std::int64_t{sizeof(unsigned)} + 2 * 16;  // the arrays begin at 16 bytes
  }
  ISOBIT_EITHER int warps() const { return threads / simt::kWarpThreads; }
  static std::int64_t weights_of(const Problem& problem) {
    return count_of({problem.outs, problem.h.taps, problem.w.taps});
  }

 private:
  // A gradient's windows see the gradient of y with what lies between strides.
  static std::int64_t seen(const Problem& problem, const Axis& axis, std::int64_t results) {
    return (std::min(results, axis.results) - 1) * (problem.gradient ? 1 : axis.stride) +
           (axis.taps - 1) * axis.dilation + 1;
  }
};

template <class T>
struct DepthwiseTiled {
  static constexpr int kMostThreads = kWidestDepthwise;
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;

  Call<T> call;
  Tiling tiling;
  Divider of_cols, of_taps, of_taps_w;

  DepthwiseTiled(const Problem& problem, int threads)
      : call(problem),
        tiling(problem, threads),
        of_cols(tiling.cols),
        of_taps(problem.h.taps * problem.w.taps),
        of_taps_w(problem.w.taps) {}

  ISOBIT_EITHER std::int64_t down() const {
    return (call.h.results + tiling.height - 1) / tiling.height;
  }
  ISOBIT_EITHER std::int64_t across() const {
    return (call.w.results + tiling.width - 1) / tiling.width;
  }
  ISOBIT_EITHER std::int64_t tiles() const { return call.batch * call.groups * down() * across(); }
  ISOBIT_EITHER int taps() const { return static_cast<int>(call.h.taps * call.w.taps); }

  struct Memory {
    Real *seen, *weights;
    unsigned* infinite;  // of each warp
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Real* const seen = carver.template take<Real>(tiling.rows * tiling.pitch);
    Real* const weights = carver.template take<Real>(call.outs * taps());
    return {seen, weights, carver.template take<unsigned>(tiling.warps())};
  }

  ISOBIT_DEVICE void operator()(const Memory& shared) const {
    for (std::int64_t tile = simt::block(); tile < tiles(); tile += simt::blocks()) {
      const std::int64_t line = tile / across(), plane = line / down();
      const std::int64_t group = plane % call.groups, n = plane / call.groups;
      const std::int64_t row = (line - plane * down()) * tiling.height;
      const std::int64_t col = (tile - line * across()) * tiling.width;
      simt::sync_block();  // what was there has been read
      const unsigned infinite = simt::ballot(bring_weights(group, shared.weights));
      if (simt::lane() == 0) shared.infinite[simt::thread() / simt::kWarpThreads] = infinite;
      bring(call.source.at(n, group), row, col, shared.seen);
      simt::sync_block();
      // Absent taps meet no weight; where all are finite, zeros in their place do no harm.
      unsigned one_by_one = 0;
      for (int warp = 0; warp < tiling.warps() && call.gradient; ++warp)
        one_by_one |= shared.infinite[warp];
      const Place place{n, group, row + simt::thread() / tiling.across,
                        col + simt::thread() % tiling.across};
      if (place.row >= call.h.results || place.col >= call.w.results) continue;
      if (one_by_one != 0)
        add_what_lands(shared, place, row, col);
      else
        add(shared, place, row, col);
    }
  }

 private:
  struct Place {
    std::int64_t n, group, row, col;  // of a thread's first result
  };

  // Whether one of them is not finite.
  ISOBIT_DEVICE bool bring_weights(std::int64_t group, Real* to) const {
    bool infinite = false;
#pragma unroll 1
    for (int at = simt::thread(); at < call.outs * taps(); at += simt::threads()) {
      const unsigned out = of_taps.quotient(static_cast<unsigned>(at));
      const unsigned tap = of_taps.remainder(static_cast<unsigned>(at), out);
      const unsigned i = of_taps_w.quotient(tap), j = of_taps_w.remainder(tap, i);
      const Real weight =
          wide<Real>(call.weights[group * call.weight_group + out * call.weight_out +
                                  i * call.weight_h + j * call.weight_w]);
      infinite |= !(weight - weight == Real(0));
      to[at] = weight;
    }
    return infinite;
  }

  // The first element that a tile sees: of the source, or, of a gradient, of one with as many zeros
  // between elements as strides leave out.
  ISOBIT_DEVICE std::int64_t first(const Axis& axis, std::int64_t result) const {
    return call.gradient ? result + axis.padding - (axis.taps - 1) * axis.dilation
                         : axis.window(result, 0);
  }
  ISOBIT_DEVICE std::int64_t there(const Axis& axis, std::int64_t index) const {
    if (call.gradient) {
      if (index < 0) return -1;
      const std::int64_t at = axis.stride == 1 ? index : index / axis.stride;
      return at < axis.sources && at * axis.stride == index ? at : -1;
    }
    // A tile at the edge reaches beyond what any window sees.
    if (index < -axis.padding || index >= axis.sources + axis.padding_end) return -1;
    return padded(call.mode, index, axis.sources);
  }
  ISOBIT_DEVICE void bring(const T* channel, std::int64_t row, std::int64_t col, Real* to) const {
    const std::int64_t first_h = first(call.h, row), first_w = first(call.w, col);
    const int count = static_cast<int>(tiling.rows * tiling.cols);
#pragma unroll 2
    for (int at = simt::thread(); at < count; at += simt::threads()) {
      const unsigned i = of_cols.quotient(static_cast<unsigned>(at));
      const unsigned j = of_cols.remainder(static_cast<unsigned>(at), i);
      const std::int64_t h = there(call.h, first_h + i), w = there(call.w, first_w + j);
      Real value = 0;
      if (h >= 0 && w >= 0) value = wide<Real>(channel[h * call.source.h + w * call.source.w]);
      to[i * tiling.pitch + j] = value;
    }
  }

  // Where a result's window begins in what was brought, and how far its taps are apart.
  ISOBIT_DEVICE int window(std::int64_t row, std::int64_t col) const {
    const std::int64_t h =
        call.gradient ? row + (call.h.taps - 1) * call.h.dilation : row * call.h.stride;
    const std::int64_t w =
        call.gradient ? col + (call.w.taps - 1) * call.w.dilation : col * call.w.stride;
    return static_cast<int>(h * tiling.pitch + w);
  }
  ISOBIT_DEVICE int from_tap_to_tap(const Axis& axis) const {
    return static_cast<int>(call.gradient ? -axis.dilation : axis.dilation);
  }
  // A thread's r-th result.
  ISOBIT_DEVICE Place moved(Place place, int r) const {
    if (tiling.beside)
      place.col += r * tiling.across;
    else
      place.row += r * (tiling.threads / tiling.across);
    return place;
  }
  ISOBIT_DEVICE bool exists(const Place& place) const {
    return place.row < call.h.results && place.col < call.w.results;
  }
  ISOBIT_DEVICE void finish(const Place& place, std::int64_t out, Real chain) const {
    // A panel in a run of panels, and +0 once.
    call.finish.finish(place.n * call.h.results + place.row, place.group * call.outs + out,
                       place.col, (Real(0) + chain) + Real(0));
  }

  ISOBIT_DEVICE void add(const Memory& shared, const Place& place, std::int64_t row,
                         std::int64_t col) const {
    int windows[kMostEach];  // of a result that is not there, the first's again
#pragma unroll
    for (int r = 0; r < kMostEach; ++r) {
      const Place own = moved(place, r);
      const Place known = r < tiling.each && exists(own) ? own : place;
      windows[r] = window(known.row - row, known.col - col);
    }
    const int next_row = from_tap_to_tap(call.h) * static_cast<int>(tiling.pitch);
    const int next = from_tap_to_tap(call.w);
    const Real* weight = shared.weights;
#pragma unroll 1
    for (std::int64_t out = 0; out < call.outs; ++out) {
      Real chains[kMostEach] = {};
      int line = 0;
#pragma unroll 1
      for (std::int64_t i = 0; i < call.h.taps; ++i, line += next_row) {
        int tap = line;
#pragma unroll 1
        for (std::int64_t j = 0; j < call.w.taps; ++j, tap += next, ++weight) {
          const Real by = *weight;
#pragma unroll
          for (int r = 0; r < kMostEach; ++r)
            chains[r] = S::fma(shared.seen[windows[r] + tap], by, chains[r]);
        }
      }
#pragma unroll
      for (int r = 0; r < kMostEach; ++r) {
        const Place own = moved(place, r);
        if (r < tiling.each && exists(own)) finish(own, out, chains[r]);
      }
    }
  }

  ISOBIT_DEVICE void add_what_lands(const Memory& shared, const Place& place, std::int64_t row,
                                    std::int64_t col) const {
#pragma unroll 1
    for (int r = 0; r < tiling.each; ++r) {
      const Place own = moved(place, r);
      if (!exists(own)) continue;
      const Real* const window = shared.seen + this->window(own.row - row, own.col - col);
      const Real* weight = shared.weights;
#pragma unroll 1
      for (std::int64_t out = 0; out < call.outs; ++out) {
        Real chain = 0;
#pragma unroll 1
        for (std::int64_t i = 0; i < call.h.taps; ++i)
#pragma unroll 1
          for (std::int64_t j = 0; j < call.w.taps; ++j, ++weight)
            if (call.h.landing(own.row, i) >= 0 && call.w.landing(own.col, j) >= 0)
              chain = S::fma(
                  window[i * from_tap_to_tap(call.h) * tiling.pitch + j * from_tap_to_tap(call.w)],
                  *weight, chain);
        finish(own, out, chain);
      }
    }
  }
};

std::int64_t most_bytes(const Machine& machine) {
  return std::min(kMostBytes, machine.gpu.shared_bytes);
}

}  // namespace

std::string Depthwise::declines(const Problem& problem, const Machine& machine) {
  if (problem.ins != 1) return "needs groups of one channel; these have several";
  if (problem.gradient && problem.mode != PaddingMode::zeros)
    return "has gradients only where zeros are padded";
  if (count_of({problem.h.taps, problem.w.taps}) > kMostTaps)
    return "has one panel of taps, which are more here";
  if (Tiling(problem, kChosenThreads).bytes(problem) > most_bytes(machine))
    return "needs a tile with its halo, and the weights of a group, in shared memory";
  return {};
}

void Depthwise::run(const Problem& problem, const Plan& plan, const Execution& execution) {
  if (problem.empty()) return;
  const int threads = threads_within(most_bytes(execution.machine), plan[0], [&](int asked) {
    return Tiling(problem, asked).bytes(problem);
  });
  with_type(problem, [&]<class T>(T) {
    const DepthwiseTiled<T> kernel(problem, threads);
    matmul::launch(kernel, kernel.tiles(), threads, execution);
  });
}

}  // namespace isobit::convolution
