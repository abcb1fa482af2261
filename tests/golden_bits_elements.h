// SPDX-License-Identifier: Apache-2.0
// The bits of version 1 of what is drawn, dropped and lost element by element, as golden_bits.h has
// those of others.
#pragma once

#include "golden.h"

namespace isobit::lab {

inline constexpr Golden kGoldenOfElements[] = {
    {"random", "fwd", "f32", "f32", 3, 1001, "fcf1c0d211cb9525", "uniform"},
    {"random", "fwd", "f64", "f64", 3, 1001, "650851fc39249767", "uniform"},
    {"random", "fwd", "f16", "f16", 3, 1001, "961299ac55d086d9", "uniform"},
    {"random", "fwd", "bf16", "bf16", 3, 1001, "63b320208f683339", "uniform"},
    {"random", "fwd", "f32", "f32", 3, 1001, "66b6a9d82623bc9d", "normal"},
    {"random", "fwd", "f64", "f64", 3, 1001, "120328215f15c5e4", "normal"},
    {"random", "fwd", "f16", "f16", 3, 1001, "318fb98da5ba7122", "normal"},
    {"random", "fwd", "bf16", "bf16", 3, 1001, "9f0456cd3bf6e7db", "normal"},
    {"random", "fwd", "f32", "f32", 3, 1001, "222af6139fe5543c", "truncated_normal"},
    {"random", "fwd", "f64", "f64", 3, 1001, "8409358b17b89efb", "truncated_normal"},
    {"random", "fwd", "f16", "f16", 3, 1001, "aba3afb424048700", "truncated_normal"},
    {"random", "fwd", "bf16", "bf16", 3, 1001, "e1da54170ab19051", "truncated_normal"},
    {"random", "fwd", "f32", "f32", 3, 1001, "d001b5b116beceeb", "bernoulli"},
    {"random", "fwd", "f64", "f64", 3, 1001, "355d5ed0e5899379", "bernoulli"},
    {"random", "fwd", "f16", "f16", 3, 1001, "1bdc548711e25835", "bernoulli"},
    {"random", "fwd", "bf16", "bf16", 3, 1001, "42f1437b3177afa5", "bernoulli"},
    {"dropout", "fwd", "f32", "f32", 3, 1001, "24030df3967ef51f", ""},
    {"dropout", "fwd", "f64", "f64", 3, 1001, "b9a11a1cc8d6cdd8", ""},
    {"dropout", "fwd", "f16", "f16", 3, 1001, "3e73ee2f49582e6d", ""},
    {"dropout", "fwd", "bf16", "bf16", 3, 1001, "1a92e6b9aed8c9bf", ""},
    {"pointwise_loss", "fwd", "f32", "f32", 3, 1001, "c5f2c8c2c9981dc3", "mse"},
    {"pointwise_loss", "fwd", "f64", "f64", 3, 1001, "d9eb8e3b18343b6b", "mse"},
    {"pointwise_loss", "fwd", "f16", "f16", 3, 1001, "b40155c14d694899", "mse"},
    {"pointwise_loss", "fwd", "bf16", "bf16", 3, 1001, "1b3fb072b4124370", "mse"},
    {"pointwise_loss", "fwd", "f32", "f32", 3, 1001, "1bb13b681ed7b079", "l1"},
    {"pointwise_loss", "fwd", "f64", "f64", 3, 1001, "50ee41b2c1a20b56", "l1"},
    {"pointwise_loss", "fwd", "f32", "f32", 3, 1001, "fce221a0a263031c", "smooth_l1"},
    {"pointwise_loss", "fwd", "f64", "f64", 3, 1001, "49fd26cc543fdbdd", "smooth_l1"},
    {"pointwise_loss", "fwd", "f32", "f32", 3, 1001, "fce221a0a263031c", "huber"},
    {"pointwise_loss", "fwd", "f64", "f64", 3, 1001, "49fd26cc543fdbdd", "huber"},
    {"pointwise_loss", "fwd", "f32", "f32", 3, 1001, "02609dbb9d1c9879", "bce_with_logits"},
    {"pointwise_loss", "fwd", "f64", "f64", 3, 1001, "8715b20a1cf52fd1", "bce_with_logits"},
    {"pointwise_loss", "fwd", "f32", "f32", 3, 999, "89c964db912463ea", "bce_with_logits", false,
     nullptr, "weight+pos_weight"},
    {"pointwise_loss", "bwd", "f32", "f32", 3, 1001, "d23ff3cdc26efd59", "mse"},
    {"pointwise_loss", "bwd", "f64", "f64", 3, 1001, "a9f0daeedc4f55cc", "mse"},
    {"pointwise_loss", "bwd", "f16", "f16", 3, 1001, "6a5d5c498d31bd97", "mse"},
    {"pointwise_loss", "bwd", "bf16", "bf16", 3, 1001, "b736a6621f3f4673", "mse"},
    {"pointwise_loss", "bwd", "f32", "f32", 3, 1001, "201e918663b1dccb", "l1"},
    {"pointwise_loss", "bwd", "f64", "f64", 3, 1001, "8d91cf5f44e56baf", "l1"},
    {"pointwise_loss", "bwd", "f32", "f32", 3, 1001, "fc06c9630dab72e2", "smooth_l1"},
    {"pointwise_loss", "bwd", "f64", "f64", 3, 1001, "b986ddefaf2c5c25", "smooth_l1"},
    {"pointwise_loss", "bwd", "f32", "f32", 3, 1001, "fc06c9630dab72e2", "huber"},
    {"pointwise_loss", "bwd", "f64", "f64", 3, 1001, "b986ddefaf2c5c25", "huber"},
    {"pointwise_loss", "bwd", "f32", "f32", 3, 1001, "873b25b0fe90bd38", "bce_with_logits"},
    {"pointwise_loss", "bwd", "f64", "f64", 3, 1001, "3e7c91aca8eae1b4", "bce_with_logits"},
    {"pointwise_loss", "bwd", "f32", "f32", 3, 999, "15272396b324032b", "bce_with_logits", false,
     nullptr, "weight+pos_weight"},
};

}  // namespace isobit::lab
