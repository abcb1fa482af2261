// SPDX-License-Identifier: Apache-2.0
// How rows that a product is made of come about on the CPU.
#include "isobit/norm_linear/cpu_rows.h"

#include "isobit/simd/tasks.h"

namespace isobit::norm_linear {
namespace {

template <class Real>
void save(const norms::ForwardProblem& norm, const void* terms, std::int64_t row) {
  const auto& statistics = static_cast<const norms::RowTerms<Real>*>(terms)[row].statistics;
  const auto to = [row](void* array, Real value) {
    if (array != nullptr) static_cast<Real*>(array)[row] = narrow<Real>(value);
  };
  to(norm.mean, statistics.saved_mean);
  to(norm.rstd, statistics.saved_rstd);
}

// Rows as tasks.
template <class Body>
void in_rows(const norms::ForwardProblem& norm, const Execution& execution, const Body& body) {
  const std::int64_t tasks = simd::task_count(execution.machine, norm.rows * norm.cols, norm.rows);
  simd::in_parts(execution, tasks, norm.rows, 1, body);
}

}  // namespace

MadeRows::MadeRows(const norms::ForwardProblem& norm, const NormKernels& kernels, Isa isa,
                   Pieces& pieces)
    : norm_(norm),
      asked_(norm),
      kernels_(kernels),
      parts_(kernels.parts(isa, norm.dtype, norm.y_dtype)),
      stored_(norms::stored_weights(norm)) {
  rows_.weights = norms::weights_in(stored_, pieces);
  rows_.terms = terms_ = pieces.take(norm.rows * norms::row_terms_bytes(norm.dtype));
  if (norm.composes()) {
    norm_.residual = {};
    norm_.dropout = {};
    norm_.x = norm.sum ? norm.sum
                       : Matrix{pieces.take(norm.rows * norm.cols * size_of(norm.dtype)), norm.rows,
                                norm.cols, norm.cols};
  }
  rows_.x = norm_.x;
}

void MadeRows::compose(const Execution& execution) const {
  const norms::Tools& tools = norms::tools_of(execution.machine.isa);
  in_rows(asked_, execution, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      tools.compose(asked_, row, row_of(norm_.x, row, norm_.dtype));
  });
}

void MadeRows::prepare(const Execution& execution) {
  norms::convert_weights(stored_, rows_.weights, execution);
  rows_.numbers = parts_.numbers(rows_.weights, norm_.cols);
  if (asked_.composes()) compose(execution);
  const norms::BackwardKernels kernels = kernels_.terms(execution.machine.isa, norm_.dtype, false);
  norms::BackwardProblem statistics{};
  statistics.rows = norm_.rows;
  statistics.cols = norm_.cols;
  statistics.dtype = norm_.dtype;
  statistics.x = norm_.x;
  statistics.eps = norm_.eps;
  in_rows(norm_, execution, [&](std::int64_t begin, std::int64_t end) {
    kernels.terms(statistics, rows_.weights, begin, end,
                  terms_ + begin * norms::row_terms_bytes(norm_.dtype));
    for (std::int64_t row = begin; row < end; ++row)
      norm_.dtype == DType::f64 ? save<double>(norm_, terms_, row)
                                : save<float>(norm_, terms_, row);
  });
}

void MadeRows::part(const void* self, std::int64_t row, std::int64_t col, std::int64_t rows,
                    std::int64_t cols, void* to, std::int64_t pitch) {
  const auto& made = *static_cast<const MadeRows*>(self);
  made.parts_.part(made.rows_, {row, row + rows, col, col + cols}, to, pitch);
}

}  // namespace isobit::norm_linear
