// SPDX-License-Identifier: Apache-2.0
// The bits of order v1, written down: every way on every machine, with every compiler, must still
// give them.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isobit/core/order.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/ways.h"
#include "isobit/lab/workload.h"
#include "isobit/ops/catalog.h"

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
    std::vector<double> values(array->form().cols);
    for (std::int64_t row = 0; row < array->form().rows; ++row) {
      for (std::int64_t col = 0; col < array->form().cols; ++col)
        values[col] = exact_value(index, row, col, unusual);
      array->store(row, 0, values);
    }
  }
}

// The bits of all outputs, one after the other.
std::string bits_of(const Workload& workload) {
  Bits bits;
  for (const Argument* output : workload.outputs()) {
    const Array& array = *workload.find(output->name);
    for (std::int64_t row = 0; row < array.form().rows; ++row)
      bits.add(array, row, 0, array.form().cols);
  }
  return bits.hex();
}

struct Golden {
  const char *op, *pass, *dtype, *weight_dtype;
  std::int64_t rows, cols;
  const char* bits;
  const char* kind = "add";
  bool given_statistics = false;
  const char* y_dtype = nullptr;  // null: as x
  const char* with = "none";
  bool zero_centred = false;
  double dropout = 0;
};

void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.op << " " << golden.pass; }

// Widths on both sides of a block, of one and many blocks; rows on both sides of a run.
constexpr Golden kGolden[] = {
    {"elementwise", "fwd", "f32", "f32", 3, 1000, "39884d76122faeb9"},
    {"elementwise", "fwd", "f16", "f16", 3, 1000, "36a5b5f3ef92e52b"},
    {"elementwise", "fwd", "bf16", "bf16", 3, 1000, "0417c2f91cf49835"},
    {"elementwise", "fwd", "f64", "f64", 3, 1000, "cd9d728c69c3efed"},
    {"elementwise", "fwd", "i32", "i32", 3, 1000, "ac4d965405acbebf"},
    {"elementwise", "fwd", "f32", "f32", 3, 1000, "53de0e3496a8b9da", "increment"},
    {"elementwise", "fwd", "i32", "i32", 3, 1000, "968d5e88da9a69de", "increment"},
    {"layernorm", "fwd", "f32", "f32", 8, 5, "75a83988ec3878ea"},
    {"layernorm", "fwd", "f32", "f32", 8, 511, "edb2ac6b7da6f1e0"},
    {"layernorm", "fwd", "f32", "f32", 8, 512, "884f1979811a94d3"},
    {"layernorm", "fwd", "f32", "f32", 8, 3500, "33ef0444d13a6e77"},
    {"layernorm", "fwd", "f32", "f32", 7, 70001, "9aab337a2823eb6f"},
    {"layernorm", "fwd", "bf16", "bf16", 8, 3500, "bb77bf8143f96c2b"},
    {"layernorm", "fwd", "bf16", "f32", 8, 3500, "fefffee621afe25e"},
    {"layernorm", "bwd", "f32", "f32", 15, 5, "edbc7d564b0510df"},
    {"layernorm", "bwd", "f32", "f32", 16, 513, "af0b177f3e89e42c"},
    {"layernorm", "bwd", "f32", "f32", 17, 600, "5a7e7036153aa1ff"},
    {"layernorm", "bwd", "f32", "f32", 357, 130, "d47fd271ad384c93"},
    {"layernorm", "bwd", "f32", "f32", 7, 70001, "f244e306eaf82db5"},
    {"layernorm", "bwd", "bf16", "bf16", 357, 130, "83c13a5e8807ff49"},
    {"layernorm", "bwd", "f32", "f32", 37, 600, "dc682e1fb8928f09", "add", true},
    {"layernorm", "bwd", "bf16", "f32", 357, 130, "a518a543f2e1c2c1"},
    {.op = "layernorm",
     .pass = "fwd",
     .dtype = "f16",
     .weight_dtype = "f16",
     .rows = 8,
     .cols = 1100,
     .bits = "a20a9794d7506cc0"},
    {.op = "layernorm",
     .pass = "fwd",
     .dtype = "f64",
     .weight_dtype = "f64",
     .rows = 8,
     .cols = 1100,
     .bits = "4ddaa671da63d5aa"},
    {.op = "layernorm",
     .pass = "bwd",
     .dtype = "f16",
     .weight_dtype = "f32",
     .rows = 37,
     .cols = 600,
     .bits = "95950254feff17eb"},
    {.op = "layernorm",
     .pass = "bwd",
     .dtype = "f64",
     .weight_dtype = "f64",
     .rows = 37,
     .cols = 600,
     .bits = "0eac3a3ab8e8bc27"},
    {.op = "layernorm",
     .pass = "fwd",
     .dtype = "bf16",
     .weight_dtype = "f32",
     .rows = 8,
     .cols = 600,
     .bits = "fd09cfa26456960a",
     .y_dtype = "f32",
     .with = "residual+sum",
     .dropout = 0.25},
    {.op = "layernorm",
     .pass = "bwd",
     .dtype = "f32",
     .weight_dtype = "f32",
     .rows = 37,
     .cols = 600,
     .bits = "73343f5186f55330",
     .y_dtype = "bf16",
     .with = "grad_sum+grad_residual",
     .dropout = 0.25},
    {.op = "rmsnorm",
     .pass = "fwd",
     .dtype = "f32",
     .weight_dtype = "f32",
     .rows = 8,
     .cols = 3500,
     .bits = "3552751868500751"},
    {.op = "rmsnorm",
     .pass = "fwd",
     .dtype = "bf16",
     .weight_dtype = "bf16",
     .rows = 8,
     .cols = 3500,
     .bits = "bf321724a2727297",
     .zero_centred = true},
    {.op = "rmsnorm",
     .pass = "fwd",
     .dtype = "f64",
     .weight_dtype = "f64",
     .rows = 8,
     .cols = 3500,
     .bits = "4ef84879f32ca667"},
    {.op = "rmsnorm",
     .pass = "fwd",
     .dtype = "f16",
     .weight_dtype = "f16",
     .rows = 8,
     .cols = 600,
     .bits = "b18e9a2830c5d8e2",
     .with = "residual+sum"},
    {.op = "rmsnorm",
     .pass = "bwd",
     .dtype = "f32",
     .weight_dtype = "f32",
     .rows = 357,
     .cols = 130,
     .bits = "0b29d889ea3fb75d"},
    {.op = "rmsnorm",
     .pass = "bwd",
     .dtype = "bf16",
     .weight_dtype = "f32",
     .rows = 37,
     .cols = 1100,
     .bits = "bc4a00a74c835dbf",
     .with = "grad_sum",
     .zero_centred = true},
    {.op = "rmsnorm",
     .pass = "bwd",
     .dtype = "f32",
     .weight_dtype = "f32",
     .rows = 37,
     .cols = 600,
     .bits = "15d0e06d5e9be799",
     .given_statistics = true},
};

