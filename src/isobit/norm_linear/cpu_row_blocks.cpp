// SPDX-License-Identifier: Apache-2.0
// How rows are cut into blocks, and how a weight is turned.
#include "isobit/norm_linear/cpu_row_blocks.h"

#include <type_traits>

#include "isobit/norm_linear/cpu_rows.h"
#include "isobit/ops/matmul/cpu_regions.h"

namespace isobit::norm_linear {
namespace {

// Of the second cache, for the weight and for a block.
constexpr std::int64_t kPartOfCache = 4;

std::int64_t row_bytes(const Product& product) { return product.cols * size_of(product.dtype); }

}  // namespace

bool row_blocks_suit(const ForwardProblem& problem, const Machine& machine) {
  const Product& product = problem.product;
  return size_of(product.dtype) >= 4 &&
         product.features * row_bytes(product) <= machine.l2_bytes / 2 &&
         kRowsOfBlocks[0] * row_bytes(product) <= machine.l2_bytes / kPartOfCache &&
         !matmul::vector_variant().suits(product_of(problem, product.y_at(nullptr)), machine);
}

Plan choose_row_blocks(const ForwardProblem& problem, const Machine& machine) {
  const std::int64_t bytes = std::max<std::int64_t>(1, row_bytes(problem.product));
  int rows = kRowsOfBlocks[0];
  for (const int more : kRowsOfBlocks)
    if (more * bytes <= machine.l2_bytes / kPartOfCache) rows = more;
  return {rows};
}

ForwardProblem block_of(const ForwardProblem& problem, std::int64_t first, std::int64_t count) {
  ForwardProblem block = problem;
  norms::ForwardProblem& norm = block.norm;
  for (Matrix* const rows : {&norm.x, &norm.residual, &norm.sum}) {
    if (!*rows) continue;
    *rows = norms::from_row(*rows, first, norm.dtype);
    rows->rows = count;
  }
  for (void** const statistic : {&norm.mean, &norm.rstd})
    if (*statistic != nullptr)
      *statistic =
          static_cast<std::byte*>(*statistic) + first * size_of(norms::real_of(norm.dtype));
  norm.rows = block.product.rows = count;
  norm.dropout.first_row += first;
  for (TensorView* const rows : {&block.residual, &block.z, &block.pre})
    *rows = rows_of(*rows, first, count);
  return block;
}

SideBySide::SideBySide(const Product& product, Pieces& pieces)
    : product_(product), weight_(product.weight) {
  if (product.features <= 1 || weight_.strides[0] == 1) return;
  copy_ = pieces.take(product.features * row_bytes(product));
  weight_.data = copy_;
  weight_.strides[0] = 1;
  weight_.strides[1] = product.features;
}

// Columns of the copy are rows of the weight: some at a time, so that lines of both are whole.
void SideBySide::prepare(const Execution& execution) const {
  if (copy_ == nullptr) return;
  constexpr std::int64_t kSome = 16;
  const TensorView& weight = product_.weight;
  const std::int64_t cols = product_.cols;
  const std::int64_t features = product_.features;
  const std::int64_t tasks = simd::task_count(execution.machine, cols * features, cols);
  matmul::with_types(product_.dtype, [&]<class T>(T, auto) {
    const T* const from = static_cast<const T*>(weight.data);
    T* const to = reinterpret_cast<T*>(copy_);
    simd::in_parts(execution, tasks, cols, kSome, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; k += kSome)
        for (std::int64_t j = 0; j < features; ++j)
          for (std::int64_t i = k; i < std::min(end, k + kSome); ++i)
            to[i * features + j] = from[j * weight.strides[0] + i * weight.strides[1]];
    });
  });
}

}  // namespace isobit::norm_linear
