// SPDX-License-Identifier: Apache-2.0
// The backward pass of any norm in one sweep over the rows, which are loaded when their turn comes
// or fetched ahead of it.
#pragma once

#include "isobit/core/order.h"
#include "isobit/norms/cuda_arrays.h"
#include "isobit/norms/cuda_backward_rows.h"
#include "isobit/norms/cuda_column_sums.h"
#include "isobit/norms/cuda_fetched_rows.h"
#include "isobit/norms/cuda_kept_weights.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/simt/simt.h"

namespace isobit::norms {

template <class Rows>
struct Sweep {
  using Real = typename Rows::Real;
  using Group = typename Rows::Group;
  static constexpr int kKinds = Rows::Formula::kHasBias ? 2 : 1;
  static constexpr int kMostThreads = kBackwardThreads.of<Real>();
  static constexpr int kPieces = kPiecesOf<Group, Rows::kElements>;
  using Weight = KeptWeights<Rows, 1>;

  Rows rows;
  Tiles tiles;
  TileSums<Real, kKinds> sums;

  // Calls body(row, add) for the rows of this group, tile by tile; it calls add for each piece.
  template <class Body>
  ISOBIT_DEVICE void for_each_row(const Body& body) const {
    RunSums<Real, kKinds, Rows::kElements, Rows::kBlocks * kPieces> run_sums;
    const auto add = [&](const Place& place, const Real(&grad_y)[Rows::kElements],
                         const Real(&xhat)[Rows::kElements]) { run_sums.add(place, grad_y, xhat); };
    for (std::int64_t tile = Group::group(); tile < tiles.count; tile += Group::groups())
      for (std::int64_t run = 0; run < tiles.runs_of(tile); ++run) {
        run_sums.clear();
        const std::int64_t first = (tile * tiles.size + run) * order::kRun;
        for (std::int64_t row = first; row < first + order::kRun && row < rows.rows; ++row)
          body(row, add);
        run_sums.end_run(tiles, sums, Group::group(), tile, run, [&](int k) {
          return held_place<Group, Rows::kElements>(k / kPieces, k % kPieces, rows.cols);
        });
      }
  }
};

template <class RowsOf>
struct OnePassKernel : Sweep<RowsOf> {
  using Rows = RowsOf;
  using Real = typename Rows::Real;
  using T = typename Rows::Type;
  using typename Sweep<Rows>::Weight;
  using Sweep<Rows>::rows;

  struct Memory {
    typename Rows::Memory sums;
    typename Weight::Memory weight;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    const auto sums = rows.memory(carver);
    return {sums, Weight::memory(carver, rows.threads)};
  }

  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    typename Rows::Adder adder(memory.sums);
    const Weight weight(memory.weight, rows.cols, rows.weight);
    this->for_each_row([&](std::int64_t row, const auto& add) {
      rows.row(row, typename Rows::Source{rows.x.row(row)}, rows.grad_y.row(row), weight, adder,
               memory.sums, add);
    });
  }
};

// With the rows of x and of grad_y fetched ahead, which are of one type.
template <class RowsOf>
struct PipelinedBackwardKernel : Sweep<RowsOf> {
  using Rows = RowsOf;
  using T = typename Rows::Type;
  using Group = typename Rows::Group;
  using Fetched = FetchedRows<T, Group>;
  using typename Sweep<Rows>::Weight;
  using Sweep<Rows>::rows;
  using Sweep<Rows>::tiles;

  int places;

  struct Memory {
    typename Rows::Memory sums;
    typename Weight::Memory weight;
    typename Fetched::Memory fetched;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    const auto sums = rows.memory(carver);
    const auto weight = Weight::memory(carver, rows.threads);
    return {sums, weight, Fetched::memory(carver, rows.threads, places, 2)};
  }

  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    typename Rows::Adder adder(memory.sums);
    const Fetched fetched(memory.fetched, {rows.x.data, rows.x.stride},
                          {reinterpret_cast<const T*>(rows.grad_y.data),
                           rows.grad_y.row_bytes / std::int64_t{sizeof(T)}},
                          rows.cols);
    std::int64_t ordered = Group::group() * tiles.size * order::kRun;
    const auto order = [&](unsigned turn) {
      if (ordered < rows.rows) fetched.order(turn, ordered);
      ordered = tiles.after(ordered, Group::groups());
    };
#pragma unroll 1
    for (int i = 0; i < fetched.ahead(); ++i) order(i);
    const Weight weight(memory.weight, rows.cols, rows.weight);
    unsigned turn = 0;
    this->for_each_row([&](std::int64_t row, const auto& add) {
      order(turn + fetched.ahead());
      fetched.wait(turn);
      rows.row(row, fetched.first(turn), fetched.second(turn), weight, adder, memory.sums, add);
      if (!rows.meet()) simt::sync_block();  // before the next row's order, over this one
      ++turn;
    });
  }
};

}  // namespace isobit::norms
