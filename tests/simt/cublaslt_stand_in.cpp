// SPDX-License-Identifier: Apache-2.0
// Stands in for cuBLASLt: the functions that matmul calls, by NVIDIA's documentation and on the
// processor. It refuses what the documentation forbids, and tells what it was asked for.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "isobit/core/dtype.h"

namespace {

using isobit::bf16;
using isobit::f16;

constexpr int kDone = 0, kInvalid = 7, kNotSupported = 15;

struct Product {
  int compute, scale;
  std::int32_t turned[2] = {0, 0};
};
struct Layout {
  int type;
  std::uint64_t rows, cols;
  std::int64_t apart;
  std::int32_t count = 1;
  std::int64_t step = 0;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t alignments[4] = {256, 256, 256, 256};
};
struct Algorithm {
  std::uint64_t data[8];
};
struct Found {
  Algorithm algorithm;
  std::size_t workspace;
  int status;
  float waves;
  int reserved[4];
};
constexpr std::uint64_t kMark = 0x1507;

std::string told;
std::string log_of_calls;

void tell(const std::string& what) { log_of_calls += what + "\n"; }

std::string told_of(const Layout& layout) {
  std::string text = "type " + std::to_string(layout.type) + ", " + std::to_string(layout.rows) +
                     " x " + std::to_string(layout.cols) + ", ld " + std::to_string(layout.apart);
  if (layout.count != 1)
    text += ", " + std::to_string(layout.count) + " by " + std::to_string(layout.step);
  return text;
}

double at(const Layout& layout, const void* data, std::uint64_t row, std::uint64_t col, int which) {
  const auto index = static_cast<std::size_t>(static_cast<std::int64_t>(col) * layout.apart +
                                              static_cast<std::int64_t>(row) + which * layout.step);
  switch (layout.type) {
    case 0:  return static_cast<const float*>(data)[index];
    case 1:  return static_cast<const double*>(data)[index];
    case 2:  return isobit::to_float(static_cast<const f16*>(data)[index]);
    default: return isobit::to_float(static_cast<const bf16*>(data)[index]);
  }
}
void put(const Layout& layout, void* data, std::uint64_t row, std::uint64_t col, int which,
         double value) {
  const auto index = static_cast<std::size_t>(static_cast<std::int64_t>(col) * layout.apart +
                                              static_cast<std::int64_t>(row) + which * layout.step);
  const auto single = static_cast<float>(value);
  switch (layout.type) {
    case 0:  static_cast<float*>(data)[index] = isobit::narrow<float>(single); break;
    case 1:  static_cast<double*>(data)[index] = isobit::narrow<double>(value); break;
    case 2:  static_cast<f16*>(data)[index] = isobit::narrow<f16>(single); break;
    default: static_cast<bf16*>(data)[index] = isobit::narrow<bf16>(single); break;
  }
}

template <class T>
int set(T& member, const void* from, std::size_t bytes) {
  if (bytes != sizeof member) return kInvalid;
  std::memcpy(&member, from, bytes);
  return kDone;
}

// Extents of the operands after their turns, and types that go together.
bool go_together(const Product& p, const Layout& a, const Layout& b, const Layout& c,
                 const Layout& d) {
  const auto [rows, depth] =
      p.turned[0] != 0 ? std::pair(a.cols, a.rows) : std::pair(a.rows, a.cols);
  const auto [depth_of_b, cols] =
      p.turned[1] != 0 ? std::pair(b.cols, b.rows) : std::pair(b.rows, b.cols);
  if (depth != depth_of_b || d.rows != rows || d.cols != cols || c.rows != rows || c.cols != cols)
    return false;
  if (a.count != b.count || a.count != c.count || a.count != d.count) return false;
  if (a.type != b.type || c.type != d.type) return false;
  const bool in_f64 = a.type == 1;
  return p.compute == (in_f64 ? 70 : 68) && p.scale == (in_f64 ? 1 : 0) &&
         (d.type == a.type || (d.type == 0 && (a.type == 2 || a.type == 14)));
}

bool is_aligned(const void* address, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

}  // namespace

#define ISOBIT_EXPORT extern "C" __attribute__((visibility("default")))

// What it was asked for since it was asked last.
ISOBIT_EXPORT const char* isobit_stands_in_for_cublaslt() {
  told.swap(log_of_calls);
  log_of_calls.clear();
  return told.c_str();
}

ISOBIT_EXPORT int cublasLtCreate(void** handle) {
  static char kContext;
  *handle = &kContext;
  tell("create");
  return kDone;
}

ISOBIT_EXPORT int cublasLtMatmulDescCreate(Product** product, int compute, int scale) {
  *product = new Product{compute, scale};
  return kDone;
}
ISOBIT_EXPORT int cublasLtMatmulDescDestroy(Product* product) {
  delete product;
  return kDone;
}
ISOBIT_EXPORT int cublasLtMatmulDescSetAttribute(Product* product, int attribute, const void* from,
                                                 std::size_t bytes) {
  if (attribute != 3 && attribute != 4) return kInvalid;
  return set(product->turned[attribute - 3], from, bytes);
}

ISOBIT_EXPORT int cublasLtMatrixLayoutCreate(Layout** layout, int type, std::uint64_t rows,
                                             std::uint64_t cols, std::int64_t apart) {
  if (rows == 0 || cols == 0 || apart < static_cast<std::int64_t>(rows)) return kInvalid;
  *layout = new Layout{type, rows, cols, apart};
  return kDone;
}
ISOBIT_EXPORT int cublasLtMatrixLayoutDestroy(Layout* layout) {
  delete layout;
  return kDone;
}
ISOBIT_EXPORT int cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* from,
                                                   std::size_t bytes) {
  if (attribute == 5) return set(layout->count, from, bytes);
  if (attribute == 6) return set(layout->step, from, bytes);
  return kInvalid;
}

