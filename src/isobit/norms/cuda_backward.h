// SPDX-License-Identifier: Apache-2.0
// The backward pass of any norm on a GPU. One pass: a group of threads takes runs of rows, and adds
// the gradients of weight and bias while it has the rows in registers. Two passes: rows first, then
// columns, which takes rows of any width and shares out even few of them.
#pragma once

#include <algorithm>

#include "isobit/dispatch/threads.h"
#include "isobit/dispatch/variant.h"
#include "isobit/norms/cuda_arrays.h"
#include "isobit/norms/cuda_backward_rows.h"
#include "isobit/norms/cuda_column_sums.h"
#include "isobit/norms/cuda_launch.h"
#include "isobit/norms/cuda_one_pass.h"
#include "isobit/norms/problem.h"
#include "isobit/norms/variants.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/row_group.h"

namespace isobit::norms {

// The first of two passes: rows.
template <class Rows>
struct RowsKernel {
  using Real = typename Rows::Real;
  using Group = typename Rows::Group;
  static constexpr int kElements = Rows::kElements;
  static constexpr int kMostThreads = kBackwardThreads.of<Real>();

  Rows rows;
  Statistics<Real>* statistics;  // null: nobody wants them

  template <class Carver>
  ISOBIT_EITHER typename Rows::Memory memory(Carver& carver) const {
    return rows.memory(carver);
  }

  ISOBIT_DEVICE void operator()(const typename Rows::Memory& memory) const {
    typename Rows::Adder adder(memory);
    for (std::int64_t row = Group::group(); row < rows.rows; row += Group::groups()) {
      const Statistics<Real> found =
          rows.row(row, adder, memory,
                   [](const Place&, const Real(&)[kElements], const Real(&)[kElements]) {});
      if (statistics != nullptr && Group::leads()) statistics[row] = found;
    }
  }
};

inline constexpr int kColumnWarps = 4;  // of a block

// The second: columns. A warp takes a piece of each lane, and tiles of runs in turn.
template <class Formula, class T>
struct ColumnsKernel {
  using Real = RealOf<T>;
  using Scalar = tile::Scalar<Real>;
  static constexpr int kKinds = Formula::kHasBias ? 2 : 1;
  static constexpr int kElements = kPiece<T>;
  static constexpr int kMostThreads = kColumnWarps * simt::kWarpThreads;

  Array<const T> x;
  AnyArray<Real, T> grad_y;
  const Statistics<Real>* statistics;
  std::int64_t rows;
  int cols;
  Tiles tiles;
  TileSums<Real, kKinds> sums;

  ColumnsKernel(const BackwardProblem& problem, const Statistics<Real>* statistics,
                const Tiles& tiles, const TileSums<Real, kKinds>& sums)
      : x(problem.x),
        grad_y(problem.grad_y, problem.grad_y_dtype, problem.dtype),
        statistics(statistics),
        rows(problem.rows),
        cols(static_cast<int>(problem.cols)),
        tiles(tiles),
        sums(sums) {}

  // How many warps a row has.
  ISOBIT_EITHER static std::int64_t parts(int cols) { return (cols + kCols - 1) / kCols; }

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t warp = simt::block() * kColumnWarps + simt::thread() / simt::kWarpThreads;
    const std::int64_t group = warp / parts(cols);
    const int col = static_cast<int>(warp % parts(cols)) * kCols + simt::lane() * kElements;
    const Place place = {0, col, cols - col};
    if (group >= tiles.groups || place.left <= 0) return;
    RunSums<Real, kKinds, kElements, 1> run_sums;
    for (std::int64_t tile = group; tile < tiles.count; tile += tiles.groups)
      for (std::int64_t run = 0; run < tiles.runs_of(tile); ++run) {
        run_sums.clear();
        const std::int64_t first = (tile * tiles.size + run) * order::kRun;
#pragma unroll 4
        for (std::int64_t row = first; row < first + order::kRun && row < rows; ++row)
          add(row, place, run_sums);
        run_sums.end_run(tiles, sums, group, tile, run, [&](int) { return place; });
      }
  }

 private:
  static constexpr int kCols = simt::kWarpThreads * kElements;

