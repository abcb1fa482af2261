// SPDX-License-Identifier: Apache-2.0
// What every operator must keep in every variant, whatever it computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isobit/core/error.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

class Generic : public testing::TestWithParam<const Operation*> {
 protected:
  static std::vector<Case> cases(std::string_view grid) {
    std::vector<Case> cases = cases_of(*GetParam(), Flags{}, grid);
    std::erase_if(cases, [](const Case& c) { return !on_the_processor(c); });
    return cases;
  }

  static std::vector<Case> cases(std::int64_t rows, std::int64_t cols,
                                 std::int64_t most = 600'000) {
    return cases_of_every_type(*GetParam(), rows, cols, most);
  }
};

TEST_P(Generic, EveryWayIsRightAndGivesTheSameBits) {
  int index = 0;
  for (Case c : some_of(cases(thinned() ? "quick" : "test"))) {
    c.offset = index % 3;
    c.row_gap = index % 2 == 0 ? 0 : 1 + index % 7;
    if (takes_any_strides(*c.operation)) c.layout = static_cast<Layout>(index % 3);
    ++index;
    Workload workload(c);
    workload.draw();
    expect_right(workload, every_configuration(workload, {1, 3}));
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
      expect_right(workload, every_configuration(workload, {1}));
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
      expect_right(workload, every_configuration(workload, {1, 3}));
      if (HasFatalFailure()) return;
    }
}

TEST_P(Generic, ThreadCountDoesNotMatter) {
  for (const Case& c : some_of(cases(1025, 257))) {
    Workload workload(c);
    workload.draw();
    expect_right(workload, every_configuration(workload, {1, 2, 3, 5, 8, 64}));
    if (HasFatalFailure()) return;
  }
}

TEST_P(Generic, RowAloneEqualsRowInBatch) {
  if (GetParam()->batch() < 0) GTEST_SKIP() << "it has no batch";
  for (std::int64_t rows : {1, 2, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025})
    for (const Case& c : cases(rows, 37)) {
      if (drops(c)) continue;  // by row
      Workload batch(c);
      batch.draw();
      run(batch, default_configuration(batch));
      for (std::int64_t position : {std::int64_t{0}, rows / 3, rows / 2, rows - 1}) {
        Case single = c;
        single.extents[c.operation->batch()] = 1;
        single.first = position;
        Workload alone(single);
        alone.draw();
        run(alone, default_configuration(alone));
        EXPECT_EQ(row_bits(alone, 0), row_bits(batch, position))
            << "row " << position << " of " << rows << " " << types_text(c.types);
      }
    }
}

// Whether nothing of a row is read, or nothing that tells one from another.
bool is_ignored(const Case& c, const Workload& workload, std::int64_t row) {
  // How many elements are not 0 is the same of all that are drawn here.
  if (c.operation->op == "reduce" && c.options.at("reduction") == 8) return true;
  const auto found = c.options.find("ignore_index");
  if (found == c.options.end()) return false;
  std::vector<double> target(1);
  workload.find("target")->load<double>(0, row, target);
  return target[0] == found->second;
}

