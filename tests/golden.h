// SPDX-License-Identifier: Apache-2.0
// What golden_bits.h writes down of a call whose bits golden_test.cpp holds to those of its
// version.
#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

namespace isobit::lab {

struct Golden {
  const char *op, *pass, *dtype, *weight_dtype;
  std::int64_t rows, cols;
  const char* bits;
  const char* kind = "add";  // or the function of an activation, or rope's style, ...
  bool given_statistics = false;
  const char* y_dtype = nullptr;  // null: as x
  const char* with = "none";
  bool zero_centered = false;
  double dropout = 0;
  std::int64_t batch = 0;  // 0: the operation has no such dim
  std::int64_t depth = 0;  // of products, whose rows and cols are those of y; else features
};

// The version of an operator that bits are written down of. Versions 2 and 3 of pointwise_loss have
// other bits only where version 1 was not finite, or lost digits below the normal numbers: its own
// tests hold those.
constexpr int version_of(std::string_view op) { return op == "pointwise_loss" ? 3 : 1; }

inline void PrintTo(const Golden& golden, std::ostream* out) {
  *out << golden.op << " " << golden.pass;
}

// Widths on both sides of a block, of one and many blocks; rows on both sides of a run.
struct Sizes {
  std::int64_t batch, m, n, k;
};
constexpr Golden product(const char* pass, const char* dtype, Sizes sizes, const char* bits,
                         const char* activation, const char* with) {
  return {.op = "matmul",
          .pass = pass,
          .dtype = dtype,
          .weight_dtype = dtype,
          .rows = sizes.m,
          .cols = sizes.n,
          .bits = bits,
          .kind = activation,
          .with = with,
          .batch = sizes.batch,
          .depth = sizes.k};
}

// Of a norm and its linear layer; sizes are rows, features and cols.
constexpr Golden linear(const char* op, const char* pass, const char* dtype,
                        const char* weight_dtype, Sizes sizes, const char* bits,
                        const char* activation = "none", const char* with = "none",
                        double dropout = 0) {
  return {.op = op,
          .pass = pass,
          .dtype = dtype,
          .weight_dtype = weight_dtype,
          .rows = sizes.m,
          .cols = sizes.k,
          .bits = bits,
          .kind = activation,
          .with = with,
          .dropout = dropout,
          .depth = sizes.n};
}

// Sizes are batch (none), rows, cols and tokens.
constexpr Golden embedding(const char* pass, const char* dtype, Sizes sizes, const char* bits,
                           const char* options) {
  return {.op = "embedding",
          .pass = pass,
          .dtype = dtype,
          .weight_dtype = dtype,
          .rows = sizes.m,
          .cols = sizes.n,
          .bits = bits,
          .kind = options,
          .depth = sizes.k};
}

// Of convolutions rows are channels and filters, cols the last extent, depth the taps of a side.
constexpr Golden windows(const char* op, const char* pass, const char* dtype, Sizes sizes,
                         const char* bits, const char* activation = "none",
                         const char* with = "none") {
  return {.op = op,
          .pass = pass,
          .dtype = dtype,
          .weight_dtype = dtype,
          .rows = sizes.m,
          .cols = sizes.n,
          .bits = bits,
          .kind = activation,
          .with = with,
          .batch = sizes.batch,
          .depth = sizes.k};
}

// Two heads of q for each of k; sizes are batch, queries, keys and elements of a head.
constexpr Golden attention(const char* pass, const char* dtype, Sizes sizes, const char* bits,
                           const char* causal, const char* with, double dropout = 0) {
  return {.op = "attention",
          .pass = pass,
          .dtype = dtype,
          .weight_dtype = dtype,
          .rows = sizes.m,
          .cols = sizes.n,
          .bits = bits,
          .kind = causal,
          .with = with,
          .dropout = dropout,
          .batch = sizes.batch,
          .depth = sizes.k};
}

}  // namespace isobit::lab
