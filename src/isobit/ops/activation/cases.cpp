// SPDX-License-Identifier: Apache-2.0
// The grids and floors of activation.
#include "isobit/ops/activation/cases.h"

namespace isobit::activation {
namespace {

const std::vector<Types> kTypes = {{DType::f32, DType::f32},
                                   {DType::f16, DType::f16},
                                   {DType::bf16, DType::bf16},
                                   {DType::f64, DType::f64}};

std::vector<CaseGrid> cases(std::string_view grid, const std::vector<std::string_view>& with) {
  if (grid == "bench")
    return {{.types = kTypes,
             .inputs = {"randn"},
             .shapes = {{1, 1 << 10}, {1, 16 << 10}, {1, 1 << 20}, {1, 10'000'000}},
             .with = with}};
  if (grid == "bench-quick")
    return {{.types = {kTypes[0], kTypes[2]},
             .inputs = {"randn"},
             .shapes = {{1, 1 << 10}, {1, 1 << 20}},
             .with = with}};
  if (grid == "quick")
    return {{.dims = {{"rows", {1, 31}}, {"cols", {7, 1023}}},
             .types = kTypes,
             .inputs = {"randn", "lognormal", "huge1e20"},
             .with = with}};
  if (grid == "test")
    return {{.dims = {{"rows", {1, 17}}, {"cols", {1, 15, 64, 129}}},
             .types = kTypes,
             .inputs = {"randn", "fltmax", "denormal"},
             .with = with},
            {.dims = {{"rows", {3}}, {"cols", {1023}}},
             .types = kTypes,
             .inputs = {"randn", "lognormal", "outlier", "alternating", "tiny1e-20", "uniform"},
             .with = with}};
  return {{.dims = {{"rows", {1, 31, 2048}}, {"cols", {1, 3, 7, 64, 768, 1023, 4096}}},
           .types = kTypes,
           .inputs = {"randn", "uniform", "mean1e4", "outlier", "ramp", "lognormal", "fltmax",
                      "denormal", "huge1e20", "tiny1e-20"},
           .with = with}};
}

// Bytes of so many arrays; about thirty operations an element.
Cost cost(const TensorView& x, int arrays) {
  double elements = 1;
  for (int i = 0; i < x.rank; ++i) elements *= static_cast<double>(x.shape[i]);
  return {arrays * elements * static_cast<double>(size_of(x.dtype)), 30 * elements};
}

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) { return cases(grid, {"", "gate"}); }
std::vector<CaseGrid> backward_cases(std::string_view grid) {
  return cases(grid, {"", "gate+grad_gate"});
}

Cost forward_cost(const ForwardArgs& args) { return cost(args.x, args.gate.given() ? 3 : 2); }
Cost backward_cost(const BackwardArgs& args) {
  return cost(args.x, 3 + (args.gate.given() ? 1 : 0) + (args.grad_gate.given() ? 1 : 0));
}

}  // namespace isobit::activation
