// SPDX-License-Identifier: Apache-2.0
// The grids and floors of matmul.
#include "isobit/ops/matmul/cases.h"

#include <algorithm>
#include <cmath>

#include "isobit/core/tensor_core.h"

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

const std::vector<Types> kNarrow = {{DType::f16, DType::f16},
                                    {DType::bf16, DType::bf16},
                                    {DType::bf16, DType::f32, DType::f32},
                                    {DType::f16, DType::f16, DType::f32}};

constexpr double kNone = 0, kRelu = 1, kGelu = 2, kGeluTanh = 3, kSilu = 4;
using Shapes = std::vector<std::vector<std::int64_t>>;  // batch, m, n, k

CaseGrid grid_of(const std::vector<Types>& types, Shapes shapes,
                 std::vector<std::string_view> inputs, std::vector<std::string_view> with = {""}) {
  return {.types = types,
          .inputs = std::move(inputs),
          .shapes = std::move(shapes),
          .options = {{"alpha", {1}}, {"beta", {0}}, {"activation", {kNone}}, {"arithmetic", {0}}},
          .with = std::move(with)};
}

// With everything that is done to a product.
CaseGrid grid_with(const std::vector<Types>& types, Shapes shapes, std::vector<double> activations,
                   std::vector<std::string_view> inputs = {"randn"}) {
  return {.types = types,
          .inputs = std::move(inputs),
          .shapes = std::move(shapes),
          .options = {{"alpha", {0.75}},
                      {"beta", {-1.5}},
                      {"activation", std::move(activations)},
                      {"arithmetic", {0}}},
          .with = {"bias+c", "bias+c+residual+pre"}};
}

// By tensor cores, which the processor has not.
CaseGrid by_tensor_cores(CaseGrid grid) {
  grid.types = kNarrow;
  grid.options["arithmetic"] = {1};
  return grid;
}

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) {
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
            grid_of(kMixed, {{1, 20, 37, 40}}, {"randn"}, {"bias"}),
            by_tensor_cores(grid_of({}, {{1, 7, 5, 13}, {2, 33, 40, 100}}, {"randn"})),
            by_tensor_cores(grid_with({}, {{2, 9, 35, 20}}, {kGelu}))};
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
            grid_of(kMixed, {{1, 3, 21, 40}, {1, 20, 37, 40}}, {"randn", "fltmax"}, {"bias"}),
            by_tensor_cores(grid_of(
                {}, {{1, 1, 1, 1}, {3, 2, 3, 1}, {1, 5, 9, 0}, {2, 70, 17, 130}}, {"randn"})),
            by_tensor_cores(
                grid_of({}, {{1, 6, 20, 530}},
                        {"randn", "uniform", "integers", "alternating", "fltmax", "denormal"})),
            by_tensor_cores(grid_with({}, {{2, 9, 35, 20}}, {kNone, kSilu}))};
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
          grid_of(kMixed, {{1, 64, 100, 700}}, {"randn", "fltmax", "integers"}, {"bias"}),
          by_tensor_cores(grid_of({}, {{1, 100, 100, 100}, {1, 14, 32, 4096}},
                                  {"randn", "uniform", "integers", "alternating", "lognormal",
                                   "fltmax", "denormal", "outlier"}))};
}