  ISOBIT_DEVICE void add(std::int64_t row, const Place& place,
                         RunSums<Real, kKinds, kElements, 1>& run_sums) const {
    Real dy[kElements], xhat[kElements];
    x.row(row).load(place, xhat);
    grad_y.row(row).load(place, dy);
    const auto normalise = [&](const auto& normaliser) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) xhat[i] = normaliser(xhat[i]);
    };
    if (const Statistics<Real>& found = statistics[row]; found.plain)
      normalise(typename Formula::template Normalise<Scalar>(found));
    else
      normalise(typename Formula::template NormaliseAny<Scalar>(found));
    run_sums.add(place, dy, xhat);
  }
};

// The variants of one norm, by its formula.
template <class Formula, class Args>
class CudaBackward {
 public:
  using BackwardVariant = Variant<Args, BackwardProblem>;

  static std::span<const BackwardVariant> variants() {
    static constexpr BackwardVariant kVariants[] = {
        {.name = "pipelined",
         .knobs = kPipelinedKnobs,
         .declines = not_pipelined,
         .suits = pipelined_suits,
         .choose = [](const BackwardProblem& problem, const Machine& machine) -> Plan {
           const int cluster = filling_cluster(problem, machine, runs_of(problem));
           const GroupShape shape = block_shape(problem, cluster);
           const int turns = resident(problem, shape);
           const std::int64_t groups =
               std::int64_t{turns} * machine.gpu.multiprocessors / shape.cluster;
           return {shape.cluster, turns, tile_for(problem, groups), 4};
         },
         .workspace = workspace<Pipelined>,
         .run = run<Pipelined>},
        {.name = "one_pass",
         .knobs = kKnobs,
         .declines = [](const BackwardProblem& problem, const Machine& machine) -> std::string {
           if (!problem.wants_sums()) return "there are no sums over rows without grad_weight";
           return wider_than(most_held(problem, machine), problem.cols, "registers");
         },
         .suits = one_pass_suits,
         .choose = [](const BackwardProblem& problem, const Machine& machine) -> Plan {
           const int cluster = filling_cluster(problem, machine, runs_of(problem));
           const GroupShape shape = shape_of(problem, cluster, kNarrowThreads, machine);
           const int turns = resident(problem, shape);
           const std::int64_t groups = std::int64_t{turns} * machine.gpu.multiprocessors /
                                       shape.cluster * rows_at_once(problem, kNarrowThreads);
           return {shape.cluster, turns, tile_for(problem, groups), kNarrowThreads};
         },
         .workspace = workspace<OnePass>,
         .run = run<OnePass>},
        {.name = "two_pass",
         .knobs = kKnobs,
         .declines =
             [](const BackwardProblem& problem, const Machine& machine) {
               return wider_than_streams(problem.cols, problem.dtype, machine);
             },
         .choose = [](const BackwardProblem& problem, const Machine& machine) -> Plan {
           const int cluster = filling_cluster(problem, machine, problem.rows);
           const std::int64_t parts = std::max<std::int64_t>(1, column_parts(problem));
           constexpr int kMostTurns = kTurns[std::size(kTurns) - 1];
           return {shape_of(problem, cluster, kNarrowThreads, machine).cluster, kMostTurns,
                   tile_for(problem, column_warps(kMostTurns, machine) / parts), kNarrowThreads};
         },
         .workspace = workspace<TwoPass>,
         .run = run<TwoPass>},
    };
    return kVariants;
  }

 private:
  static constexpr int kKinds = Formula::kHasBias ? 2 : 1;
  static constexpr int kNarrowThreads =
      128;  // of a block whose rows have a warp or less, by choice

  static constexpr int kClusters[] = {1, 2, 4, 8};
  static constexpr int kTurns[] = {1, 2, 3, 4, 6, 8, 12, 16};
  static constexpr int kRuns[] = {1, 2, 4, 8, 16, 32, 64};
  static constexpr Knob kClusterKnob = {
      "cluster", kClusters, "blocks per row wider than 512; raised to what the row needs"};
  static constexpr Knob kTurnsKnob = {
      "blocks", kTurns, "blocks per multiprocessor, which take rows or tiles in turn"};
  static constexpr Knob kRunsKnob = {"runs", kRuns,
                                     "runs of 16 rows per tile; one thread group sums a tile"};
  static constexpr Knob kKnobs[] = {
      kClusterKnob, kTurnsKnob, kRunsKnob,
      threads_knob(kBackwardThreads.with_doubles, "threads per block of rows of up to 512")};
  static constexpr Knob kPipelinedKnobs[] = {kClusterKnob, kTurnsKnob, kRunsKnob, kPlacesKnob};

