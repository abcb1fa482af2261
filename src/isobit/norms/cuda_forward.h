// SPDX-License-Identifier: Apache-2.0
// The forward pass of any norm on a GPU: a group of threads takes a row, keeps it in registers from
// the first load to the last store, and goes on with the next one of its own.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "isobit/core/error.h"
#include "isobit/dispatch/variant.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/norms/philox.h"
#include "isobit/norms/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/octet.h"
#include "isobit/tile/row_group.h"

namespace isobit::norms {

// One row of an array that may be absent.
template <class T>
struct ArrayRow {
  T* data = nullptr;
  bool vectors = false;  // eight elements from any multiple of eight on lie on vectors

  ISOBIT_DEVICE explicit operator bool() const { return data != nullptr; }
};

template <class T>
struct Array {
  T* data;
  std::int64_t stride;
  bool vectors;

  explicit Array(const Matrix& matrix)
      : data(reinterpret_cast<T*>(matrix.data)),
        stride(matrix.stride),
        vectors(
            tile::on_vectors(matrix.data) &&
            (matrix.rows <= 1 || matrix.stride * static_cast<std::int64_t>(sizeof(T)) % 16 == 0)) {}
  ISOBIT_DEVICE ArrayRow<T> row(std::int64_t row) const {
    return {data == nullptr ? nullptr : data + row * stride, vectors};
  }
};

// What is dropped of a row: as norms/philox.h says.
template <class Real>
struct RowDropout {
  bool drops;
  std::uint32_t threshold;
  Real scale;
  std::uint64_t seed;
  std::int64_t row;

  ISOBIT_DEVICE void apply(std::int64_t col, Real (&octet)[kOctet]) const {
    const unsigned kept = mask(col);
#pragma unroll
    for (int i = 0; i < kOctet; ++i) octet[i] = kept >> i & 1 ? octet[i] * scale : Real(0);
  }

 private:
  // A bit for each element that is kept. Out of line: twenty rounds are long.
  ISOBIT_DEVICE_NOINLINE unsigned mask(std::int64_t col) const {
    unsigned kept = 0;
    for (int four = 0; four < kOctet; four += 4) {
      const auto words = dropout_words(seed, row, (col + four) / 4);
      for (int i = 0; i < 4; ++i) kept |= unsigned{words[i] >= threshold} << (four + i);
    }
    return kept;
  }
};

// The row that is normalised: x, or the sum that takes its place, rounded as it is stored.
template <class Real, class T>
struct ForwardSource {
  ArrayRow<const T> x, residual;
  RowDropout<Real> dropout;

  ISOBIT_DEVICE void load(std::int64_t col, int count, Real (&octet)[kOctet]) const {
    tile::load_octet(x.data + col, count, x.vectors, octet);
    if (!dropout.drops && !residual) return;
    if (dropout.drops) dropout.apply(col, octet);
    if (residual) {
      Real added[kOctet];
      tile::load_octet(residual.data + col, count, residual.vectors, added);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) octet[i] += added[i];
    }
#pragma unroll
    for (int i = 0; i < kOctet; ++i)
      octet[i] = simt::Conversions::widen<Real>(simt::Conversions::narrow<T>(octet[i]));
  }
};

// Weight or bias, of x's type or of f32.
template <class Real, class T>
struct WeightArray {
  const void* data;
  bool like_x, vectors;

  WeightArray(const void* data, DType dtype, DType x)
      : data(data), like_x(dtype == x), vectors(tile::on_vectors(data)) {}

  // Where there is none, `neutral` ones.
  ISOBIT_DEVICE void load(std::int64_t col, int count, Real neutral, Real (&octet)[kOctet]) const {
    if (data == nullptr) {
#pragma unroll
      for (int i = 0; i < kOctet; ++i) octet[i] = neutral;
    } else if (like_x) {
      tile::load_octet(static_cast<const T*>(data) + col, count, vectors, octet);
    } else {
      tile::load_octet(static_cast<const float*>(data) + col, count, vectors, octet);
    }
  }
};

// An array of x's type or another, to be written.
template <class Real, class T>
struct AnyArray {
  std::byte* data;
  std::int64_t stride;
  DType dtype;
  bool like_x, vectors;