const Operation& operation_of(const Golden& golden) {
  for (const Operation* operation : catalog())
    if (operation->op == golden.op && operation->pass == golden.pass) return *operation;
  throw std::logic_error("no such operation");
}

class GoldenBits : public testing::TestWithParam<Golden> {};

TEST_P(GoldenBits, AreTheSameInEveryWay) {
  static_assert(order::kVersion == 1, "a new order of summation needs new golden bits");
  const Golden& golden = GetParam();
  Flags flags;
  flags.rows = {golden.rows};
  flags.cols = {golden.cols};
  flags.dtype = {golden.dtype};
  flags.weight_dtype = {golden.weight_dtype};
  flags.isa = isas_here();
  flags.threads = {1, 2, 5};
  if (golden.y_dtype != nullptr) flags.y_dtype = {golden.y_dtype};
  flags.with = {golden.with};
  flags.statistics = {golden.given_statistics ? "given" : "computed"};
  const Operation& operation = operation_of(golden);
  const std::pair<std::string_view, std::string> options[] = {
      {"kind", golden.kind},
      {"zero_centred", golden.zero_centred ? "yes" : "no"},
      {"dropout", std::to_string(golden.dropout)},
      {"dropout_seed", "42"},
  };
  for (const auto& [name, value] : options)
    if (std::ranges::find(operation.options, name, &Option::name) != operation.options.end())
      flags.options[std::string(name)] = {value};
  const Workload workload(cases_of(operation, flags, "quick").at(0));
  fill(workload);
  for (const Way& way : ways_of(workload, flags, Unnamed::all).able) {
    run(workload, way);
    EXPECT_EQ(bits_of(workload), golden.bits) << label(way);
    for (const Way& other : other_plans(way)) {
      run(workload, other);
      EXPECT_EQ(bits_of(workload), golden.bits) << label(other);
    }
  }
}

TEST(GoldenList, NamesEveryOperation) {
  for (const Operation* operation : catalog())
    EXPECT_TRUE(std::ranges::any_of(kGolden,
                                    [&](const Golden& golden) {
                                      return operation->op == golden.op &&
                                             operation->pass == golden.pass;
                                    }))
        << operation->op << " " << operation->pass;
}

INSTANTIATE_TEST_SUITE_P(OrderV1, GoldenBits, testing::ValuesIn(kGolden), [](const auto& info) {
  const Golden& golden = info.param;
  return std::string(golden.op) + "_" + golden.pass + "_" + golden.dtype + "_" +
         golden.weight_dtype + "_" + std::to_string(golden.rows) + "x" +
         std::to_string(golden.cols) + "_" + golden.kind +
         (golden.given_statistics ? "_given" : "") +
         (golden.y_dtype != nullptr ? std::string("_y_") + golden.y_dtype : "") +
         (golden.zero_centred ? "_zero_centred" : "") + (golden.dropout > 0 ? "_dropout" : "");
});

}  // namespace
}  // namespace isobit::lab
