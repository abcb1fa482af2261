// SPDX-License-Identifier: Apache-2.0
// Windows as an operand of matmul's tiles on GPUs, element by element from where they lie; and
// weights packed as the other.
#pragma once

#include <cstdint>
#include <string>

#include "isobit/ops/convolution/cuda_call.h"
#include "isobit/ops/convolution/cuda_divider.h"
#include "isobit/ops/convolution/cuda_parts.h"
#include "isobit/ops/matmul/cuda_tiles.h"

namespace isobit::convolution {

// Kernels are compiled for float and double; elements of 16 bits are widened where they are read,
// by their type as an operand has it.
template <class Real>
struct Elements {
  matmul::Operand operand;
  std::int64_t n, c, h, w;

  explicit Elements(const Images& images)
      : operand{images.data, images.dtype, 0, 0, {}},
        n(images.n),
        c(images.c),
        h(images.h),
        w(images.w) {}
  ISOBIT_DEVICE Real at(std::int64_t image, std::int64_t channel, std::int64_t row,
                        std::int64_t col) const {
    return matmul::read<Real>(operand, image * n + channel * c + row * h + col * w);
  }
};

// The weights of a filter, as k counts them: the channel is the fastest.
class Terms {
 public:
  struct Term {
    unsigned i, j, c;
  };

  explicit Terms(const Problem& problem)
      : of_ins_(std::max<std::int64_t>(1, problem.ins)), of_taps_w_(problem.w.taps) {}

  ISOBIT_DEVICE Term operator[](unsigned k) const {
    const unsigned tap = of_ins_.quotient(k), i = of_taps_w_.quotient(tap);
    return {i, of_taps_w_.remainder(tap, i), of_ins_.remainder(k, tap)};
  }

 private:
  Divider of_ins_, of_taps_w_;
};

// Results of a channel, image after image.
class Places {
 public:
  struct Place {
    unsigned n, row, col;
  };

  explicit Places(const Problem& problem)
      : of_width_(std::max<std::int64_t>(1, problem.w.results)),
        of_height_(std::max<std::int64_t>(1, problem.h.results)) {}

  ISOBIT_DEVICE Place operator[](unsigned position) const {
    const unsigned line = of_width_.quotient(position), n = of_height_.quotient(line);
    return {n, of_height_.remainder(line, n), of_width_.remainder(position, line)};
  }

 private:
  Divider of_width_, of_height_;
};

inline std::int64_t positions_of(const Problem& problem) {
  return count_of({problem.batch, problem.h.results, problem.w.results});
}
inline std::int64_t terms_of(const Problem& problem) {
  return count_of({problem.h.taps, problem.w.taps, problem.ins});
}

// What windows see.
template <class Real>
struct Windows {
  Axis h, w;
  PaddingMode mode;
  bool gradient;
  std::int64_t ins, positions;
  Elements<Real> source;
  Terms terms;
  Places places;

  explicit Windows(const Problem& problem)
      : h(problem.h),
        w(problem.w),
        mode(problem.mode),
        gradient(problem.gradient),
        ins(problem.ins),
        positions(positions_of(problem)),
        source(problem.source),
        terms(problem),
        places(problem) {}

  // A term of a window; 0 where a tap does not land, which is right beside a finite weight.
  ISOBIT_DEVICE Real at(std::int64_t group, const Places::Place& place,
                        const Terms::Term& term) const {
    const std::int64_t row = see(h, place.row, term.i), col = see(w, place.col, term.j);
    if (row < 0 || col < 0) return 0;
    return source.at(place.n, group * ins + term.c, row, col);
  }

 private:
  ISOBIT_DEVICE std::int64_t see(const Axis& axis, std::int64_t result, std::int64_t tap) const {
    if (!gradient) return padded(mode, axis.window(result, tap), axis.sources);
    if (axis.stride != 1) return axis.landing(result, tap);
    const std::int64_t at = result + axis.padding - tap * axis.dilation;
    return at < axis.sources ? at : -1;
  }
};

// Windows as columns of b: k counts terms. The threads of a warp read side by side.
template <class Real>
struct WindowsAsColumns {
  Windows<Real> windows;

