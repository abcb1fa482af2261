// SPDX-License-Identifier: Apache-2.0
// The bits of order v1, written down: every way on every machine, with every compiler, must still
// give them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "golden_bits.h"
#include "golden_bits_channels.h"
#include "golden_bits_classes.h"
#include "golden_bits_elements.h"
#include "golden_bits_optimizers.h"
#include "golden_bits_reductions.h"
#include "golden_bits_windows.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/workload.h"
#include "isobit/ops/catalog.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

// A number that every machine makes alike: no library function has a part in it. Some rows are not
// ordinary: far from zero, constant, almost constant, huge, tiny.
double exact_value(std::uint64_t array, std::uint64_t row, std::uint64_t col, bool unusual) {
  std::uint64_t z = (array << 48) + (row << 24) + col + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  const double number = static_cast<double>(static_cast<std::int64_t>(z % 4095) - 2047) / 512;
  switch (unusual ? row % 8 : 0) {
    case 1:  return number + 1000;
    case 2:  return 3.25;
    case 4:  return col == 3 ? 1 + 0x1p-7 : 1;
    case 5:  return number * 0x1p100;
    case 6:  return number * 0x1p-100;
    default: return number;
  }
}

void fill(const Workload& workload) {
  std::uint64_t index = 0;
  for (const Argument& argument : workload.operation().arguments) {
    ++index;
    const Array* array = workload.find(argument.name);
    if (array == nullptr || argument.role != Role::input) continue;
    const bool unusual = argument.name == "x" &&
                         (array->form().dtype == DType::f32 || array->form().dtype == DType::bf16);
    std::vector<double> values(array->form().line_length());
    for (std::int64_t row = 0; row < array->form().lines(); ++row) {
      for (std::int64_t col = 0; col < array->form().line_length(); ++col)
        values[col] = exact_value(index, row, col, unusual);
      if (argument.drawn == Drawn::index) {
        const auto below = static_cast<double>(workload.the_case().bound_of(argument));
        for (double& value : values) value = std::fmod(std::fabs(value) * 512, below);
      }
      if (argument.drawn == Drawn::starts) {
        const auto most = static_cast<double>(workload.the_case().bound_of(argument));
        for (double& value : values) value = std::fmod(std::fabs(value) * 512, most + 1);
        values[0] = 0;
        std::ranges::sort(values);
      } else if (argument.drawn == Drawn::begin || argument.drawn == Drawn::end) {
        const auto below = static_cast<double>(workload.the_case().bound_of(argument));
        for (double& value : values) {
          value = std::fmod(std::fabs(value) * 512, std::floor(below / 2) + 1);
          if (argument.drawn == Drawn::end) value = below - value;
        }
      }
      if (argument.drawn == Drawn::weight && argument.name.ends_with("_sq"))  // of squares
        for (double& value : values) value = std::fabs(value);
      if (array->form().dtype == DType::boolean)
        for (double& value : values) value = std::fmod(std::fabs(value) * 512, 2);
      if (array->form().dtype == DType::u8)
        for (double& value : values) value = std::fmod(std::fabs(value) * 64, 256);
      array->store(row, 0, values);
    }
  }
}

// What distinguishes rows of rope, whose shapes are the usual ones.
std::string tables_of(const Golden& golden) {
  if (!std::string_view(golden.op).starts_with("rope")) return "";
  std::string with = golden.with;
  std::ranges::replace(with, '+', '_');
  return "_" + with;
}

const Operation& operation_of(const Golden& golden) {
  for (const Operation* operation : catalog())
    if (operation->op == golden.op && operation->pass == golden.pass) return *operation;
  throw std::logic_error("no such operation");
}

class GoldenBits : public testing::TestWithParam<Golden> {};

