// SPDX-License-Identifier: Apache-2.0
// The C ABI between the lab and a peer, so that neither needs the other's headers or compiler.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Rises with every change below; the lab refuses a peer with another one.
#define ISOBIT_PEER_ABI 1

// The one symbol that a peer exports: a function of this type.
#define ISOBIT_PEER_ENTRY "isobit_peer"

typedef struct IsobitPeerArray {
  const char* name;  // of the library's vocabulary: x, weight, grad_y, ...
  void* data;
} IsobitPeerArray;

// Arrays are contiguous: (rows, cols) for x, y and residual, (cols) for weight and bias, (rows) for
// mean and rstd, which are f32, or f64 if x is. A gradient is like what it is the gradient of.
typedef struct IsobitPeerCase {
  const char* op;            // "layernorm", "elementwise"
  const char* pass;          // "fwd", "bwd"
  const char* kind;          // elementwise: "add", "increment"; elsewhere ""
  const char* dtype;         // of x, y and their gradients: "f32", "bf16", ...
  const char* weight_dtype;  // of weight, bias and their gradients
  int64_t rows;
  int64_t cols;
  double eps;
  int32_t threads;
  int32_t array_count;
  const IsobitPeerArray* arrays;
} IsobitPeerCase;

// Texts that a peer returns stay valid until its next call on the same thread.
typedef struct IsobitPeer {
  int32_t abi;
  const char* name;
  const char* version;
  // Does all that needs doing once. Returns a handle, or null and in *reason why it declines. The
  // arrays outlive the handle; the struct and its strings need not.
  void* (*prepare)(const IsobitPeerCase* c, const char** reason);
  // The work that is timed, and no more. Returns null, or what went wrong.
  const char* (*run)(void* handle);
  void (*release)(void* handle);
} IsobitPeer;

typedef const IsobitPeer* (*IsobitPeerEntry)(void);

#ifdef __cplusplus
}
#endif