std::vector<CaseGrid> backward_cases(std::string_view grid) {
  const auto bent = [](const std::vector<Types>& types, Shapes shapes,
                       std::vector<double> activations,
                       std::vector<std::string_view> inputs = {"randn"}) {
    CaseGrid grid = grid_with(types, std::move(shapes), std::move(activations), std::move(inputs));
    grid.with = {"pre+grad_bias+grad_c"};
    return grid;
  };
  if (grid == "bench" || grid == "bench-quick") {
    Shapes shapes = {{1, 256, 256, 256}};
    if (grid == "bench")
      shapes.insert(
          shapes.end(),
          {{1, 1024, 1024, 1024}, {1, 128, 3072, 768}, {1, 1024, 768, 3072}, {1, 16, 4096, 4096}});
    return {grid_of({kSame[0], kSame[2]}, std::move(shapes), {"randn"}, {"grad_bias"})};
  }
  if (grid == "quick")
    return {grid_of(kSame, {{1, 7, 5, 13}, {2, 33, 530, 40}, {1, 600, 70, 1}}, {"randn"}),
            bent({kSame[0], kSame[2]}, {{2, 9, 35, 20}}, {kNone, kGelu}),
            bent(kMixed, {{1, 20, 37, 40}}, {kSilu}),
            by_tensor_cores(bent({}, {{2, 9, 35, 20}}, {kNone, kGelu}))};
  if (grid == "test")
    return {grid_of(kSame,
                    {{1, 1, 1, 1},
                     {1, 7, 5, 13},
                     {3, 2, 1, 3},
                     {1, 5, 0, 9},
                     {1, 0, 5, 9},
                     {1, 1, 530, 100},
                     {1, 514, 1, 90},
                     {2, 520, 17, 40}},
                    {"randn"}, {"", "grad_bias"}),
            bent(kSame, {{2, 9, 35, 20}}, {kNone, kRelu, kGelu, kGeluTanh, kSilu}),
            bent(kSame, {{1, 3, 600, 30}, {1, 530, 40, 3}}, {kRelu}),
            bent(kSame, {{1, 20, 40, 30}}, {kRelu, kSilu},
                 {"uniform", "integers", "alternating", "fltmax", "denormal"}),
            bent(kMixed, {{1, 3, 21, 40}, {1, 20, 37, 40}}, {kNone, kGelu}),
            by_tensor_cores(bent({}, {{1, 70, 17, 33}}, {kNone, kSilu}))};
  return {
      grid_of(kSame, {{1, 100, 100, 100}, {3, 1025, 67, 129}, {1, 20'000, 14, 32}},
              {"randn", "uniform", "integers", "alternating", "lognormal", "denormal", "outlier"},
              {"", "grad_bias"}),
      bent(kSame, {{2, 33, 65, 100}, {1, 600, 200, 31}}, {kNone, kRelu, kGelu, kGeluTanh, kSilu},
           {"randn", "uniform", "fltmax"}),
      bent(kMixed, {{1, 64, 700, 100}}, {kNone, kGelu}, {"randn", "integers"})};
}

namespace {

double bytes(const TensorView& view) {
  if (!view.given()) return 0;
  auto count = static_cast<double>(size_of(view.dtype));
  for (int i = 0; i < view.rank; ++i)  // what is repeated is read once
    if (view.strides[i] != 0) count *= static_cast<double>(view.shape[i]);
  return count;
}

double multiplications(const TensorView& y, const TensorView& a) {
  auto count = static_cast<double>(a.shape[a.rank - 1]);
  for (int i = 0; i < y.rank; ++i) count *= static_cast<double>(y.shape[i]);
  return count;
}

// Equal terms round alike, so that errors grow as they do not at random (docs/numerics.md). Tensor
// cores err toward zero in every step of 8 or 16 of k: the README has the derivation.
double limit_of(std::int64_t terms, Arithmetic arithmetic) {
  const std::int64_t k = std::max<std::int64_t>(1, terms);
  if (arithmetic == Arithmetic::tensor) return 8 + tensor_core::error_of(k);
  return 8 * std::sqrt(static_cast<double>(k));
}

}  // namespace

Cost forward_cost(const ForwardArgs& args) {
  return {.bytes = bytes(args.a) + bytes(args.b) + bytes(args.bias) +
                   (args.beta == 0 ? 0 : bytes(args.c)) + bytes(args.residual) + bytes(args.y) +
                   bytes(args.pre),
          .flops = 2 * multiplications(args.y, args.a)};
}

Cost backward_cost(const BackwardArgs& args) {
  const bool to_a = args.grad_a.given(), to_b = args.grad_b.given();
  return {.bytes = bytes(args.grad_y) + (to_b ? bytes(args.a) : 0) + (to_a ? bytes(args.b) : 0) +
                   (args.activation == Activation::none ? 0 : bytes(args.pre)) +
                   bytes(args.grad_a) + bytes(args.grad_b) + bytes(args.grad_bias) +
                   bytes(args.grad_c),
          .flops = 2 * (to_a + to_b) * multiplications(args.grad_y, args.a)};
}

double forward_limit(const ForwardArgs& args) {
  return limit_of(args.a.shape[args.a.rank - 1], args.arithmetic);
}

// Of the longest sum: over n for a, over m for b.
double backward_limit(const BackwardArgs& args) {
  const TensorView& y = args.grad_y;
  return limit_of(std::max(y.shape[y.rank - 2], y.shape[y.rank - 1]), args.arithmetic);
}

}  // namespace isobit::matmul
