// SPDX-License-Identifier: Apache-2.0
// The grids and floors of elementwise.
#include "isobit/ops/elementwise/cases.h"

namespace isobit::elementwise {
namespace {

const std::vector<Types> kTypes = {{DType::f32, DType::f32},
                                   {DType::f16, DType::f16},
                                   {DType::bf16, DType::bf16},
                                   {DType::f64, DType::f64},
                                   {DType::i32, DType::i32}};

}  // namespace

std::vector<CaseGrid> cases(std::string_view grid) {
  if (grid == "bench")  // 1K, 16K, 1M, 10M, 100M elements
    return {
        {.types = kTypes,
         .inputs = {"randn"},
         .shapes = {{1, 1 << 10}, {1, 16 << 10}, {1, 1 << 20}, {1, 10'000'000}, {1, 100'000'000}}}};
  if (grid == "bench-quick")
    return {{.types = {kTypes[0], kTypes[2]},
             .inputs = {"randn"},
             .shapes = {{1, 1 << 10}, {1, 1 << 20}}}};
  if (grid == "quick")
    return {{.dims = {{"rows", {1, 31}}, {"cols", {1, 7, 1023, 4096}}},
             .types = kTypes,
             .inputs = {"randn", "huge1e20", "integers"}}};
  if (grid == "test")
    return {{.dims = {{"rows", {1, 3, 17}}, {"cols", {1, 3, 15, 16, 17, 63, 64, 65, 1023}}},
             .types = kTypes,
             .inputs = {"randn", "lognormal", "fltmax", "denormal", "alternating", "integers"}}};
  return {{.dims = {{"rows", {1, 31, 2048}}, {"cols", {1, 3, 7, 64, 768, 1023, 4096, 65536}}},
           .types = kTypes,
           .inputs = {"randn", "uniform", "mean1e6", "outlier", "lognormal", "fltmax", "denormal",
                      "alternating"}}};
}

Cost cost(const Args& args) {
  const double elements =
      static_cast<double>(args.y.shape[0]) * static_cast<double>(args.y.shape[1]);
  const double arrays = args.kind == Kind::add ? 3 : 2;
  return {arrays * elements * static_cast<double>(size_of(args.y.dtype)), elements};
}

}  // namespace isobit::elementwise
