// SPDX-License-Identifier: Apache-2.0
// The grids and floors of pointwise_loss.
#include "isobit/ops/pointwise_loss/cases.h"

namespace isobit::pointwise_loss {
namespace {

const std::vector<Types> kTypes = {{DType::f32, DType::f32},
                                   {DType::f16, DType::f16},
                                   {DType::bf16, DType::bf16},
                                   {DType::f64, DType::f64}};
constexpr double kSmooth = 2, kHuber = 3, kBce = 4;  // functions

std::vector<CaseGrid> cases(std::string_view grid) {
  if (grid == "bench" || grid == "bench-quick")
    return {{.types = {kTypes[0], kTypes[2]},
             .inputs = {"randn"},
             .shapes = {{1, 1 << 10}, {1, 1 << 20}}}};
  if (grid == "quick")
    return {{.dims = {{"rows", {1, 31}}, {"cols", {7, 1023}}},
             .types = kTypes,
             .inputs = {"randn", "huge1e20"},
             .with = {"", "weight"}}};
  const CaseGrid bends = {.dims = {{"rows", {3}}, {"cols", {1023}}},
                          .types = kTypes,
                          .inputs = {"randn", "uniform"},
                          .options = {{"function", {kSmooth, kHuber}}, {"beta", {0.125, 2}}}};
  const CaseGrid weighted = {.dims = {{"rows", {3}}, {"cols", {129}}},
                             .types = kTypes,
                             .inputs = {"randn", "outlier", "lognormal", "fltmax"},
                             .options = {{"function", {kBce}}},
                             .with = {"pos_weight", "weight+pos_weight"}};
  if (grid == "test")
    return {{.dims = {{"rows", {1, 17}}, {"cols", {1, 15, 64, 129}}},
             .types = kTypes,
             .inputs = {"randn", "fltmax", "denormal"}},
            bends,
            weighted};
  return {
      {.dims = {{"rows", {1, 31, 512}}, {"cols", {1, 3, 7, 64, 1023, 4096}}},
       .types = kTypes,
       .inputs = {"randn", "outlier", "lognormal", "fltmax", "denormal", "huge1e20", "tiny1e-20"}},
      bends,
      weighted};
}

// Arrays of the size of x besides what is like loss; about forty operations an element.
Cost cost(const TensorView& x, int arrays) {
  double elements = 1;
  for (int i = 0; i < x.rank; ++i) elements *= static_cast<double>(x.shape[i]);
  const auto size = static_cast<double>(size_of(x.dtype));
  return {elements * (arrays * size + (size == 8 ? 8 : 4)), 40 * elements};
}

template <class Args>
int inputs(const Args& args) {
  return 2 + (args.weight.given() ? 1 : 0) + (args.pos_weight.given() ? 1 : 0);
}

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) { return cases(grid); }
std::vector<CaseGrid> backward_cases(std::string_view grid) { return cases(grid); }

Cost forward_cost(const ForwardArgs& args) { return cost(args.x, inputs(args)); }
Cost backward_cost(const BackwardArgs& args) { return cost(args.x, inputs(args) + 1); }

}  // namespace isobit::pointwise_loss