TEST_P(GoldenBits, AreTheSameInEveryWay) {
  const Golden& golden = GetParam();
  ASSERT_EQ(operation_of(golden).version, version_of(golden.op))
      << "a new definition needs new golden bits";
  Flags flags;
  const bool scans = std::string_view(golden.op) == "scan";
  const bool convolves = std::string_view(golden.op).starts_with("conv");
  const bool attends = std::string_view(golden.op) == "attention";
  const bool pools = std::string_view(golden.op) == "pool2d";
  const bool resamples = std::string_view(golden.op) == "interpolate";
  const bool multiplies = std::string_view(golden.op) == "matmul";
  const bool reduces = std::string_view(golden.op) == "reduce";
  const bool classifies = std::string_view(golden.op) == "linear_cross_entropy";
  const bool of_channels =
      golden.op == std::string_view("group_norm") || golden.op == std::string_view("batch_norm");
  if (convolves) {
    const bool one = std::string_view(golden.op) == "conv1d";
    for (const char* name : {"channels", "filters"}) flags.dims[name] = {golden.rows};
    flags.dims[one ? "length" : "width"] = {golden.cols};
    flags.dims[one ? "kernel" : "kernel_w"] = {golden.depth};
    if (!one) flags.dims["height"] = flags.dims["kernel_h"] = {golden.depth};
    flags.options[one ? "padding" : "padding_h"] = {"1"};
    flags.options["padding_mode"] = {"zeros"};
  } else if (pools) {
    flags.dims["channels"] = {golden.rows};
    for (const char* name : {"height", "width"}) flags.dims[name] = {golden.cols};
    for (const std::string side : {"_h", "_w"}) {
      flags.options["window" + side] = {std::to_string(golden.depth)};
      flags.options["bins" + side] = {golden.depth == 0 ? "3" : "1"};
      flags.options["stride" + side] = {golden.depth == 0 ? "0" : "2"};
      flags.options["padding" + side] = {golden.depth == 0 ? "0" : "1"};
      flags.options["dilation" + side] = {"1"};
    }
    for (const char* name : {"ceil_mode", "count_include_pad"}) flags.options[name] = {"no"};
    flags.options["divisor"] = {"0"};
  } else if (resamples) {
    flags.dims["channels"] = {golden.rows};
    for (const char* name : {"height", "width"}) flags.dims[name] = {golden.cols};
    flags.dims["out_height"] = {golden.depth};
    flags.dims["out_width"] = {golden.depth + 5};
    const bool aligned = std::string_view(golden.with) == "corners";
    const bool scaled = std::string_view(golden.with) == "scales";
    flags.options["align_corners"] = {aligned ? "yes" : "no"};
    flags.options["scale_h"] = {scaled ? "0.7" : "0"};
    flags.options["scale_w"] = {scaled ? "1.3" : "0"};
  } else if (of_channels) {
    flags.dims["channels"] = {golden.rows};
    flags.dims["extent"] = {golden.cols};
    if (golden.depth > 0) flags.options["groups"] = {std::to_string(golden.depth)};
  } else if (attends) {
    flags.dims["seq_q"] = {golden.rows};
    flags.dims["seq_k"] = {golden.cols};
    flags.dims["heads"] = {4};
    flags.dims["kv_heads"] = {2};
    flags.dims["head_dim"] = {golden.depth};
    flags.dims["value_dim"] = {golden.depth + 3};
    flags.dims["starts"] = {5};
    flags.dims["places"] = {2};
  } else {
    flags.dims[scans ? "length" : multiplies ? "m" : reduces ? "kept" : "rows"] = {golden.rows};
    flags.dims[scans ? "inner" : multiplies ? "n" : reduces ? "reduced" : "cols"] = {golden.cols};
    const bool looks_up = std::string_view(golden.op) == "embedding";
    const std::string_view depth = multiplies   ? "k"
                                   : classifies ? "classes"
                                   : looks_up   ? "tokens"
                                                : "features";
    if (golden.depth > 0) flags.dims[std::string(depth)] = {golden.depth};
  }
  if (golden.batch > 0) flags.dims[scans ? "outer" : "batch"] = {golden.batch};
  flags.dtype = {golden.dtype};
  flags.weight_dtype = {golden.weight_dtype};
  flags.isa = isas_here();
  flags.threads = {1, 2, 5};
  if (golden.y_dtype != nullptr) flags.y_dtype = {golden.y_dtype};
  flags.with = {resamples ? "none" : golden.with};
  flags.statistics = {golden.given_statistics ? "given" : "computed"};
  const Operation& operation = operation_of(golden);
  const std::pair<std::string_view, std::string> options[] = {
      {"kind", golden.kind},
      {"function", golden.kind},
      {"distribution", golden.kind},
      {"p", "0.25"},
      {"random_seed", "42"},
      {"random_offset", "5"},
      {"low", "-1.5"},
      {"mean", "0.5"},
      {"reduction", golden.kind},
      {"mode", golden.kind},
      {"activation", golden.kind},
      {"style", golden.kind},
      {"causal", golden.kind},
      {"training", std::string_view(golden.kind) == "training" ? "yes" : "no"},
      {"window", "0"},
      {"scale", attends ? "0" : "1"},
      {"log", std::string_view(golden.kind) == "log" ? "yes" : "no"},
      {"ignore_index", std::string_view(golden.kind) == "all" ? "3" : "-100"},
      {"label_smoothing", std::string_view(golden.kind) == "all" ? "0.125" : "0"},
      // Backward's sums are any numbers here, of which some have no logarithm.
      {"z_loss", std::string_view(golden.kind) == "all" && operation.pass == "fwd" ? "0.25" : "0"},
      {"padding_idx", std::string_view(golden.kind) == "all" ? "3" : "-1"},
      {"scale_grad_by_freq", std::string_view(golden.kind) == "all" ? "yes" : "no"},
      {"softcap", "0"},
      {"zero_centered", golden.zero_centered ? "yes" : "no"},
      {"dropout", std::to_string(golden.dropout)},
      {"dropout_seed", "42"},
      {"order", golden.kind},
      {"correction", "1"},
      {"lr", "0.125"},
      {"step", "10"},
      {"momentum", of_channels                                ? "0.1"
                   : std::string_view(golden.kind) == "plain" ? "0"
                                                              : "0.9"},
      {"dampening", "0.1"},
      {"weight_decay", "0.01"},
      {"nesterov", std::string_view(golden.kind) == "nesterov" ? "yes" : "no"},
      {"decoupled", std::string_view(golden.kind) == "decoupled" ? "yes" : "no"},
      {"maximize", "no"},
  };
  for (const auto& [name, value] : options)
    if (std::ranges::find(operation.options, name, &Option::name) != operation.options.end())
      flags.options[std::string(name)] = {value};
  const Workload workload(cases_of(operation, flags, "quick").at(0));
  fill(workload);
  for (const Configuration& configuration : configurations_of(workload, flags, Unnamed::all).able) {
    run(workload, configuration);
    EXPECT_EQ(bits_of(workload), golden.bits) << label(configuration);
    for (const Configuration& other : plans_beside(configuration)) {
      run(workload, other);
      EXPECT_EQ(bits_of(workload), golden.bits) << label(other);
    }
  }
}

