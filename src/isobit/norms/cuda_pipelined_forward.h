// SPDX-License-Identifier: Apache-2.0
// The forward pass by blocks that stay: weight and bias are loaded once, and the rows behind the
// one at hand are on their way.
#pragma once

#include "isobit/norms/cuda_fetched_rows.h"
#include "isobit/norms/cuda_forward_rows.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/kept_octets.h"

namespace isobit::norms {

// Weight and bias of the columns that a thread has of every row.
template <class Rows>
class KeptWeights {
 public:
  using Real = typename Rows::Real;
  using Group = typename Rows::Group;
  using Octets = tile::KeptOctets<Real>;

  template <class Carver>
  ISOBIT_EITHER static typename Octets::Memory memory(Carver& carver, int threads) {
    return Octets::memory(carver, kKinds * kHalvesOf<Group>, threads);
  }

  ISOBIT_DEVICE KeptWeights(typename Octets::Memory memory, const Rows& rows) : octets_(memory) {
#pragma unroll
    for (int half = 0; half < kHalvesOf<Group>; ++half) {
      const Place place = held_place<Group>(0, half, rows.cols);
      Real w[kOctet], b[kOctet];
      rows.weights.load(place, w, b);
      octets_.put(kKinds * place.index, w);
      if constexpr (kKinds == 2) octets_.put(kKinds * place.index + 1, b);
    }
  }

  ISOBIT_DEVICE void load(const Place& place, Real (&w)[kOctet], Real (&b)[kOctet]) const {
    octets_.get(kKinds * place.index, w);
    if constexpr (kKinds == 2) {
      octets_.get(kKinds * place.index + 1, b);
    } else {
#pragma unroll
      for (int i = 0; i < kOctet; ++i) b[i] = Real(-0.0);
    }
  }

 private:
  static constexpr int kKinds = Rows::Formula::kHasBias ? 2 : 1;

  Octets octets_;
};

template <class RowsOf>
struct PipelinedForwardKernel {
  using Rows = RowsOf;
  using Real = typename Rows::Real;
  using Group = typename Rows::Group;
  using Fetched = FetchedRows<typename Rows::Type, Group>;
  using Weights = KeptWeights<Rows>;
  static constexpr int kMostThreads = kForwardThreads<Group>.template of<Real>();

  Rows rows;
  int places;

  struct Memory {
    typename Rows::Memory sums;
    typename Weights::Octets::Memory weights;
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
    const Weights weights(memory.weights, rows);
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