  struct Lanes {
    const Windows<Real>& windows;
    std::int64_t group, first;

    template <int kSide, int kDepth, int kPitch>
    ISOBIT_DEVICE void bring(std::int64_t k, std::int64_t depth, Real* to) const {
      // A thread keeps its lane: there is a multiple of kSide of them.
      const int lane = simt::thread() % kSide;
      const bool exists = first + lane < windows.positions;
      const Places::Place place =
          windows.places[static_cast<unsigned>(exists ? first + lane : first)];
#pragma unroll 2
      for (int at = simt::thread() / kSide; at < kDepth; at += simt::threads() / kSide) {
        Real value = 0;
        if (exists && at < depth)
          value = windows.at(group, place, windows.terms[static_cast<unsigned>(k + at)]);
        to[at * kPitch + lane] = value;
      }
    }
  };
  ISOBIT_DEVICE Lanes of(const matmul::Call<Real>&, const matmul::Tile& tile) const {
    return {windows, tile.product, tile.col};
  }
};

// Of a gradient of weights: windows as columns of b whose k counts positions; a column is a term.
template <class Real>
struct TermsAsColumns {
  Windows<Real> windows;

  struct Lanes {
    const Windows<Real>& windows;
    std::int64_t group, first, count;

    template <int kSide, int kDepth, int kPitch>
    ISOBIT_DEVICE void bring(std::int64_t k, std::int64_t depth, Real* to) const {
      // Positions are adjacent; a thread keeps its own.
      const int at = simt::thread() % kDepth;
      const Places::Place place = windows.places[static_cast<unsigned>(at < depth ? k + at : k)];
#pragma unroll 2
      for (int lane = simt::thread() / kDepth; lane < kSide; lane += simt::threads() / kDepth) {
        Real value = 0;
        if (at < depth && first + lane < count)
          value = windows.at(group, place, windows.terms[static_cast<unsigned>(first + lane)]);
        to[at * kPitch + lane] = value;
      }
    }
  };
  ISOBIT_DEVICE Lanes of(const matmul::Call<Real>& call, const matmul::Tile& tile) const {
    return {windows, tile.product, tile.col, call.n};
  }
};

// The gradient of y as rows of a; k counts positions.
template <class Real>
struct FiltersAsRows {
  Elements<Real> grad;
  Places places;

  explicit FiltersAsRows(const Problem& problem) : grad(problem.result), places(problem) {}

  struct Lanes {
    const FiltersAsRows& all;
    std::int64_t channel, count;  // the first of a tile, and how many there are

    template <int kSide, int kDepth, int kPitch>
    ISOBIT_DEVICE void bring(std::int64_t k, std::int64_t depth, Real* to) const {
      const int at = simt::thread() % kDepth;
      const Places::Place place = all.places[static_cast<unsigned>(at < depth ? k + at : k)];
#pragma unroll 2
      for (int lane = simt::thread() / kDepth; lane < kSide; lane += simt::threads() / kDepth) {
        Real value = 0;
        if (at < depth && lane < count)
          value = all.grad.at(place.n, channel + lane, place.row, place.col);
        to[at * kPitch + lane] = value;
      }
    }
  };
  ISOBIT_DEVICE Lanes of(const matmul::Call<Real>& call, const matmul::Tile& tile) const {
    return {*this, tile.product * call.m + tile.row, call.m - tile.row};
  }
};

// Weights as a product wants them: group, term, filter, in the type that is computed in. Warps
// note whether one of theirs is not finite.
template <class Real>
struct PackWeights {
  static constexpr int kMostThreads = 256, kMostBlocks = 256;
  static constexpr int kWarps = kMostThreads / simt::kWarpThreads;
  matmul::Operand weights;
  std::int64_t of_group, of_out, of_in, of_h, of_w, count, outs, terms_count;
  Terms terms;
  Real* to;
  unsigned* found;

