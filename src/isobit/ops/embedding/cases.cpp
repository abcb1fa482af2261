// SPDX-License-Identifier: Apache-2.0
// The grids and floors of embedding.
#include "isobit/ops/embedding/cases.h"

#include <algorithm>
#include <map>

namespace isobit::embedding {
namespace {

constexpr Types kF32{DType::f32, DType::f32}, kBf16{DType::bf16, DType::bf16};
const std::vector<Types> kAll = {kF32, {DType::f16, DType::f16}, kBf16, {DType::f64, DType::f64}};

using Extents = std::vector<std::int64_t>;
using Families = std::vector<std::string_view>;
using Options = std::map<std::string_view, std::vector<double>>;

const Options kPlain = {{"padding_idx", {-1}}, {"scale_grad_by_freq", {0}}};
const Options kEvery = {{"padding_idx", {-1, 1}}, {"scale_grad_by_freq", {0, 1}}};
const Families kUsual = {"randn"};
const Families kFamilies = {"randn",    "uniform", "alternating", "outlier",
                            "constant", "ramp",    "lognormal",   "tiny1e-20"};
// Whose sums may leave the range before they are divided.
const Families kAtTheEnds = {"fltmax", "huge1e20", "denormal"};

CaseGrid grid_of(bool forward, std::vector<Types> types, Extents rows, Extents tokens, Extents cols,
                 Families inputs, Options options = kPlain) {
  CaseGrid grid = {
      .dims = {{"rows", std::move(rows)}, {"tokens", std::move(tokens)}, {"cols", std::move(cols)}},
      .types = std::move(types),
      .inputs = std::move(inputs)};
  if (!forward) grid.options = std::move(options);
  return grid;
}

// A batch of tokens beside a vocabulary; one token for all, as of padding; categories.
std::vector<CaseGrid> timed(bool forward, bool quick) {
  std::vector<std::vector<std::int64_t>> shapes = {{8192, 50257, 768}, {8192, 1, 768}};
  if (!quick)
    shapes = {{8192, 50257, 768}, {2048, 128256, 4096}, {8192, 1, 768}, {65536, 1000, 16}};
  CaseGrid grid = grid_of(forward, {kF32, kBf16}, {}, {}, {}, kUsual);
  grid.dims = {};
  grid.shapes = std::move(shapes);
  return {std::move(grid)};
}

std::vector<CaseGrid> cases(bool forward, std::string_view name) {
  if (name == "bench" || name == "bench-quick") return timed(forward, name == "bench-quick");
  const auto grid = [&](auto&&... parts) { return grid_of(forward, parts...); };
  if (name == "quick")
    return {grid(kAll, Extents{1, 40}, Extents{3, 50}, Extents{7, 130}, kUsual),
            grid(std::vector{kF32, kBf16}, Extents{600}, Extents{2}, Extents{70}, kUsual, kEvery)};
  if (name == "test")
    return {
        grid(kAll, Extents{1, 33, 530}, Extents{1, 20}, Extents{1, 15, 64, 129, 600}, kUsual),
        grid(std::vector{kF32, kBf16}, Extents{300}, Extents{4}, Extents{70}, kFamilies, kEvery),
        grid(std::vector{kF32, kBf16}, Extents{40}, Extents{3}, Extents{70}, kAtTheEnds),
        grid(kAll, Extents{1, 1100}, Extents{2, 700}, Extents{9}, kUsual, kEvery)};
  return {grid(kAll, Extents{1, 31, 4096}, Extents{1, 10, 5000}, Extents{1, 3, 64, 768, 1030},
               kUsual, kEvery),
          grid(kAll, Extents{2048}, Extents{2, 100}, Extents{130}, kFamilies, kEvery),
          grid(kAll, Extents{2048}, Extents{2, 100}, Extents{130}, kAtTheEnds)};
}

double elements_of(const TensorView& view) {
  double elements = 1;
  for (int i = 0; i < view.rank; ++i) elements *= static_cast<double>(view.shape[i]);
  return elements;
}
double bytes_of(const TensorView& view) {
  return elements_of(view) * static_cast<double>(size_of(view.dtype));
}

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) { return cases(true, grid); }
std::vector<CaseGrid> backward_cases(std::string_view grid) { return cases(false, grid); }

// Of the table as many rows as there are indices, or all.
Cost forward_cost(const ForwardArgs& args) {
  return {
      std::min(bytes_of(args.weight), bytes_of(args.y)) + bytes_of(args.index) + bytes_of(args.y),
      0};
}
Cost backward_cost(const BackwardArgs& args) {
  return {bytes_of(args.grad_y) + bytes_of(args.index) + bytes_of(args.grad_weight),
          elements_of(args.grad_y)};
}

}  // namespace isobit::embedding
