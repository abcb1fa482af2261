// SPDX-License-Identifier: Apache-2.0
// The bits of version 1 of operators that normalise channels; golden_bits.h has the others.
#pragma once

#include "golden.h"

namespace isobit::lab {

// Sizes are batch, channels, elements of a channel and groups (0: batch_norm, which has none).
constexpr Golden channels(const char* op, const char* pass, const char* dtype,
                          const char* weight_dtype, Sizes sizes, const char* bits,
                          const char* kind = "training") {
  return {.op = op,
          .pass = pass,
          .dtype = dtype,
          .weight_dtype = weight_dtype,
          .rows = sizes.m,
          .cols = sizes.n,
          .bits = bits,
          .kind = kind,
          .batch = sizes.batch,
          .depth = sizes.k};
}

inline constexpr Golden kGoldenOfChannels[] = {
    channels("group_norm", "fwd", "f32", "f32", {3, 6, 300, 2}, "a1633887df32ef5b"),
    channels("group_norm", "fwd", "f64", "f64", {3, 6, 300, 2}, "4d07a4a7def92166"),
    channels("group_norm", "fwd", "f16", "f16", {3, 6, 300, 2}, "e100ef326c16c8b4"),
    channels("group_norm", "fwd", "bf16", "f32", {3, 6, 300, 2}, "852f4130c1cf2fe6"),
    channels("group_norm", "fwd", "f32", "f32", {2, 12, 7, 12}, "7139de28a80861dc"),
    channels("group_norm", "fwd", "f32", "f32", {1, 3, 9000, 1}, "803e0afa2d14b9d1"),
    channels("group_norm", "bwd", "f32", "f32", {3, 6, 300, 2}, "6b81a79784ff2136"),
    channels("group_norm", "bwd", "f64", "f64", {3, 6, 300, 2}, "fbc2fc67c3e4f944"),
    channels("group_norm", "bwd", "f16", "f16", {3, 6, 300, 2}, "2721eb4e627e63c3"),
    channels("group_norm", "bwd", "bf16", "f32", {3, 6, 300, 2}, "bbeabd684fa80c9a"),
    channels("group_norm", "bwd", "f32", "f32", {2, 12, 7, 12}, "93cd79bd0611fc97"),
    channels("group_norm", "bwd", "f32", "f32", {1, 3, 9000, 1}, "e0874ba20fd564c6"),
    channels("batch_norm", "fwd", "f32", "f32", {3, 6, 300, 0}, "ea0ba9435107b9f2"),
    channels("batch_norm", "fwd", "f64", "f64", {3, 6, 300, 0}, "06fc2a3b3a14b5f4"),
    channels("batch_norm", "fwd", "f16", "f16", {3, 6, 300, 0}, "cacdfd18c47eff65"),
    channels("batch_norm", "fwd", "bf16", "f32", {3, 6, 300, 0}, "eb09c13b8535b2b6"),
    channels("batch_norm", "fwd", "f32", "f32", {600, 70, 1, 0}, "df0c37d979e4d212"),
    channels("batch_norm", "fwd", "f32", "f32", {2, 1, 9000, 0}, "5fef0349724fcadd"),
    channels("batch_norm", "fwd", "f32", "f32", {3, 6, 300, 0}, "ea5226fd3473ec7b", "running"),
    channels("batch_norm", "bwd", "f32", "f32", {3, 6, 300, 0}, "e55308341b371632"),
    channels("batch_norm", "bwd", "f64", "f64", {3, 6, 300, 0}, "a8fe4399a9a8e818"),
    channels("batch_norm", "bwd", "f16", "f16", {3, 6, 300, 0}, "272b940a492dd808"),
    channels("batch_norm", "bwd", "bf16", "f32", {3, 6, 300, 0}, "2e6eb8ea84b2c4f1"),
    channels("batch_norm", "bwd", "f32", "f32", {600, 70, 1, 0}, "bc716598781a8ef0"),
    channels("batch_norm", "bwd", "f32", "f32", {2, 1, 9000, 0}, "ebad2742bc6e1873"),
    channels("batch_norm", "bwd", "f32", "f32", {3, 6, 300, 0}, "ef46594e30af1198", "running"),
};

}  // namespace isobit::lab
