// SPDX-License-Identifier: Apache-2.0
// The grids and floors of random.
#include "isobit/ops/random/cases.h"

#include <utility>

namespace isobit::random {
namespace {

const std::vector<Types> kTypes = {{DType::f32, DType::f32},
                                   {DType::f16, DType::f16},
                                   {DType::bf16, DType::bf16},
                                   {DType::f64, DType::f64}};
constexpr double kUniform = 0, kNormal = 1, kTruncated = 2, kBernoulli = 3;  // distributions
constexpr double kFar = 0x1p34 + 3;  // an offset whose group needs more than 32 bits

CaseGrid grid_of(std::vector<std::int64_t> rows, std::vector<std::int64_t> cols,
                 std::map<std::string_view, std::vector<double>> options) {
  return {.dims = {{"rows", std::move(rows)}, {"cols", std::move(cols)}},
          .types = kTypes,
          .inputs = {"randn"},
          .options = std::move(options)};
}

}  // namespace

std::vector<CaseGrid> cases(std::string_view grid) {
  if (grid == "bench" || grid == "bench-quick")
    return {{.types = {kTypes[0], kTypes[2]},
             .inputs = {"randn"},
             .shapes = {{1, 1 << 10}, {1, 1 << 20}}}};
  if (grid == "quick") return {grid_of({1, 31}, {7, 1023}, {{"random_offset", {0, kFar}}})};
  if (grid == "test")
    return {
        grid_of({1, 17}, {1, 15, 64, 129},
                {{"random_seed", {0, 0x1p52 + 5}}, {"random_offset", {1, kFar}}}),
        grid_of({3}, {1023},
                {{"distribution", {kUniform}}, {"low", {-3, 0.1}}, {"high", {0.3, 65504}}}),
        grid_of({3}, {1023}, {{"distribution", {kNormal}}, {"mean", {0, -10}}, {"std", {0, 0.02}}}),
        grid_of({3}, {1023},
                {{"distribution", {kTruncated}},
                 {"mean", {0, 1}},
                 {"std", {0.5, 1, 200}},
                 {"low", {-2, 0.5}},
                 {"high", {2, 30}}}),
        grid_of({1}, {1023}, {{"distribution", {kTruncated}}, {"low", {-20}}, {"high", {20, -6}}}),
        grid_of({1}, {1023}, {{"distribution", {kTruncated}}, {"low", {5}}, {"high", {9}}}),
        grid_of({1}, {1023}, {{"distribution", {kBernoulli}}, {"p", {0, 0.1, 1}}})};
  return {grid_of({1, 31, 512}, {1, 3, 7, 64, 1023, 4096}, {{"random_offset", {0, kFar}}}),
          grid_of({64}, {4096}, {{"distribution", {kTruncated}}, {"low", {-2}}, {"high", {2, 8}}})};
}

// About a hundred operations for a normal number.
Cost cost(const Args& args) {
  double elements = 1;
  for (int i = 0; i < args.y.rank; ++i) elements *= static_cast<double>(args.y.shape[i]);
  return {elements * static_cast<double>(size_of(args.y.dtype)), 100 * elements};
}

}  // namespace isobit::random
