// SPDX-License-Identifier: Apache-2.0
// The grids and costs of LayerNorm.
#include "isobit/ops/layernorm/cases.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "isobit/core/error.h"

namespace isobit::layernorm {
namespace {

constexpr TypePair kF32{DType::f32, DType::f32};
constexpr TypePair kBf16{DType::bf16, DType::bf16};
constexpr TypePair kMixed{DType::bf16, DType::f32};

CaseGrid quick() {
  return {.rows = {1, 31, 257},
          .cols = {1, 7, 64, 768, 1023, 4096},
          .types = {kF32, kBf16, kMixed},
          .inputs = {"randn", "mean1e6", "constant", "huge1e20", "const_grad"},
          .eps = {1e-5, 0}};
}

// Every family, on widths that stand beside a vector, a block and two blocks of the order of
// summation.
CaseGrid test() {
  return {.rows = {1, 2, 17, 31},
          .cols = {1, 3, 7, 15, 16, 17, 64, 511, 512, 513, 768, 1023, 1025, 4096},
          .types = {kF32, kBf16, kMixed},
          .inputs = {"randn", "uniform", "offset100", "mean1e4", "mean1e6", "constant", "outlier",
                     "ramp", "alternating", "lognormal", "huge1e18", "huge1e20", "fltmax",
                     "tiny1e-20", "denormal", "const_grad"},
          .eps = {1e-5, 0}};
}

CaseGrid full() {
  CaseGrid grid = test();
  grid.rows = {1, 31, 2048, 16385};
  grid.cols = {1, 3, 7, 64, 768, 1023, 4096, 65536};
  return grid;
}

CaseGrid bench(std::vector<std::array<std::int64_t, 2>> shapes) {
  return {.types = {kF32, kBf16}, .inputs = {"randn"}, .eps = {1e-5}, .shapes = std::move(shapes)};
}

CaseGrid cases(std::string_view grid) {
  if (grid == "quick") return quick();
  if (grid == "test") return test();
  if (grid == "full") return full();
  if (grid == "bench-quick") return bench({{64, 768}, {4096, 1024}, {2048, 5120}});
  if (grid == "bench")
    return bench({{1, 4096},
                  {64, 768},
                  {1024, 768},
                  {16384, 768},
                  {4096, 1024},
                  {8192, 1024},
                  {16384, 1024},
                  {4096, 1280},
                  {2048, 1600},
                  {2048, 2048},
                  {2048, 4096},
                  {2048, 5120},
                  {2048, 6144},
                  {1024, 8192},
                  {512, 12288},
                  {64, 65536},
                  {8, 262144}});
  throw InvalidArgument(text("layernorm: the grid is '", grid,
                             "'; there are quick, test, full, bench and bench-quick"));
}

double elements(const TensorView& view) {
  double count = view.given() ? 1 : 0;
  for (int i = 0; i < view.rank; ++i) count *= static_cast<double>(view.shape[i]);
  return count;
}

// Each array given moves once.
double bytes(std::initializer_list<const TensorView*> views) {
  double sum = 0;
  for (const TensorView* view : views)
    sum += elements(*view) * static_cast<double>(size_of(view->dtype));
  return sum;
}

// Operations an element, an fma counted as two.
constexpr double kStatistics = 6;  // mean 1, centre 1, mean of that 1, variance 2, centre again 1
constexpr double kScale = 1;       // x_hat of what is centred
constexpr double kScaleGiven = 2;  // x_hat of x with given statistics
constexpr double kGradX = 1 + 2 + 4;  // mean of g, mean of g * x_hat, r * fma(-x_hat, c2, g - c1)
constexpr double kGradWeight = 2;
constexpr double kOne = 1;  // a product with weight, a sum with bias, grad_bias

}  // namespace

CaseGrid forward_cases(std::string_view grid) { return cases(grid); }
CaseGrid backward_cases(std::string_view grid) { return cases(grid); }

Cost forward_cost(const ForwardArgs& args) {
  double flops = kStatistics + kScale;
  if (args.weight.given()) flops += kOne;
  if (args.bias.given()) flops += kOne;
  return {.bytes = bytes({&args.x, &args.weight, &args.bias, &args.y, &args.mean, &args.rstd}),
          .flops = flops * elements(args.x)};
}

Cost backward_cost(const BackwardArgs& args) {
  const bool needs_x_hat = args.grad_x.given() || args.grad_weight.given();
  double flops = 0;
  if (needs_x_hat) flops += args.mean.given() ? kScaleGiven : kStatistics + kScale;
  if (args.grad_x.given()) flops += kGradX + (args.weight.given() ? kOne : 0);
  if (args.grad_weight.given()) flops += kGradWeight;
  if (args.grad_bias.given()) flops += kOne;
  return {.bytes = bytes({&args.x, &args.grad_y, &args.weight, &args.mean, &args.rstd, &args.grad_x,
                          &args.grad_weight, &args.grad_bias}),
          .flops = flops * elements(args.x)};
}

}  // namespace isobit::layernorm
