// SPDX-License-Identifier: Apache-2.0
// What every operator must keep in every variant, whatever it computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/lab/output.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/verdict.h"
#include "isobit/lab/ways.h"
#include "isobit/lab/workload.h"
#include "isobit/ops/catalog.h"

namespace isobit::lab {
namespace {

class Generic : public testing::TestWithParam<const Operation*> {
 protected:
  static std::vector<Case> cases(std::string_view grid) {
    return cases_of(*GetParam(), Flags{}, grid);
  }

  // Every type, every option and every set of extra arguments of the quick grids, in a quarter of
  // their combinations.
  static std::vector<Case> cases(std::int64_t rows, std::int64_t cols) {
    using Combination = std::pair<std::map<std::string_view, double>, std::string>;
    std::vector<std::string> types;
    std::vector<Combination> combinations;
    std::set<std::pair<std::size_t, std::size_t>> chosen;
    std::vector<Case> result;
    for (Case c : cases("quick")) {
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

  static std::vector<Way> ways(const Workload& workload, std::vector<int> threads) {
    Flags flags;
    flags.isa = isas_here();
    flags.threads = std::move(threads);
    std::vector<Way> all = ways_of(workload, flags, Unnamed::all).able;
    for (const Way& way : std::vector<Way>(all)) {
      if (way.threads != flags.threads.back()) continue;
      const std::vector<Way> others = other_plans(way);
      all.insert(all.end(), others.begin(), others.end());
    }
    EXPECT_FALSE(all.empty());
    return all;
  }

  static bool drops(const Case& c) {
    const auto dropout = c.options.find("dropout");
    return dropout != c.options.end() && dropout->second > 0;
  }

  static Way any_way(const Workload& workload) {
    return ways_of(workload, Flags{}, Unnamed::best).able.at(0);
  }

  // Runs every way: right, beside nothing, and the same bits as the first.
  static void expect_right(const Workload& workload, const std::vector<Way>& ways) {
    Judge judge(workload);
    std::map<const Argument*, std::string> first;
    for (const Way& way : ways) {
      run(workload, way);
      const Verdict verdict = judge();
      const auto repeat = [&] { return command("verify", describe(workload.the_case(), way)); };
      ASSERT_TRUE(verdict.passed()) << verdict.complaints() << repeat();
      for (const Verdict::Output& output : verdict.outputs)
        ASSERT_EQ(output.bits, first.try_emplace(output.argument, output.bits).first->second)
            << output.argument->name << " has other bits than in the first way\n"
            << repeat();
    }
  }

  // Of one row of every output that has rows.
  static std::string row_bits(const Workload& workload, std::int64_t row) {
    Bits bits;
    for (const Argument* output : workload.outputs()) {
      const Array& array = *workload.find(output->name);
      if (output->extent == Extent::matrix) bits.add(array, row, 0, array.form().cols);
      if (output->extent == Extent::row_statistic) bits.add(array, 0, row, 1);
    }
    return bits.hex();
  }
};

TEST_P(Generic, EveryWayIsRightAndGivesTheSameBits) {
  int index = 0;
  for (Case c : cases("test")) {
    c.offset = index % 3;
    c.row_stride = index % 2 == 0 ? 0 : c.cols + 1 + index % 7;
    ++index;
    Workload workload(c);
    workload.draw();
    expect_right(workload, ways(workload, {1, 3}));
    if (HasFatalFailure()) return;
  }
}

TEST_P(Generic, OptionalArgumentsMayBeAbsent) {
  std::vector<const Argument*> optional;
  for (const Argument& argument : GetParam()->arguments)
    if (argument.presence == Presence::optional) optional.push_back(&argument);
  for (const Case& c : cases(19, 70)) {
    int accepted = 0;
    for (unsigned present = 0; present < 1u << optional.size(); ++present) {
      Workload workload(c, [&](const Case& of, const Argument& argument) -> std::optional<Form> {
        const auto at = std::find(optional.begin(), optional.end(), &argument) - optional.begin();
        if (!(present >> at & 1) && argument.presence == Presence::optional) return std::nullopt;
        return any_argument(of, argument);
      });
      workload.draw();
      try {
        c.operation->check(workload.args());
      } catch (const InvalidArgument&) {
        continue;  // some belong together
      }
      ++accepted;
      std::string given;
      for (const Argument& argument : c.operation->arguments)
        if (workload.find(argument.name)) given += std::string(argument.name) + " ";
      SCOPED_TRACE("given: " + given);
      expect_right(workload, ways(workload, {1}));
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(accepted, 0);
  }
}

TEST_P(Generic, EmptyArraysAreRight) {
  for (const auto& [rows, cols] : {std::pair{0, 5}, {5, 0}, {0, 0}})
    for (const Case& c : cases(rows, cols)) {
      Workload workload(c);
      workload.draw();
      expect_right(workload, ways(workload, {1, 3}));
      if (HasFatalFailure()) return;
    }
}

TEST_P(Generic, ThreadCountDoesNotMatter) {
  for (const Case& c : cases(1025, 257)) {
    Workload workload(c);
    workload.draw();
    expect_right(workload, ways(workload, {1, 2, 3, 5, 8, 64}));
    if (HasFatalFailure()) return;
  }
}

TEST_P(Generic, RowAloneEqualsRowInBatch) {
  for (std::int64_t rows : {1, 2, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025})
    for (const Case& c : cases(rows, 37)) {
      if (drops(c)) continue;  // by row
      Workload batch(c);
      batch.draw();
      run(batch, any_way(batch));
      for (std::int64_t position : {std::int64_t{0}, rows / 3, rows / 2, rows - 1}) {
        Case single = c;
        single.rows = 1;
        single.first_row = position;
        Workload alone(single);
        alone.draw();
        run(alone, any_way(alone));
        EXPECT_EQ(row_bits(alone, 0), row_bits(batch, position))
            << "row " << position << " of " << rows << " " << types_text(c.types);
      }
    }
}

// A row of NaN, or other values in it, changes that row and, of what is no sum over rows, nothing
// else.
TEST_P(Generic, RowResultIgnoresOtherRows) {
  constexpr std::int64_t kRows = 35, kChanged = 17;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const Case& c : cases(kRows, 513)) {
    for (double value : {1e3, kNan}) {
      if (c.types.x == DType::i32 && std::isnan(value)) continue;
      Workload workload(c);
      workload.draw();
      for (const Way& way : ways(workload, {1, 3})) {
        workload.draw();
        run(workload, way);
        std::vector<std::string> before;
        for (std::int64_t row = 0; row < kRows; ++row) before.push_back(row_bits(workload, row));

        const std::vector<double> values(static_cast<std::size_t>(c.cols), value);
        for (const Argument& argument : c.operation->arguments)
          if (const Array* array = workload.find(argument.name);
              array && argument.role == Role::input && argument.extent == Extent::matrix)
            array->store(kChanged, 0, values);
        workload.seal();
        run(workload, way);
        for (std::int64_t row = 0; row < kRows; ++row)
          EXPECT_EQ(row_bits(workload, row) == before[row], row != kChanged)
              << "row " << row << " " << command("verify", describe(c, way));
        const Verdict verdict = Judge(workload)();
        EXPECT_TRUE(verdict.passed()) << verdict.complaints();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, Generic, testing::ValuesIn(catalog().begin(), catalog().end()),
                         [](const auto& info) {
                           return std::string(info.param->op) + "_" + std::string(info.param->pass);
                         });

}  // namespace
}  // namespace isobit::lab
