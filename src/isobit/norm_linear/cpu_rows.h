// SPDX-License-Identifier: Apache-2.0
// The normalised rows as an operand that is in no array: each part is made where it is packed, of
// statistics that are found first.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/pieces.h"
#include "isobit/norm_linear/cpu_kernels.h"
#include "isobit/norm_linear/problem.h"
#include "isobit/norms/cpu_workspace.h"

namespace isobit::norm_linear {

// The kernels of one norm.
struct NormKernels {
  norms::BackwardKernels (*terms)(Isa isa, DType dtype, bool streaming);
  PartKernels (*parts)(Isa isa, DType x, DType y);
};

// Without memory in `pieces` this only counts.
class MadeRows {
 public:
  MadeRows(const norms::ForwardProblem& norm, const NormKernels& kernels, Isa isa, Pieces& pieces);
  MadeRows(const MadeRows&) = delete;

  // Composes rows where there is something to compose, finds their statistics, and stores what
  // callers want of these.
  void prepare(const Execution& execution);
  matmul::Made made() const { return {part, this}; }
  // RowTerms of the rows from one on, of which this has found the statistics.
  const void* terms(std::int64_t row) const {
    return terms_ == nullptr ? nullptr : terms_ + row * norms::row_terms_bytes(norm_.dtype);
  }

 private:
  static void part(const void* self, std::int64_t row, std::int64_t col, std::int64_t rows,
                   std::int64_t cols, void* to, std::int64_t pitch);
  void compose(const Execution& execution) const;

  norms::ForwardProblem norm_;  // without what composes: x is the sum where there is one
  const norms::ForwardProblem& asked_;
  NormKernels kernels_;
  PartKernels parts_;
  norms::StoredWeights stored_;
  std::byte* terms_;
  Rows rows_;
};

}  // namespace isobit::norm_linear
