// SPDX-License-Identifier: Apache-2.0
// The vector loops of the simd variants, compiled once for each instruction set.
#include "isobit/ops/activation/cpu_kernels.h"

#include <cstring>
#include <type_traits>

#include "isobit/ops/activation/cpu_products.h"
#include "isobit/ops/activation/formula.h"
#include "isobit/simd/lines.h"
#include "isobit/simd/read_ahead.h"

namespace isobit::activation::ISOBIT_ISA {
namespace {

using simd::VectorsOf;

// The arrays of one step, with their types; a pass reads and writes some of them.
template <class T>
struct Step {
  const T *x, *gate, *grad_y;
  T *y, *grad_gate;
};

template <class S>
struct Results {
  typename S::V y, grad_gate;
};

template <Function kOf, bool kWithGate>
struct Forward {
  static constexpr Function kFunction = kOf;
  static constexpr bool kGated = kWithGate, kBackward = false;

  template <class S, class T>
  ISOBIT_INLINE static Results<S> results(const Step<T>& step, int at) {
    const auto x = S::load(step.x + at);
    if constexpr (kGated)
      return {gated_value<S>(kFunction, x, S::load(step.gate + at)), S::zero()};
    else
      return {value<S>(kFunction, x), S::zero()};
  }
};

template <Function kOf, bool kWithGate>
struct Backward {
  static constexpr Function kFunction = kOf;
  static constexpr bool kGated = kWithGate, kBackward = true;

