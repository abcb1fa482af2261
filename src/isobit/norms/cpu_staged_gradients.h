// SPDX-License-Identifier: Apache-2.0
// Rows of the backward pass whose types differ or whose gradient is not the last word: their inputs
// are widened and their gradient finished, a few rows at a time.
#pragma once

#include "isobit/norms/cpu_kernels.h"
#include "isobit/norms/cpu_workspace.h"

namespace isobit::norms {

class StagedGradients {
 public:
  // `streaming`: how the gradients are written in the end; what is staged stays in the caches.
  StagedGradients(const BackwardProblem& problem, const Tools& tools, bool streaming,
                  Pieces& pieces)
      : problem_(problem), tools_(tools), streaming_(streaming) {
    const std::int64_t bytes = kSweptRows * problem.cols * size_of(real());
    if (problem.dtype != real()) x_ = pieces.take(bytes);
    if (problem.grad_y_dtype != real()) grad_y_ = pieces.take(bytes);
    if (problem.wants_rows()) gradient_ = pieces.take(bytes);
  }

  static bool needed(const BackwardProblem& problem) {
    return problem.grad_y_dtype != problem.dtype || problem.grad_sum || problem.dropout.drops();
  }

  // Up to kSweptRows rows from `first` on, as a problem of their own in the type that is computed
  // in.
  BackwardProblem rows_from(std::int64_t first, std::int64_t count) const {
    BackwardProblem rows = problem_;
    rows.rows = count;
    rows.dtype = rows.grad_y_dtype = real();
    rows.x = widened(problem_.x, problem_.dtype, x_, first, count);
    rows.grad_y = widened(problem_.grad_y, problem_.grad_y_dtype, grad_y_, first, count);
    rows.grad_sum = rows.grad_residual = {};
    rows.grad_x = problem_.wants_rows() ? staged(gradient_, count) : Matrix{};
    rows.mean = moved(problem_.mean, first * size_of(real()));
    rows.rstd = moved(problem_.rstd, first * size_of(real()));
    rows.found = moved(problem_.found, first * row_terms_bytes(real()));
    return rows;
  }

  // Writes the gradients that were asked for, from those of the rows.
  void finish(const BackwardProblem& rows, std::int64_t first) const {
    if (!problem_.wants_rows()) return;
    for (std::int64_t row = 0; row < rows.rows; ++row)
      tools_.decompose(problem_, first + row, row_of(rows.grad_x, row, real()), streaming_);
  }

 private:
  DType real() const { return real_of(problem_.dtype); }

  Matrix staged(std::byte* data, std::int64_t rows) const {
    return {data, rows, problem_.cols, problem_.cols};
  }

  Matrix widened(const Matrix& matrix, DType dtype, std::byte* to, std::int64_t first,
                 std::int64_t count) const {
    if (dtype == real()) return from_row(matrix, first, dtype);
    const Matrix rows = staged(to, count);
    for (std::int64_t row = 0; row < count; ++row)
      tools_.widen(dtype, row_of(matrix, first + row, dtype), real(), row_of(rows, row, real()),
                   problem_.cols, -0.0);
    return rows;
  }

  static const void* moved(const void* data, std::int64_t bytes) {
    return data == nullptr ? data : static_cast<const std::byte*>(data) + bytes;
  }

  const BackwardProblem& problem_;
  const Tools& tools_;
  const bool streaming_;
  std::byte *x_ = nullptr, *grad_y_ = nullptr, *gradient_ = nullptr;
};

}  // namespace isobit::norms