  template <template <class> class Way>
  static std::size_t workspace(const BackwardProblem& problem, const Plan& plan,
                               const Machine& machine) {
    Pieces pieces;
    with_type(problem.dtype, [&]<class T>(Type<T>) { Way<T>(problem, plan, machine, pieces); });
    return pieces.taken();
  }
  template <template <class> class Way>
  static void run(const Args&, const BackwardProblem& problem, const Plan& plan,
                  const Execution& execution) {
    Pieces pieces(execution.workspace);
    with_type(problem.dtype, [&]<class T>(Type<T>) {
      Way<T>(problem, plan, execution.machine, pieces).run(execution);
    });
  }

  static std::int64_t runs_of(const BackwardProblem& problem) {
    return Tiles(problem.rows, 1).runs;
  }

  static bool has_clusters(const Machine& machine) { return machine.gpu.capability >= 90; }

  // The widest row that registers hold.
  static std::int64_t most_held(const BackwardProblem& problem, const Machine& machine) {
    return most_cols(kBackwardThreads.of(problem.dtype),
                     has_clusters(machine) ? tile::kMostCluster : 1);
  }

  // `narrow`: threads of a block whose rows have a warp or less.
  static GroupShape shape_of(const BackwardProblem& problem, int cluster, int narrow,
                             const Machine& machine) {
    if (problem.cols <= order::kBlock) return {narrow, 1};
    if (problem.cols > most_held(problem, machine)) return {kBackwardThreads.of(problem.dtype), 1};
    return block_shape(problem, has_clusters(machine) ? cluster : 1);
  }
  static GroupShape block_shape(const BackwardProblem& problem, int cluster) {
    return shape_for(problem.cols, kBackwardThreads.of(problem.dtype), cluster);
  }

  static int lanes_of(const BackwardProblem& problem) {
    return problem.cols <= 64 ? 8 : problem.cols <= 128 ? 16 : simt::kWarpThreads;
  }
  // By one block.
  static int rows_at_once(const BackwardProblem& problem, int narrow) {
    return problem.cols > order::kBlock ? 1 : narrow / lanes_of(problem);
  }

  // How many blocks find registers on a multiprocessor: more would wait for these to end.
  static int resident(const BackwardProblem& problem, const GroupShape& shape) {
    return largest_within(kTurns, kBackwardThreads.of(problem.dtype) / shape.threads);
  }

  // Blocks to a row, so that `teams` rows at once fill the device.
  static int filling_cluster(const BackwardProblem& problem, const Machine& machine,
                             std::int64_t teams) {
    int cluster = 1;
    while (cluster < tile::kMostCluster && teams * cluster < machine.gpu.multiprocessors &&
           problem.cols > 2 * cluster * order::kBlock)
      cluster *= 2;
    return has_clusters(machine) ? cluster : 1;
  }

  static int tile_for(const BackwardProblem& problem, std::int64_t groups) {
    const std::int64_t most = kRuns[std::size(kRuns) - 1];
    return static_cast<int>(best_tile(problem.rows, std::max<std::int64_t>(1, groups), most));
  }

  // Two passes move 10 bytes where one moves 6: they pay where one leaves two fifths idle. Of few
  // elements nobody sees the bytes, but one launch more.
  static bool one_pass_suits(const BackwardProblem& problem, const Machine& machine) {
    const std::int64_t runs = runs_of(problem);
    const int filling = filling_cluster(problem, machine, runs);
    const int cluster = shape_of(problem, filling, kNarrowThreads, machine).cluster;
    return 5 * runs * cluster >= 3 * std::int64_t{machine.gpu.multiprocessors} ||
           problem.rows * problem.cols <= 1 << 16;
  }

  // Narrow rows share a warp in one_pass.
  static bool pipelined_suits(const BackwardProblem& problem, const Machine& machine) {
    return problem.cols > 128 && one_pass_suits(problem, machine);
  }

