// SPDX-License-Identifier: Apache-2.0
// The bits of version 1 of operators whose results are made of windows; golden_bits.h has the
// others.
#pragma once

#include "golden.h"

namespace isobit::lab {

inline constexpr Golden kGoldenOfWindows[] = {
    windows("conv1d", "fwd", "f32", {2, 37, 100, 15}, "0e5e554a4351b0b6", "gelu", "bias+residual"),
    windows("conv1d", "fwd", "f32", {1, 1, 1000, 9}, "d90d916689c7c4c1"),
    windows("conv1d", "fwd", "bf16", {2, 13, 100, 15}, "6b1bb49275291a80"),
    windows("conv1d", "fwd", "f16", {2, 13, 100, 15}, "9322119109f48e12"),
    windows("conv1d", "fwd", "f64", {2, 13, 100, 15}, "da8665d43ba375be"),
    windows("conv1d", "bwd", "f32", {2, 8, 600, 15}, "22fdb495a644f7c7", "none", "grad_bias"),
    windows("conv1d", "bwd", "bf16", {2, 13, 100, 15}, "dd6afc18aca11e04"),
    windows("conv1d", "bwd", "f16", {2, 13, 100, 15}, "f8ff7162585c871e"),
    windows("conv1d", "bwd", "f64", {2, 13, 100, 15}, "9d7efe7a10da3723"),
    windows("conv2d", "fwd", "f32", {2, 60, 23, 3}, "81f1a42f55ec5722", "silu", "bias+residual"),
    windows("conv2d", "fwd", "f32", {1, 1, 70, 9}, "d456ac3f112eb429"),
    windows("conv2d", "fwd", "bf16", {2, 13, 23, 3}, "c1ed26de6bb3840b"),
    windows("conv2d", "fwd", "f16", {2, 13, 23, 3}, "9d1fbd73550d9e9f"),
    windows("conv2d", "fwd", "f64", {2, 13, 23, 3}, "1708db99f6ec92d1"),
    windows("conv2d", "bwd", "f32", {2, 30, 23, 3}, "fa81d2af366f6ba8", "none", "grad_bias"),
    windows("conv2d", "bwd", "bf16", {2, 13, 23, 3}, "a8cb5775de109d44"),
    windows("conv2d", "bwd", "f16", {2, 13, 23, 3}, "40fa3b2c9b9ad095"),
    windows("conv2d", "bwd", "f64", {2, 13, 23, 3}, "0ceaeb39d8587dcd"),

    windows("pool2d", "fwd", "f32", {2, 20, 29, 3}, "bf93ad02fa7792ca", "max", "index"),
    windows("pool2d", "fwd", "f32", {2, 20, 29, 3}, "0891f1af2d86f952", "average", "none"),
    windows("pool2d", "fwd", "f16", {2, 20, 29, 3}, "c2098ff730b52568", "max", "index"),
    windows("pool2d", "fwd", "f16", {2, 20, 29, 3}, "5df4996fdbe99a48", "average", "none"),
    windows("pool2d", "fwd", "bf16", {2, 20, 29, 3}, "19f72a2ef5a119b5", "max", "index"),
    windows("pool2d", "fwd", "bf16", {2, 20, 29, 3}, "93bf66efaba6d175", "average", "none"),
    windows("pool2d", "fwd", "f64", {2, 20, 29, 3}, "6c733ecb377fe8da", "max", "index"),
    windows("pool2d", "fwd", "f64", {2, 20, 29, 3}, "052cbb1da1694b6c", "average", "none"),
    windows("pool2d", "fwd", "f32", {2, 20, 29, 0}, "cb041d5761314e44", "max", "index"),
    windows("pool2d", "fwd", "f32", {1, 3, 60, 25}, "d28453476ff903fa", "max", "index"),
    windows("pool2d", "fwd", "f32", {2, 20, 29, 0}, "75e1496f878c49d1", "average", "none"),
    windows("pool2d", "fwd", "f32", {1, 3, 60, 25}, "4acf34552fc0dfd1", "average", "none"),
    windows("pool2d", "bwd", "f32", {2, 20, 29, 3}, "5c33b23f8181a1af", "max", "none"),
    windows("pool2d", "bwd", "f32", {2, 20, 29, 3}, "ff7ec85e15dbd735", "average", "none"),
    windows("pool2d", "bwd", "f16", {2, 20, 29, 3}, "71988b306c46698a", "max", "none"),
    windows("pool2d", "bwd", "f16", {2, 20, 29, 3}, "56ff0844f1547c3e", "average", "none"),
    windows("pool2d", "bwd", "bf16", {2, 20, 29, 3}, "c829f297ddc50312", "max", "none"),
    windows("pool2d", "bwd", "bf16", {2, 20, 29, 3}, "02282a01ca3b0e2e", "average", "none"),
    windows("pool2d", "bwd", "f64", {2, 20, 29, 3}, "bb568b34b2950094", "max", "none"),
    windows("pool2d", "bwd", "f64", {2, 20, 29, 3}, "ecfa3322c566691a", "average", "none"),
    windows("pool2d", "bwd", "f32", {2, 20, 29, 0}, "0bc28dc27687fa9f", "max", "none"),
    windows("pool2d", "bwd", "f32", {1, 3, 60, 25}, "eff7ce573a579a14", "max", "none"),
    windows("pool2d", "bwd", "f32", {2, 20, 29, 0}, "d2b252efd993074c", "average", "none"),
    windows("pool2d", "bwd", "f32", {1, 3, 60, 25}, "9d00f725db07d2c8", "average", "none"),
};

}  // namespace isobit::lab
