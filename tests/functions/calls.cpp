// SPDX-License-Identifier: Apache-2.0
// Calls of src/isobit/functions, compiled once for each instruction set.
#include "functions/calls.h"

#include "isobit/functions/exponential.h"
#include "isobit/functions/logarithm.h"
#include "isobit/functions/logistic.h"
#include "isobit/functions/normal.h"
#include "isobit/functions/trigonometric.h"
#ifdef ISOBIT_KERNELS
#include "isobit/tile/scalar.h"
#else
#include "isobit/simd/vec.h"
#endif

namespace isobit::function_calls {
namespace {

#ifdef ISOBIT_KERNELS
struct F32 : tile::Scalar<float> {
  static constexpr int kWidth = 1;
  static float load(const float* from) { return *from; }
  static void store(float* to, float value) { *to = value; }
};
struct F64 : tile::Scalar<double> {
  static constexpr int kWidth = 1;
  static double load(const double* from) { return *from; }
  static void store(double* to, double value) { *to = value; }
};
#else
using simd::F32;
using simd::F64;
#endif

template <class S, class Function>
ISOBIT_INLINE_HOST void over(const typename S::Real* x, typename S::Real* y, std::int64_t count,
                             const Function& function) {
  for (std::int64_t i = 0; i < count; i += S::kWidth) S::store(y + i, function(S::load(x + i)));
}

#define ISOBIT_CALLS(...)                                                                     \
  {[](const float* x, float* y, std::int64_t count) {                                         \
     using S = F32;                                                                           \
     over<S>(x, y, count, [](S::V v) __attribute__((always_inline)) { return __VA_ARGS__; }); \
   },                                                                                         \
   [](const double* x, double* y, std::int64_t count) {                                       \
     using S = F64;                                                                           \
     over<S>(x, y, count, [](S::V v) __attribute__((always_inline)) { return __VA_ARGS__; }); \
   }}
#define ISOBIT_CALLS_F64(...)                                                                 \
  {nullptr, [](const double* x, double* y, std::int64_t count) {                              \
     using S = F64;                                                                           \
     over<S>(x, y, count, [](S::V v) __attribute__((always_inline)) { return __VA_ARGS__; }); \
   }}

using functions::number;

constexpr Calls kCalls[] = {
    ISOBIT_CALLS(functions::exp<S>(v)),
    ISOBIT_CALLS(functions::exp2<S>(v)),
    ISOBIT_CALLS(functions::log<S>(v)),
    ISOBIT_CALLS(functions::log2<S>(v)),
    ISOBIT_CALLS(number<S>(functions::sigmoid<S>(v))),
    ISOBIT_CALLS(functions::tanh<S>(v)),
    ISOBIT_CALLS(functions::erf<S>(v)),
    ISOBIT_CALLS(functions::erfc<S>(v)),
    ISOBIT_CALLS(number<S>(functions::gelu<S>(v))),
    ISOBIT_CALLS(number<S>(functions::gelu_tanh<S>(v))),
    ISOBIT_CALLS(number<S>(functions::silu<S>(v))),
    ISOBIT_CALLS(number<S>(functions::sigmoid_derivative<S>(v))),
    ISOBIT_CALLS(number<S>(functions::tanh_derivative<S>(v))),
    ISOBIT_CALLS(number<S>(functions::gelu_derivative<S>(v))),
    ISOBIT_CALLS(number<S>(functions::gelu_tanh_derivative<S>(v))),
    ISOBIT_CALLS(number<S>(functions::silu_derivative<S>(v))),
    ISOBIT_CALLS_F64(functions::sine_cosine<S>(v).sine),
    ISOBIT_CALLS_F64(functions::sine_cosine<S>(v).cosine),
};

}  // namespace

#ifdef ISOBIT_KERNELS
std::span<const Calls> calls_in_kernels() { return kCalls; }
#else
namespace ISOBIT_ISA {
std::span<const Calls> calls() { return kCalls; }
}  // namespace ISOBIT_ISA
#endif

}  // namespace isobit::function_calls
