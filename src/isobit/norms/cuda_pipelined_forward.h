// SPDX-License-Identifier: Apache-2.0
// The forward pass by blocks that stay: weight and bias are loaded once, and the rows behind the
// one at hand are on their way.
#pragma once

#include "isobit/norms/cuda_fetched_rows.h"
#include "isobit/norms/cuda_forward_rows.h"
#include "isobit/norms/cuda_kept_weights.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/simt/simt.h"

namespace isobit::norms {

template <class RowsOf>
struct PipelinedForwardKernel {
  using Rows = RowsOf;
  using Real = typename Rows::Real;
  using Group = typename Rows::Group;
  using Fetched = FetchedRows<typename Rows::Type, Group>;
  using Weights = KeptWeights<Rows, Rows::Formula::kHasBias ? 2 : 1>;
  static constexpr int kMostThreads = kForwardThreads<Group>.template of<Real>();

  Rows rows;
  int places;

  struct Memory {
    typename Rows::Memory sums;
    typename Weights::Memory weights;
    typename Fetched::Memory fetched;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    const auto sums = rows.memory(carver);
    const auto weights = Weights::memory(carver, rows.threads);
    const int arrays = rows.residual.data == nullptr ? 1 : 2;
    return {sums, weights, Fetched::memory(carver, rows.threads, places, arrays)};
  }

  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    typename Rows::Adder adder(memory.sums);
    const Fetched fetched(memory.fetched, {rows.x.data, rows.x.stride},
                          {rows.residual.data, rows.residual.stride}, rows.cols);
    const auto order = [&](unsigned turn, std::int64_t row) {
      if (row < rows.rows) fetched.order(turn, row);
    };
    const int ahead = fetched.ahead();
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) order(i, Group::group() + i * Group::groups());
    const auto weights = [&] {
      if constexpr (Rows::Formula::kHasBias)
        return Weights(memory.weights, rows.cols, rows.weights.weight, rows.weights.bias);
      else
        return Weights(memory.weights, rows.cols, rows.weights.weight);
    }();
    unsigned turn = 0;
    for (std::int64_t row = Group::group(); row < rows.rows; row += Group::groups()) {
      // Over the row before, whose readers have met at its sums.
      order(turn + ahead, row + ahead * Group::groups());
      fetched.wait(turn);
      rows.row(row, fetched.first(turn), fetched.second(turn), weights, adder, memory.sums);
      ++turn;
    }
  }
};

}  // namespace isobit::norms
