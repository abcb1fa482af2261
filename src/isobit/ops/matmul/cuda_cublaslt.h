// SPDX-License-Identifier: Apache-2.0
// NVIDIA's cuBLASLt, which is looked for when it is first named: its functions by their
// documentation, whose numbers do not change from version to version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace isobit::matmul::cublaslt {

// Handles of things that only the library knows.
using Context = struct ContextOfLibrary*;
using Product = struct ProductOfLibrary*;
using Layout = struct LayoutOfLibrary*;
using Preference = struct PreferenceOfLibrary*;
using Status = int;  // 0: done

struct Algorithm {
  std::uint64_t data[8];
};
struct Found {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  Status status;
  float waves;
  int reserved[4];
};

// cudaDataType_t, cublasComputeType_t, cublasOperation_t.
enum Type : int { kF32 = 0, kF64 = 1, kF16 = 2, kBf16 = 14 };
enum Compute : int { kInF32 = 68, kInF64 = 70 };
enum Turn : std::int32_t { kPlain = 0, kTransposed = 1 };
// Attributes of a product, of a layout, of a preference.
enum ProductAttribute : int { kTurnOfA = 3, kTurnOfB = 4 };
enum LayoutAttribute : int { kBatchCount = 5, kBatchStride = 6 };
enum PreferenceAttribute : int {
  kMostWorkspace = 1,
  kAlignmentOfA = 5,
  kAlignmentOfB = 6,
  kAlignmentOfC = 7,
  kAlignmentOfD = 8
};

// All that is called, with its parameters.
#define ISOBIT_CUBLASLT(DO)                                                                   \
  DO(cublasLtCreate, (Context*))                                                              \
  DO(cublasLtMatmulDescCreate, (Product*, Compute, Type))                                     \
  DO(cublasLtMatmulDescDestroy, (Product))                                                    \
  DO(cublasLtMatmulDescSetAttribute, (Product, ProductAttribute, const void*, std::size_t))   \
  DO(cublasLtMatrixLayoutCreate, (Layout*, Type, std::uint64_t, std::uint64_t, std::int64_t)) \
  DO(cublasLtMatrixLayoutDestroy, (Layout))                                                   \
  DO(cublasLtMatrixLayoutSetAttribute, (Layout, LayoutAttribute, const void*, std::size_t))   \
  DO(cublasLtMatmulPreferenceCreate, (Preference*))                                           \
  DO(cublasLtMatmulPreferenceDestroy, (Preference))                                           \
  DO(cublasLtMatmulPreferenceSetAttribute,                                                    \
     (Preference, PreferenceAttribute, const void*, std::size_t))                             \
  DO(cublasLtMatmulAlgoGetHeuristic,                                                          \
     (Context, Product, Layout, Layout, Layout, Layout, Preference, int, Found*, int*))       \
  DO(cublasLtMatmul,                                                                          \
     (Context, Product, const void*, const void*, Layout, const void*, Layout, const void*,   \
      const void*, Layout, void*, Layout, const Algorithm*, void*, std::size_t, void*))

struct Library {
  std::string missing;     // why it cannot be used, and what to do; empty where it can
  bool stands_in = false;  // for tests: it computes on the processor
#define ISOBIT_DECLARE(name, parameters) Status(*name) parameters = nullptr;
  ISOBIT_CUBLASLT(ISOBIT_DECLARE)
#undef ISOBIT_DECLARE
};

// The file that ISOBIT_CUBLASLT_LIBRARY names, or else the newest that the system finds.
const Library& library();
bool is_named();  // whether the variable of the environment names a file

}  // namespace isobit::matmul::cublaslt
