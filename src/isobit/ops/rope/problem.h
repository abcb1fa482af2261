// SPDX-License-Identifier: Apache-2.0
// A call of rope after its check: the same of both passes.
#pragma once

#include <span>

#include "isobit/core/check.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/rope/rope.h"

namespace isobit::rope {

// Elements from one index of each dim to the next.
struct Steps {
  std::int64_t batch = 0, seq = 0, head = 0, dim = 0;
};

// Queries or keys, and what they become. What is not given has no heads.
struct Heads {
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  std::int64_t count = 0;
  Steps x_steps, y_steps;
};

struct Problem {
  DType dtype;
  Style style = Style::half;
  bool backward = false;
  std::int64_t batch = 0, seq = 0, head_dim = 0, pairs = 0;
  Heads q, k;
  bool tables = false;  // given
  Matrix cos, sin;
  const std::int64_t* positions = nullptr;  // null: 0, 1, 2, ...
  std::int64_t position_batch_step = 0, position_step = 0;
  std::int64_t offset = 0, end = 0;  // positions with the offset are below the end
  double base = 0;

  std::int64_t tokens() const { return batch * seq; }
  // Of arithmetic, which is also that of tables.
  DType real() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
  std::int64_t elements() const { return tokens() * (q.count + k.count) * head_dim; }
  bool in_place() const { return q.x == q.y; }
  bool adjacent() const {
    const auto heads_are = [&](const Heads& heads) {
      return heads.count == 0 || head_dim <= 1 ||
             (heads.x_steps.dim == 1 && heads.y_steps.dim == 1);
    };
    return heads_are(q) && heads_are(k);
  }
};

using ForwardVariant = Variant<ForwardArgs, Problem>;
using BackwardVariant = Variant<BackwardArgs, Problem>;

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();
std::span<const ForwardVariant> cuda_forward_variants();  // in device libraries
std::span<const BackwardVariant> cuda_backward_variants();

}  // namespace isobit::rope