  static std::string not_pipelined(const BackwardProblem& problem, const Machine& machine) {
    if (!problem.wants_sums()) return "there are no sums over rows without grad_weight";
    if (problem.grad_y_dtype != problem.dtype) return "grad_y has another dtype than x";
    std::string why =
        not_in_bulk({problem.x, problem.grad_y}, problem.dtype, problem.cols, machine);
    if (why.empty()) why = wider_than(most_held(problem, machine), problem.cols, "a cluster");
    if (!why.empty()) return why;
    Pieces pieces;
    with_type(problem.dtype, [&]<class T>(Type<T>) {
      const Plan narrowest = {1, 1, 1, kPlaces[0]};
      Pipelined<T>(problem, narrowest, machine, pieces).with_kernel([&](const auto& kernel) {
        why = not_held(kernel, machine);
      });
    });
    return why;
  }

  // Calls body(BackwardRows) for the group that takes a row.
  template <class T, class Body>
  static void with_rows(const BackwardProblem& problem, const GroupShape& shape, const Body& body) {
    const auto of = [&]<class Group>(Type<Group>) {
      body(BackwardRows<Formula, T, Group, 1>(problem, shape.threads));
    };
    if (problem.cols <= 64) return of(Type<tile::Lanes<8>>{});
    if (problem.cols <= 128) return of(Type<tile::Lanes<16>>{});
    if (problem.cols <= order::kBlock) return of(Type<tile::Lanes<32>>{});
    if (shape.cluster == 1) return of(Type<tile::BlockOfWarps>{});
    of(Type<tile::ClusterOfBlocks>{});
  }

  template <class Kernel>
  static void launch(const Kernel& kernel, const simt::LaunchShape& shape,
                     const Execution& execution) {
    if (shape.blocks > 0) simt::launch(static_cast<simt::Stream>(execution.stream), shape, kernel);
  }

  template <class Real>
  static void fold(const TileSums<Real, kKinds>& sums, const Tiles& tiles,
                   const BackwardProblem& problem, const Execution& execution) {
    const FoldTiles<Real, kKinds> kernel(sums, tiles, problem);
    launch(kernel, kernel.shape(), execution);
  }

  // One sweep, then the fold of what it summed. Like TwoPass, without memory in `pieces` it only
  // counts.
  template <class T>
  class OneSweep {
   protected:
    // at_once: rows of a block.
    OneSweep(const BackwardProblem& problem, const Plan& plan, const Machine& machine,
             Pieces& pieces, const GroupShape& group, int at_once)
        : problem_(problem),
          shape_{blocks_for(Tiles(problem.rows, plan[2]).count, at_once, group.cluster, plan[1],
                            machine),
                 group.threads, group.cluster},
          tiles_(problem.rows, plan[2], shape_.blocks / group.cluster * at_once),
          sums_(tiles_, problem.cols, kPiece<T>, pieces) {}

    template <class Rows>
    Sweep<Rows> sweep(const Rows& rows) const {
      return {rows, tiles_, sums_};
    }
    template <class Kernel>
    void launch_and_fold(const Kernel& kernel, const Execution& execution) const {
      launch(kernel, shape_, execution);
      fold(sums_, tiles_, problem_, execution);
    }

    const BackwardProblem& problem_;
    const simt::LaunchShape shape_;

   private:
    const Tiles tiles_;
    const TileSums<RealOf<T>, kKinds> sums_;
  };

  template <class T>
  class OnePass : OneSweep<T> {
   public:
    OnePass(const BackwardProblem& problem, const Plan& plan, const Machine& machine,
            Pieces& pieces)
        : OneSweep<T>(problem, plan, machine, pieces, shape_of(problem, plan[0], plan[3], machine),
                      rows_at_once(problem, plan[3])) {}

    void run(const Execution& execution) const {
      with_rows<T>(this->problem_, {this->shape_.threads, this->shape_.cluster},
                   [&]<class Rows>(const Rows& rows) {
                     this->launch_and_fold(OnePassKernel<Rows>{this->sweep(rows)}, execution);
                   });
    }
  };

  template <class T>
  class Pipelined : OneSweep<T> {
   public:
    Pipelined(const BackwardProblem& problem, const Plan& plan, const Machine& machine,
              Pieces& pieces)
        : OneSweep<T>(problem, plan, machine, pieces, block_shape(problem, plan[0]), 1),
          places_(plan[3]) {}

