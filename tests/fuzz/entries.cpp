// SPDX-License-Identifier: Apache-2.0
// The table of entries. A test compares it with isobit.h.
#include "entries.h"

#include <algorithm>

#include "isobit/core/error.h"
#include "isobit/ops/catalog.h"

namespace isobit::fuzz {

std::vector<const Argument*> arguments(std::string_view op, std::string_view pass,
                                       std::string_view names) {
  const auto operation = std::ranges::find_if(
      catalog(), [&](const Operation* one) { return one->op == op && one->pass == pass; });
  require(operation != catalog().end(), "the catalog has no ", op, " ", pass);
  std::vector<const Argument*> result;
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = std::min(names.find(' ', begin), names.size());
    result.push_back((*operation)->find(names.substr(begin, end - begin)));
    require(result.back() != nullptr, op, " ", pass, " has no argument ",
            names.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

namespace {

// Of LayerNorm and RMSNorm, whose structs end alike.
template <auto kFunction, class Args>
Entry norm(std::string_view function, std::string_view op, std::string_view pass,
           std::string_view arrays) {
  return entry<kFunction>(function, op, pass, arrays, &Args::eps, &Args::dropout,
                          &Args::dropout_seed, &Args::hidden_dims, &Args::zero_centred);
}

}  // namespace

std::span<const Entry> entries() {
  static const Entry kEntries[] = {
      norm<isobit_layernorm_forward, isobit_layernorm_forward_args>(
          "isobit_layernorm_forward", "layernorm", "fwd", "x residual weight bias y sum mean rstd"),
      norm<isobit_layernorm_backward, isobit_layernorm_backward_args>(
          "isobit_layernorm_backward", "layernorm", "bwd",
          "x grad_y weight mean rstd grad_sum grad_x grad_residual grad_weight grad_bias"),
      norm<isobit_rmsnorm_forward, isobit_rmsnorm_forward_args>(
          "isobit_rmsnorm_forward", "rmsnorm", "fwd", "x residual weight y sum rstd"),
      norm<isobit_rmsnorm_backward, isobit_rmsnorm_backward_args>(
          "isobit_rmsnorm_backward", "rmsnorm", "bwd",
          "x grad_y weight rstd grad_sum grad_x grad_residual grad_weight"),
      entry<isobit_elementwise_add>("isobit_elementwise_add", "elementwise", "fwd", "x residual y"),
      entry<isobit_elementwise_increment>("isobit_elementwise_increment", "elementwise", "fwd",
                                          "x y"),
  };
  return kEntries;
}

}  // namespace isobit::fuzz
