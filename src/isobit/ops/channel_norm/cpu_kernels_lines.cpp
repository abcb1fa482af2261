// SPDX-License-Identifier: Apache-2.0
// What batch_norm makes of images of few elements, of which lines of channels follow each other: a
// lane for each element of some channels, the same in every image. Compiled once for each
// instruction set.
#include "isobit/ops/channel_norm/cpu_lanes.h"

namespace isobit::channel_norm::ISOBIT_ISA {
namespace {

template <class T>
ISOBIT_INLINE T* first_line(const Images& array, const Part& part, std::int64_t image) {
  return reinterpret_cast<T*>(array.data) + image * array.n + part.first * array.c - array.first;
}

template <class S, class T>
void normalise(const ForwardProblem& p, const Known& known, const Part& part) {
  NormalisingLanes<S, T, kMostLanes> lanes(known, part, p.extent);
  lanes.set_rows(1, [&](std::int64_t i) ISOBIT_INLINE_LAMBDA { return part.first + i; });
  with_plainness(lanes.normalisers(), [&](auto plain) ISOBIT_INLINE_LAMBDA {
    for (std::int64_t n = 0; n < p.batch; ++n)
      lanes.template put<decltype(plain)::value>(first_line<const T>(p.x, part, n),
                                                 first_line<T>(p.y, part, n));
  });
}

template <class S, class T>
void gradient(const BackwardProblem& p, const Known& known, const Part& part) {
  GradientLanes<S, T, kMostLanes> lanes(known, part, p.extent, p.training);
  lanes.set_rows(1, [&](std::int64_t i) ISOBIT_INLINE_LAMBDA { return part.first + i; });
  with_plainness(lanes.normalisers(), [&](auto plain) ISOBIT_INLINE_LAMBDA {
    for (std::int64_t n = 0; n < p.batch; ++n)
      lanes.template put<decltype(plain)::value>(first_line<const T>(p.x, part, n),
                                                 first_line<const T>(p.grad_y, part, n),
                                                 first_line<T>(p.grad_x, part, n));
  });
}

template <class S, class T>
Writers writers_of() {
  return {normalise<S, T>, gradient<S, T>};
}

}  // namespace

Writers writers_of_lines(DType dtype) {
  switch (dtype) {
    case DType::f16:  return writers_of<simd::F32, f16>();
    case DType::bf16: return writers_of<simd::F32, bf16>();
    case DType::f64:  return writers_of<simd::F64, double>();
    default:          return writers_of<simd::F32, float>();
  }
}

}  // namespace isobit::channel_norm::ISOBIT_ISA
