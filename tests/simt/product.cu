// SPDX-License-Identifier: Apache-2.0
// A product of two matrices of 16 x 16: what no operator uses yet of simt, for nvcc and for
// product_test.cpp.
#include "simt/product.h"

#include "isobit/simt/simt.h"

namespace isobit::simt {
namespace {

template <class T>
struct Product {
  static constexpr int kMostThreads = kWarpThreads;
  static constexpr int kSize = 16;
  struct Memory {
    T *a, *b;
  };

  const T *a, *b;  // by rows
  float* c;

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    T* const left = carver.template take<T>(kSize * kSize);
    return {left, carver.template take<T>(kSize * kSize)};
  }

  ISOBIT_DEVICE void operator()(const Memory& shared) const {
    for (int i = thread(); i < kSize * kSize; i += kWarpThreads) {
      shared.a[i] = a[i];
      shared.b[i] = b[i];
    }
    sync_warp();
    const int row = lane() % 8, matrix = lane() / 8;
    unsigned left[4], right[4];
    // Those of a: upper left, lower left, upper right, lower right.
    load_matrices<false>(left, shared.a + (row + matrix % 2 * 8) * kSize + matrix / 2 * 8);
    // Those of b: the same; its rows are what the product takes by columns.
    load_matrices<true>(right, shared.b + (row + matrix % 2 * 8) * kSize + matrix / 2 * 8);
    for (int half = 0; half < 2; ++half) {
      float sums[4] = {};
      const unsigned columns[2] = {right[2 * half], right[2 * half + 1]};
      multiply_add<T>(sums, left, columns);
      for (int i = 0; i < 4; ++i)
        c[(lane() / 4 + i / 2 * 8) * kSize + half * 8 + lane() % 4 * 2 + i % 2] = sums[i];
    }
  }
};

}  // namespace

void product(const bf16* a, const bf16* b, float* c) {
  launch(Stream{}, {.threads = kWarpThreads}, Product<bf16>{a, b, c});
}
void product(const f16* a, const f16* b, float* c) {
  launch(Stream{}, {.threads = kWarpThreads}, Product<f16>{a, b, c});
}

}  // namespace isobit::simt
