// SPDX-License-Identifier: Apache-2.0
// The bits of version 1 of reductions.
#pragma once

#include "golden.h"

namespace isobit::lab {

inline constexpr Golden kGoldenOfReductions[] = {
    {"reduce", "fwd", "f32", "f32", 8, 1000, "57c69a6dc84da341", "sum"},
    {"reduce", "fwd", "f32", "f32", 8, 1000, "6173efd628dbae1a", "mean"},
    {"reduce", "fwd", "f32", "f32", 8, 1000, "297c02af913d87ad", "var"},
    {"reduce", "fwd", "f32", "f32", 8, 1000, "0a5901af16f47c60", "std"},
    {"reduce", "fwd", "f32", "f32", 8, 1000, "8f1f25565572de03", "l2"},
    {"reduce", "fwd", "f32", "f32", 8, 1000, "5be38d20625e2b6e", "l1"},
    {"reduce", "fwd", "f32", "f32", 8, 1000, "7b416dc7e014e3e8", "largest"},
    {"reduce", "fwd", "f32", "f32", 8, 1000, "4240be6d5f5e3955", "smallest"},
    {"reduce", "fwd", "f32", "f32", 8, 1000, "c50c5e175dc830c2", "nonzero"},
    {"reduce", "fwd", "f32", "f32", 8, 1000, "9b78adf566a41791", "max"},
    {"reduce", "fwd", "f32", "f32", 8, 1000, "650434ddb53dc8ed", "min"},
    {"reduce", "fwd", "f64", "f64", 8, 1000, "89223437687c008b", "sum"},
    {"reduce", "fwd", "f64", "f64", 8, 1000, "4fc14829bd8212e8", "std"},
    {"reduce", "fwd", "f64", "f64", 8, 1000, "cd0fcd626f794582", "l2"},
    {"reduce", "fwd", "f16", "f16", 8, 1000, "7efd1448e35f98c6", "mean"},
    {"reduce", "fwd", "f16", "f16", 8, 1000, "2468a2d90de11dab", "var"},
    {"reduce", "fwd", "f16", "f16", 8, 1000, "f8b99b59025f2fe8", "l1"},
    {"reduce", "fwd", "bf16", "bf16", 8, 1000, "8bdbe940aa7a8163", "sum"},
    {"reduce", "fwd", "bf16", "bf16", 8, 1000, "687eb99cb8834659", "std"},
    {"reduce", "fwd", "bf16", "bf16", 8, 1000, "6bd17f0ec35cb521", "largest"},
    {"reduce", "fwd", "bf16", "bf16", 8, 1000, "a737d6c1ffb4ad2a", "sum", false, "f32"},
    {"reduce", "fwd", "f32", "f32", 3, 70000, "f879995950761a3a", "std"},
    {"reduce", "bwd", "f32", "f32", 8, 1000, "2831f13f76ca5d7e", "sum"},
    {"reduce", "bwd", "f32", "f32", 8, 1000, "c8100518976273b7", "mean"},
    {"reduce", "bwd", "f32", "f32", 8, 1000, "291f4cdf84a15fb9", "var"},
    {"reduce", "bwd", "f32", "f32", 8, 1000, "5ac80eaf5c443c48", "std"},
    {"reduce", "bwd", "f32", "f32", 8, 1000, "bb106f2e7b918716", "l2"},
    {"reduce", "bwd", "f32", "f32", 8, 1000, "4890a108f59e5d7b", "l1"},
    {"reduce", "bwd", "f32", "f32", 8, 1000, "1fd2c70248f40f8f", "largest"},
    {"reduce", "bwd", "f32", "f32", 8, 1000, "7ea0c987082dd432", "smallest"},
    {"reduce", "bwd", "f32", "f32", 8, 1000, "6833e4028f460f9e", "nonzero"},
    {"reduce", "bwd", "f32", "f32", 8, 1000, "0dbb7fd94204c3da", "max"},
    {"reduce", "bwd", "f32", "f32", 8, 1000, "ad502ce829712c88", "min"},
    {"reduce", "bwd", "f64", "f64", 8, 1000, "7abf77303f5c8a44", "sum"},
    {"reduce", "bwd", "f64", "f64", 8, 1000, "6c32963ceb62dd9a", "std"},
    {"reduce", "bwd", "f64", "f64", 8, 1000, "ec5e66b4440d4c9e", "l2"},
    {"reduce", "bwd", "f16", "f16", 8, 1000, "c4d03f34b0e2f4b0", "mean"},
    {"reduce", "bwd", "f16", "f16", 8, 1000, "87d661de94e79fc2", "var"},
    {"reduce", "bwd", "f16", "f16", 8, 1000, "5ddccac6e5047ce5", "l1"},
    {"reduce", "bwd", "bf16", "bf16", 8, 1000, "1906b22947ce2dd0", "sum"},
    {"reduce", "bwd", "bf16", "bf16", 8, 1000, "3b2fc9d3c5afc0f1", "std"},
    {"reduce", "bwd", "bf16", "bf16", 8, 1000, "836e9f1f56b86882", "largest"},
    {"reduce", "bwd", "bf16", "bf16", 8, 1000, "1906b22947ce2dd0", "sum", false, "f32"},
    {"reduce", "bwd", "f32", "f32", 3, 70000, "5078060a042b7d08", "std"},
    {"reduce", "fwd", "f32", "f32", 3, 70000, "4f0b6a0510ab9753", "sum"},
};

}  // namespace isobit::lab