// A row of NaN or infinity, or other values in it, changes that row and, of what is no sum over
// rows, nothing else.
TEST_P(Generic, RowResultIgnoresOtherRows) {
  if (GetParam()->batch() < 0) GTEST_SKIP() << "it has no batch";
  if (std::ranges::none_of(GetParam()->arguments, [](const Argument& argument) {
        return argument.role == Role::input && is_matrix(*GetParam(), argument);
      }))
    GTEST_SKIP() << "it is given no rows";
  constexpr std::int64_t kRows = 35, kChanged = 17;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Case& c : some_of(cases(kRows, 513, 100'000))) {
    for (double value : {1e3, kNan, kInfinity}) {
      if (!is_floating(c.types.x) && !std::isfinite(value)) continue;
      Workload drawn(c), workload(c);  // before and after
      drawn.draw();
      workload.draw();
      bool reads_rows = false;  // with these options
      for (const Argument& argument : c.operation->arguments) {
        const Array* array = workload.find(argument.name);
        if (!array || argument.role != Role::input || !has_rows(*c.operation, argument)) continue;
        // What forward found belongs to what it was found in.
        const bool found =
            argument.drawn == Drawn::produced && argument.presence == Presence::required;
        if (!is_matrix(*c.operation, argument) && !found) continue;
        reads_rows = true;
        const Form& form = array->form();
        const double other = is_floating(form.dtype)                ? value
                             : argument.elements == Elements::index ? 0  // always one there is
                                                                    : 1;
        if (form.extents.size() == 1) {
          array->store(0, kChanged, std::vector<double>{other});
          continue;
        }
        const std::vector<double> values(static_cast<std::size_t>(form.line_length()), other);
        const std::int64_t lines = form.lines() / form.extents[0];
        for (std::int64_t line = 0; line < lines; ++line)
          array->store(kChanged * lines + line, 0, values);
      }
      if (!reads_rows) continue;
      workload.seal();
      std::vector<std::string> first;
      for (const Configuration& configuration : every_configuration(workload, {1, 3})) {
        run(drawn, configuration);
        run(workload, configuration);
        std::vector<std::string> before, after;
        for (std::int64_t row = 0; row < kRows; ++row) {
          before.push_back(row_bits(drawn, row));
          after.push_back(row_bits(workload, row));
          EXPECT_EQ(after.back() == before[row], row != kChanged || is_ignored(c, workload, row))
              << "row " << row << " " << command("verify", c, configuration);
        }
        if (first.empty()) {
          first = after;
          const Verdict verdict = Judge(workload)();
          EXPECT_TRUE(verdict.passed())
              << verdict.complaints() << command("verify", c, configuration);
        }
        EXPECT_TRUE(after == first) << command("verify", c, configuration);
      }
    }
  }
}

TEST_P(Generic, CostIsTheFloor) {
  for (const Case& c : cases(19, 70)) {
    const Workload workload(c);
    double bytes = 0;
    const auto activation = c.options.find("activation");
    const bool bends = activation == c.options.end() || activation->second != 0;
    for (const Argument& argument : GetParam()->arguments) {
      if (argument.name == "pre" && argument.role == Role::input && !bends) continue;  // not read
      if (const Array* array = workload.find(argument.name))
        bytes += static_cast<double>(array->form().elements() * size_of(array->form().dtype));
    }
    const Cost cost = GetParam()->cost(workload.args());
    EXPECT_EQ(cost.bytes, bytes) << types_text(c.types) << " " << c.with;
    const bool adds_rows = GetParam()->batch() >= 0 && !GetParam()->moves_bytes(workload.args());
    EXPECT_GE(cost.flops, adds_rows ? 19 * 70 : 0);
  }
}

// A NaN has a sign and a payload, which one instruction passes on and another does not.
TEST_P(Generic, NansOfAnyKindBecomeTheOne) {
  for (const Case& c : some_of(cases(5, 70))) {
    if (!is_floating(c.types.x)) continue;
    for (const Argument& argument : GetParam()->arguments) {
      Workload workload(c);
      workload.draw();
      const Array* array = workload.find(argument.name);
      if (array == nullptr || argument.role != Role::input) continue;
      const Form& form = array->form();
      if (!is_floating(form.dtype)) continue;
      // The lowest bit of a negative, quiet NaN is the payload.
      const std::uint64_t bits = [&]() -> std::uint64_t {
        switch (form.dtype) {
          case DType::bf16: return 0xffc1;
          case DType::f16:  return 0xfe01;
          case DType::f32:  return 0xffc00001;
          default:          return 0xfff8000000000001;
        }
      }();
      const auto size = static_cast<std::size_t>(size_of(form.dtype));
      std::memcpy(array->line(form.lines() / 2) +
                      form.line_length() / 2 * array->step() * static_cast<std::int64_t>(size),
                  &bits, size);
      workload.seal();
      SCOPED_TRACE(argument.name);
      expect_right(workload, every_configuration(workload, {2}));
      if (HasFatalFailure()) return;
    }
  }
}

// What `run --dump` writes: results come again by their names, and rows are normalised. Sums of
// integers did not wrap around.
TEST_P(Generic, IntermediatesAreThoseOfTheResult) {
  for (const Case& c : cases(5, 70)) {
    Workload workload(c);
    workload.draw();
    const Configuration configuration = every_configuration(workload, {1}).front();
    run(workload, configuration);
    SCOPED_TRACE(command("verify", c, configuration));
    int compared = 0;
    emit_intermediates(workload, [&](std::string_view name, std::int64_t rows, std::int64_t cols,
                                     std::span<const double> values) {
      ASSERT_EQ(std::ssize(values), rows * cols) << name;
      if (name == "x_hat") {
        ++compared;
        for (std::int64_t row = 0; row < rows; ++row) {
          double squares = 0;
          for (double value : values.subspan(row * cols, cols)) squares += value * value;
          EXPECT_NEAR(squares / static_cast<double>(cols), 1, 1e-3) << "row " << row;
        }
      }
      const Array* array = workload.find(name);
      if (array == nullptr) return;
      ++compared;
      const Form& form = array->form();
      ASSERT_EQ(form.elements(), rows * cols) << name;
      const std::int64_t length = form.line_length();
      std::vector<double> result(length);
      for (std::int64_t row = 0; row < form.lines(); ++row) {
        array->load<double>(row, 0, result);
        for (std::int64_t col = 0; col < length; ++col) {
          const double value = values[row * length + col];  // which bf16 rounds
          if (std::isnan(value)) {                          // as log of what is negative
            EXPECT_TRUE(std::isnan(result[col])) << name << " " << row << " " << col;
            continue;
          }
          if (result[col] == value) continue;  // infinite ones too
          EXPECT_NEAR(result[col], value, (1 + std::abs(value)) / 64)
              << name << " " << row << " " << col;
        }
      }
    });
    if (HasFatalFailure()) return;
    EXPECT_GT(compared, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, Generic, testing::ValuesIn(catalog().begin(), catalog().end()),
                         name_of_pass);

}  // namespace
}  // namespace isobit::lab