  AnyArray(const Matrix& matrix, DType dtype, DType x)
      : data(matrix.data),
        stride(matrix.stride),
        dtype(dtype),
        like_x(dtype == x),
        vectors(tile::on_vectors(matrix.data) &&
                (matrix.rows <= 1 || matrix.stride * size_of(dtype) % 16 == 0)) {}

  ISOBIT_DEVICE void store(std::int64_t row, std::int64_t col, int count,
                           const Real (&octet)[kOctet]) const {
    const std::int64_t at = row * stride + col;
    if (like_x) {
      tile::store_octet(reinterpret_cast<T*>(data) + at, count, vectors, octet);
    } else if constexpr (!std::is_same_v<Real, double>) {
      if (dtype == DType::f32)
        tile::store_octet_anywhere(reinterpret_cast<float*>(data) + at, count, octet);
      else if (dtype == DType::bf16)
        tile::store_octet_anywhere(reinterpret_cast<bf16*>(data) + at, count, octet);
      else
        tile::store_octet_anywhere(reinterpret_cast<f16*>(data) + at, count, octet);
    }
  }
};

// Rows of a norm by groups of threads. kBlocks: how many blocks of the order a worker keeps in
// registers; 0: none, the row is read anew for each sum.
template <class Formula, class T, class Group, int kBlocks>
struct ForwardKernel {
  using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
  using Source = ForwardSource<Real, T>;
  using Scalar = tile::Scalar<Real>;
  using Memory = typename Group::template Memory<Real>;
  static constexpr int kMostThreads = Group::template kMostThreads<Real>;

  Array<const T> x, residual;
  Array<T> sum;
  AnyArray<Real, T> y;
  WeightArray<Real, T> weight, bias;
  Real *mean, *rstd;
  std::int64_t rows, cols;
  Real eps;
  bool zero_centred;
  RowDropout<Real> dropout;
  int threads;

  ForwardKernel(const ForwardProblem& problem, int threads)
      : x(problem.x),
        residual(problem.residual),
        sum(problem.sum),
        y(problem.y, problem.y_dtype, problem.dtype),
        weight(problem.weight, problem.weight_dtype, problem.dtype),
        bias(problem.bias, problem.weight_dtype, problem.dtype),
        mean(static_cast<Real*>(problem.mean)),
        rstd(static_cast<Real*>(problem.rstd)),
        rows(problem.rows),
        cols(problem.cols),
        eps(static_cast<Real>(problem.eps)),
        zero_centred(problem.zero_centred),
        dropout{problem.dropout.drops(), dropout_threshold(problem.dropout.p),
                dropout_scale<Real>(problem.dropout.p), problem.dropout.seed, 0},
        threads(threads) {}

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    return Group::template memory<Real>(carver, threads, blocks_of(cols));
  }

  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    typename Group::template Adder<Real> adder(memory);
    for (std::int64_t row = Group::group(); row < rows; row += Group::groups()) {
      Source source{x.row(row), residual.row(row), dropout};
      source.dropout.row = row;
      // A sum that was stored may lie where x or residual did.
      const Source again =
          sum.data == nullptr ? source : Source{{sum.row(row).data, sum.vectors}, {}, {}};
      if constexpr (kBlocks > 0) {
        const RowInRegisters<Group, Real, kBlocks, Source> row_in(source, again, cols, adder,
                                                                  memory);
        store_sum(row, row_in);
        if (!finish(row, row_in)) adder.begin();
      } else {
        const RowInMemory<Group, Real, Source> composed(source, cols, memory);
        store_sum(row, composed);
        finish(row, RowInMemory<Group, Real, Source>(again, cols, memory));
      }
    }
  }

 private:
  template <class Row>
  ISOBIT_DEVICE void store_sum(std::int64_t row, const Row& row_in) const {
    if (sum.data == nullptr) return;
    const ArrayRow<T> to = sum.row(row);
    row_in.for_each_octet([&](std::int64_t col, int count, const Real(&octet)[kOctet]) {
      tile::store_octet(to.data + col, count, to.vectors, octet);
    });
  }

  // Whether it was a usual row: others go the long way, out of line.
  template <class Row>
  ISOBIT_DEVICE bool finish(std::int64_t row, const Row& row_in) const {
    const Statistics<Real> statistics = statistics_of<Formula>(row_in, cols, eps);
    if (statistics.plain)
      write(row, row_in, typename Formula::template Normalise<Scalar>(statistics));
    else
      write_rare(row, row_in.rare(), statistics);
    if (Group::leads()) {
      if (mean != nullptr) mean[row] = narrow<Real>(statistics.saved_mean);
      if (rstd != nullptr) rstd[row] = narrow<Real>(statistics.saved_rstd);
    }
    return statistics.plain;
  }

  template <class Row>
  ISOBIT_DEVICE_NOINLINE void write_rare(std::int64_t row, const Row& row_in,
                                         const Statistics<Real>& statistics) const {
    write(row, row_in, typename Formula::template NormaliseAny<Scalar>(statistics));
  }

  template <class Row, class Normalise>
  ISOBIT_DEVICE void write(std::int64_t row, const Row& row_in, const Normalise& normalise) const {
    row_in.for_each_octet([&](std::int64_t col, int count, const Real(&octet)[kOctet]) {
      Real w[kOctet], b[kOctet], result[kOctet];
      weight.load(col, count, 1, w);
      bias.load(col, count, Real(-0.0), b);  // -0 is what no addition notices
      const Real centre = zero_centred && weight.data != nullptr ? Real(1) : Real(-0.0);
#pragma unroll
      for (int i = 0; i < kOctet; ++i)
        result[i] = std::fma(normalise(octet[i]), w[i] + centre, b[i]);
      y.store(row, col, count, result);
    });
  }
};

