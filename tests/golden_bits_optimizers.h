// SPDX-License-Identifier: Apache-2.0
// The bits of version 1 of the steps of optimisers, whose kinds are those of their rules, and of
// the norms that gradients are clipped by; golden_bits.h has the others.
#pragma once

#include "golden.h"

namespace isobit::lab {

inline constexpr Golden kGoldenOfOptimizers[] = {
    {"sgd", "fwd", "f32", "f32", 8, 1000, "862e5fea831fc35b", "plain"},
    {"sgd", "fwd", "f32", "f32", 8, 1000, "b8a2e3ce0ee1baff", "heavy"},
    {"sgd", "fwd", "f32", "f32", 8, 1000, "11c2388cb5805b02", "nesterov"},
    {"adam", "fwd", "f32", "f32", 8, 1000, "d1976427bac77411", "coupled"},
    {"adam", "fwd", "f32", "f32", 8, 1000, "945d272652c0520a", "decoupled"},
    {"lion", "fwd", "f32", "f32", 8, 1000, "8260b0d39637c7ee", "plain"},
    {"vector_norm", "fwd", "f32", "f32", 8, 1000, "8f1f25565572de03", "l2"},
    {"vector_norm", "fwd", "f32", "f32", 8, 1000, "5be38d20625e2b6e", "l1"},
    {"vector_norm", "fwd", "f32", "f32", 8, 1000, "7b416dc7e014e3e8", "max"},
    {"sgd", "fwd", "f64", "f64", 8, 1000, "084b6ea49dd9d0f6", "plain"},
    {"sgd", "fwd", "f64", "f64", 8, 1000, "bd1819bacbfb3d50", "heavy"},
    {"sgd", "fwd", "f64", "f64", 8, 1000, "7ac7556bf15d9a21", "nesterov"},
    {"adam", "fwd", "f64", "f64", 8, 1000, "6742dd7feaafa1bd", "coupled"},
    {"adam", "fwd", "f64", "f64", 8, 1000, "69b86a6f5348e6ee", "decoupled"},
    {"lion", "fwd", "f64", "f64", 8, 1000, "6515984cfb7b88ad", "plain"},
    {"vector_norm", "fwd", "f64", "f64", 8, 1000, "cd0fcd626f794582", "l2"},
    {"vector_norm", "fwd", "f64", "f64", 8, 1000, "acf1e9a18b1d3ef1", "l1"},
    {"vector_norm", "fwd", "f64", "f64", 8, 1000, "189a40fb65a6a60b", "max"},
    {"sgd", "fwd", "f16", "f16", 8, 1000, "2d8d150d7209d2b3", "plain"},
    {"sgd", "fwd", "f16", "f16", 8, 1000, "185544312e0db566", "heavy"},
    {"sgd", "fwd", "f16", "f16", 8, 1000, "e647cb742bd0511c", "nesterov"},
    {"adam", "fwd", "f16", "f16", 8, 1000, "bed070aa7e1a9db6", "coupled"},
    {"adam", "fwd", "f16", "f16", 8, 1000, "bffcf3c9b0de9476", "decoupled"},
    {"lion", "fwd", "f16", "f16", 8, 1000, "4cf7852f26c96df8", "plain"},
    {"vector_norm", "fwd", "f16", "f16", 8, 1000, "d663961599ef7d5d", "l2"},
    {"vector_norm", "fwd", "f16", "f16", 8, 1000, "260a1f9d8d857d2a", "l1"},
    {"vector_norm", "fwd", "f16", "f16", 8, 1000, "7a34d7dd3bb6acea", "max"},
    {"sgd", "fwd", "bf16", "bf16", 8, 1000, "43f480f29a98e30e", "plain"},
    {"sgd", "fwd", "bf16", "bf16", 8, 1000, "e44218158ed59124", "heavy"},
    {"sgd", "fwd", "bf16", "bf16", 8, 1000, "418f198c6335c55d", "nesterov"},
    {"adam", "fwd", "bf16", "bf16", 8, 1000, "5438a4bbc6b331b5", "coupled"},
    {"adam", "fwd", "bf16", "bf16", 8, 1000, "0f24ba47ccd373b7", "decoupled"},
    {"lion", "fwd", "bf16", "bf16", 8, 1000, "1404e98cdb195995", "plain"},
    {"vector_norm", "fwd", "bf16", "bf16", 8, 1000, "71e7586e095e093c", "l2"},
    {"vector_norm", "fwd", "bf16", "bf16", 8, 1000, "dae3e672261218a8", "l1"},
    {"vector_norm", "fwd", "bf16", "bf16", 8, 1000, "59b2eed49f272816", "max"},
    {"sgd", "fwd", "f32", "f32", 8, 600, "825e1d50400399e7", "heavy", false, "bf16", "narrow"},
    {"adam", "fwd", "f32", "f32", 8, 600, "8721e4f6864c4016", "decoupled", false, "bf16", "narrow"},
    {"lion", "fwd", "f32", "f32", 8, 600, "430b59ac348ebc14", "plain", false, "bf16", "narrow"},
    {"adam", "fwd", "f32", "f32", 8, 600, "8558b22bfd8902c9", "coupled", false, nullptr,
     "max_exp_avg_sq+new_max_exp_avg_sq"},
    {"vector_norm", "fwd", "f32", "f32", 3, 70000, "7d25c0b16a008852", "l2"},
};

}  // namespace isobit::lab
