// SPDX-License-Identifier: Apache-2.0
// The grids and floors of rope.
#include "isobit/ops/rope/cases.h"

#include <initializer_list>

namespace isobit::rope {
namespace {

const std::vector<Types> kTypes = {{DType::f32, DType::f32},
                                   {DType::f16, DType::f16},
                                   {DType::bf16, DType::bf16},
                                   {DType::f64, DType::f64}};

// Shapes are batch, seq, heads, kv_heads, head_dim; the tables' extents follow.
std::vector<CaseGrid> cases(std::string_view grid) {
  if (grid == "bench")
    return {{.types = {kTypes[0], kTypes[2]},
             .inputs = {"randn"},
             .shapes = {{1, 2048, 32, 32, 128, 0, 0},
                        {1, 2048, 32, 8, 128, 0, 0},
                        {1, 128, 32, 8, 128, 0, 0},
                        {8, 1, 32, 8, 128, 0, 0}},
             .with = {"cos+sin", ""}}};
  if (grid == "bench-quick")
    return {{.types = {kTypes[0], kTypes[2]},
             .inputs = {"randn"},
             .shapes = {{1, 512, 8, 2, 128, 0, 0}},
             .with = {"cos+sin"}}};
  const std::vector<std::string_view> sets = {"cos+sin", "", "cos+sin+positions", "positions"};
  if (grid == "quick")
    return {{.types = kTypes,
             .inputs = {"randn"},
             .shapes = {{3, 5, 4, 2, 34, 0, 0}},
             .options = {{"offset_positions", {7}}},
             .with = {"cos+sin+positions", ""}}};
  if (grid == "test")
    return {{.types = kTypes,
             .inputs = {"randn", "fltmax", "denormal"},
             .shapes = {{1, 1, 1, 1, 32, 0, 0}, {2, 3, 3, 1, 30, 0, 0}, {1, 7, 2, 4, 129, 0, 0}},
             .options = {{"rotary_dim", {0, 10}}},
             .with = sets},
            {.types = kTypes,
             .inputs = {"randn"},
             .shapes = {{2, 9, 8, 2, 128, 0, 0}},
             .options = {{"base", {500000}}, {"offset_positions", {131000}}, {"rotary_dim", {64}}},
             .with = {"", "positions"}}};
  return {{.types = kTypes,
           .inputs = {"randn", "uniform", "outlier", "lognormal", "fltmax", "denormal"},
           .shapes = {{2, 33, 8, 2, 64, 0, 0}, {1, 100, 4, 4, 128, 0, 0}, {3, 17, 3, 1, 258, 0, 0}},
           .options = {{"offset_positions", {0, 4096}}, {"rotary_dim", {0, 32}}},
           .with = sets},
          {.types = kTypes,
           .inputs = {"randn"},
           .shapes = {{1, 64, 2, 1, 128, 0, 0}},
           .options = {{"base", {10000, 1e6}}, {"offset_positions", {(1 << 24) - 64}}},
           .with = {""}}};
}

// Three operations an element, of those that move.
Cost cost(std::initializer_list<const TensorView*> all) {
  Cost cost;
  for (const TensorView* view : all) {
    if (!view->given()) continue;
    double elements = 1;
    for (int i = 0; i < view->rank; ++i) elements *= static_cast<double>(view->shape[i]);
    cost.bytes += elements * static_cast<double>(size_of(view->dtype));
    if (view->rank == 4) cost.flops += 1.5 * elements;
  }
  return cost;
}

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) { return cases(grid); }
std::vector<CaseGrid> backward_cases(std::string_view grid) { return cases(grid); }

Cost forward_cost(const ForwardArgs& a) {
  return cost({&a.q, &a.k, &a.cos, &a.sin, &a.positions, &a.y_q, &a.y_k});
}
Cost backward_cost(const BackwardArgs& a) {
  return cost({&a.grad_y_q, &a.grad_y_k, &a.cos, &a.sin, &a.positions, &a.grad_q, &a.grad_k});
}

}  // namespace isobit::rope
