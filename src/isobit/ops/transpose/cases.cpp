// SPDX-License-Identifier: Apache-2.0
// The grids and floors of transpose.
#include "isobit/ops/transpose/cases.h"

namespace isobit::transpose {
namespace {

// One dtype of each size; the others move the same way.
const std::vector<Types> kSizes = {{DType::f32, DType::f32},
                                   {DType::bf16, DType::bf16},
                                   {DType::f64, DType::f64},
                                   {DType::u8, DType::u8}};
const std::vector<Types> kOthers = {{DType::f16, DType::f16},
                                    {DType::i32, DType::i32},
                                    {DType::i64, DType::i64},
                                    {DType::boolean, DType::boolean}};

const std::vector<Types> kCasts = [] {
  std::vector<Types> casts;
  for (DType x : {DType::f32, DType::f16, DType::bf16, DType::f64})
    for (DType y : {DType::f32, DType::f16, DType::bf16, DType::f64})
      if (x != y) casts.emplace_back(x, x, y);
  return casts;
}();

CaseGrid grid_of(const std::vector<Types>& types, std::vector<std::int64_t> batch,
                 std::vector<std::int64_t> rows, std::vector<std::int64_t> cols,
                 std::vector<std::string_view> inputs) {
  return {
      .dims = {{"batch", std::move(batch)}, {"rows", std::move(rows)}, {"cols", std::move(cols)}},
      .types = types,
      .inputs = std::move(inputs)};
}

}  // namespace

std::vector<CaseGrid> cases(std::string_view grid) {
  if (grid == "bench")
    return {{.types = {kSizes[0], kSizes[1], kSizes[3]},
             .inputs = {"randn"},
             .shapes = {{1, 4096, 4096}, {1, 1000, 3001}, {64, 128, 768}, {192, 512, 512}}}};
  if (grid == "bench-quick")
    return {{.types = {kSizes[0], kSizes[1]},
             .inputs = {"randn"},
             .shapes = {{1, 1000, 1000}, {16, 128, 768}}}};
  if (grid == "quick")
    return {grid_of(kSizes, {1, 3}, {1, 31, 64}, {1, 17, 100}, {"randn"}),
            grid_of(kOthers, {2}, {33}, {70}, {"randn"}),
            grid_of(kCasts, {2}, {33}, {70}, {"randn"})};
  if (grid == "test")
    return {grid_of(kSizes, {1, 3}, {1, 2, 15, 16, 33, 67}, {1, 3, 8, 31, 64, 129}, {"randn"}),
            grid_of(kOthers, {2}, {1, 33}, {17, 70}, {"randn"}),
            grid_of(kCasts, {2}, {1, 33}, {17, 70}, {"randn", "fltmax", "denormal"})};
  return {grid_of(kSizes, {1, 2, 5}, {1, 3, 16, 63, 64, 257, 1024}, {1, 7, 64, 65, 511, 2048},
                  {"randn"}),
          grid_of(kOthers, {1, 3}, {1, 33, 300}, {1, 70, 513}, {"randn"}),
          grid_of(kCasts, {1, 3}, {1, 33, 300}, {1, 70, 513},
                  {"randn", "fltmax", "denormal", "huge1e20", "integers"})};
}

Cost cost(const Args& args) {
  double elements = 1;
  for (int i = 0; i < args.x.rank; ++i) elements *= static_cast<double>(args.x.shape[i]);
  return {.bytes = elements * static_cast<double>(size_of(args.x.dtype) + size_of(args.y.dtype)),
          .flops = args.x.dtype == args.y.dtype ? 0 : elements};
}

// Bytes are exact, and so is what is rounded to 16 bits or widened, up to its one rounding; that of
// f64 to f32 is half a unit.
double limit(const Args& args) {
  return args.x.dtype == DType::f64 && args.y.dtype == DType::f32 ? 1 : 0;
}

}  // namespace isobit::transpose
