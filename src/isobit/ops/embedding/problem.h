// SPDX-License-Identifier: Apache-2.0
// Calls of embedding after their check, and how a sum over many occurrences is cut.
#pragma once

#include <array>
#include <span>

#include "isobit/core/check.h"
#include "isobit/core/order.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/embedding/embedding.h"

namespace isobit::embedding {

// What both passes take.
struct Given {
  std::int64_t rows, tokens, cols;
  DType dtype;  // of all but the index
  const std::byte* index;
  bool wide_index;  // i64, not i32
  std::array<std::int64_t, kMaxRank> index_shape;
  int index_rank;

  // What is computed in.
  DType real() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

struct ForwardProblem : Given {
  Matrix weight, y;
};

struct BackwardProblem : Given {
  Matrix grad_y, grad_weight;
  std::int64_t padding_idx;
  bool by_frequency;
};

// Occurrences of a token that are added as one: a whole subtree of the order's, so that those of a
// frequent one can be shared out. Their sum is kept until all are there.
inline constexpr std::int64_t kChunk = 16 * order::kRun;

// Where the sum of a chunk is kept that begins with the sorted occurrence `begin`. Of kChunk
// occurrences in a row at most two begin a chunk of a token that has several: of these one is the
// token's first.
ISOBIT_INLINE std::int64_t slot_of(std::int64_t begin, bool first) {
  return 2 * (begin / kChunk) + (first ? 1 : 0);
}
// As many as a call may need: none, where no token can have several chunks.
ISOBIT_INLINE std::int64_t slots_of(std::int64_t rows) {
  return rows <= kChunk ? 0 : 2 * ((rows - 1) / kChunk + 1);
}

using ForwardVariant = Variant<ForwardArgs, ForwardProblem>;
using BackwardVariant = Variant<BackwardArgs, BackwardProblem>;

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();
std::span<const ForwardVariant> cuda_forward_variants();  // in device libraries
std::span<const BackwardVariant> cuda_backward_variants();

}  // namespace isobit::embedding
