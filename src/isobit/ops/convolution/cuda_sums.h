// SPDX-License-Identifier: Apache-2.0
// The gradients of weights and of a bias on GPUs: sums over all positions, cut at fixed places.
#pragma once

#include <algorithm>
#include <cstdint>

#include "isobit/ops/convolution/cuda_call.h"
#include "isobit/ops/convolution/cuda_parts.h"

namespace isobit::convolution {

inline constexpr int kWidestSums = 512;  // threads of a block

// Positions are rows of the gradient of y, image after image.
template <class T>
struct Positions {
  using Real = RealOf<T>;
  Source<T> grad;
  std::int64_t height, width, count;

  explicit Positions(const Problem& problem)
      : grad(problem.result),
        height(problem.h.results),
        width(problem.w.results),
        count(problem.batch * problem.positions()) {}

  struct Place {
    std::int64_t n, row, col;
  };
  ISOBIT_DEVICE Place place(std::int64_t k) const {
    const std::int64_t line = k / width;
    return {line / height, line % height, k % width};
  }
  ISOBIT_DEVICE Real at(const Place& place, std::int64_t filter) const {
    return wide<Real>(grad.at(place.n, filter)[place.row * grad.h + place.col * grad.w]);
  }
};

// One weight and one run of 8192 positions a thread; where there are several runs, their sums wait.
template <class T>
struct SumWeights {
  static constexpr int kMostThreads = kWidestSums;
  using Real = RealOf<T>;
  Call<T> call;  // of forward
  Positions<T> positions;
  T* to;
  Real* sums;

  SumWeights(const Problem& problem, std::byte* workspace)
      : call(problem),
        positions(problem),
        to(reinterpret_cast<T*>(problem.weight.data)),
        sums(reinterpret_cast<Real*>(workspace)) {}

  ISOBIT_EITHER std::int64_t runs() const {
    const std::int64_t runs = (positions.count + matmul::kRunK - 1) / matmul::kRunK;
    return runs < 1 ? 1 : runs;
  }
  ISOBIT_EITHER std::int64_t weights() const {
    return call.groups * call.outs * call.ins * call.h.taps * call.w.taps;
  }
  ISOBIT_DEVICE std::int64_t place(std::int64_t weight) const {
    const std::int64_t j = weight % call.w.taps, rest = weight / call.w.taps;
    const std::int64_t i = rest % call.h.taps, of_tap = rest / call.h.taps;
    const std::int64_t filter = of_tap / call.ins;
    return filter / call.outs * call.weight_group + filter % call.outs * call.weight_out +
           of_tap % call.ins * call.weight_in + i * call.weight_h + j * call.weight_w;
  }

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread();
         at < weights() * runs(); at += simt::blocks() * simt::threads()) {
      const std::int64_t weight = at % weights(), run = at / weights();
      const std::int64_t first = run * matmul::kRunK;
      const std::int64_t last =
          first + matmul::kRunK < positions.count ? first + matmul::kRunK : positions.count;
      const Real sum = of_run(weight, first, last);
      if (runs() == 1)
        to[place(weight)] = simt::Conversions::template narrow<T>(sum + Real(0));
      else
        sums[at] = sum;
    }
  }

 private:
  ISOBIT_DEVICE Real of_run(std::int64_t weight, std::int64_t first, std::int64_t last) const {
    const std::int64_t j = weight % call.w.taps, rest = weight / call.w.taps;
    const std::int64_t i = rest % call.h.taps, of_tap = rest / call.h.taps;
    const std::int64_t c = of_tap % call.ins, filter = of_tap / call.ins;
    Real run = 0;
#pragma unroll 1
    for (std::int64_t panel = first; panel < last; panel += order::kPanel) {
      const std::int64_t end = panel + order::kPanel < last ? panel + order::kPanel : last;
      Real chain = 0;
#pragma unroll 1
      for (std::int64_t k = panel; k < end; ++k) {
        const auto position = positions.place(k);
        const std::int64_t h = call.place(call.h, position.row, i),
                           w = call.place(call.w, position.col, j);
        Real value = 0;
        if (h >= 0 && w >= 0)
          value =
              wide<Real>(call.source.at(position.n, filter / call.outs * call.ins +
                                                        c)[h * call.source.h + w * call.source.w]);
        chain = tile::Scalar<Real>::fma(positions.at(position, filter), value, chain);
      }
      run = run + chain;
    }
    return run;
  }
};

