// SPDX-License-Identifier: Apache-2.0
// Rows of a table, and its gradient, as PyTorch's eager CPU operators compute them.
#pragma once

#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>

#include <cstdint>

#include "bench/peers/adapter.h"
#include "bench/peers/torch_layers.h"

namespace isobit::peers {
namespace {

// What torch.nn.functional.embedding calls; its gradient is in new memory each time.
Call embedding(const IsobitPeerCase& c, bool forward) {
  const std::int64_t of_rows[] = {dim(c, "rows"), dim(c, "cols")};
  const std::int64_t of_table[] = {dim(c, "tokens"), of_rows[1]};
  const at::TensorOptions real(scalar_type_named(c.dtype)), places(at::kLong);
  const at::Tensor index = at::from_blob(array(c, "index"), {of_rows[0]}, places);
  at::Tensor rows = at::from_blob(array(c, forward ? "y" : "grad_y"), of_rows, real);
  if (forward) {
    const at::Tensor weight = at::from_blob(array(c, "weight"), of_table, real);
    return [=]() mutable { at::index_select_out(rows, weight, 0, index); };
  }
  const auto padding = static_cast<std::int64_t>(option(c, "padding_idx").number);
  const bool by_frequency = option(c, "scale_grad_by_freq").number != 0;
  return [=, tokens = of_table[0]] {
    at::embedding_dense_backward(rows, index, tokens, padding, by_frequency);
  };
}

}  // namespace
}  // namespace isobit::peers
