// SPDX-License-Identifier: Apache-2.0
// The C ABI between the lab and a peer, so that neither needs the other's headers or compiler.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Rises with every change below; the lab refuses a peer with another one.
#define ISOBIT_PEER_ABI 5

// The one symbol that a peer exports: a function of this type.
#define ISOBIT_PEER_ENTRY "isobit_peer"

typedef struct IsobitPeerArray {
  const char* name;  // of the library's vocabulary: x, weight, grad_y, ...
  void* data;
  int32_t transposed;  // 1: its last two dimensions lie in memory the other way round
} IsobitPeerArray;

// A dimension of the operator: rows, cols, batch, ...
typedef struct IsobitPeerDim {
  const char* name;
  int64_t extent;
} IsobitPeerDim;

// An option of the operator. A peer declines a case with an option that it does not know, unless
// the option has its usual value.
typedef struct IsobitPeerOption {
  const char* name;
  const char* text;  // of a choice; else ""
  double number;
  int32_t usual;  // whether this is what a call has that does not give the option
} IsobitPeerOption;

// Arrays are contiguous but for transposed ones, with the dimensions that the operator's
// description gives them. Statistics are f32, or f64 if x is; a gradient is like what it is the
// gradient of.
typedef struct IsobitPeerCase {
  const char* op;            // "layernorm", "elementwise"
  const char* pass;          // "fwd", "bwd"
  const char* dtype;         // of x: "f32", "bf16", ...
  const char* weight_dtype;  // of weight, bias and their gradients
  const char* y_dtype;
  int32_t threads;
  int32_t dim_count;
  const IsobitPeerDim* dims;
  int32_t option_count;
  const IsobitPeerOption* options;
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
  // The most bytes that the work has allocated at once, by one more run, or -1 where that fails;
  // null where the peer cannot know.
  int64_t (*most_allocated)(void* handle);
} IsobitPeer;

// Null where a library that the peer loads itself is missing or lacks a function: dlerror() says
// so.
typedef const IsobitPeer* (*IsobitPeerEntry)(void);

#ifdef __cplusplus
}
#endif