template <class T>
struct AddRunsOfWeights {
  static constexpr int kMostThreads = kWidestSums;
  SumWeights<T> of;

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread(); at < of.weights();
         at += simt::blocks() * simt::threads()) {
      order::PairTree<RealOf<T>> runs;
#pragma unroll 1
      for (std::int64_t run = 0; run < of.runs(); ++run)
        runs.push(of.sums[run * of.weights() + at]);
      of.to[of.place(at)] = simt::Conversions::template narrow<T>(runs.total());
    }
  }
};

inline std::int64_t weight_room(const Problem& problem) {
  const std::int64_t positions = problem.batch * problem.positions();
  if (positions <= matmul::kRunK) return 0;
  return (positions + matmul::kRunK - 1) / matmul::kRunK * problem.groups * problem.outs *
         problem.k() * size_of(problem.real());
}

template <class T>
void sum_weights(const Problem& problem, int threads, const Execution& execution) {
  const SumWeights<T> sum(problem, execution.workspace);
  if (sum.weights() == 0) return;
  matmul::launch(sum, blocks_for(sum.weights() * sum.runs(), threads), threads, execution);
  if (sum.runs() > 1)
    matmul::launch(AddRunsOfWeights<T>{sum}, blocks_for(sum.weights(), threads), threads,
                   execution);
}

// Groups of rows are nodes of the tree of `order::sum_rows`.
inline constexpr std::int64_t kGroupRows = 32 * order::kRun;

inline std::int64_t bias_room(const Problem& problem) {
  const std::int64_t groups = (problem.batch * problem.positions() + kGroupRows - 1) / kGroupRows;
  return groups * problem.groups * problem.outs * size_of(problem.real());
}

template <class T>
struct SumBias {
  static constexpr int kMostThreads = kWidestSums;
  using Real = RealOf<T>;
  Positions<T> positions;
  std::int64_t filters;
  Real* sums;

  ISOBIT_EITHER std::int64_t groups() const {
    return (positions.count + kGroupRows - 1) / kGroupRows;
  }
  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread();
         at < groups() * filters; at += simt::blocks() * simt::threads()) {
      const std::int64_t group = at / filters, filter = at % filters;
      const std::int64_t first = group * kGroupRows;
      const std::int64_t last =
          first + kGroupRows < positions.count ? first + kGroupRows : positions.count;
      order::PairTree<Real> runs;
#pragma unroll 1
      for (std::int64_t start = first; start < last; start += order::kRun) {
        Real run = 0;
#pragma unroll 1
        for (std::int64_t k = start; k < last && k < start + order::kRun; ++k)
          run = run + positions.at(positions.place(k), filter);
        runs.push(run);
      }
      sums[at] = runs.total();
    }
  }
};

template <class T>
struct AddGroupsOfBias {
  static constexpr int kMostThreads = kWidestSums;
  SumBias<T> of;
  matmul::Operand bias;

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread(); at < of.filters;
         at += simt::blocks() * simt::threads()) {
      order::PairTree<RealOf<T>> total;
#pragma unroll 1
      for (std::int64_t group = 0; group < of.groups(); ++group)
        total.push(of.sums[group * of.filters + at]);
      matmul::write(bias, bias.at(0, at), total.total() + RealOf<T>(0));
    }
  }
};

template <class T>
void sum_bias(const Problem& problem, const matmul::Array& bias, int threads,
              const Execution& execution) {
  const std::int64_t filters = problem.groups * problem.outs;
  if (filters == 0) return;
  const SumBias<T> sum{Positions<T>(problem), filters,
                       reinterpret_cast<RealOf<T>*>(execution.workspace)};
  if (sum.groups() > 0)
    matmul::launch(sum, blocks_for(sum.groups() * filters, threads), threads, execution);
  const AddGroupsOfBias<T> add{sum, {bias.data, bias.dtype, 0, bias.col, {}}};
  matmul::launch(add, blocks_for(filters, threads), threads, execution);
}

}  // namespace isobit::convolution
