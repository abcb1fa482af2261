// SPDX-License-Identifier: Apache-2.0
// Octets that a thread keeps in shared memory, where registers are for what changes. Nobody else
// looks at them, so they lie as the banks like it.
#pragma once

#include <cstdint>

#include "isobit/simt/simt.h"
#include "isobit/tile/octet.h"

namespace isobit::tile {

template <class Real>
class KeptOctets {
 public:
  using Memory = Real*;
  template <class Carver>
  ISOBIT_EITHER static Memory memory(Carver& carver, int octets, int threads) {
    return carver.template take<Real>(std::int64_t{octets} * kOctet * threads);
  }

  ISOBIT_DEVICE explicit KeptOctets(Memory memory)
      : own_(reinterpret_cast<Vector*>(memory) + simt::thread()) {}

  ISOBIT_DEVICE void put(int which, const Real (&octet)[kOctet]) const {
#pragma unroll
    for (int i = 0; i < kOctet; ++i)
      vector(which, i / Vector::kSize)->elements[i % Vector::kSize] = octet[i];
  }
  ISOBIT_DEVICE void get(int which, Real (&octet)[kOctet]) const {
#pragma unroll
    for (int i = 0; i < kOctet; i += Vector::kSize) {
      const Vector vector = simt::load_shared(this->vector(which, i / Vector::kSize));
#pragma unroll
      for (int j = 0; j < Vector::kSize; ++j) octet[i + j] = vector.elements[j];
    }
  }

 private:
  using Vector = detail::Vector<Real>;

  ISOBIT_DEVICE Vector* vector(int which, int part) const {
    return own_ + (which * (kOctet / Vector::kSize) + part) * simt::threads();
  }

  Vector* own_;
};

}  // namespace isobit::tile
