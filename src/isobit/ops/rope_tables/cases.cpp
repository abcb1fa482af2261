// SPDX-License-Identifier: Apache-2.0
// The grids and floors of rope_tables.
#include "isobit/ops/rope_tables/cases.h"

namespace isobit::rope_tables {
namespace {

// The tables' type, and beside it that of given frequencies.
const std::vector<Types> kTypes = {
    {DType::f32, DType::f64}, {DType::f32, DType::f32}, {DType::f64, DType::f64}};
constexpr double kFar = (1 << 24) - 4096;

}  // namespace

std::vector<CaseGrid> cases(std::string_view grid) {
  if (grid == "bench" || grid == "bench-quick")
    return {{.types = {kTypes[0]}, .inputs = {"randn"}, .shapes = {{8192, 64}}}};
  if (grid == "quick")
    return {{.dims = {{"length", {1, 17}}, {"pairs", {1, 37}}},
             .types = kTypes,
             .inputs = {"randn"},
             .options = {{"offset_positions", {0, kFar}}},
             .with = {"", "inv_freq+positions"}}};
  if (grid == "test")
    return {{.dims = {{"length", {1, 33}}, {"pairs", {1, 15, 64}}},
             .types = kTypes,
             .inputs = {"randn"},
             .options = {{"base", {10000, 500000}}, {"offset_positions", {0, 131000, kFar}}},
             .with = {"", "positions", "inv_freq"}}};
  return {{.dims = {{"length", {4096}}, {"pairs", {1, 16, 32, 64, 128}}},
           .types = kTypes,
           .inputs = {"randn"},
           .options = {{"base", {1, 10000, 500000, 1e6, 1e7}},
                       {"offset_positions", {0, 131000, 1 << 20, kFar}}},
           .with = {"", "positions", "inv_freq"}}};
}

// About a hundred operations for a cosine and its sine.
Cost cost(const Args& args) {
  double elements = 1;
  for (int i = 0; i < args.cos.rank; ++i) elements *= static_cast<double>(args.cos.shape[i]);
  const auto pairs = static_cast<double>(args.cos.shape[args.cos.rank - 1]);
  const double length = pairs == 0 ? 0 : elements / pairs;
  double bytes = 2 * elements * static_cast<double>(size_of(args.cos.dtype));
  if (args.inv_freq.given()) bytes += pairs * static_cast<double>(size_of(args.inv_freq.dtype));
  if (args.positions.given()) bytes += length * 8;
  return {bytes, 100 * elements};
}

}  // namespace isobit::rope_tables
