// SPDX-License-Identifier: Apache-2.0
// Pieces of a row that a thread keeps in shared memory, where registers are for what changes.
// Nobody else looks at them, so they lie as the banks like it.
#pragma once

#include <cstdint>

#include "isobit/simt/simt.h"
#include "isobit/tile/piece.h"

namespace isobit::tile {

// Pieces of kElements numbers each.
template <class Real, int kElements>
class KeptPieces {
 public:
  using Memory = Real*;
  template <class Carver>
  ISOBIT_EITHER static Memory memory(Carver& carver, int pieces, int threads) {
    return carver.template take<Real>(std::int64_t{pieces} * kElements * threads);
  }

  ISOBIT_DEVICE explicit KeptPieces(Memory memory)
      : own_(reinterpret_cast<Vector*>(memory) + simt::thread()) {}

  ISOBIT_DEVICE void put(int which, const Real (&piece)[kElements]) const {
#pragma unroll
    for (int i = 0; i < kElements; i += Vector::kSize) {
      Vector vector;
#pragma unroll
      for (int j = 0; j < Vector::kSize; ++j) vector.elements[j] = piece[i + j];
      simt::store_shared(this->vector(which, i / Vector::kSize), vector);
    }
  }
  ISOBIT_DEVICE void get(int which, Real (&piece)[kElements]) const {
#pragma unroll
    for (int i = 0; i < kElements; i += Vector::kSize) {
      const Vector vector = simt::load_shared(this->vector(which, i / Vector::kSize));
#pragma unroll
      for (int j = 0; j < Vector::kSize; ++j) piece[i + j] = vector.elements[j];
    }
  }

 private:
  using Vector = detail::Vector<Real, kElements>;

  ISOBIT_DEVICE Vector* vector(int which, int part) const {
    return own_ + (which * (kElements / Vector::kSize) + part) * simt::threads();
  }

  Vector* own_;
};

}  // namespace isobit::tile