// The variants of one norm, by its formula.
template <class Formula, class Args>
struct CudaForward {
  using ForwardVariant = Variant<Args, ForwardProblem>;

  static constexpr int kThreads[] = {64, 128, 256, 512};
  static constexpr int kTurns[] = {0, 1, 2, 4, 8};
  static constexpr int kClusters[] = {2, 4, 8};
  static constexpr Knob kKnobs[] = {
      {"threads", kThreads, "threads of a block, or what is nearest and fits registers and row"},
      {"blocks", kTurns, "blocks a multiprocessor, which take rows in turn; 0: one turn each"}};
  static constexpr Knob kClusterKnobs[] = {
      kKnobs[0],
      kKnobs[1],
      {"cluster", kClusters, "blocks that share a row, or as many as hold it"}};

  static std::string wider_than(std::int64_t cols, const ForwardProblem& problem,
                                std::string_view holder) {
    if (problem.cols <= cols) return {};
    return text("rows have ", problem.cols, " columns; ", holder, " holds ", cols);
  }

  // What a launch needs to know beside the kernel's type: the threads of a block, the rows that a
  // block takes at once, the blocks to a row.
  template <class Group, int kBlocks>
  static void launch(const ForwardProblem& problem, const Execution& execution, int threads,
                     int turns, int rows_at_once, int cluster) {
    if (problem.rows == 0) return;
    const auto run = [&]<class T>(Type<T>) {
      using Kernel = ForwardKernel<Formula, T, Group, kBlocks>;
      const std::int64_t needed = (problem.rows + rows_at_once - 1) / rows_at_once;
      const std::int64_t at_once = std::int64_t{turns} * execution.machine.gpu.multiprocessors;
      const std::int64_t most =
          turns == 0 ? 0x7fffffff / cluster : std::max<std::int64_t>(1, at_once / cluster);
      simt::launch(
          static_cast<simt::Stream>(execution.stream),
          {.blocks = std::min(needed, most) * cluster, .threads = threads, .cluster = cluster},
          Kernel(problem, threads));
    };
    switch (problem.dtype) {
      case DType::f16:  return run(Type<f16>{});
      case DType::bf16: return run(Type<bf16>{});
      case DType::f64:  return run(Type<double>{});
      default:          return run(Type<float>{});
    }
  }

  // One row to kLanes lanes.
  template <int kLanes, int kBlocks>
  static void launch_lanes(const ForwardProblem& problem, const Plan& plan,
                           const Execution& execution) {
    using Group = tile::Lanes<kLanes>;
    const int threads = std::min(plan[0], Group::template kMostThreads<float>);
    launch<Group, kBlocks>(problem, execution, threads, plan[1], threads / kLanes, 1);
  }

