// SPDX-License-Identifier: Apache-2.0
// The grids of all optimisers; each has options and extra arrays of its own.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "isobit/core/case.h"

namespace isobit::optimizers {

using Options = std::map<std::string_view, std::vector<double>>;

// `with` are the extra arrays of one call each; the narrow parameter is among those of any
// optimiser. `benched` are the options of what is timed.
inline std::vector<CaseGrid> cases(std::string_view grid, const Options& options,
                                   const Options& benched,
                                   const std::vector<std::string_view>& with) {
  const std::vector<Types> types = {{DType::f32, DType::f32},
                                    {DType::f16, DType::f16},
                                    {DType::bf16, DType::bf16},
                                    {DType::f64, DType::f64}};
  // Masters in f32 beside 16 bits.
  const std::vector<Types> beside = {{DType::f32, DType::f32, DType::bf16},
                                     {DType::f32, DType::f32, DType::f16}};
  if (grid == "bench")
    return {{.types = {types[0], types[2]},
             .inputs = {"randn"},
             .shapes = {{1, 1 << 10}, {1, 1 << 16}, {1, 1 << 20}, {1, 10'000'000}},
             .options = benched},
            {.types = {beside[0]},
             .inputs = {"randn"},
             .shapes = {{1, 1 << 20}, {1, 10'000'000}},
             .options = benched,
             .with = {"narrow"}}};
  if (grid == "bench-quick")
    return {{.types = {types[0], types[2]},
             .inputs = {"randn"},
             .shapes = {{1, 1 << 10}, {1, 1 << 20}},
             .options = benched}};
  if (grid == "quick")
    return {{.dims = {{"rows", {1, 31}}, {"cols", {7, 1023}}},
             .types = types,
             .inputs = {"randn", "lognormal"},
             .options = options,
             .with = with},
            {.dims = {{"rows", {3}}, {"cols", {65}}},
             .types = beside,
             .inputs = {"randn"},
             .options = options,
             .with = {"narrow"}}};
  if (grid == "test")
    return {{.dims = {{"rows", {1, 17}}, {"cols", {1, 15, 64, 129}}},
             .types = types,
             .inputs = {"randn"},
             .options = options,
             .with = with},
            {.dims = {{"rows", {3}}, {"cols", {1023}}},
             .types = types,
             .inputs = {"lognormal", "outlier", "alternating", "tiny1e-20", "denormal", "uniform"},
             .options = options,
             .with = with},
            {.dims = {{"rows", {3}}, {"cols", {65}}},
             .types = beside,
             .inputs = {"randn", "lognormal"},
             .options = options,
             .with = {"", "narrow"}}};
  return {{.dims = {{"rows", {1, 31}}, {"cols", {1, 3, 7, 64, 768, 1023, 4096}}},
           .types = types,
           .inputs = {"randn", "uniform", "mean1e4", "outlier", "ramp", "lognormal", "denormal",
                      "tiny1e-20"},
           .options = options,
           .with = with},
          {.dims = {{"rows", {31}}, {"cols", {768, 1023}}},
           .types = beside,
           .inputs = {"randn", "lognormal", "outlier"},
           .options = options,
           .with = {"narrow"}}};
}

}  // namespace isobit::optimizers
