// SPDX-License-Identifier: Apache-2.0
// The grids and floors of reduce.
#include "isobit/ops/reduce/cases.h"

namespace isobit::reduce {
namespace {

constexpr Types kF32{DType::f32, DType::f32}, kBf16{DType::bf16, DType::bf16},
    kWide{DType::bf16, DType::bf16, DType::f32}, kF64{DType::f64, DType::f64};
const std::vector<Types> kFew = {kF32, kBf16};
const std::vector<Types> kAll = {
    kF32, kBf16, kWide, kF64, {DType::f16, DType::f16}, {DType::f16, DType::f16, DType::f32}};

constexpr double kSum = 0, kVar = 2, kStd = 3, kL2 = 4;

std::vector<CaseGrid> cases(std::string_view grid) {
  const std::map<std::string_view, std::vector<double>> usual = {{"correction", {1}}};
  if (grid == "bench" || grid == "bench-quick") {
    CaseGrid result{.types = {kF32},
                    .inputs = {"randn"},
                    .shapes = {{4096, 768}, {1, 1 << 20}},
                    .options = {{"reduction", {kSum, kVar, kL2}}, {"correction", {1}}}};
    if (grid == "bench") {
      result.types.push_back(kBf16);
      result.shapes.push_back({1, 10'000'000});
      result.shapes.push_back({1 << 20, 3});
    }
    return {result};
  }
  if (grid == "quick")
    return {{.dims = {{"kept", {1, 31}}, {"reduced", {7, 1023}}},
             .types = kFew,
             .inputs = {"randn", "mean1e6", "huge1e20"},
             .options = usual},
            {.dims = {{"kept", {5}}, {"reduced", {600}}},
             .types = kAll,
             .inputs = {"randn"},
             .options = usual}};
  std::vector<CaseGrid> grids = {
      // What stands beside a vector, a block and two blocks of the order of summation.
      {.dims = {{"kept", {1, 17}}, {"reduced", {2, 64, 511, 513, 1537}}},
       .types = kFew,
       .inputs = {"randn", "fltmax", "denormal"},
       .options = usual},
      {.dims = {{"kept", {3}}, {"reduced", {1023}}},
       .types = kAll,
       .inputs = {"lognormal", "outlier", "alternating", "constant", "mean1e6", "tiny1e-20",
                  "huge1e20", "const_grad"},
       .options = usual},
      {.types = {kF32, kF64},
       .inputs = {"randn", "mean1e4"},
       .shapes = {{2, 33}},
       .options = {{"reduction", {kVar, kStd}}, {"correction", {0, 0.5, 2}}}}};
  if (grid != "test") {
    grids.push_back({.dims = {{"kept", {1, 31}}, {"reduced", {2, 3, 7, 64, 768, 4096, 100'000}}},
                     .types = kAll,
                     .inputs = {"randn", "uniform", "offset100", "mean1e4", "mean1e6", "constant",
                                "outlier", "ramp", "alternating", "lognormal", "huge1e18",
                                "huge1e20", "fltmax", "tiny1e-20", "denormal"},
                     .options = usual});
    // On both sides of what threads share.
    grids.push_back({.types = {kF32, kF64},
                     .inputs = {"randn", "huge1e20"},
                     .shapes = {{1, 32768}, {2, 131'584}},
                     .options = usual});
  }
  return grids;
}

double elements(const TensorView& view) {
  double count = 1;
  for (int i = 0; i < view.rank; ++i) count *= static_cast<double>(view.shape[i]);
  return count;
}
double bytes(const TensorView& view) {
  return elements(view) * static_cast<double>(size_of(view.dtype));
}

// Operations of an element.
double flops(Kind kind) {
  switch (kind) {
    case Kind::var:
    case Kind::std: return 6;
    case Kind::l2:
    case Kind::l1:  return 2;
    default:        return 1;
  }
}

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) { return cases(grid); }
std::vector<CaseGrid> backward_cases(std::string_view grid) { return cases(grid); }

Cost forward_cost(const ForwardArgs& args) {
  return {bytes(args.x) + bytes(args.y), elements(args.x) * flops(args.reduction)};
}
Cost backward_cost(const BackwardArgs& args) {
  return {(reads_x(args.reduction) ? bytes(args.x) : 0) + bytes(args.grad_y) + bytes(args.grad_x),
          elements(args.grad_x) * (reads_x(args.reduction) ? flops(args.reduction) + 3 : 1)};
}

}  // namespace isobit::reduce
