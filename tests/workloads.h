// SPDX-License-Identifier: Apache-2.0
// What tests of all operations share: workloads, every way to compute one, and the expectation that
// each is right and all agree.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isobit/lab/devices.h"
#include "isobit/lab/output.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/verdict.h"
#include "isobit/lab/ways.h"
#include "isobit/lab/workload.h"
#include "isobit/ops/catalog.h"

namespace isobit::lab {

// Whether this build sees less of what only repeats: it is slow, or adds little to what others see.
inline constexpr bool kThinned = ISOBIT_ONE_IN > 1;

// All of the cases, or in such a build one of so many.
inline std::vector<Case> some_of(const std::vector<Case>& cases) {
  std::vector<Case> some;
  for (std::size_t i = 0; i < cases.size(); i += ISOBIT_ONE_IN) some.push_back(cases[i]);
  return some;
}

// The emulator is a thousand times slower than the processor: it is given small calls, and of those
// one in so many.
inline constexpr std::int64_t kMostEmulated = 8'000;
inline constexpr int kOneEmulatedIn = 4 * ISOBIT_ONE_IN;

inline bool emulated_too(const Case& c) {
  static int calls = 0;
  attach_devices();
  const std::vector<VariantInfo> infos = c.operation->variants();
  return c.rows * c.cols <= kMostEmulated && calls++ % kOneEmulatedIn == 0 &&
         std::any_of(infos.begin(), infos.end(),
                     [](const VariantInfo& info) { return info.device == Device::emu; });
}

// Every variant on every instruction set; the other plans for the last of the thread counts. On the
// emulator each variant's own plan and, in turn, one of the others.
inline std::vector<Way> every_way(const Workload& workload, std::vector<int> threads) {
  static std::size_t turn = 0;
  Flags flags;
  flags.isa = isas_here();
  flags.threads = std::move(threads);
  flags.device = {"cpu"};
  if (emulated_too(workload.the_case())) flags.device.emplace_back("emu");
  std::vector<Way> all = ways_of(workload, flags, Unnamed::all).able;
  for (const Way& way : std::vector<Way>(all)) {
    const std::vector<Way> others = other_plans(way);
    if (way.info.device == Device::emu)
      all.push_back(others[turn++ % others.size()]);
    else if (way.threads == flags.threads.back())
      all.insert(all.end(), others.begin(), others.end());
  }
  EXPECT_FALSE(all.empty());
  return all;
}

inline Way default_way(const Workload& workload) {
  return ways_of(workload, Flags{}, Unnamed::best).able.at(0);
}

// Runs every way: right, beside nothing, and the same bits as the first.
inline void expect_right(const Workload& workload, const std::vector<Way>& ways) {
  Judge judge(workload);
  std::map<const Argument*, std::string> first;
  for (const Way& way : ways) {
    run(workload, way);
    const Verdict verdict = judge();
    const auto repeat = [&] { return command("verify", workload.the_case(), way); };
    ASSERT_TRUE(verdict.passed()) << verdict.complaints() << repeat();
    for (const Verdict::Output& output : verdict.outputs)
      ASSERT_EQ(output.bits, first.try_emplace(output.argument, output.bits).first->second)
          << output.argument->name << " has other bits than in the first way\n"
          << repeat();
  }
}

// Of one row of every output that has rows.
inline std::string row_bits(const Workload& workload, std::int64_t row) {
  Bits bits;
  for (const Argument* output : workload.outputs()) {
    const Array& array = *workload.find(output->name);
    if (output->extent == Extent::matrix) bits.add(array, row, 0, array.form().cols);
    if (output->extent == Extent::row_statistic) bits.add(array, 0, row, 1);
  }
  return bits.hex();
}

// The bits of all outputs, one after the other.
inline std::string bits_of_outputs(const Workload& workload) {
  std::string all;
  for (const Argument* output : workload.outputs()) all += bits(*workload.find(output->name));
  return all;
}

// Every type, every option and every set of extra arguments of the quick grids, in a quarter of
// their combinations.
inline std::vector<Case> cases_of_every_type(const Operation& operation, std::int64_t rows,
                                             std::int64_t cols) {
  using Combination = std::pair<std::map<std::string_view, double>, std::string>;
  std::vector<std::string> types;
  std::vector<Combination> combinations;
  std::set<std::pair<std::size_t, std::size_t>> chosen;
  std::vector<Case> result;
  for (Case c : cases_of(operation, Flags{}, "quick")) {
    const auto index_in = [](auto& list, const auto& value) {
      const auto found = std::find(list.begin(), list.end(), value);
      if (found != list.end()) return static_cast<std::size_t>(found - list.begin());
      list.push_back(value);
      return list.size() - 1;
    };
    const std::size_t type = index_in(types, types_text(c.types));
    const std::size_t combination = index_in(combinations, Combination(c.options, c.with));
    if ((type + combination) % 4 != 0 || !chosen.emplace(type, combination).second) continue;
    c.rows = rows;
    c.cols = cols;
    c.input = "randn";
    result.push_back(c);
  }
  return result;
}

// Whether what is dropped depends on where a row stands.
inline bool drops(const Case& c) {
  const auto dropout = c.options.find("dropout");
  return dropout != c.options.end() && dropout->second > 0;
}

inline std::vector<double> values_of(const Workload& workload, std::string_view name) {
  const Array& array = *workload.find(name);
  const Form& form = array.form();
  std::vector<double> values(static_cast<std::size_t>(form.elements()));
  for (std::int64_t row = 0; row < form.rows; ++row)
    array.load(row, 0, std::span(values).subspan(row * form.cols, form.cols));
  return values;
}

// Rows of matrices and of statistics; other vectors belong to all rows.
inline bool has_rows(const Argument& argument) { return argument.extent != Extent::row_vector; }

inline bool sums_over_rows(const Operation* operation) {
  return std::ranges::any_of(operation->arguments, [](const Argument& argument) {
    return argument.role == Role::output && !has_rows(argument);
  });
}

template <class Predicate>
std::vector<const Operation*> operations_where(Predicate predicate) {
  std::vector<const Operation*> operations;
  std::ranges::copy_if(catalog(), std::back_inserter(operations), predicate);
  return operations;
}

inline std::string name_of_pass(const testing::TestParamInfo<const Operation*>& info) {
  return std::string(info.param->op) + "_" + std::string(info.param->pass);
}

}  // namespace isobit::lab
