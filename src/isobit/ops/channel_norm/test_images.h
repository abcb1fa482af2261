// SPDX-License-Identifier: Apache-2.0
// Images that tests of group_norm and batch_norm take, and every way to compute them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "isobit/dispatch/operation.h"
#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::channel_norm {

using Floats = std::vector<float>;
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Extents {
  std::int64_t batch, channels, extent;

  std::int64_t count() const { return batch * channels * extent; }
  // Where an element stands with the channels last in memory.
  std::int64_t last(std::int64_t i) const {
    const std::int64_t l = i % extent, c = i / extent % channels, n = i / extent / channels;
    return (n * extent + l) * channels + c;
  }
};

inline TensorView view_of(Floats& values, std::vector<std::int64_t> shape) {
  TensorView view;
  view.data = values.data();
  view.bytes = std::ssize(values) * 4;
  view.rank = static_cast<int>(shape.size());
  std::int64_t step = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.shape[i] = shape[i];
    view.strides[i] = step;
    step *= shape[i];
  }
  return view;
}
inline TensorView images(Floats& values, const Extents& e, bool last) {
  TensorView view = view_of(values, {e.batch, e.channels, e.extent});
  if (last) view.strides = {e.channels * e.extent, 1, e.channels};
  return view;
}
inline TensorView vector(Floats& values) { return view_of(values, {std::ssize(values)}); }

inline Floats ordered(const Floats& values, const Extents& e, bool last) {
  if (!last) return values;
  Floats result(values.size());
  for (std::int64_t i = 0; i < e.count(); ++i) result[e.last(i)] = values[i];
  return result;
}
inline Floats back(const Floats& values, const Extents& e, bool last) {
  if (!last) return values;
  Floats result(values.size());
  for (std::int64_t i = 0; i < e.count(); ++i) result[i] = values[e.last(i)];
  return result;
}

inline Floats waves(std::int64_t count, float scale = 1) {
  Floats result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(scale * std::sin(static_cast<float>(i * i % 1009)));
  return result;
}
// Channels that are not usual among others: constant, huge, far from zero, nearly constant.
inline Floats channels_of_every_kind(const Extents& e) {
  Floats x = waves(e.count());
  for (std::int64_t i = 0; i < e.count(); ++i) {
    float& value = x[i];
    switch (i / e.extent % e.channels) {
      case 1: value = 3; break;
      case 2: value *= 1e30f; break;
      case 3: value += 1e6f; break;
      case 4: value = i % 7 == 0 ? 1 : std::nextafter(1.0f, 2.0f); break;
      case 5: value *= 1e-30f; break;
    }
  }
  return x;
}

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

// A variant, by how many threads, with caches that hold what is computed or do not.
struct Computed {
  int variant, threads;
  bool leaves_caches;
};
inline constexpr Computed kSimd{0, 1, false}, kInPieces{0, 5, false}, kFromMemory{0, 2, true},
    kScalar{1, 1, false};

// Calls body(run), where run(operation, args) computes in one way on one instruction set.
template <class Body>
void in_every_way(const Body& body) {
  for (const Isa isa : Machine::isas_here())
    for (const Computed& how : {kSimd, kInPieces, kFromMemory, kScalar}) {
      SCOPED_TRACE(std::string(name_of(isa)) + (how.variant == 0 ? " simd " : " scalar ") +
                   std::to_string(how.threads) + (how.leaves_caches ? " from memory" : ""));
      body([&](const Operation& operation, const auto& given) {
        Execution execution = simd::here(how.threads);
        execution.machine.isa = isa;
        execution.machine.elements_a_thread = 1;
        if (how.leaves_caches) execution.machine.l2_bytes = execution.machine.l3_bytes = 1;
        const Arguments args = operation.make_arguments();
        *static_cast<std::decay_t<decltype(given)>*>(args.get()) = given;
        operation.run(how.variant, {}, args, execution);
      });
    }
}

inline Floats layernorm_of(Floats rows, std::int64_t cols, Floats* grad_y = nullptr,
                           Floats* weights = nullptr) {
  const std::int64_t count = std::ssize(rows) / cols;
  Floats y(rows.size());
  if (grad_y == nullptr) {
    layernorm::ForwardArgs args;
    args.x = view_of(rows, {count, cols});
    args.y = view_of(y, {count, cols});
    layernorm::forward(args, simd::here(1));
    return y;
  }
  layernorm::BackwardArgs args;
  args.x = view_of(rows, {count, cols});
  args.grad_y = view_of(*grad_y, {count, cols});
  args.grad_x = view_of(y, {count, cols});
  args.weight = vector(*weights);
  layernorm::backward(args, simd::here(1));
  return y;
}

// Channels before images, and back.
inline Floats exchanged(const Floats& values, std::int64_t a, std::int64_t b, std::int64_t extent) {
  Floats result;
  for (std::int64_t j = 0; j < b; ++j)
    for (std::int64_t i = 0; i < a; ++i)
      for (std::int64_t l = 0; l < extent; ++l) result.push_back(values[(i * b + j) * extent + l]);
  return result;
}

}  // namespace isobit::channel_norm
