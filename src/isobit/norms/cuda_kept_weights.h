// SPDX-License-Identifier: Apache-2.0
// Weight and bias of the columns that a thread has of every row, loaded once by blocks that stay.
#pragma once

#include "isobit/norms/cuda_row.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/kept_pieces.h"

namespace isobit::norms {

// kKinds: 1 for weight alone, 2 for weight and bias.
template <class Rows, int kKinds>
class KeptWeights {
 public:
  using Real = typename Rows::Real;
  using Group = typename Rows::Group;
  static constexpr int kElements = Rows::kElements;
  using Kept = tile::KeptPieces<Real, kElements>;
  using Memory = typename Kept::Memory;

  template <class Carver>
  ISOBIT_EITHER static Memory memory(Carver& carver, int threads) {
    return Kept::memory(carver, kKinds * Rows::kBlocks * kPieces, threads);
  }

  // Weights: load(place, piece) of each.
  template <class... Weights>
  ISOBIT_DEVICE KeptWeights(Memory memory, int cols, const Weights&... weights) : kept_(memory) {
    static_assert(sizeof...(Weights) == kKinds);
#pragma unroll
    for (int k = 0; k < Rows::kBlocks; ++k)
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const Place place = held_place<Group, kElements>(k, p, cols);
        int kind = 0;
        (keep(kKinds * place.index + kind++, place, weights), ...);
      }
  }

  ISOBIT_DEVICE void load(const Place& place, Real (&w)[kElements]) const {
    kept_.get(kKinds * place.index, w);
  }
  ISOBIT_DEVICE void load(const Place& place, Real (&w)[kElements], Real (&b)[kElements]) const {
    load(place, w);
    if constexpr (kKinds == 2) {
      kept_.get(kKinds * place.index + 1, b);
    } else {
#pragma unroll
      for (int i = 0; i < kElements; ++i) b[i] = Real(-0.0);
    }
  }

 private:
  static constexpr int kPieces = kPiecesOf<Group, kElements>;

  template <class Weight>
  ISOBIT_DEVICE void keep(int which, const Place& place, const Weight& weight) const {
    Real piece[kElements];
    weight.load(place, piece);
    kept_.put(which, piece);
  }

  Kept kept_;
};

}  // namespace isobit::norms
