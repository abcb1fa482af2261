// SPDX-License-Identifier: Apache-2.0
// The grids of a norm and the product that it feeds.
#include "isobit/norm_linear/cases.h"

#include <utility>

namespace isobit::norm_linear {
namespace {

constexpr Types kF32{DType::f32, DType::f32};
constexpr Types kBf16{DType::bf16, DType::bf16};
const std::vector<Types> kSame = {kF32, kBf16, {DType::f16, DType::f16}, {DType::f64, DType::f64}};
const std::vector<Types> kMixed = {{DType::bf16, DType::f32},
                                   {DType::f32, DType::f32, DType::bf16},
                                   {DType::bf16, DType::f32, DType::f32},
                                   {DType::f16, DType::f32, DType::bf16}};

using Shapes = std::vector<std::vector<std::int64_t>>;  // rows, cols, features
constexpr double kNone = 0, kRelu = 1, kGelu = 2, kGeluTanh = 3, kSilu = 4;

CaseGrid usual(std::vector<Types> types, Shapes shapes, std::vector<std::string_view> inputs) {
  return {
      .types = std::move(types),
      .inputs = std::move(inputs),
      .shapes = std::move(shapes),
      .options = {
          {"eps", {1e-5}}, {"zero_centered", {0}}, {"activation", {kNone}}, {"arithmetic", {0}}}};
}

CaseGrid with_options(std::vector<Types> types, Shapes shapes, std::vector<double> activations,
                      std::vector<double> dropout, std::vector<std::string_view> with) {
  return {.types = std::move(types),
          .inputs = {"randn"},
          .shapes = std::move(shapes),
          .options = {{"eps", {1e-5}},
                      {"zero_centered", {1}},
                      {"dropout", std::move(dropout)},
                      {"dropout_seed", {42}},
                      {"activation", std::move(activations)},
                      {"arithmetic", {0}}},
          .with = std::move(with)};
}

CaseGrid by_tensor_cores(CaseGrid grid) {
  grid.types = {kBf16, {DType::f16, DType::f32}};
  grid.options["arithmetic"] = {1};
  return grid;
}

// The shapes of transformers, and the narrow outputs where a norm costs as much as its product.
CaseGrid timed(bool quick) {
  Shapes shapes = {{1024, 768, 3072}, {1024, 768, 64}};
  if (!quick)
    shapes.insert(shapes.end(), {{4096, 768, 768},
                                 {2048, 4096, 4096},
                                 {4096, 1024, 128},
                                 {16, 4096, 4096},
                                 {1, 4096, 4096}});
  return usual({kF32, kBf16}, std::move(shapes), {"randn"});
}

const std::vector<std::string_view> kFamilies = {"randn",   "mean1e6",  "constant",  "huge1e20",
                                                 "outlier", "denormal", "const_grad"};

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) {
  constexpr std::string_view kSome = "residual+x_residual+sum+pre";
  if (grid == "bench" || grid == "bench-quick") return {timed(grid == "bench-quick")};
  if (grid == "quick")
    return {usual(kSame, {{7, 13, 5}, {33, 530, 40}, {1, 600, 70}}, {"randn", "mean1e6"}),
            with_options({kF32, kBf16}, {{20, 35, 21}}, {kGelu}, {0, 0.25}, {kSome}),
            usual(kMixed, {{20, 37, 40}}, {"randn"}),
            by_tensor_cores(usual({}, {{20, 37, 40}}, {"randn"}))};
  if (grid == "test")
    return {
        usual(kSame, {{1, 1, 1}, {7, 13, 5}, {2, 0, 3}, {3, 600, 70}, {40, 1030, 17}}, {"randn"}),
        usual({kF32, kBf16}, {{12, 65, 20}}, kFamilies),
        with_options(kSame, {{20, 35, 21}}, {kNone, kRelu, kGelu, kGeluTanh, kSilu}, {0},
                     {"residual+pre+y+mean+rstd"}),
        with_options({kF32, kBf16}, {{20, 35, 21}}, {kSilu}, {0, 0.25},
                     {"x_residual", "residual+x_residual+sum+pre"}),
        usual(kMixed, {{3, 40, 21}, {20, 37, 40}}, {"randn"}),
        by_tensor_cores(usual({}, {{70, 130, 17}}, {"randn"}))};
  return {usual(kSame, {{1, 1, 1}, {67, 1025, 129}, {257, 4096, 255}, {1000, 64, 16}}, kFamilies),
          with_options(kSame, {{65, 100, 33}, {200, 600, 31}},
                       {kNone, kRelu, kGelu, kGeluTanh, kSilu}, {0, 0.25}, {"x_residual", kSome}),
          usual(kMixed, {{64, 700, 100}}, kFamilies)};
}

std::vector<CaseGrid> backward_cases(std::string_view grid) {
  if (grid == "bench" || grid == "bench-quick") return {timed(grid == "bench-quick")};
  if (grid == "quick")
    return {usual(kSame, {{7, 13, 5}, {530, 33, 40}, {1, 600, 70}}, {"randn", "mean1e6"}),
            with_options({kF32, kBf16}, {{20, 35, 21}}, {kGelu}, {0.25},
                         {"pre+grad_sum+grad_x_residual"}),
            usual(kMixed, {{20, 37, 40}}, {"randn"}),
            by_tensor_cores(usual({}, {{20, 37, 40}}, {"randn"}))};
  if (grid == "test")
    return {
        usual(kSame, {{1, 1, 1}, {7, 13, 5}, {0, 3, 2}, {3, 70, 600}, {1030, 40, 17}}, {"randn"}),
        usual({kF32, kBf16}, {{12, 65, 20}}, kFamilies),
        with_options(kSame, {{20, 35, 21}}, {kNone, kRelu, kGelu, kGeluTanh, kSilu}, {0}, {"pre"}),
        with_options({kF32, kBf16}, {{20, 35, 21}}, {kSilu}, {0.25},
                     {"pre", "pre+grad_sum+grad_x_residual"}),
        usual(kMixed, {{3, 40, 21}, {20, 37, 40}}, {"randn"}),
        by_tensor_cores(usual({}, {{70, 33, 17}}, {"randn"}))};
  return {usual(kSame, {{1, 1, 1}, {1025, 67, 129}, {4096, 14, 32}, {64, 1000, 16}}, kFamilies),
          with_options(kSame, {{65, 100, 33}, {600, 200, 31}},
                       {kNone, kRelu, kGelu, kGeluTanh, kSilu}, {0, 0.25}, {"pre", "pre+grad_sum"}),
          usual(kMixed, {{64, 700, 100}}, kFamilies)};
}

}  // namespace isobit::norm_linear