  template <class S, class T>
  ISOBIT_INLINE static Results<S> results(const Step<T>& step, int at) {
    const auto x = S::load(step.x + at), grad = S::load(step.grad_y + at);
    if constexpr (kGated) {
      const auto gate = S::load(step.gate + at);
      return {gated_value<S>(kFunction, grad, gate),
              step.grad_gate == nullptr ? S::zero() : gate_gradient<S>(kFunction, grad, x, gate)};
    } else {
      return {gradient<S>(kFunction, grad, x), S::zero()};
    }
  }
};

template <class Pass, class S, simd::Stores kStores, class T>
ISOBIT_INLINE void store(const Step<T>& step, int at, const Results<S>& results) {
  S::template store<kStores>(step.y + at, results.y);
  if constexpr (Pass::kGated && Pass::kBackward)
    if (step.grad_gate != nullptr)
      S::template store<kStores>(step.grad_gate + at, results.grad_gate);
}

// Up to where arguments are usual (functions/arithmetic.h); 0 where that saves nothing.
template <class Pass>
constexpr float most_usual() {
  switch (Pass::kFunction) {
    case Function::exp:       return Pass::kGated || Pass::kBackward ? 64 : 0;
    case Function::log:       return 0;
    case Function::sigmoid:   return 64;
    case Function::tanh:      return Pass::kBackward ? 32 : 0;
    case Function::gelu:      return 11;
    case Function::gelu_tanh: return 9;
    case Function::silu:      return 64;
  }
}

// From where on: x times a function is computed in another way near 0; elsewhere this is 0.
template <class Pass>
constexpr float least_usual() {
  constexpr bool kTimesX = Pass::kFunction == Function::gelu ||
                           Pass::kFunction == Function::gelu_tanh ||
                           Pass::kFunction == Function::silu;
  return kTimesX && (Pass::kGated || !Pass::kBackward) ? 0x1p-60f : 0;
}

// A step whose arguments are all usual, and whose products are the formula's; false, and nothing is
// written, where they are not.
template <class Pass, simd::Stores kStores>
ISOBIT_INLINE bool run_usual_step(const Step<float>& step) {
  using S = functions::Usual<simd::F32>;
  constexpr bool kProducts = Pass::kGated || Pass::kBackward;
  const auto is_usual = [&](int i) ISOBIT_INLINE_LAMBDA {
    const auto size = functions::magnitude<S>(S::load((Pass::kGated ? step.gate : step.x) + i));
    const auto below = S::less(size, S::all(most_usual<Pass>()));
    if constexpr (least_usual<Pass>() == 0)
      return below;
    else
      return S::both(below, S::less(S::all(least_usual<Pass>()), size));
  };
  if (!all_of_step(is_usual)) return false;
  StepOfFloats y, grad_gate;
#pragma GCC unroll 8
  for (int i = 0; i < kStep; i += S::kWidth) {
    const auto results = Pass::template results<S>(step, i);
    y.at(i) = results.y;
    grad_gate.at(i) = results.grad_gate;
  }
  if constexpr (kProducts) {
    const float* factor = Pass::kBackward ? step.grad_y : step.x;
    if (!are_the_formulas(y, factor)) return false;
    if (Pass::kGated && Pass::kBackward && step.grad_gate != nullptr) {
      StepOfFloats gradient;
      for (int i = 0; i < kStep; i += S::kWidth)
        gradient.at(i) = S::mul(S::load(factor + i), S::load(step.x + i));
      if (!are_the_formulas(gradient, factor) || !are_finite(gradient) ||
          !are_the_formulas(grad_gate, factor))
        return false;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kStep; i += S::kWidth)
    store<Pass, S, kStores>(step, i, Results<S>{y.at(i), grad_gate.at(i)});
  return true;
}

template <class Pass, class S, simd::Stores kStores, class T>
ISOBIT_INLINE void run_step(const Step<T>& step) {
  if constexpr (std::is_same_v<T, float> && most_usual<Pass>() != 0)
    if (run_usual_step<Pass, kStores>(step)) return;
  // Enough vectors at once to hide the latency of a polynomial.
  constexpr int kUnrolled = S::kWidth == 1 ? 1 : kStep / S::kWidth < 4 ? kStep / S::kWidth : 4;
  for (int i = 0; i < kStep; i += kUnrolled * S::kWidth) {
#pragma GCC unroll 4
    for (int j = 0; j < kUnrolled; ++j) {
      // All is read before anything is stored: an output may be an input.
      const int at = i + j * S::kWidth;
      store<Pass, S, kStores>(step, at, Pass::template results<S>(step, at));
    }
  }
}

// Whole steps of `count` elements; gives the step after them. Out of line, since polynomials take
// long to compile: a tail takes the same copy.
template <class Pass, simd::Stores kStores, class T>
[[gnu::noinline]] Step<T> run_steps(Step<T> step, std::int64_t count) {
  const auto advance = [](auto* array) ISOBIT_INLINE_LAMBDA {
    return array == nullptr ? array : array + kStep;
  };
  const auto read_ahead = [](const T* array) ISOBIT_INLINE_LAMBDA {
    if (array != nullptr) simd::read_ahead<kStep>(array);
  };
  for (; count >= kStep; count -= kStep) {
    if constexpr (kStores == simd::Stores::streaming) {
      read_ahead(step.x);
      read_ahead(step.gate);
      read_ahead(step.grad_y);
    }
    run_step<Pass, VectorsOf<T>, kStores>(step);
    step = {step.x + kStep, advance(step.gate), advance(step.grad_y), step.y + kStep,
            advance(step.grad_gate)};
  }
  return step;
}

template <class Pass, class T>
void run_pass(const Arrays& arrays, std::int64_t count, bool streaming) {
  const auto typed = [](auto* array) ISOBIT_INLINE_LAMBDA {
    using Byte = std::remove_pointer_t<decltype(array)>;
    return reinterpret_cast<std::conditional_t<std::is_const_v<Byte>, const T, T>*>(array);
  };
  Step<T> step{typed(arrays.x), typed(arrays.gate), typed(arrays.grad_y), typed(arrays.y),
               typed(arrays.grad_gate)};
  // A vector of one lane has no streaming stores.
  constexpr auto kStreaming =
      VectorsOf<T>::kWidth > 1 ? simd::Stores::streaming : simd::Stores::cached;
  if (streaming && simd::streamable(step.y) &&
      (step.grad_gate == nullptr || simd::streamable(step.grad_gate))) {
    step = run_steps<Pass, kStreaming>(step, count);
    simd::fence();
  } else {
    step = run_steps<Pass, simd::Stores::cached>(step, count);
  }
  count %= kStep;
  if (count == 0) return;
  alignas(64) T tail[5][kStep] = {};
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  std::memcpy(tail[0], step.x, bytes);
  if (step.gate != nullptr) std::memcpy(tail[1], step.gate, bytes);
  if (step.grad_y != nullptr) std::memcpy(tail[2], step.grad_y, bytes);
  run_steps<Pass, simd::Stores::cached>(
      Step<T>{tail[0], tail[1], tail[2], tail[3], step.grad_gate == nullptr ? nullptr : tail[4]},
      kStep);
  std::memcpy(step.y, tail[3], bytes);
  if (step.grad_gate != nullptr) std::memcpy(step.grad_gate, tail[4], bytes);
}

template <template <Function, bool> class Pass, bool kGated, class T>
ISOBIT_INLINE_HOST Kernel kernel_of(Function function) {
  switch (function) {
    case Function::exp:       return run_pass<Pass<Function::exp, kGated>, T>;
    case Function::log:       return run_pass<Pass<Function::log, kGated>, T>;
    case Function::sigmoid:   return run_pass<Pass<Function::sigmoid, kGated>, T>;
    case Function::tanh:      return run_pass<Pass<Function::tanh, kGated>, T>;
    case Function::gelu:      return run_pass<Pass<Function::gelu, kGated>, T>;
    case Function::gelu_tanh: return run_pass<Pass<Function::gelu_tanh, kGated>, T>;
    case Function::silu:      return run_pass<Pass<Function::silu, kGated>, T>;
  }
  return nullptr;
}

template <template <Function, bool> class Pass>
ISOBIT_INLINE_HOST Kernel kernel(Function function, DType dtype, bool gated) {
  return visit(dtype, [&](auto type) ISOBIT_INLINE_LAMBDA -> Kernel {
    using T = typename decltype(type)::type;
    if constexpr (std::is_same_v<T, quad> || std::is_same_v<T, std::int32_t>)
      return nullptr;
    else
      return gated ? kernel_of<Pass, true, T>(function) : kernel_of<Pass, false, T>(function);
  });
}

}  // namespace

Kernel forward_kernel(Function function, DType dtype, bool gated) {
  return kernel<Forward>(function, dtype, gated);
}
Kernel backward_kernel(Function function, DType dtype, bool gated) {
  return kernel<Backward>(function, dtype, gated);
}

}  // namespace isobit::activation::ISOBIT_ISA
