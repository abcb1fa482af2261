// SPDX-License-Identifier: Apache-2.0
// The grids of norms.
#include "isobit/norms/cases.h"

#include <utility>

#include "isobit/core/error.h"

namespace isobit::norms {
namespace {

constexpr Types kF32{DType::f32, DType::f32};
constexpr Types kF16{DType::f16, DType::f16};
constexpr Types kBf16{DType::bf16, DType::bf16};
constexpr Types kF64{DType::f64, DType::f64};
constexpr Types kMixed{DType::bf16, DType::f32};

const std::vector<Types> kEveryType = {kF32,
                                       kBf16,
                                       kMixed,
                                       kF16,
                                       {DType::f16, DType::f32},
                                       kF64,
                                       {DType::f64, DType::f32},
                                       {DType::f32, DType::f32, DType::bf16},
                                       {DType::f32, DType::f32, DType::f16},
                                       {DType::bf16, DType::f32, DType::f32},
                                       {DType::f16, DType::f16, DType::bf16}};

// What is usual: no extra argument, no option but eps.
CaseGrid usual(std::vector<std::int64_t> rows, std::vector<std::int64_t> cols,
               std::vector<std::string_view> inputs) {
  return {.dims = {{"rows", std::move(rows)}, {"cols", std::move(cols)}},
          .types = {kF32, kBf16, kMixed},
          .inputs = std::move(inputs),
          .options = {{"eps", {1e-5, 0}}, {"zero_centered", {0}}}};
}

// Every type with every option; `with` are the extra arguments.
CaseGrid every_option(std::vector<std::int64_t> rows, std::vector<std::int64_t> cols,
                      std::vector<std::string_view> inputs, std::vector<std::string_view> with,
                      std::vector<double> dropout) {
  return {.dims = {{"rows", std::move(rows)}, {"cols", std::move(cols)}},
          .types = kEveryType,
          .inputs = std::move(inputs),
          .options = {{"eps", {1e-5}}, {"dropout", std::move(dropout)}, {"dropout_seed", {42}}},
          .with = std::move(with)};
}

// Extra arguments: those that any call may have, and those that dropout brings.
struct Extras {
  std::vector<std::string_view> usual, dropout;
};

std::vector<CaseGrid> with_options(CaseGrid base, std::vector<std::int64_t> rows,
                                   std::vector<std::int64_t> cols,
                                   std::vector<std::string_view> inputs, const Extras& extras) {
  return {std::move(base), every_option(rows, cols, inputs, extras.usual, {0}),
          every_option(rows, cols, inputs, extras.dropout, {0.25})};
}

// Widths that stand beside a vector, a block and two blocks of the order of summation.
const std::vector<std::int64_t> kWidths = {1,   3,   7,   15,  16,   17,   64,
                                           511, 512, 513, 768, 1023, 1025, 4096};
const std::vector<std::string_view> kFamilies = {
    "randn",   "uniform",   "offset100",   "mean1e4",   "mean1e6",  "constant",
    "outlier", "ramp",      "alternating", "lognormal", "huge1e18", "huge1e20",
    "fltmax",  "tiny1e-20", "denormal",    "const_grad"};

CaseGrid timed(std::vector<std::vector<std::int64_t>> shapes, std::vector<std::string_view> with) {
  return {.types = {kF32, kBf16},
          .inputs = {"randn"},
          .shapes = std::move(shapes),
          .options = {{"eps", {1e-5}}, {"zero_centered", {0}}},
          .with = std::move(with)};
}

std::vector<CaseGrid> cases(std::string_view op, std::string_view grid, const Extras& extras,
                            std::string_view sum) {
  if (grid == "quick")
    return with_options(usual({1, 31, 257}, {1, 7, 64, 768, 1023, 4096},
                              {"randn", "mean1e6", "constant", "huge1e20", "const_grad"}),
                        {37}, {7, 600}, {"randn"}, extras);
  if (grid == "test")
    return with_options(usual({1, 2, 17, 31}, kWidths, kFamilies), {1, 37}, {7, 600},
                        {"randn", "huge1e18"}, extras);
  if (grid == "full")
    return with_options(
        usual({1, 31, 2048, 16385}, {1, 3, 7, 64, 768, 1023, 4096, 65536}, kFamilies),
        {1, 37, 2048}, {1, 7, 768, 1100}, {"randn", "mean1e4", "huge1e18", "constant", "denormal"},
        extras);
  if (grid == "bench-quick") return {timed({{64, 768}, {4096, 1024}, {2048, 5120}}, {""})};
  if (grid == "bench")
    return {timed({{1, 4096},
                   {64, 768},
                   {1024, 768},
                   {16384, 768},
                   {4096, 1024},
                   {8192, 1024},
                   {16384, 1024},
                   {4096, 1280},
                   {2048, 1600},
                   {2048, 2048},
                   {2048, 4096},
                   {2048, 5120},
                   {2048, 6144},
                   {1024, 8192},
                   {512, 12288},
                   {64, 65536},
                   {8, 262144}},
                  {""}),
            timed({{1024, 768}, {4096, 1024}, {2048, 5120}, {1024, 8192}}, {sum})};
  throw InvalidArgument(
      text(op, ": the grid is '", grid, "'; there are quick, test, full, bench and bench-quick"));
}

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view op, std::string_view grid) {
  return cases(op, grid, {{"", "residual", "residual+sum"}, {"sum", "residual+sum"}},
               "residual+sum");
}
std::vector<CaseGrid> backward_cases(std::string_view op, std::string_view grid) {
  return cases(op, grid, {{"", "grad_sum"}, {"", "grad_sum+grad_residual"}}, "grad_sum");
}

double elements(const TensorView& view) {
  double count = view.given() ? 1 : 0;
  for (int i = 0; i < view.rank; ++i) count *= static_cast<double>(view.shape[i]);
  return count;
}

double bytes(std::initializer_list<const TensorView*> views) {
  double sum = 0;
  for (const TensorView* view : views)
    sum += elements(*view) * static_cast<double>(size_of(view->dtype));
  return sum;
}

}  // namespace isobit::norms
