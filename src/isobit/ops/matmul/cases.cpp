// SPDX-License-Identifier: Apache-2.0
// The grids and floors of matmul.
#include "isobit/ops/matmul/cases.h"

#include <algorithm>
#include <cmath>

namespace isobit::matmul {
namespace {

const std::vector<Types> kSame = {{DType::f32, DType::f32},
                                  {DType::f16, DType::f16},
                                  {DType::bf16, DType::bf16},
                                  {DType::f64, DType::f64}};
const std::vector<Types> kMixed = {{DType::f32, DType::f32, DType::bf16},
                                   {DType::f32, DType::f32, DType::f16},
                                   {DType::bf16, DType::f32, DType::f32},
                                   {DType::f16, DType::f16, DType::f32},
                                   {DType::bf16, DType::f32}};

constexpr double kNone = 0, kRelu = 1, kGelu = 2, kGeluTanh = 3, kSilu = 4;
using Shapes = std::vector<std::vector<std::int64_t>>;  // batch, m, n, k

CaseGrid grid_of(const std::vector<Types>& types, Shapes shapes,
                 std::vector<std::string_view> inputs, std::vector<std::string_view> with = {""}) {
  return {.types = types,
          .inputs = std::move(inputs),
          .shapes = std::move(shapes),
          .options = {{"alpha", {1}}, {"beta", {0}}, {"activation", {kNone}}},
          .with = std::move(with)};
}

// With everything that is done to a product.
CaseGrid grid_with(const std::vector<Types>& types, Shapes shapes, std::vector<double> activations,
                   std::vector<std::string_view> inputs = {"randn"}) {
  return {.types = types,
          .inputs = std::move(inputs),
          .shapes = std::move(shapes),
          .options = {{"alpha", {0.75}}, {"beta", {-1.5}}, {"activation", std::move(activations)}},
          .with = {"bias+c", "bias+c+residual+pre"}};
}

}  // namespace

std::vector<CaseGrid> cases(std::string_view grid) {
  if (grid == "bench")
    return {grid_of({kSame[0]},
                    {{1, 100, 100, 100},
                     {1, 1000, 1000, 500},
                     {1, 256, 256, 256},
                     {1, 512, 512, 512},
                     {1, 1024, 1024, 1024},
                     {1, 2048, 2048, 2048},
                     {1, 1, 4096, 4096},
                     {1, 16, 4096, 4096},
                     {1, 128, 768, 768},
                     {1, 128, 3072, 768},
                     {1, 1024, 768, 3072},
                     {1, 128, 4096, 4096},
                     {1000, 32, 32, 32}},
                    {"randn"}),
            grid_of({kSame[2]}, {{1, 1, 4096, 4096}, {1, 128, 4096, 4096}, {1, 1024, 1024, 1024}},
                    {"randn"})};
  if (grid == "bench-quick")
    return {grid_of({kSame[0], kSame[2]}, {{1, 256, 256, 256}, {1, 1, 1024, 1024}}, {"randn"})};
  if (grid == "quick")
    return {grid_of(kSame, {{1, 7, 5, 13}, {2, 33, 40, 530}, {1, 1, 70, 600}}, {"randn"}),
            grid_with({kSame[0], kSame[2]}, {{2, 9, 35, 20}}, {kNone, kGelu}),
            grid_of(kMixed, {{1, 20, 37, 40}}, {"randn"}, {"bias"})};
  if (grid == "test")
    return {grid_of(kSame,
                    {{1, 1, 1, 1},
                     {1, 7, 5, 13},
                     {3, 2, 3, 1},
                     {1, 5, 9, 0},
                     {1, 1, 100, 530},
                     {1, 90, 1, 514},
                     {2, 17, 70, 1030},
                     {1, 29, 33, 512}},
                    {"randn"}),
            grid_of(kSame, {{1, 6, 20, 1030}},
                    {"randn", "uniform", "integers", "alternating", "fltmax", "denormal"}),
            grid_with(kSame, {{2, 9, 35, 20}}, {kNone, kRelu, kGelu, kGeluTanh, kSilu}),
            grid_of(kMixed, {{1, 3, 21, 40}, {1, 20, 37, 40}}, {"randn", "fltmax"}, {"bias"})};
  return {grid_of(kSame,
                  {{1, 1, 1, 1},
                   {1, 100, 100, 100},
                   {3, 67, 129, 1025},
                   {1, 1, 300, 2000},
                   {1, 14, 32, 20'000},
                   {1, 257, 255, 4096}},
                  {"randn", "uniform", "integers", "alternating", "lognormal", "fltmax", "denormal",
                   "huge1e18", "outlier"}),
          grid_with(kSame, {{2, 33, 65, 100}, {1, 200, 31, 600}},
                    {kNone, kRelu, kGelu, kGeluTanh, kSilu}, {"randn", "uniform", "fltmax"}),
          grid_of(kMixed, {{1, 64, 100, 700}}, {"randn", "fltmax", "integers"}, {"bias"})};
}

Cost cost(const Args& args) {
  const auto bytes = [](const TensorView& view) {
    if (!view.given()) return 0.0;
    auto count = static_cast<double>(size_of(view.dtype));
    for (int i = 0; i < view.rank; ++i)  // what is repeated is read once
      if (view.strides[i] != 0) count *= static_cast<double>(view.shape[i]);
    return count;
  };
  double products = 2;
  for (int i = 0; i < args.y.rank; ++i) products *= static_cast<double>(args.y.shape[i]);
  products *= static_cast<double>(args.a.shape[args.a.rank - 1]);
  return {.bytes = bytes(args.a) + bytes(args.b) + bytes(args.bias) +
                   (args.beta == 0 ? 0 : bytes(args.c)) + bytes(args.residual) + bytes(args.y) +
                   bytes(args.pre),
          .flops = products};
}

// Equal terms round alike, so that errors grow as they do not at random (docs/numerics.md).
double limit(const Args& args) {
  return 8 *
         std::sqrt(static_cast<double>(std::max<std::int64_t>(1, args.a.shape[args.a.rank - 1])));
}

}  // namespace isobit::matmul
