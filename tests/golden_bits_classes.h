// SPDX-License-Identifier: Apache-2.0
// The bits of version 1 of operators that take a class, or a token, for each row.
#pragma once

#include "golden.h"

namespace isobit::lab {

inline constexpr Golden kGoldenOfClasses[] = {
    {"cross_entropy", "fwd", "f32", "f32", 40, 1000, "7fd4ef44343ffebf", "target"},
    {"cross_entropy", "fwd", "f64", "f64", 40, 1000, "f8d067cb83d2a795", "target"},
    {"cross_entropy", "fwd", "f16", "f16", 40, 1000, "40db2d3fc43ebb14", "target"},
    {"cross_entropy", "fwd", "bf16", "bf16", 40, 1000, "93efc1ba9a6832b6", "target"},
    {"cross_entropy", "fwd", "f32", "f32", 600, 10, "ec01bcce9d7ccf66", "all", false, nullptr,
     "weight+lse"},
    {"cross_entropy", "fwd", "bf16", "bf16", 8, 600, "1b8d35415c3e6143", "all", false, nullptr,
     "weight+lse"},
    {"cross_entropy", "bwd", "f32", "f32", 40, 1000, "f660314fda3c46b9", "target"},
    {"cross_entropy", "bwd", "f64", "f64", 40, 1000, "71a3802431365b53", "target"},
    {"cross_entropy", "bwd", "f16", "f16", 40, 1000, "d5f279e310f0666f", "target"},
    {"cross_entropy", "bwd", "bf16", "bf16", 40, 1000, "223be105251235e0", "target"},
    {"cross_entropy", "bwd", "f32", "f32", 600, 10, "691116586abe34f1", "all", false, nullptr,
     "weight"},
    {"cross_entropy", "bwd", "bf16", "bf16", 8, 600, "f5b8317a702b79d0", "all", false, nullptr,
     "weight"},
    linear("linear_cross_entropy", "fwd", "f32", "f32", {0, 40, 530, 100}, "4098306e3a6927a1",
           "target", "none"),
    linear("linear_cross_entropy", "fwd", "f64", "f64", {0, 40, 530, 100}, "8b2a4471a9679305",
           "target", "none"),
    linear("linear_cross_entropy", "fwd", "f16", "f16", {0, 40, 530, 100}, "8b33bd6545198643",
           "target", "none"),
    linear("linear_cross_entropy", "fwd", "bf16", "bf16", {0, 40, 530, 100}, "298a3272eb028963",
           "target", "none"),
    linear("linear_cross_entropy", "fwd", "f32", "f32", {0, 1100, 10, 13}, "4052a5331a661b6b",
           "all", "bias+class_weight+lse"),
    linear("linear_cross_entropy", "fwd", "bf16", "bf16", {0, 8200, 5, 3}, "d33a332266bd4a23",
           "all", "bias+class_weight+lse"),
    linear("linear_cross_entropy", "bwd", "f32", "f32", {0, 40, 530, 100}, "7a0e0fb299259c3c",
           "target", "none"),
    linear("linear_cross_entropy", "bwd", "f64", "f64", {0, 40, 530, 100}, "b8852db7eafb193e",
           "target", "none"),
    linear("linear_cross_entropy", "bwd", "f16", "f16", {0, 40, 530, 100}, "44672a190593f606",
           "target", "none"),
    linear("linear_cross_entropy", "bwd", "bf16", "bf16", {0, 40, 530, 100}, "a72f62869bd26974",
           "target", "none"),
    linear("linear_cross_entropy", "bwd", "f32", "f32", {0, 1100, 10, 13}, "4df87b388b044916",
           "all", "bias+class_weight+grad_bias"),
    linear("linear_cross_entropy", "bwd", "bf16", "bf16", {0, 8200, 5, 3}, "20ec7f518facdaf2",
           "all", "bias+class_weight+grad_bias"),
    embedding("fwd", "f32", {0, 40, 100, 19}, "36470a8fea62fa62", "of"),
    embedding("fwd", "f64", {0, 40, 100, 19}, "7fec8aeb687f7910", "of"),
    embedding("fwd", "f16", {0, 40, 100, 19}, "e5f695668d7f43e3", "of"),
    embedding("fwd", "bf16", {0, 40, 100, 19}, "155947f46a3191ec", "of"),
    embedding("bwd", "f32", {0, 1000, 70, 3}, "c66b3f7906187152", "sum"),
    embedding("bwd", "f64", {0, 1000, 70, 3}, "f85ed7762d014148", "sum"),
    embedding("bwd", "f16", {0, 1000, 70, 3}, "f3c1cb7064d3456b", "sum"),
    embedding("bwd", "bf16", {0, 1000, 70, 3}, "06b3f8c9742a71bb", "sum"),
    embedding("bwd", "f32", {0, 1000, 70, 5}, "d4c6283b11dca3c9", "all"),
    embedding("bwd", "bf16", {0, 1000, 70, 5}, "fdfd2a41ecf8f206", "all"),
    embedding("bwd", "f32", {0, 17, 600, 900}, "7ee3f07f67b62eb8", "sum"),
};

}  // namespace isobit::lab
