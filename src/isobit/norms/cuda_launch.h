// SPDX-License-Identifier: Apache-2.0
// How the kernels of norms are launched: which group of threads takes a row, and how many there
// are.
#pragma once

#include <algorithm>
#include <string>

#include "isobit/core/error.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/norms/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/in_turn.h"
#include "isobit/tile/row_group.h"

namespace isobit::norms {

using tile::blocks_for;
using tile::with_type;

// The threads of a block and the blocks that share a row.
struct GroupShape {
  int threads, cluster;
};

// The most threads of a block that still leave a thread the registers that its row needs.
struct MostThreads {
  int with_floats, with_doubles;

  template <class Real>
  constexpr int of() const {
    return sizeof(Real) == 8 ? with_doubles : with_floats;
  }
  int of(DType dtype) const { return dtype == DType::f64 ? with_doubles : with_floats; }
};

// The columns of `cluster` blocks, of which each warp holds a block of the order.
inline std::int64_t most_cols(int most_threads, int cluster) {
  return std::int64_t{most_threads} / simt::kWarpThreads * cluster * order::kBlock;
}

// As few warps as hold a row in `cluster` blocks, or in more where those do not. each: how many
// blocks of the order a warp holds.
inline GroupShape shape_for(std::int64_t cols, int most_threads, int cluster, int each = 1) {
  while (cluster < tile::kMostCluster && most_cols(most_threads, cluster) < cols) cluster *= 2;
  const std::int64_t blocks = (cols + order::kBlock - 1) / order::kBlock;
  const std::int64_t warps = (blocks + cluster * each - 1) / (cluster * each);
  return {static_cast<int>(std::max<std::int64_t>(1, warps)) * simt::kWarpThreads, cluster};
}

inline std::string wider_than(std::int64_t most, std::int64_t cols, std::string_view holder) {
  if (cols <= most) return {};
  return text("rows have ", cols, " columns; ", holder, " holds ", most);
}

// Rows that are read anew for each sum: shared memory holds the sums of each block of the order.
inline std::string wider_than_streams(std::int64_t cols, DType dtype, const Machine& machine) {
  const std::int64_t sums = machine.gpu.shared_bytes / (4 * size_of(real_of(dtype)));
  return wider_than(sums * order::kBlock, cols, "shared memory, with the sums of each 512,");
}

// The largest of a knob's values, which ascend, that is no more than `most`; at least the first.
template <std::size_t kCount>
int largest_within(const int (&values)[kCount], int most) {
  int largest = values[0];
  for (const int value : values)
    if (value <= most) largest = value;
  return largest;
}

}  // namespace isobit::norms
