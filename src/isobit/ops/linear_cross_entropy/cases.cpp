// SPDX-License-Identifier: Apache-2.0
// The grids and floors of linear_cross_entropy.
#include "isobit/ops/linear_cross_entropy/cases.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <utility>

namespace isobit::linear_cross_entropy {
namespace {

constexpr Types kF32{DType::f32, DType::f32}, kBf16{DType::bf16, DType::bf16};
const std::vector<Types> kAll = {kF32, {DType::f16, DType::f16}, kBf16, {DType::f64, DType::f64}};

using Shapes = std::vector<std::vector<std::int64_t>>;  // rows, cols, classes
using Families = std::vector<std::string_view>;
using Options = std::map<std::string_view, std::vector<double>>;

const Options kPlain = {{"ignore_index", {-100}}, {"label_smoothing", {0}}, {"z_loss", {0}}};
// A class that is ignored is one of those that are drawn.
const Options kEvery = {{"ignore_index", {2}}, {"label_smoothing", {0, 0.1}}, {"z_loss", {1e-3}}};

CaseGrid grid_of(std::vector<Types> types, Shapes shapes, Families inputs, Options options = kPlain,
                 std::vector<std::string_view> with = {""}) {
  return {.types = std::move(types),
          .inputs = std::move(inputs),
          .shapes = std::move(shapes),
          .options = std::move(options),
          .with = std::move(with)};
}

const Families kFamilies = {"randn", "uniform", "mean1e6", "outlier", "denormal", "tiny1e-20"};

// `extra` names all that may be given besides. More rows than a piece has, and than a run of them.
std::vector<CaseGrid> cases(std::string_view grid, std::string_view extra) {
  if (grid == "bench" || grid == "bench-quick") {
    Shapes shapes = {{512, 256, 8192}};
    if (grid == "bench") shapes.insert(shapes.end(), {{1024, 768, 50257}, {2048, 768, 32000}});
    return {grid_of({kF32, kBf16}, std::move(shapes), {"randn"})};
  }
  if (grid == "quick")
    return {grid_of(kAll, {{7, 13, 5}, {33, 40, 130}}, {"randn"}),
            grid_of({kF32, kBf16}, {{1030, 9, 20}}, {"randn"}, kEvery, {extra})};
  if (grid == "test")
    return {grid_of(kAll, {{1, 1, 1}, {5, 13, 70}, {0, 3, 4}, {3, 0, 5}}, {"randn"}),
            grid_of({kF32, kBf16}, {{6, 40, 90}}, kFamilies),
            grid_of(kAll, {{30, 17, 21}}, {"randn"}, kEvery, {"", extra}),
            grid_of({kF32, kBf16}, {{1100, 6, 9}, {8200, 2, 3}}, {"randn"}, kPlain, {extra})};
  return {grid_of(kAll, {{31, 64, 1000}, {700, 33, 65}}, kFamilies),
          grid_of({kF32, kBf16}, {{520, 40, 3000}}, {"randn"}, kEvery, {"", extra}),
          grid_of(kAll, {{20000, 3, 4}}, {"randn"}, kPlain, {extra})};
}

double elements_of(const TensorView& view) {
  double elements = view.given() ? 1 : 0;
  for (int i = 0; i < view.rank; ++i) elements *= static_cast<double>(view.shape[i]);
  return elements;
}
double bytes_of(std::initializer_list<const TensorView*> views) {
  double bytes = 0;
  for (const TensorView* view : views)
    bytes += elements_of(*view) * static_cast<double>(size_of(view->dtype));
  return bytes;
}

// As many operations as a product of x and weight has.
template <class Args>
double product_of(const Args& args) {
  return 2 * elements_of(args.x) * static_cast<double>(args.weight.shape[0]);
}

// Errors of logits reach what is made of them; a chain of `terms` adds its own.
double limit_of(std::int64_t terms) {
  return 16 + 8 * std::sqrt(static_cast<double>(std::max<std::int64_t>(1, terms)));
}

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) {
  return cases(grid, "bias+class_weight+lse");
}
Cost forward_cost(const ForwardArgs& args) {
  return {bytes_of({&args.x, &args.weight, &args.bias, &args.target, &args.class_weight, &args.loss,
                    &args.lse, &args.largest, &args.sum, &args.total, &args.count}),
          product_of(args)};
}
double forward_limit(const ForwardArgs& args) {
  return limit_of(args.x.shape[static_cast<std::size_t>(args.x.rank - 1)]);
}

std::vector<CaseGrid> backward_cases(std::string_view grid) {
  return cases(grid, "bias+class_weight+grad_bias");
}
Cost backward_cost(const BackwardArgs& args) {
  return {bytes_of({&args.grad_loss, &args.x, &args.weight, &args.bias, &args.target,
                    &args.class_weight, &args.largest, &args.sum, &args.grad_x, &args.grad_weight,
                    &args.grad_bias}),
          product_of(args) * (1 + args.grad_x.given() + args.grad_weight.given())};
}
double backward_limit(const BackwardArgs& args) {
  const auto last = static_cast<std::size_t>(args.x.rank - 1);
  std::int64_t rows = 1;
  for (std::size_t i = 0; i < last; ++i) rows *= args.x.shape[i];
  return limit_of(std::max({rows, args.x.shape[last], args.weight.shape[0]}));
}

}  // namespace isobit::linear_cross_entropy
