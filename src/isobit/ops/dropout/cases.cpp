// SPDX-License-Identifier: Apache-2.0
// The grids and floors of dropout.
#include "isobit/ops/dropout/cases.h"

namespace isobit::dropout {
namespace {

const std::vector<Types> kTypes = {{DType::f32, DType::f32},
                                   {DType::f16, DType::f16},
                                   {DType::bf16, DType::bf16},
                                   {DType::f64, DType::f64}};

}  // namespace

std::vector<CaseGrid> cases(std::string_view grid) {
  if (grid == "bench" || grid == "bench-quick")
    return {{.types = {kTypes[0], kTypes[2]},
             .inputs = {"randn"},
             .shapes = {{1, 1 << 10}, {1024, 1024}}}};
  if (grid == "quick")
    return {{.dims = {{"rows", {1, 31}}, {"cols", {7, 1023}}},
             .types = kTypes,
             .inputs = {"randn", "huge1e20"},
             .options = {{"p", {0.1, 0.5}}}}};
  if (grid == "test")
    return {{.dims = {{"rows", {1, 17}}, {"cols", {1, 15, 64, 129}}},
             .types = kTypes,
             .inputs = {"randn", "fltmax", "denormal"},
             .options = {{"p", {0.25}}, {"dropout_seed", {1, 0x1p52 + 5}}}},
            {.dims = {{"rows", {3}}, {"cols", {1023}}},
             .types = kTypes,
             .inputs = {"randn", "lognormal", "uniform"},
             .options = {{"p", {0, 0.9, 1}}}}};
  return {{.dims = {{"rows", {1, 31, 2048}}, {"cols", {1, 3, 7, 64, 768, 1023, 4096}}},
           .types = kTypes,
           .inputs = {"randn", "outlier", "fltmax", "denormal", "huge1e20", "tiny1e-20"},
           .options = {{"p", {0.1, 0.5}}}}};
}

// About fifteen operations of Philox for an element.
Cost cost(const Args& args) {
  double elements = 1;
  for (int i = 0; i < args.x.rank; ++i) elements *= static_cast<double>(args.x.shape[i]);
  return {2 * elements * static_cast<double>(size_of(args.x.dtype)), 16 * elements};
}

}  // namespace isobit::dropout
