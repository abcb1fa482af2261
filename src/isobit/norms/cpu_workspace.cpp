// SPDX-License-Identifier: Apache-2.0
// Weights in the type that is computed in.
#include "isobit/norms/cpu_workspace.h"

#include <array>

#include "isobit/core/order.h"
#include "isobit/simd/tasks.h"

namespace isobit::norms {
namespace {

template <class Real>
constexpr std::array<Real, order::kLanes> line_of(Real value) {
  std::array<Real, order::kLanes> line{};
  for (Real& element : line) element = value;
  return line;
}

// -0 is what no addition notices.
template <class Real>
struct Neutral {
  alignas(64) static constexpr std::array<Real, order::kLanes> kOnes = line_of(Real(1));
  alignas(64) static constexpr std::array<Real, order::kLanes> kMinusZeros = line_of(Real(-0.0));
};

// Of a neutral line vectors are read that begin anywhere in a row: all of them are its first.
constexpr std::int64_t kWhole = -1, kNeutral = 0;

}  // namespace

const Tools& tools_of(Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, kTools); }

Weights weights_in(const StoredWeights& stored, Pieces& pieces) {
  const std::int64_t bytes = stored.cols * size_of(stored.real);
  const bool wide = stored.real == DType::f64;
  const void* ones =
      wide ? static_cast<const void*>(Neutral<double>::kOnes.data()) : Neutral<float>::kOnes.data();
  const void* minus_zeros = wide ? static_cast<const void*>(Neutral<double>::kMinusZeros.data())
                                 : Neutral<float>::kMinusZeros.data();
  Weights weights{stored.weight, stored.bias, kWhole, kWhole};
  if (stored.converts_weight()) weights.weight = pieces.take(bytes);
  if (stored.converts_bias()) weights.bias = pieces.take(bytes);
  if (stored.weight == nullptr) weights.weight = ones, weights.weight_mask = kNeutral;
  if (stored.bias == nullptr) weights.bias = minus_zeros, weights.bias_mask = kNeutral;
  return weights;
}

void convert_weights(const StoredWeights& stored, const Weights& weights,
                     const Execution& execution) {
  if (!stored.converts_weight() && !stored.converts_bias()) return;
  const Tools& tools = tools_of(execution.machine.isa);
  const std::int64_t tasks = simd::task_count(execution.machine, stored.cols, stored.cols);
  simd::in_parts(
      execution, tasks, stored.cols, order::kLanes, [&](std::int64_t begin, std::int64_t end) {
        const auto convert = [&](const void* from, const void* to, double offset) {
          tools.widen(stored.dtype,
                      static_cast<const std::byte*>(from) + begin * size_of(stored.dtype),
                      stored.real,
                      static_cast<std::byte*>(const_cast<void*>(to)) + begin * size_of(stored.real),
                      end - begin, offset);
        };
        if (stored.converts_weight())
          convert(stored.weight, weights.weight, stored.zero_centered ? 1.0 : -0.0);
        if (stored.converts_bias()) convert(stored.bias, weights.bias, -0.0);
      });
}

}  // namespace isobit::norms