std::vector<Golden> all_golden() {
  std::vector<Golden> all(std::begin(kGolden), std::end(kGolden));
  all.insert(all.end(), std::begin(kGoldenOfWindows), std::end(kGoldenOfWindows));
  all.insert(all.end(), std::begin(kGoldenOfChannels), std::end(kGoldenOfChannels));
  all.insert(all.end(), std::begin(kGoldenOfClasses), std::end(kGoldenOfClasses));
  all.insert(all.end(), std::begin(kGoldenOfElements), std::end(kGoldenOfElements));
  all.insert(all.end(), std::begin(kGoldenOfOptimizers), std::end(kGoldenOfOptimizers));
  all.insert(all.end(), std::begin(kGoldenOfReductions), std::end(kGoldenOfReductions));
  return all;
}

TEST(GoldenList, NamesEveryOperation) {
  for (const Operation* operation : catalog())
    EXPECT_TRUE(std::ranges::any_of(all_golden(),
                                    [&](const Golden& golden) {
                                      return operation->op == golden.op &&
                                             operation->pass == golden.pass;
                                    }))
        << operation->op << " " << operation->pass;
}

INSTANTIATE_TEST_SUITE_P(OrderV1, GoldenBits, testing::ValuesIn(all_golden()),
                         [](const auto& info) {
                           const Golden& golden = info.param;
                           return std::string(golden.op) + "_" + golden.pass + "_" + golden.dtype +
                                  "_" + golden.weight_dtype + "_" + std::to_string(golden.rows) +
                                  "x" + std::to_string(golden.cols) + "_" + golden.kind +
                                  tables_of(golden) +
                                  (golden.depth > 0 ? "_" + std::to_string(golden.depth) : "") +
                                  (golden.given_statistics ? "_given" : "") +
                                  (golden.y_dtype != nullptr ? std::string("_y_") + golden.y_dtype
                                                             : "") +
                                  (golden.zero_centered ? "_zero_centered" : "") +
                                  (golden.dropout > 0 ? "_dropout" : "");
                         });

}  // namespace
}  // namespace isobit::lab
