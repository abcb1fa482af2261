// SPDX-License-Identifier: Apache-2.0
// The bits of order v1, written down: every way on every machine, with every compiler, must still
// give them.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "isobit/core/order.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/ways.h"
#include "isobit/lab/workload.h"
#include "isobit/ops/catalog.h"

namespace isobit::lab {
namespace {

// A number that every machine makes alike: no library function has a part in it.
double exact_value(std::uint64_t array, std::uint64_t row, std::uint64_t col) {
  std::uint64_t z = (array << 48) + (row << 24) + col + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(static_cast<std::int64_t>(z % 4095) - 2047) / 512 +
         (row % 5 == 3 ? 1000 : 0);
}

void fill(const Workload& workload) {
  std::uint64_t index = 0;
  for (const Argument& argument : workload.operation().arguments) {
    ++index;
    const Array* array = workload.find(argument.name);
    if (array == nullptr || argument.role != Role::input) continue;
    std::vector<double> values(array->form().cols);
    for (std::int64_t row = 0; row < array->form().rows; ++row) {
      for (std::int64_t col = 0; col < array->form().cols; ++col)
        values[col] = exact_value(index, row, col);
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
};

void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.op << " " << golden.pass; }

// Widths on both sides of a block, of one and many blocks; rows on both sides of a run.
constexpr Golden kGolden[] = {
    {"elementwise", "fwd", "f32", "f32", 3, 1000, "aa868ca643c5b399"},
    {"elementwise", "fwd", "f16", "f16", 3, 1000, "36a5b5f3ef92e52b"},
    {"elementwise", "fwd", "bf16", "bf16", 3, 1000, "d5e86e3f0f761ea6"},
    {"elementwise", "fwd", "f64", "f64", 3, 1000, "cd9d728c69c3efed"},
    {"elementwise", "fwd", "i32", "i32", 3, 1000, "ac4d965405acbebf"},
    {"layernorm", "fwd", "f32", "f32", 7, 5, "8f428555cd5d3772"},
    {"layernorm", "fwd", "f32", "f32", 7, 511, "1c6fc0c435790e7a"},
    {"layernorm", "fwd", "f32", "f32", 7, 512, "4f402df8f0340a11"},
    {"layernorm", "fwd", "f32", "f32", 7, 3500, "04778045ef63412c"},
    {"layernorm", "fwd", "f32", "f32", 5, 70001, "2ba021a8d75ae581"},
    {"layernorm", "fwd", "bf16", "bf16", 7, 3500, "e34c2de542085547"},
    {"layernorm", "fwd", "bf16", "f32", 7, 3500, "896ea136ff729156"},
    {"layernorm", "bwd", "f32", "f32", 15, 5, "dacbefad20723c67"},
    {"layernorm", "bwd", "f32", "f32", 16, 513, "50c1c2f4fb54177a"},
    {"layernorm", "bwd", "f32", "f32", 17, 600, "00f3127b14cced8e"},
    {"layernorm", "bwd", "f32", "f32", 357, 130, "55693bbf8253be5c"},
    {"layernorm", "bwd", "f32", "f32", 5, 70001, "6c191fa976c82685"},
    {"layernorm", "bwd", "bf16", "bf16", 357, 130, "828b21068a8a6547"},
    {"layernorm", "bwd", "bf16", "f32", 357, 130, "b8b36121d44e209d"},
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
  const Workload workload(cases_of(operation_of(golden), flags, "quick").at(0));
  fill(workload);
  for (const Way& way : ways_of(workload, flags, Unnamed::all).able) {
    run(workload, way);
    EXPECT_EQ(bits_of(workload), golden.bits) << label(way);
  }
}

INSTANTIATE_TEST_SUITE_P(OrderV1, GoldenBits, testing::ValuesIn(kGolden), [](const auto& info) {
  const Golden& golden = info.param;
  return std::string(golden.op) + "_" + golden.pass + "_" + golden.dtype + "_" +
         golden.weight_dtype + "_" + std::to_string(golden.rows) + "x" +
         std::to_string(golden.cols);
});

}  // namespace
}  // namespace isobit::lab
