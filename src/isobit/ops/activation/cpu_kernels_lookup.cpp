// SPDX-License-Identifier: Apache-2.0
// The loops of the lookup variants, compiled once for each instruction set.
#include <algorithm>

#include "isobit/ops/activation/cpu_kernels.h"
#include "isobit/ops/activation/cpu_products.h"
#include "isobit/simd/copies.h"
#include "isobit/simd/lines.h"
#include "isobit/simd/read_ahead.h"

namespace isobit::activation::ISOBIT_ISA {
namespace {

using S = simd::F32;

// So many are looked up before the first is read again: vectors whose elements are still in the
// processor's queue of stores are waited for.
constexpr int kPiece = 8 * kStep;

// Out of line, where the results may be any array: compilers make vectors of single elements
// otherwise, which takes up to three times as long.
template <class Element>
[[gnu::noinline]] void look_up(const Element* table, const std::uint16_t* bits, Element* found,
                               std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) found[i] = table[bits[i]];
}

// y = f(x): whole elements are looked up.
void look_up_results(const Arrays& arrays, std::int64_t count, bool streaming, const Tables& tables,
                     Kernel) {
  const auto* x = reinterpret_cast<const std::uint16_t*>(arrays.x);
  auto* y = reinterpret_cast<std::uint16_t*>(arrays.y);
  std::int64_t done = 0;
  if (streaming && simd::streamable(y)) {
    for (; done + kPiece <= count; done += kPiece) {
      simd::read_ahead<kPiece>(x + done);
      alignas(64) std::uint16_t found[kPiece];
      look_up(tables.results, x + done, found, kPiece);
      simd::stream_bytes(reinterpret_cast<const std::byte*>(found),
                         reinterpret_cast<std::byte*>(y + done), sizeof found);
    }
    simd::fence();
  }
  look_up(tables.results, x + done, y + done, count - done);
}

template <simd::Stores kStores, class T>
ISOBIT_INLINE void store(T* to, const StepOfFloats& step) {
  for (int i = 0; i < kStep; i += S::kWidth) S::store<kStores>(to + i, step.at(i));
}

// One step of y = factor table[argument], and of grad_gate = grad_y x f'(gate) where it is wanted;
// false, and nothing is written, if its products may not be the formula's.
template <class T, bool kGradGate, simd::Stores kStores>
ISOBIT_INLINE bool multiply_step(const Arrays& arrays, const float* found, const float* slopes) {
  const T* x = reinterpret_cast<const T*>(arrays.x);
  const T* factor = arrays.grad_y == nullptr ? x : reinterpret_cast<const T*>(arrays.grad_y);
  StepOfFloats y;
  for (int i = 0; i < kStep; i += S::kWidth)
    y.at(i) = S::mul(S::load(factor + i), S::load(found + i));
  if (!are_the_formulas(y, factor)) return false;
  if constexpr (kGradGate) {
    StepOfFloats gradient, grad_gate;
    for (int i = 0; i < kStep; i += S::kWidth) {
      gradient.at(i) = S::mul(S::load(factor + i), S::load(x + i));
      grad_gate.at(i) = S::mul(gradient.at(i), S::load(slopes + i));
    }
    if (!are_the_formulas(gradient, factor) || !are_finite(gradient) ||
        !are_the_formulas(grad_gate, factor))
      return false;
    store<kStores>(reinterpret_cast<T*>(arrays.grad_gate), grad_gate);
  }
  store<kStores>(reinterpret_cast<T*>(arrays.y), y);
  return true;
}

// A step whose products may not be the formula's is left to `formula`, and so are elements that
// make no step.
template <class T, bool kGradGate, simd::Stores kStores>
void multiply(Arrays arrays, std::int64_t count, const Tables& tables, Kernel formula) {
  const auto advance = [](auto*& array) {
    if (array != nullptr) array += kStep * sizeof(T);
  };
  const auto bits = [](const std::byte* array) {
    return reinterpret_cast<const std::uint16_t*>(array);
  };
  alignas(64) float found[kPiece], found_slopes[kGradGate ? kPiece : 1];
  while (count >= kStep) {
    const std::int64_t steps = std::min<std::int64_t>(count, kPiece) / kStep;
    const std::byte* argument = arrays.gate == nullptr ? arrays.x : arrays.gate;
    look_up(arrays.gate == nullptr ? tables.slopes : tables.values, bits(argument), found,
            steps * kStep);
    if constexpr (kGradGate) look_up(tables.slopes, bits(argument), found_slopes, steps * kStep);
    for (int step = 0; step < steps; ++step) {
      if constexpr (kStores == simd::Stores::streaming) {
        if (arrays.gate != nullptr) simd::read_ahead<kStep>(bits(arrays.gate));
        if (arrays.grad_y != nullptr) simd::read_ahead<kStep>(bits(arrays.grad_y));
        simd::read_ahead<kStep>(bits(arrays.x));
      }
      const float* slopes = kGradGate ? found_slopes + step * kStep : nullptr;
      if (!multiply_step<T, kGradGate, kStores>(arrays, found + step * kStep, slopes))
        formula(arrays, kStep, false);
      advance(arrays.x);
      advance(arrays.gate);
      advance(arrays.grad_y);
      advance(arrays.y);
      advance(arrays.grad_gate);
    }
    count -= steps * kStep;
  }
  formula(arrays, count, false);
}

template <class T, bool kGradGate>
void look_up_factors(const Arrays& arrays, std::int64_t count, bool streaming, const Tables& tables,
                     Kernel formula) {
  // A vector of one lane has no streaming stores.
  constexpr auto kStreaming = S::kWidth > 1 ? simd::Stores::streaming : simd::Stores::cached;
  if (streaming && simd::streamable(arrays.y) &&
      (!kGradGate || simd::streamable(arrays.grad_gate))) {
    multiply<T, kGradGate, kStreaming>(arrays, count, tables, formula);
    simd::fence();
  } else {
    multiply<T, kGradGate, simd::Stores::cached>(arrays, count, tables, formula);
  }
}

template <bool kGradGate>
LookupKernel factors_kernel(DType dtype) {
  return dtype == DType::bf16 ? look_up_factors<bf16, kGradGate> : look_up_factors<f16, kGradGate>;
}

}  // namespace

LookupKernel lookup_kernel(DType dtype, bool products, bool grad_gate) {
  if (!products) return look_up_results;
  return grad_gate ? factors_kernel<true>(dtype) : factors_kernel<false>(dtype);
}

}  // namespace isobit::activation::ISOBIT_ISA
