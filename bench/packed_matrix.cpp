// SPDX-License-Identifier: Apache-2.0
// What a packed matrix saves: processor time of products by it, beside that of the same products by
// the array, in turns. One thread. Usage: packed_matrix_cost [k n]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "isobit/core/dtype.h"
#include "isobit/ops/matmul/matmul.h"
#include "isobit/simd/parallel_for.h"

namespace {

using namespace isobit;

double seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Call>
double timed(const Call& call) {
  const double begin = seconds();
  call();
  return seconds() - begin;
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

template <class T>
void compare(DType dtype, std::int64_t m, std::int64_t k, std::int64_t n, bool turned) {
  const auto drawn = [](std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    std::uint32_t state = 1;
    for (T& value : values)
      value = narrow<T>(
          static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1);
    return values;
  };
  std::vector<T> a = drawn(m * k), b = drawn(k * n), y(static_cast<std::size_t>(m * n)), z = y;
  const auto view = [&](std::vector<T>& data, std::int64_t rows, std::int64_t cols) {
    return matrix_view(data.data(), std::ssize(data) * size_of(dtype), dtype, rows, cols, cols);
  };
  matmul::ForwardArgs args{.a = view(a, m, k), .b = view(b, k, n), .y = view(y, m, n)};
  if (turned) args.b.strides = {1, k};
  const Execution here = simd::here(1);
  const double packing = timed([&] { matmul::PackedMatrix(args.b, here); });
  const matmul::PackedMatrix packed(args.b, here);
  matmul::ForwardArgs by_packed = args;
  by_packed.b = {};
  by_packed.y = view(z, m, n);
  std::vector<double> of_array, of_packed;
  const double begin = seconds();
  do {
    of_array.push_back(timed([&] { matmul::forward(args, here); }));
    of_packed.push_back(timed([&] { matmul::forward(by_packed, packed, here); }));
  } while (of_array.size() < 5 || (seconds() - begin < 3 && of_array.size() < 200));
  if (std::memcmp(y.data(), z.data(), y.size() * sizeof(T)) != 0) std::abort();
  const double array = median(of_array), by_it = median(of_packed);
  std::printf(
      "%-5s %4ld x %ld x %ld %s  array %8.3f ms  packed %8.3f ms  ratio %.2f  packing %.3f ms\n",
      name_of(dtype).data(), m, k, n, turned ? "nt" : "nn", 1e3 * array, 1e3 * by_it, array / by_it,
      1e3 * packing);
}

}  // namespace

int main(int count, char** values) {
  const std::int64_t k = count > 2 ? std::atol(values[1]) : 4096;
  const std::int64_t n = count > 2 ? std::atol(values[2]) : 4096;
  for (const bool turned : {false, true})
    for (std::int64_t m : {1, 4, 8, 16, 32, 128}) {
      compare<float>(DType::f32, m, k, n, turned);
      compare<bf16>(DType::bf16, m, k, n, turned);
    }
}
