// SPDX-License-Identifier: Apache-2.0
// The grids and floors of vector_norm.
#include "isobit/ops/vector_norm/cases.h"

namespace isobit::vector_norm {
namespace {

const std::vector<Types> kTypes = {{DType::f32, DType::f32},
                                   {DType::f16, DType::f16},
                                   {DType::bf16, DType::bf16},
                                   {DType::f64, DType::f64}};

}  // namespace

std::vector<CaseGrid> cases(std::string_view grid) {
  if (grid == "bench")
    return {{.types = {kTypes[0], kTypes[2]},
             .inputs = {"randn"},
             .shapes = {{1, 1 << 10}, {1, 1 << 20}, {1, 10'000'000}, {4096, 768}}}};
  if (grid == "bench-quick")
    return {{.types = {kTypes[0], kTypes[2]},
             .inputs = {"randn"},
             .shapes = {{1, 1 << 10}, {1, 1 << 20}}}};
  if (grid == "quick")
    return {{.dims = {{"rows", {1, 31}}, {"cols", {7, 1023}}},
             .types = kTypes,
             .inputs = {"randn", "lognormal", "huge1e20"}}};
  if (grid == "test")
    return {{.dims = {{"rows", {1, 17}}, {"cols", {1, 64, 511, 512, 513, 1537}}},
             .types = kTypes,
             .inputs = {"randn", "fltmax", "denormal"}},
            {.dims = {{"rows", {3}}, {"cols", {1023}}},
             .types = kTypes,
             .inputs = {"lognormal", "outlier", "alternating", "tiny1e-20", "huge1e20"}},
            // On both sides of what one thread takes.
            {.types = {kTypes[0], kTypes[3]},
             .inputs = {"randn", "huge1e20"},
             .shapes = {{1, 32768}, {1, 32769}, {2, 131'584}}}};
  return {{.dims = {{"rows", {1, 31}}, {"cols", {1, 3, 7, 64, 768, 1023, 4096, 100'000}}},
           .types = kTypes,
           .inputs = {"randn", "uniform", "mean1e4", "outlier", "ramp", "lognormal", "fltmax",
                      "denormal", "huge1e20", "tiny1e-20"}}};
}

Cost cost(const Args& args) {
  double elements = 1, rows = 1;
  for (int i = 0; i < args.x.rank; ++i) elements *= static_cast<double>(args.x.shape[i]);
  for (int i = 0; i + 1 < args.x.rank; ++i) rows *= static_cast<double>(args.x.shape[i]);
  return {elements * static_cast<double>(size_of(args.x.dtype)) +
              rows * static_cast<double>(size_of(args.norm.dtype)),
          2 * elements};
}

}  // namespace isobit::vector_norm