    template <class Body>
    void with_kernel(const Body& body) const {
      const auto of = [&]<class Group>(Type<Group>) {
        using Rows = BackwardRows<Formula, T, Group, 1>;
        const Rows rows(this->problem_, this->shape_.threads);
        body(PipelinedBackwardKernel<Rows>{this->sweep(rows), places_});
      };
      if (this->shape_.cluster == 1)
        of(Type<tile::BlockOfWarps>{});
      else
        of(Type<tile::ClusterOfBlocks>{});
    }
    void run(const Execution& execution) const {
      with_kernel([&](const auto& kernel) {
        this->launch_and_fold(with_places_that_fit(kernel, execution.machine), execution);
      });
    }

   private:
    const int places_;
  };

  static std::int64_t column_parts(const BackwardProblem& problem) {
    return with_type(problem.dtype, [&]<class T>(Type<T>) {
      return ColumnsKernel<Formula, T>::parts(static_cast<int>(problem.cols));
    });
  }
  static std::int64_t column_warps(int turns, const Machine& machine) {
    return std::int64_t{turns} * machine.gpu.multiprocessors * kColumnWarps;
  }

  // Two passes, and what the second wants to know of the first.
  template <class T>
  class TwoPass {
   public:
    using Real = RealOf<T>;

    TwoPass(const BackwardProblem& problem, const Plan& plan, const Machine& machine,
            Pieces& pieces)
        : problem_(problem),
          plan_(plan),
          machine_(machine),
          tiles_(tiles(problem, plan, machine)),
          sums_(tiles_, problem.cols, kPiece<T>, pieces),
          statistics_(reinterpret_cast<Statistics<Real>*>(pieces.take(
              problem.wants_sums() ? problem.rows * std::int64_t{sizeof(Statistics<Real>)} : 0))) {}

    void run(const Execution& execution) const {
      if (!problem_.wants_sums()) return rows(problem_, nullptr, execution);
      const auto covers = [&](const Matrix& to) {
        return to && (to.data == problem_.x.data || to.data == problem_.grad_y.data);
      };
      const bool reads_first = covers(problem_.grad_x) || covers(problem_.grad_residual);
      BackwardProblem read = problem_;
      if (reads_first) read.grad_x = read.grad_residual = {};
      rows(read, statistics_, execution);
      columns(execution);
      if (reads_first) rows(problem_, nullptr, execution);
    }

   private:
    static Tiles tiles(const BackwardProblem& problem, const Plan& plan, const Machine& machine) {
      const std::int64_t rows = problem.wants_sums() ? problem.rows : 0;
      const std::int64_t parts = std::max<std::int64_t>(1, column_parts(problem));
      const std::int64_t most = column_warps(plan[1], machine) / parts;
      return {rows, plan[2], std::max<std::int64_t>(1, std::min(Tiles(rows, plan[2]).count, most))};
    }

    void rows(const BackwardProblem& problem, Statistics<Real>* statistics,
              const Execution& execution) const {
      const GroupShape shape = shape_of(problem, plan_[0], plan_[3], machine_);
      const auto launch_rows = [&]<class Rows>(const Rows& rows) {
        const std::int64_t blocks = blocks_for(problem.rows, rows_at_once(problem, plan_[3]),
                                               shape.cluster, plan_[1], machine_);
        launch(RowsKernel<Rows>{rows, statistics},
               {.blocks = blocks, .threads = shape.threads, .cluster = shape.cluster}, execution);
      };
      if (problem.cols > most_held(problem, machine_))
        launch_rows(BackwardRows<Formula, T, tile::BlockOfWarps, 0>(problem, shape.threads));
      else
        with_rows<T>(problem, shape, launch_rows);
    }

    void columns(const Execution& execution) const {
      const ColumnsKernel<Formula, T> kernel(problem_, statistics_, tiles_, sums_);
      const std::int64_t warps = tiles_.count == 0 ? 0 : column_parts(problem_) * tiles_.groups;
      launch(kernel,
             {.blocks = (warps + kColumnWarps - 1) / kColumnWarps, .threads = kernel.kMostThreads},
             execution);
      fold(sums_, tiles_, problem_, execution);
    }

    const BackwardProblem& problem_;
    const Plan& plan_;
    const Machine& machine_;
    const Tiles tiles_;
    const TileSums<Real, kKinds> sums_;
    Statistics<Real>* const statistics_;
  };
};

template <class Norm>
BackwardVariants<Norm> cuda_backward_variants() {
  return CudaBackward<typename Norm::Formula, typename Norm::BackwardArgs>::variants();
}

}  // namespace isobit::norms