ISOBIT_EXPORT int cublasLtMatmulPreferenceCreate(Preference** preference) {
  *preference = new Preference;
  return kDone;
}
ISOBIT_EXPORT int cublasLtMatmulPreferenceDestroy(Preference* preference) {
  delete preference;
  return kDone;
}
ISOBIT_EXPORT int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute,
                                                       const void* from, std::size_t bytes) {
  if (attribute == 1) return set(preference->workspace, from, bytes);
  if (attribute >= 5 && attribute <= 8)
    return set(preference->alignments[attribute - 5], from, bytes);
  return kInvalid;
}

// The algorithm remembers for what it was found.
ISOBIT_EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, Product* product, Layout* a, Layout* b,
                                                 Layout* c, Layout* d, Preference* preference,
                                                 int wanted, Found* found, int* count) {
  *count = 0;
  if (!go_together(*product, *a, *b, *c, *d)) return kNotSupported;
  if (wanted < 1) return kInvalid;
  *found = {};
  found->algorithm.data[0] = kMark;
  for (int i = 0; i < 4; ++i) found->algorithm.data[1 + i] = preference->alignments[i];
  found->workspace = preference->workspace;
  *count = 1;
  return kDone;
}

ISOBIT_EXPORT int cublasLtMatmul(void*, Product* product, const void* alpha, const void* a,
                                 Layout* of_a, const void* b, Layout* of_b, const void* beta,
                                 const void* c, Layout* of_c, void* d, Layout* of_d,
                                 const Algorithm* algorithm, void* workspace, std::size_t bytes,
                                 void*) {
  tell("compute " + std::to_string(product->compute) + ", scale " + std::to_string(product->scale));
  tell(std::string("a ") + (product->turned[0] != 0 ? "T " : "N ") + told_of(*of_a));
  tell(std::string("b ") + (product->turned[1] != 0 ? "T " : "N ") + told_of(*of_b));
  tell("c " + told_of(*of_c));
  tell("d " + told_of(*of_d));
  tell("workspace " + std::to_string(bytes));
  if (!go_together(*product, *of_a, *of_b, *of_c, *of_d)) return kNotSupported;
  if (algorithm == nullptr || algorithm->data[0] != kMark) return kInvalid;
  if (!is_aligned(workspace, 256) || workspace == nullptr) return kInvalid;
  std::memset(workspace, 0xff, bytes);  // it is all the library's
  const void* const addresses[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (!is_aligned(addresses[i], algorithm->data[1 + i])) return kInvalid;
  const bool in_f64 = product->scale == 1;
  const auto scale = [&](const void* from) {
    return in_f64 ? *static_cast<const double*>(from)
                  : static_cast<double>(*static_cast<const float*>(from));
  };
  const bool turned_a = product->turned[0] != 0, turned_b = product->turned[1] != 0;
  const std::uint64_t depth = turned_a ? of_a->rows : of_a->cols;
  for (int which = 0; which < of_d->count; ++which)
    for (std::uint64_t row = 0; row < of_d->rows; ++row)
      for (std::uint64_t col = 0; col < of_d->cols; ++col) {
        double sum = 0;
        for (std::uint64_t k = 0; k < depth; ++k)
          sum += (turned_a ? at(*of_a, a, k, row, which) : at(*of_a, a, row, k, which)) *
                 (turned_b ? at(*of_b, b, col, k, which) : at(*of_b, b, k, col, which));
        double value = scale(alpha) * sum;
        if (scale(beta) != 0) value += scale(beta) * at(*of_c, c, row, col, which);
        put(*of_d, d, row, col, which, value);
      }
  return kDone;
}
