// SPDX-License-Identifier: Apache-2.0
// The vector loops of the simd variant, compiled once for each instruction set.
#include "isobit/ops/elementwise/cpu_kernels.h"

#include <type_traits>

#include "isobit/simd/lines.h"
#include "isobit/simd/map.h"

namespace isobit::elementwise::ISOBIT_ISA {
namespace {

template <class T>
struct VectorOf {
  using type = simd::F32;  // 16-bit types are added in float, whose rounding is too fine to matter
};
template <>
struct VectorOf<double> {
  using type = simd::F64;
};
template <>
struct VectorOf<std::int32_t> {
  using type = simd::I32;
};

template <class T, Kind kKind>
void add(const void* x, const void* residual, void* y, std::int64_t count, bool streaming) {
  using S = typename VectorOf<T>::type;
  using V = typename S::V;
  const auto op = [](V a, V b) ISOBIT_INLINE_LAMBDA {
    return S::add(a, kKind == Kind::increment ? S::all(1) : b);
  };
  const auto* a = static_cast<const T*>(x);
  const auto* b = static_cast<const T*>(residual);
  auto* to = static_cast<T*>(y);
  if (streaming && simd::streamable(y)) {
    simd::map<S, simd::Stores::streaming>(a, b, to, count, op);
    simd::fence();
  } else {
    simd::map<S, simd::Stores::cached>(a, b, to, count, op);
  }
}

}  // namespace

Kernel kernel(Kind kind, DType dtype) {
  return visit(dtype, [&](auto type) ISOBIT_INLINE_LAMBDA -> Kernel {
    using T = typename decltype(type)::type;
    if constexpr (std::is_same_v<T, quad>)
      return nullptr;
    else
      return kind == Kind::add ? add<T, Kind::add> : add<T, Kind::increment>;
  });
}

}  // namespace isobit::elementwise::ISOBIT_ISA
