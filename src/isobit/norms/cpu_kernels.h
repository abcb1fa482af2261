// SPDX-License-Identifier: Apache-2.0
// What is compiled for norms once for each instruction set, and called from code that is not.
#pragma once

#include <cstdint>

#include "isobit/core/isas.h"
#include "isobit/core/order.h"
#include "isobit/norms/problem.h"
#include "isobit/norms/statistics.h"

namespace isobit::norms {

// Weight and bias as kernels read them: in the type that is computed in. Element i stands at
// i & mask: a neutral value needs no more than a line.
struct Weights {
  const void *weight, *bias;
  std::int64_t weight_mask, bias_mask;
};

template <class Real>
class WeightRow {
 public:
  ISOBIT_INLINE WeightRow(const void* data, std::int64_t mask)
      : data_(static_cast<const Real*>(data)), mask_(mask) {}
  ISOBIT_INLINE const Real* at(std::int64_t i) const { return data_ + (i & mask_); }

 private:
  const Real* data_;
  std::int64_t mask_;
};

// How the forward pass walks its rows. Streaming stores bypass the caches, and rows are fetched
// ahead: by `near` into the first cache while a row is written, by `far` and `long_rows` into the
// second while a row is summed. `fetched` stores into the caches, and fetches while a row is
// written what the next one reads and where it is written. Rows that are not short are taken singly
// by long_rows, and by `fetched` beyond 4 KB, else two at a time.
enum class Schedule { cached, streaming_near, streaming_long_rows, streaming_far, fetched };

// Rows [begin, end) of the forward pass of one norm; x, y and what is computed in have one type, or
// x and y are of 16 bits.
using ForwardKernel = void (*)(const ForwardProblem& problem, const Weights& weights,
                               std::int64_t begin, std::int64_t end);

// What the backward pass knows of a row before it writes: its statistics and the row means of g and
// of g * x̂.
template <class Real>
struct RowTerms {
  Statistics<Real> statistics;
  Real mean_g, mean_gx;
};
inline std::int64_t row_terms_bytes(DType dtype) {
  return dtype == DType::f64 ? sizeof(RowTerms<double>) : sizeof(RowTerms<float>);
}

// A rectangle of the backward pass.
struct Tile {
  std::int64_t first_row, last_row, first_col, last_col;
};

// Sums over rows of some columns, in the type that is computed in; `fresh` ones start from +0.
struct ColumnSums {
  void *weight, *bias;
  bool fresh;
};

// So many rows at a time are swept in the backward pass after their terms are found, unless they
// are short.
inline constexpr std::int64_t kSweptRows = 4;

// The backward pass of one norm. `terms` are RowTerms of the type that is computed in.
struct BackwardKernels {
  // The terms of rows [begin, end); the two means only where gradients of rows are wanted.
  void (*terms)(const BackwardProblem& problem, const Weights& weights, std::int64_t begin,
                std::int64_t end, void* terms);
  // Writes grad_x of a tile; terms[0] belongs to its first row.
  void (*grad_x)(const BackwardProblem& problem, const Weights& weights, const Tile& tile,
                 const void* terms);
  // Adds the tile's rows, one after the other, to the sums of grad_weight and grad_bias.
  void (*sums)(const BackwardProblem& problem, const Tile& tile, const void* terms,
               const ColumnSums& sums);
  // Both in one sweep.
  void (*both)(const BackwardProblem& problem, const Weights& weights, const Tile& tile,
               const void* terms, const ColumnSums& sums);
};

// The kernels of one norm, by its formula: cpu_forward_rows.h and cpu_backward_rows.h, instantiated
// for each instruction set in ops/NAME/cpu_kernels.cpp. `streaming` stores bypass the caches, and
// the next rows are fetched while the present ones are worked on; of gradients, a fence must
// follow.
ISOBIT_IN_EACH_ISA(template <class Formula> struct Kernels {
  static ForwardKernel forward(DType dtype, Schedule schedule);
  static BackwardKernels backward(DType dtype, bool streaming);
};)

// What the passes of all norms need beside their own kernels. A `real` is f32 or f64.
struct Tools {
  // to[i] = from[i] + offset, from any type.
  void (*widen)(DType type, const void* from, DType real, void* to, std::int64_t count,
                double offset);
  // to[i] = from[i], rounded to any type.
  void (*narrow)(DType real, const void* from, DType type, void* to, std::int64_t count);
  // to[i] = 0 + sums[i], rounded to the type of the weights.
  void (*finish)(DType real, const void* sums, DType type, void* to, std::int64_t count);
  // into[i] = into[i] + from[i]
  void (*add)(DType real, void* into, const void* from, std::int64_t count);
  // The row that is to be normalised: dropout(x) + residual.
  void (*compose)(const ForwardProblem& problem, std::int64_t row, void* to);
  // The gradients of x and residual, from that of what was normalised; `streaming` stores bypass
  // the caches and a fence must follow, and the row that is swept next in its place is fetched.
  void (*decompose)(const BackwardProblem& problem, std::int64_t row, const void* gradient,
                    bool streaming);
};

ISOBIT_IN_EACH_ISA(extern const Tools kTools;)

}  // namespace isobit::norms
