// SPDX-License-Identifier: Apache-2.0
// The grids and floors of attention.
#include "isobit/ops/attention/cases.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "isobit/core/tensor_core.h"

namespace isobit::attention {
namespace {

const std::vector<Types> kTypes = {{DType::f32, DType::f32},
                                   {DType::f16, DType::f16},
                                   {DType::bf16, DType::bf16},
                                   {DType::f64, DType::f64}};

using Shapes = std::vector<std::vector<std::int64_t>>;

struct Choice {
  double causal = 0, window = 0, softcap = 0, dropout = 0, scale = 0;
};

// Shapes are batch, heads, kv_heads, seq_q, seq_k, head_dim, value_dim, and where they are needed
// starts and places.
CaseGrid grid_of(const std::vector<Types>& types, Shapes shapes, Choice choice = {},
                 std::vector<std::string_view> with = {""},
                 std::vector<std::string_view> inputs = {"randn"}) {
  return {.types = types,
          .inputs = std::move(inputs),
          .shapes = std::move(shapes),
          .options = {{"causal", {choice.causal}},
                      {"window", {choice.window}},
                      {"softcap", {choice.softcap}},
                      {"dropout", {choice.dropout}},
                      {"scale", {choice.scale}}},
          .with = std::move(with)};
}

// By tensor cores, which the processor has not.
CaseGrid by_tensor_cores(CaseGrid grid) {
  grid.types = {kTypes[1], kTypes[2]};
  grid.options["arithmetic"] = {1};
  return grid;
}

// What there is of everything that a pass takes beside its arrays.
std::string_view all_of(bool backward) {
  return backward ? "bias+mask+slopes+key_begin+key_end+grad_lse+grad_bias"
                  : "bias+mask+slopes+key_begin+key_end";
}

// Backward takes max as f32 has it: beyond 2^24 another than the reference's.
std::vector<std::string_view> families_of(bool backward) {
  std::vector<std::string_view> families = {"uniform",   "integers", "lognormal",
                                            "tiny1e-20", "denormal", "mean1e4"};
  if (!backward) families.insert(families.end(), {"alternating", "outlier", "huge1e18", "fltmax"});
  return families;
}

std::vector<CaseGrid> tensor_cases(std::string_view grid, bool backward) {
  constexpr double kTopLeft = 1, kBottomRight = 2;
  const std::string_view all = all_of(backward);
  std::vector<CaseGrid> grids;
  if (grid == "quick")
    grids = {grid_of({}, {{2, 2, 1, 5, 7, 8, 6}}),
             grid_of({}, {{1, 2, 2, 35, 140, 20, 9}}, {.causal = kBottomRight}, {all})};
  if (grid == "test")
    grids = {
        grid_of({}, {{1, 1, 1, 1, 1, 1, 1}, {2, 4, 2, 3, 5, 16, 8}, {1, 1, 1, 70, 300, 72, 80}}, {},
                {"", all}),
        grid_of({}, {{1, 2, 1, 20, 33, 64, 17}}, {.causal = kBottomRight, .window = 9}),
        grid_of({}, {{2, 2, 1, 9, 140, 20, 9}},
                {.window = 30, .softcap = 2, .dropout = 0.4, .scale = -0.7}, {"slopes"})};
  if (grid == "full") {
    std::vector<std::string_view> families = families_of(backward);
    families.insert(families.end(), {"ramp", "constant"});
    grids = {grid_of({}, {{1, 4, 2, 100, 300, 64, 64}, {1, 2, 1, 64, 2200, 32, 40}}, {}, {"", all}),
             grid_of({}, {{1, 1, 1, 40, 300, 128, 128}}, {.causal = kTopLeft}),
             grid_of({}, {{1, 4, 2, 100, 300, 64, 64, 5, 0}}, {.causal = kTopLeft},
                     {"query_starts+key_starts"}),
             grid_of({}, {{1, 2, 1, 40, 200, 64, 33}}, {}, {""}, families)};
    if (!backward) {
      grids.push_back(grid_of({}, {{3, 4, 2, 3, 70, 64, 64, 0, 2}}, {.causal = kBottomRight},
                              {"key_begin+key_end+blocks"}));
      grids.push_back(grid_of({}, {{3, 4, 2, 90, 70, 64, 64, 4, 2}}, {.causal = kBottomRight},
                              {"query_starts+key_end+blocks"}));
    }
  }
  for (CaseGrid& each : grids) each = by_tensor_cores(std::move(each));
  return grids;
}

std::vector<CaseGrid> cases(std::string_view grid, bool backward) {
  constexpr double kTopLeft = 1, kBottomRight = 2;
  const std::string_view all = all_of(backward);
  const std::vector<Types> f32 = {kTypes[0]}, wide_and_narrow = {kTypes[0], kTypes[2]};
  if (grid == "bench") {
    const Shapes shapes = {{1, 8, 8, 64, 64, 64, 64},     {1, 8, 8, 128, 128, 64, 64},
                           {1, 8, 8, 512, 512, 64, 64},   {1, 8, 8, 2048, 2048, 64, 64},
                           {1, 1, 1, 2048, 2048, 64, 64}, {1, 1, 1, 8192, 8192, 64, 64},
                           {1, 12, 12, 512, 512, 64, 64}, {1, 16, 16, 512, 512, 32, 32},
                           {1, 32, 8, 512, 512, 128, 128}};
    std::vector<CaseGrid> grids = {grid_of(f32, shapes), grid_of(f32, shapes, {.causal = kTopLeft}),
                                   grid_of({kTypes[2]}, {{1, 8, 8, 512, 512, 64, 64}})};
    if (!backward)
      grids.push_back(
          grid_of(wide_and_narrow, {{1, 8, 8, 1, 32768, 64, 64}, {1, 32, 8, 1, 4096, 128, 128}}));
    return grids;
  }
  if (grid == "bench-quick")
    return {grid_of(f32, {{1, 4, 4, 256, 256, 64, 64}}),
            grid_of(f32, {{1, 4, 4, 256, 256, 64, 64}}, {.causal = kTopLeft})};
  if (grid == "quick") {
    std::vector<CaseGrid> grids = {
        grid_of(kTypes, {{2, 2, 1, 5, 7, 8, 6}}, {}, {""}),
        grid_of(wide_and_narrow, {{1, 2, 2, 35, 140, 20, 9}}, {.causal = kBottomRight}, {all}),
        grid_of(f32, {{1, 2, 1, 9, 10, 8, 8}},
                {.causal = kTopLeft, .window = 4, .softcap = 5, .dropout = 0.3}),
        grid_of(f32, {{2, 2, 1, 7, 9, 8, 6}}, {.causal = kTopLeft, .window = 6}, {"slopes"}),
        grid_of(wide_and_narrow, {{1, 2, 1, 13, 150, 8, 6, 5, 0}},
                {.causal = kBottomRight, .dropout = 0.2}, {"query_starts+key_starts+slopes"})};
    if (!backward) {
      grids.push_back(grid_of(wide_and_narrow, {{3, 2, 1, 3, 70, 8, 6, 0, 2}},
                              {.causal = kBottomRight}, {"key_end+blocks"}));
      grids.push_back(grid_of(wide_and_narrow, {{3, 2, 1, 30, 70, 8, 6, 4, 2}},
                              {.causal = kBottomRight}, {"query_starts+key_end+blocks"}));
    }
    return grids;
  }
  if (grid == "test")
    return {
        grid_of(kTypes,
                {{1, 1, 1, 1, 1, 1, 1},
                 {2, 4, 2, 3, 5, 16, 8},
                 {1, 2, 1, 1, 150, 33, 34},
                 {1, 1, 1, 70, 300, 8, 12}},
                {}, {"", all}),
        grid_of(kTypes, {{1, 2, 2, 20, 33, 64, 17}, {1, 1, 1, 33, 20, 7, 5}}, {.causal = kTopLeft}),
        grid_of(kTypes, {{1, 2, 1, 20, 33, 64, 17}, {1, 1, 1, 33, 20, 7, 5}},
                {.causal = kBottomRight, .window = 9}),
        grid_of(wide_and_narrow, {{2, 2, 1, 9, 140, 20, 9}},
                {.window = 30, .softcap = 2, .scale = -0.7}, {"", all}),
        grid_of(kTypes, {{2, 2, 1, 9, 140, 20, 9}}, {.dropout = 0.4}, {"", all}),
        grid_of(kTypes, {{2, 2, 1, 9, 140, 20, 9}, {1, 2, 2, 150, 20, 6, 4}},
                {.causal = kBottomRight}, {"slopes", "key_end"}),
        grid_of(kTypes, {{3, 2, 1, 20, 300, 8, 12}}, {.causal = kTopLeft, .dropout = 0.2},
                {"key_begin", "key_begin+key_end"}),
        grid_of(kTypes, {{1, 2, 1, 6, 40, 16, 12}}, {}, {"", all},
                {"uniform", "integers", "lognormal", "denormal"})};
  // An index of the batch is none of a sequence that is packed, or in blocks: these are no cases of
  // the grids that tests cut into batches.
  const Shapes packed = {{1, 4, 2, 100, 300, 64, 64, 5, 0}};
  std::vector<CaseGrid> grids = {
      grid_of(kTypes, packed, {.causal = kTopLeft}, {"query_starts+key_starts"}),
      grid_of(wide_and_narrow, packed,
              {.causal = kBottomRight, .window = 40, .softcap = 20, .dropout = 0.1},
              {"query_starts+key_starts+slopes"}),
      grid_of(kTypes, {{1, 4, 2, 100, 300, 64, 64}, {2, 2, 1, 64, 2200, 32, 40}}, {}, {"", all}),
      grid_of(kTypes, {{1, 2, 1, 300, 300, 64, 64}}, {.causal = kTopLeft}),
      grid_of(wide_and_narrow, {{1, 2, 1, 200, 300, 64, 64}},
              {.causal = kBottomRight, .window = 100, .softcap = 20, .dropout = 0.1}, {"", all}),
      grid_of(kTypes, {{1, 2, 1, 40, 200, 64, 33}}, {}, {""}, families_of(backward))};
  if (!backward) {
    grids.push_back(grid_of(kTypes, {{3, 4, 2, 3, 70, 64, 64, 0, 2}}, {.causal = kBottomRight},
                            {"key_end+blocks", "key_begin+key_end+blocks"}));
    grids.push_back(grid_of(wide_and_narrow, {{5, 4, 2, 100, 70, 64, 64, 6, 3}},
                            {.causal = kBottomRight, .dropout = 0.1},
                            {"query_starts+key_begin+key_end+blocks+slopes"}));
  }
  return grids;
}

double bytes(std::initializer_list<const TensorView*> views) {
  double sum = 0;
  for (const TensorView* view : views) {
    if (!view->given()) continue;
    auto count = static_cast<double>(size_of(view->dtype));
    for (int i = 0; i < view->rank; ++i)  // what is repeated is read once
      if (view->strides[i] != 0) count *= static_cast<double>(view->shape[i]);
    sum += count;
  }
  return sum;
}

std::int64_t packed_in(const TensorView& starts) {
  return starts.given() ? std::max<std::int64_t>(1, starts.shape[0] - 1) : 1;
}

// Pairs of a query and a key of its sequence that it may see. Packed sequences are taken for
// equally long.
double pairs(const Options& options, const TensorView& q, std::int64_t keys,
             const TensorView& starts) {
  const std::int64_t sequences = packed_in(starts);
  const std::int64_t queries = q.shape[2] / sequences;
  const std::int64_t offset = options.causal == Causal::bottom_right ? keys - queries : 0;
  double sum = 0;
  for (std::int64_t i = 0; i < queries; ++i) {
    std::int64_t begin = 0, end = keys;
    if (options.window > 0 && options.window < keys + queries) {
      begin = std::clamp<std::int64_t>(i + offset - options.window + 1, 0, keys);
      end = std::clamp<std::int64_t>(i + offset + options.window, 0, keys);
    }
    if (options.causal != Causal::no) end = std::clamp<std::int64_t>(i + offset + 1, 0, keys);
    sum += static_cast<double>(std::max<std::int64_t>(0, end - begin));
  }
  return sum * static_cast<double>(sequences) * static_cast<double>(q.shape[0]) *
         static_cast<double>(q.shape[1]);
}

// Of a sequence in blocks, or of all that are packed.
std::int64_t keys_of(const ForwardArgs& args) {
  return args.blocks.given() ? args.k.shape[2] * args.blocks.shape[1] : args.k.shape[2];
}

// Chains are as long as a head, or a panel. Equal terms round alike, so that of chains beyond 1024
// sums move by up to a quarter of a rounding a term, which is more than roundings by chance make.
double limit_of(std::int64_t head_dim, std::int64_t terms) {
  const auto chain = static_cast<double>(
      std::max<std::int64_t>({1, head_dim, std::min<std::int64_t>(terms, 128)}));
  return std::max(8 * std::sqrt(chain), chain / 4);
}

std::vector<CaseGrid> all_cases(std::string_view grid, bool backward) {
  std::vector<CaseGrid> grids = cases(grid, backward);
  for (CaseGrid& each : grids) each.options["arithmetic"] = {0};
  for (CaseGrid& each : tensor_cases(grid, backward)) grids.push_back(std::move(each));
  return grids;
}

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) { return all_cases(grid, false); }
std::vector<CaseGrid> backward_cases(std::string_view grid) { return all_cases(grid, true); }

Cost forward_cost(const ForwardArgs& args) {
  const std::int64_t keys =
      args.blocks.given() ? keys_of(args) : keys_of(args) / packed_in(args.query_starts);
  const auto dims = static_cast<double>(args.q.shape[3] + args.v.shape[3]);
  return {.bytes = bytes({&args.q, &args.k, &args.v, &args.bias, &args.mask, &args.y, &args.lse,
                          &args.max, &args.sum, &args.slopes, &args.key_begin, &args.key_end,
                          &args.query_starts, &args.key_starts, &args.blocks}),
          .flops = 2 * dims * pairs(args, args.q, keys, args.query_starts)};
}

Cost backward_cost(const BackwardArgs& args) {
  const auto dims = static_cast<double>(3 * args.q.shape[3] + 2 * args.v.shape[3]);
  return {.bytes = bytes({&args.grad_y, &args.grad_lse, &args.q, &args.k, &args.v, &args.bias,
                          &args.mask, &args.y, &args.max, &args.sum, &args.grad_q, &args.grad_k,
                          &args.grad_v, &args.grad_bias, &args.slopes, &args.key_begin,
                          &args.key_end, &args.query_starts, &args.key_starts}),
          .flops = 2 * dims *
                   pairs(args, args.q, args.k.shape[2] / packed_in(args.query_starts),
                         args.query_starts)};
}

double forward_limit(const ForwardArgs& args) {
  if (args.arithmetic == Arithmetic::tensor) return tensor_core::limit_of_two(args.q.shape[3], 128);
  return limit_of(args.q.shape[3], keys_of(args));
}
double backward_limit(const BackwardArgs& args) {
  if (args.arithmetic == Arithmetic::tensor)
    return tensor_core::limit_of_gradients(args.q.shape, args.k.shape, args.v.shape);
  return limit_of(std::max(args.q.shape[3], args.v.shape[3]),
                  std::max(args.k.shape[2], args.q.shape[2]));
}

}  // namespace isobit::attention
