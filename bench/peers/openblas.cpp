// SPDX-License-Identifier: Apache-2.0
// NumPy's OpenBLAS as a peer, the library in its wheels: products as numpy.matmul makes them, one
// call for each of a batch, of a matrix and a vector where there is one row or one column.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bench/peers/adapter.h"

namespace isobit::peers {
namespace {

// As cblas.h numbers them; no wheel has this header.
constexpr int kRowMajor = 101, kAsItLies = 111, kTransposed = 112;

template <class T>
using Gemm = void (*)(int order, int trans_a, int trans_b, std::int64_t m, std::int64_t n,
                      std::int64_t k, T alpha, const T* a, std::int64_t lda, const T* b,
                      std::int64_t ldb, T beta, T* y, std::int64_t ldy);
template <class T>
using Gemv = void (*)(int order, int trans, std::int64_t rows, std::int64_t cols, T alpha,
                      const T* a, std::int64_t lda, const T* x, std::int64_t step_x, T beta, T* y,
                      std::int64_t step_y);

struct Library {
  Gemm<float> sgemm = nullptr;
  Gemm<double> dgemm = nullptr;
  Gemv<float> sgemv = nullptr;
  Gemv<double> dgemv = nullptr;
  void (*set_num_threads)(int) = nullptr;
  int (*get_num_threads)() = nullptr;
  const char* (*get_config)() = nullptr;

  // False where there is no such library, or it lacks a function; dlerror() says which.
  bool load(const char* file) {
    // Its threads spin for 2^28 cycles after a call, which is longer than the lab waits until it is
    // quiet; now 2^24, some milliseconds, as OpenMP's do. This is read as the library is loaded.
    setenv("OPENBLAS_THREAD_TIMEOUT", "24", 0);
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return find(sgemm, "scipy_cblas_sgemm64_") && find(dgemm, "scipy_cblas_dgemm64_") &&
           find(sgemv, "scipy_cblas_sgemv64_") && find(dgemv, "scipy_cblas_dgemv64_") &&
           find(set_num_threads, "scipy_openblas_set_num_threads64_") &&
           find(get_num_threads, "scipy_openblas_get_num_threads64_") &&
           find(get_config, "scipy_openblas_get_config64_");
  }

  // The second word: OpenBLAS 0.3.31 USE64BITINT ...
  std::string version() const {
    std::istringstream words(get_config());
    std::string name, version;
    words >> name >> version;
    return version;
  }
};

Library library;

// As it lies in memory.
template <class T>
struct Matrix {
  T* data;
  std::int64_t rows, cols;
  bool transposed;

  Matrix(const IsobitPeerCase& c, const char* name, const char* rows_name, const char* cols_name)
      : data(static_cast<T*>(array(c, name))),
        rows(dim(c, rows_name)),
        cols(dim(c, cols_name)),
        transposed(is_transposed(c, name)) {
    if (transposed) std::swap(rows, cols);
  }
  std::int64_t lead() const { return std::max<std::int64_t>(cols, 1); }
  int trans() const { return transposed ? kTransposed : kAsItLies; }
  int turned() const { return transposed ? kAsItLies : kTransposed; }
  T* at(std::int64_t i) const { return data + i * rows * cols; }
};

template <class T>
Call product(const IsobitPeerCase& c, Gemm<T> gemm, Gemv<T> gemv) {
  const Matrix<T> a(c, "a", "m", "k"), b(c, "b", "k", "n"), y(c, "y", "m", "n");
  if (y.transposed) throw Declined("y must not be transposed");
  const std::int64_t batch = dim(c, "batch"), m = y.rows, n = y.cols, k = dim(c, "k");
  if (k == 0) throw Declined("k must not be 0");  // gemv would leave y as it is
  const auto multiply = [=](std::int64_t i) {
    if (m == 1)
      gemv(kRowMajor, b.turned(), b.rows, b.cols, 1, b.at(i), b.lead(), a.at(i), 1, 0, y.at(i), 1);
    else if (n == 1)
      gemv(kRowMajor, a.trans(), a.rows, a.cols, 1, a.at(i), a.lead(), b.at(i), 1, 0, y.at(i), 1);
    else
      gemm(kRowMajor, a.trans(), b.trans(), m, n, k, 1, a.at(i), a.lead(), b.at(i), b.lead(), 0,
           y.at(i), y.lead());
  };
  return [multiply, batch, threads = c.threads] {
    if (library.get_num_threads() != threads) library.set_num_threads(threads);
    for (std::int64_t i = 0; i < batch; ++i) multiply(i);
  };
}

Call prepare(const IsobitPeerCase& c) {
  const std::string op = c.op, pass = c.pass;
  if (op != "matmul" || pass != "fwd") throw Declined("no " + op + ' ' + pass + " here");
  decline_unless_known(c, {});
  for (const char* name : {"bias", "c", "residual", "pre"})
    if (find(c, name) != nullptr) throw Declined("no " + std::string(name) + " here");
  const std::string_view dtype = c.dtype;
  if (c.y_dtype != dtype) throw Declined("y must have the dtype of a");
  library.set_num_threads(c.threads);
  if (library.get_num_threads() != c.threads)
    throw Declined("no " + std::to_string(c.threads) + " threads here");
  if (dtype == "f32") return product(c, library.sgemm, library.sgemv);
  if (dtype == "f64") return product(c, library.dgemm, library.dgemv);
  throw Declined("no " + std::string(dtype) + " here");
}

}  // namespace
}  // namespace isobit::peers

extern "C" __attribute__((visibility("default"))) const IsobitPeer* isobit_peer() {
  using namespace isobit::peers;
  static const bool loaded = library.load(ISOBIT_OPENBLAS);
  if (!loaded) return nullptr;
  static const std::string version = library.version();
  static const IsobitPeer peer = adapt<prepare>("openblas", version.c_str());
  return &peer;
}