  PackWeights(const Problem& problem, std::byte* to, std::byte* found)
      : weights{problem.weight.data, problem.element, 0, 0, {}},
        of_group(problem.weight.group),
        of_out(problem.weight.out),
        of_in(problem.weight.in),
        of_h(problem.weight.h),
        of_w(problem.weight.w),
        count(problem.groups * problem.outs * problem.k()),
        outs(problem.outs),
        terms_count(problem.k()),
        terms(problem),
        to(reinterpret_cast<Real*>(to)),
        found(reinterpret_cast<unsigned*>(found)) {}

  ISOBIT_EITHER std::int64_t blocks() const {
    const std::int64_t blocks = (count + kMostThreads - 1) / kMostThreads;
    return blocks < 1 ? 1 : blocks < kMostBlocks ? blocks : kMostBlocks;
  }
  ISOBIT_DEVICE void operator()() const {
    bool infinite = false;
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread(); at < count;
         at += simt::blocks() * simt::threads()) {
      const std::int64_t line = at / outs, group = line / terms_count;
      const Terms::Term term = terms[static_cast<unsigned>(line - group * terms_count)];
      const Real weight =
          matmul::read<Real>(weights, group * of_group + (at - line * outs) * of_out +
                                          term.c * of_in + term.i * of_h + term.j * of_w);
      infinite |= !(weight - weight == Real(0));
      to[at] = weight;
    }
    const unsigned lanes = simt::ballot(infinite);
    const std::int64_t warp =
        (simt::block() * simt::threads() + simt::thread()) / simt::kWarpThreads;
    if (simt::lane() == 0) found[warp] = lanes;
  }
};

// Whether a warp noted something, by one warp.
struct FoundAny {
  static constexpr int kMostThreads = simt::kWarpThreads;
  const unsigned* found;
  std::int64_t count;
  unsigned* any;

  ISOBIT_DEVICE void operator()() const {
    bool noted = false;
    for (std::int64_t at = simt::thread(); at < count; at += simt::threads())
      noted |= found[at] != 0;
    const unsigned lanes = simt::ballot(noted);
    if (simt::thread() == 0) *any = lanes;
  }
};

// A product of filters and positions, of which some from `first` on: where its sums go.
template <class Real>
struct ProductCall : matmul::Call<Real> {
  matmul::Call<Real> results;
  Places places;
  std::int64_t height, outs, first;

  ProductCall(const matmul::Problem& product, const Problem& problem, std::int64_t first)
      : matmul::Call<Real>(product),
        results(finish_in_loops(problem)),
        places(problem),
        height(problem.h.results),
        outs(problem.outs),
        first(first) {}

  ISOBIT_DEVICE void finish(std::int64_t group, std::int64_t filter, std::int64_t position,
                            Real sum) const {
    const Places::Place place = places[static_cast<unsigned>(first + position)];
    results.finish(place.n * height + place.row, group * outs + filter, place.col, sum);
  }
};

// A product of filters and terms over positions: its sums are weights.
template <class Real>
struct WeightsCall : matmul::Call<Real> {
  matmul::Operand weights;
  std::int64_t of_group, of_out, of_in, of_h, of_w;
  Terms terms;

  WeightsCall(const matmul::Problem& product, const Problem& problem)
      : matmul::Call<Real>(product),
        weights{problem.weight.data, problem.element, 0, 0, {}},
        of_group(problem.weight.group),
        of_out(problem.weight.out),
        of_in(problem.weight.in),
        of_h(problem.weight.h),
        of_w(problem.weight.w),
        terms(problem) {}

  ISOBIT_DEVICE void finish(std::int64_t group, std::int64_t filter, std::int64_t at,
                            Real sum) const {
    const Terms::Term term = terms[static_cast<unsigned>(at)];
    matmul::write(
        weights,
        group * of_group + filter * of_out + term.c * of_in + term.i * of_h + term.j * of_w, sum);
  }
};

}  // namespace isobit::convolution
