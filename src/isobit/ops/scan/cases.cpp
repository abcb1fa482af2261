// SPDX-License-Identifier: Apache-2.0
// The grids and floors of scan.
#include "isobit/ops/scan/cases.h"

namespace isobit::scan {
namespace {

const std::vector<Types> kFloats = {{DType::f32, DType::f32},
                                    {DType::f16, DType::f16},
                                    {DType::bf16, DType::bf16},
                                    {DType::f64, DType::f64}};
const std::vector<Types> kWider = {{DType::f32, DType::f32, DType::f64},
                                   {DType::f16, DType::f16, DType::f32},
                                   {DType::bf16, DType::bf16, DType::f32}};
const std::vector<Types> kIntegers = {{DType::i32, DType::i32}, {DType::i64, DType::i64}};
const std::vector<Types> kWiderIntegers = {{DType::i32, DType::i32, DType::i64}};

constexpr double kSum = 0, kProd = 1, kMax = 2, kMin = 3, kLogSumExp = 4;
using Shapes = std::vector<std::vector<std::int64_t>>;
using Options = std::map<std::string_view, std::vector<double>>;

CaseGrid grid_of(const std::vector<Types>& types, Shapes shapes, std::vector<double> kinds,
                 std::vector<std::string_view> inputs, std::vector<std::string_view> with = {""},
                 std::vector<double> exclusive = {0}, std::vector<double> reverse = {0}) {
  return {.types = types,
          .inputs = std::move(inputs),
          .shapes = std::move(shapes),
          .options = {{"kind", std::move(kinds)},
                      {"exclusive", std::move(exclusive)},
                      {"reverse", std::move(reverse)}},
          .with = std::move(with)};
}

// Every kind beside every type that it takes.
std::vector<CaseGrid> every(const Shapes& shapes, const std::vector<std::string_view>& inputs) {
  return {grid_of(kFloats, shapes, {kSum, kProd, kLogSumExp}, inputs, {"", "init"}),
          grid_of(kFloats, shapes, {kMax, kMin}, {inputs[0]}, {"index"}),
          grid_of({kFloats[0]}, shapes, {kSum, kProd, kMin, kLogSumExp}, {inputs[0]},
                  {"", "init+reset"}, {0, 1}, {0, 1}),
          grid_of(kWider, shapes, {kSum}, {inputs[0]}),
          grid_of(kIntegers, shapes, {kSum, kProd, kMax}, {inputs[0]}, {"", "init"}, {0, 1}),
          grid_of(kWiderIntegers, shapes, {kSum, kProd}, {inputs[0]})};
}

}  // namespace

std::vector<CaseGrid> cases(std::string_view grid) {
  if (grid == "bench")
    return {grid_of({kFloats[0]},
                    {{1, 1 << 10, 1},
                     {1, 1 << 14, 1},
                     {1, 1 << 20, 1},
                     {1, 10'000'000, 1},
                     {1, 100'000'000, 1},
                     {4096, 4096, 1},
                     {1, 4096, 4096}},
                    {kSum}, {"randn"}),
            grid_of({kFloats[2], kFloats[3]}, {{1, 10'000'000, 1}}, {kSum}, {"randn"}),
            grid_of({kFloats[0]}, {{1, 10'000'000, 1}}, {kProd, kMax, kLogSumExp}, {"randn"}),
            grid_of(kIntegers, {{1, 10'000'000, 1}}, {kSum}, {"randn"})};
  if (grid == "bench-quick")
    return {grid_of({kFloats[0]}, {{1, 1 << 14, 1}, {1, 1 << 20, 1}, {1, 1024, 1024}}, {kSum},
                    {"randn"})};
  if (grid == "quick") {
    const Shapes shapes = {{2, 530, 1}, {1, 40, 17}};
    return {grid_of({kFloats[0], kFloats[2]}, shapes, {kSum, kProd, kLogSumExp},
                    {"randn", "lognormal"}, {"", "init"}),
            grid_of({kFloats[1], kFloats[3]}, shapes, {kSum}, {"randn"}),
            grid_of({kFloats[0]}, shapes, {kMax}, {"randn"}, {"index"}),
            grid_of({kFloats[0]}, shapes, {kSum}, {"randn"}, {"init+reset"}, {1}, {1}),
            grid_of(kIntegers, shapes, {kSum, kMin}, {"randn"}),
            grid_of({kWider[0], kWiderIntegers[0]}, shapes, {kSum}, {"randn"})};
  }
  if (grid == "test") {
    std::vector<CaseGrid> grids = every({{1, 1, 1}, {2, 1100, 1}, {2, 33, 19}}, {"randn"});
    grids.push_back(grid_of(kFloats, {{1, 2100, 1}, {1, 600, 9}}, {kSum, kProd, kLogSumExp},
                            {"uniform", "fltmax", "denormal", "huge1e20", "alternating"}));
    return grids;
  }
  std::vector<CaseGrid> grids = every(
      {{1, 1, 1}, {3, 511, 1}, {2, 5000, 1}, {1, 300'000, 1}, {2, 700, 130}},
      {"randn", "uniform", "mean1e6", "outlier", "alternating", "lognormal", "fltmax", "denormal"});
  return grids;
}

Cost cost(const Args& args) {
  double elements = 1;
  for (int i = 0; i < args.x.rank; ++i) elements *= static_cast<double>(args.x.shape[i]);
  double bytes = static_cast<double>(size_of(args.x.dtype) + size_of(args.y.dtype));
  if (args.reset.given()) bytes += 1;
  if (args.index.given()) bytes += 8;
  const auto length = static_cast<double>(args.x.shape[args.x.rank - 2]);
  const double rows = length > 0 ? elements / length : 0;
  double init = 0;
  if (args.init.given()) {
    init = static_cast<double>(size_of(args.y.dtype));
    for (int i = 0; i < args.init.rank; ++i) init *= static_cast<double>(args.init.shape[i]);
  }
  const double operations = args.kind == Kind::logsumexp ? 30 : 2;
  return {.bytes = elements * bytes + init, .flops = operations * rows * length};
}

// What is exact has no errors.
double limit(const Args& args) {
  if (args.kind == Kind::max || args.kind == Kind::min || !is_floating(args.x.dtype)) return 0;
  return 8;
}

}  // namespace isobit::scan
