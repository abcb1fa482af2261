// SPDX-License-Identifier: Apache-2.0
// The grids and floors of cross_entropy.
#include "isobit/ops/cross_entropy/cases.h"

#include <map>

namespace isobit::cross_entropy {
namespace {

constexpr Types kF32{DType::f32, DType::f32}, kBf16{DType::bf16, DType::bf16};
const std::vector<Types> kAll = {kF32, {DType::f16, DType::f16}, kBf16, {DType::f64, DType::f64}};

using Extents = std::vector<std::int64_t>;
using Families = std::vector<std::string_view>;
using Options = std::map<std::string_view, std::vector<double>>;

const Options kPlain = {{"ignore_index", {-100}}, {"label_smoothing", {0}}, {"z_loss", {0}}};
// A class that is ignored is one of those that are drawn.
const Options kEvery = {
    {"ignore_index", {-100, 2}}, {"label_smoothing", {0, 0.1}}, {"z_loss", {0, 1e-3}}};

CaseGrid grid_of(std::vector<Types> types, Extents rows, Extents cols, Families inputs,
                 Options options = kPlain, std::vector<std::string_view> with = {""}) {
  return {.dims = {{"rows", std::move(rows)}, {"cols", std::move(cols)}},
          .types = std::move(types),
          .inputs = std::move(inputs),
          .options = std::move(options),
          .with = std::move(with)};
}

// Of images, and of tokens beside a vocabulary.
std::vector<CaseGrid> timed(bool quick) {
  std::vector<std::vector<std::int64_t>> shapes = {{1024, 1000}, {256, 50257}};
  if (!quick) shapes = {{65536, 10}, {1024, 1000}, {8192, 1000}, {256, 50257}, {2048, 50257}};
  CaseGrid grid = grid_of({kF32, kBf16}, {}, {}, {"randn"});
  grid.dims = {};
  grid.shapes = std::move(shapes);
  return {std::move(grid)};
}

const Families kFamilies = {"randn",    "uniform",  "mean1e6", "outlier",   "constant", "fltmax",
                            "denormal", "huge1e20", "ramp",    "lognormal", "tiny1e-20"};

std::vector<CaseGrid> cases(std::string_view grid, std::string_view extra) {
  const std::vector<std::string_view> with = {"", "weight"};
  if (grid == "bench" || grid == "bench-quick") return timed(grid == "bench-quick");
  if (grid == "quick")
    return {grid_of(kAll, {1, 31}, {7, 1023}, {"randn", "mean1e6"}),
            grid_of({kF32, kBf16}, {9}, {4, 130}, {"randn"}, kEvery, {extra})};
  if (grid == "test")
    return {grid_of(kAll, {1, 5}, {1, 15, 64, 129, 600}, {"randn", "fltmax"}),
            grid_of({kF32, kBf16}, {3}, {1030}, kFamilies),
            grid_of(kAll, {7}, {10, 530}, {"randn", "outlier"}, kEvery, with),
            grid_of({kF32}, {530}, {10}, {"randn"}, kEvery, {extra}),
            grid_of(kAll, {53}, {3, 40}, {"randn"}, kEvery, {extra})};
  return {grid_of(kAll, {1, 31, 2048}, {1, 3, 10, 768, 1000, 4096}, kFamilies),
          grid_of({kF32, kBf16}, {31}, {50257}, {"randn", "lognormal"}, kEvery, with),
          grid_of(kAll, {31}, {10, 1000}, {"randn", "uniform", "mean1e6"}, kEvery, with)};
}

double bytes_of(const TensorView& view) {
  if (!view.given()) return 0;
  double bytes = static_cast<double>(size_of(view.dtype));
  for (int i = 0; i < view.rank; ++i) bytes *= static_cast<double>(view.shape[i]);
  return bytes;
}
double elements_of(const TensorView& view) {
  return bytes_of(view) / static_cast<double>(size_of(view.dtype));
}

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) { return cases(grid, "weight+lse"); }
std::vector<CaseGrid> backward_cases(std::string_view grid) { return cases(grid, "weight"); }

// About thirty operations an element, most of them of its power.
Cost forward_cost(const ForwardArgs& args) {
  return {bytes_of(args.x) + bytes_of(args.target) + bytes_of(args.weight) + bytes_of(args.loss) +
              bytes_of(args.lse) + bytes_of(args.largest) + bytes_of(args.sum) +
              bytes_of(args.total) + bytes_of(args.count),
          30 * elements_of(args.x)};
}
Cost backward_cost(const BackwardArgs& args) {
  return {bytes_of(args.grad_loss) + bytes_of(args.x) + bytes_of(args.target) +
              bytes_of(args.weight) + bytes_of(args.largest) + bytes_of(args.sum) +
              bytes_of(args.grad_x),
          30 * elements_of(args.x)};
}

}  // namespace isobit::cross_entropy
