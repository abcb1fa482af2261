// SPDX-License-Identifier: Apache-2.0
// The grids and floors of softmax.
#include "isobit/ops/softmax/cases.h"

#include <map>

namespace isobit::softmax {
namespace {

constexpr Types kF32{DType::f32, DType::f32}, kBf16{DType::bf16, DType::bf16};
const std::vector<Types> kSame = {kF32, {DType::f16, DType::f16}, kBf16, {DType::f64, DType::f64}};
const std::vector<Types> kAll = {kF32,
                                 {DType::f16, DType::f16},
                                 kBf16,
                                 {DType::f64, DType::f64},
                                 {DType::f16, DType::f16, DType::f32},
                                 {DType::bf16, DType::bf16, DType::f32}};

using Extents = std::vector<std::int64_t>;
using Families = std::vector<std::string_view>;

CaseGrid grid_of(std::vector<Types> types, Extents rows, Extents cols, Families inputs,
                 std::vector<double> logs = {0, 1}, std::vector<double> scales = {1},
                 std::vector<std::string_view> with = {""}) {
  return {.dims = {{"rows", std::move(rows)}, {"cols", std::move(cols)}},
          .types = std::move(types),
          .inputs = std::move(inputs),
          .options = {{"scale", std::move(scales)}, {"log", std::move(logs)}},
          .with = std::move(with)};
}

// Rows of attention's scores, and logits over a vocabulary.
std::vector<CaseGrid> timed(bool quick) {
  std::vector<std::vector<std::int64_t>> shapes = {{1024, 768}, {512, 32768}};
  if (!quick) shapes = {{4096, 128}, {1024, 768}, {4096, 2048}, {512, 32768}, {64, 131072}};
  CaseGrid grid = grid_of({kF32, kBf16}, {}, {}, {"randn"});
  grid.dims = {};
  grid.shapes = std::move(shapes);
  return {std::move(grid)};
}

const Families kFamilies = {"randn",    "uniform",  "mean1e6", "outlier",   "constant", "fltmax",
                            "denormal", "huge1e20", "ramp",    "lognormal", "tiny1e-20"};

std::vector<CaseGrid> cases(std::string_view grid) {
  if (grid == "bench" || grid == "bench-quick") return timed(grid == "bench-quick");
  if (grid == "quick")
    return {grid_of(kAll, {1, 31}, {7, 1023}, {"randn", "mean1e6"}),
            grid_of({kF32, kBf16}, {9}, {130}, {"randn"}, {0, 1}, {-0.3}, {"mask"})};
  if (grid == "test")
    return {grid_of(kAll, {1, 5}, {1, 15, 64, 129, 600}, {"randn", "fltmax"}),
            grid_of({kF32, kBf16}, {3}, {1030}, kFamilies),
            grid_of(kSame, {3}, {77, 513}, {"randn", "outlier"}, {0, 1}, {0.125, -3}),
            grid_of(kAll, {7}, {70, 530}, {"randn"}, {0, 1}, {1, -0.3}, {"mask"})};
  return {
      grid_of(kAll, {1, 31, 2048}, {1, 3, 64, 768, 1023, 4096}, kFamilies),
      grid_of(kSame, {31}, {768, 1023}, {"randn", "uniform"}, {0, 1}, {0.125, -3}, {"", "mask"})};
}

double elements_of(const TensorView& view) {
  double elements = 1;
  for (int i = 0; i < view.rank; ++i) elements *= static_cast<double>(view.shape[i]);
  return elements;
}

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) { return cases(grid); }
std::vector<CaseGrid> backward_cases(std::string_view grid) { return cases(grid); }

// About forty operations an element, most of them of its power.
Cost forward_cost(const ForwardArgs& args) {
  const auto bytes = static_cast<double>(size_of(args.x.dtype) + size_of(args.y.dtype));
  const double elements = elements_of(args.x);
  return {elements * (bytes + (args.mask.given() ? 1 : 0)), 40 * elements};
}
Cost backward_cost(const BackwardArgs& args) {
  const auto bytes = static_cast<double>(2 * size_of(args.y.dtype) + size_of(args.grad_x.dtype));
  const double elements = elements_of(args.y);
  return {elements * (bytes + (args.mask.given() ? 1 : 0)), (args.log ? 25 : 5) * elements};
}

}  // namespace isobit::softmax
