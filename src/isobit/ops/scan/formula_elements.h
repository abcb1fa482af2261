// SPDX-License-Identifier: Apache-2.0
// Elements of arrays in the type that a scan computes in, which is that of y: integers, too.
#pragma once

#include <type_traits>

#include "isobit/core/dtype.h"

namespace isobit::scan {

template <class Real, class T>
ISOBIT_INLINE Real in_real(T value) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<Real>(value);
  else
    return widen<Real>(value);
}
template <class T, class Real>
ISOBIT_INLINE T from_real(Real value) {
  if constexpr (std::is_integral_v<T>)
    return value;
  else
    return narrow<T>(value);
}

// Calls visitor(Type<X>{}, Type<Y>{}) with the types of a call that passed its check.
template <class Visitor>
auto visit_types(DType x, DType y, const Visitor& visitor) {
  const bool wider = x != y;
  switch (x) {
    case DType::f16:
      return wider ? visitor(Type<f16>{}, Type<float>{}) : visitor(Type<f16>{}, Type<f16>{});
    case DType::bf16:
      return wider ? visitor(Type<bf16>{}, Type<float>{}) : visitor(Type<bf16>{}, Type<bf16>{});
    case DType::f64: return visitor(Type<double>{}, Type<double>{});
    case DType::i32:
      return wider ? visitor(Type<std::int32_t>{}, Type<std::int64_t>{})
                   : visitor(Type<std::int32_t>{}, Type<std::int32_t>{});
    case DType::i64: return visitor(Type<std::int64_t>{}, Type<std::int64_t>{});
    default:
      return wider ? visitor(Type<float>{}, Type<double>{}) : visitor(Type<float>{}, Type<float>{});
  }
}

}  // namespace isobit::scan