  // The threads nearest to the plan's of which each warp of `cluster` blocks has a block of the
  // order at most.
  template <class Group>
  static int threads_of(const ForwardProblem& problem, int threads, int cluster) {
    const int most = most_threads<Group>(problem);
    while (threads < most && threads / simt::kWarpThreads * cluster < blocks_of(problem.cols))
      threads *= 2;
    return std::min(threads, most);
  }
  template <class Group>
  static int most_threads(const ForwardProblem& problem) {
    return problem.dtype == DType::f64 ? Group::template kMostThreads<double>
                                       : Group::template kMostThreads<float>;
  }
  template <class Group>
  static std::int64_t most_cols(const ForwardProblem& problem, int cluster) {
    return std::int64_t{most_threads<Group>(problem)} / simt::kWarpThreads * cluster *
           order::kBlock;
  }
  static int cluster_of(const ForwardProblem& problem, int cluster) {
    while (cluster < 8 && most_cols<tile::ClusterOfBlocks>(problem, cluster) < problem.cols)
      cluster *= 2;
    return cluster;
  }

  static std::span<const ForwardVariant> variants() {
    static constexpr ForwardVariant kVariants[] = {
        {.name = "rows_per_warp",
         .device = simt::kDevice,
         .knobs = kKnobs,
         .declines = [](const ForwardProblem& problem,
                        const Machine&) { return wider_than(128, problem, "half a warp"); },
         .choose = [](const ForwardProblem&, const Machine&) -> Plan { return {128, 0}; },
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               if (problem.cols <= 64)
                 launch_lanes<8, 1>(problem, plan, execution);
               else
                 launch_lanes<16, 1>(problem, plan, execution);
             }},
        {.name = "warp_per_row",
         .device = simt::kDevice,
         .knobs = kKnobs,
         .declines = [](const ForwardProblem& problem,
                        const Machine&) { return wider_than(1024, problem, "a warp"); },
         .choose = [](const ForwardProblem&, const Machine&) -> Plan { return {128, 0}; },
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               if (problem.cols <= order::kBlock)
                 launch_lanes<32, 1>(problem, plan, execution);
               else
                 launch_lanes<32, 2>(problem, plan, execution);
             }},
        {.name = "block_per_row",
         .device = simt::kDevice,
         .knobs = kKnobs,
         .declines =
             [](const ForwardProblem& problem, const Machine&) {
               return wider_than(most_cols<tile::BlockOfWarps>(problem, 1), problem, "a block");
             },
         .choose = [](const ForwardProblem& problem, const Machine&) -> Plan {
           return {threads_of<tile::BlockOfWarps>(problem, 64, 1), 0};
         },
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               const int threads = threads_of<tile::BlockOfWarps>(problem, plan[0], 1);
               launch<tile::BlockOfWarps, 1>(problem, execution, threads, plan[1], 1, 1);
             }},
        {.name = "cluster_per_row",
         .device = simt::kDevice,
         .knobs = kClusterKnobs,
         .declines =
             [](const ForwardProblem& problem, const Machine& machine) {
               if (machine.gpu.capability < 90) return std::string("clusters need sm_90 or later");
               return wider_than(most_cols<tile::ClusterOfBlocks>(problem, 8), problem,
                                 "a cluster");
             },
         .choose = [](const ForwardProblem& problem, const Machine&) -> Plan {
           const int cluster = cluster_of(problem, 2);
           return {threads_of<tile::ClusterOfBlocks>(problem, 256, cluster), 0, cluster};
         },
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               const int cluster = cluster_of(problem, plan[2]);
               const int threads = threads_of<tile::ClusterOfBlocks>(problem, plan[0], cluster);
               launch<tile::ClusterOfBlocks, 1>(problem, execution, threads, plan[1], 1, cluster);
             }},
        {.name = "streamed",
         .device = simt::kDevice,
         .knobs = kKnobs,
         .declines =
             [](const ForwardProblem& problem, const Machine& machine) {
               const std::int64_t sums =
                   machine.gpu.shared_bytes / (4 * size_of(real_of(problem.dtype)));
               return wider_than(sums * order::kBlock, problem,
                                 "shared memory, with the sums of each 512,");
             },
         .choose = [](const ForwardProblem& problem, const Machine&) -> Plan {
           return {most_threads<tile::BlockOfWarps>(problem), 0};
         },
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               const int threads = std::min(plan[0], most_threads<tile::BlockOfWarps>(problem));
               launch<tile::BlockOfWarps, 0>(problem, execution, threads, plan[1], 1, 1);
             }},
    };
    return kVariants;
  }
};

}  // namespace isobit::norms
