// SPDX-License-Identifier: Apache-2.0
// Relations that operators keep to the last bit, on calls that nobody chose: any operation, types,
// options, shapes, absent arguments, places in memory and ways. `make properties` draws many more.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/lab/limits.h"
#include "isobit/lab/reference.h"
#include "laws.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

// A case, and a bit for each argument that is absent if it may be.
struct DrawnCall {
  Case c;
  std::uint32_t absent = 0;

  Workload workload() const {
    return Workload(c, [this](const Case& of, const Argument& argument) -> std::optional<Form> {
      const auto bit = &argument - of.operation->arguments.data();
      const bool statistic = is_given_statistic(argument);
      if (argument.presence == Presence::optional && !statistic && absent >> bit & 1)
        return std::nullopt;
      return case_argument(of, argument);
    });
  }
  Workload drawn() const {
    Workload result = workload();
    result.draw();
    return result;
  }
};

enum class Choices { any, usual };

DrawnCall any_call(const Operation& operation, Choices choices = Choices::any) {
  std::vector<CaseGrid> grids = operation.cases("test");
  std::erase_if(grids, [](const CaseGrid& grid) { return !is_canonical(grid); });
  const CaseGrid grid = *rc::gen::elementOf(grids);
  DrawnCall call;
  Case& c = call.c;
  c.operation = &operation;
  c.types = *rc::gen::elementOf(grid.types);
  c.with = *rc::gen::elementOf(grid.with);
  // Now and then so many rows that threads share them.
  const auto most_rows = *rc::gen::weightedElement<std::int64_t>({{19, 24}, {1, 300}});
  const std::int64_t most = operation.dims.size() == 2 ? 700 : operation.dims.size() == 3 ? 60 : 14;
  for (int i = 0; i < static_cast<int>(operation.dims.size()); ++i)
    c.extents[i] =
        *rc::gen::inRange<std::int64_t>(1, i == operation.batch() ? most_rows + 1 : most);
  for (const Option& option : operation.options) {
    double& value = c.options[option.name] = option.fallback;
    const auto listed = grid.options.find(option.name);
    if (option.name == "eps")
      value = *rc::gen::element(1e-5, 0.0, 1e-12, 1.0);
    else if (choices == Choices::any && listed != grid.options.end())
      value = *rc::gen::elementOf(listed->second);
    else if (choices == Choices::any && !option.choices.empty())
      value = static_cast<double>(*rc::gen::inRange<std::size_t>(0, option.choices.size()));
  }
  {
    const Arguments args = operation.make_arguments();
    set_options(operation, c, args);
    operation.derive(c.extents, args);
  }
  c.input = *rc::gen::elementOf(grid.inputs);
  c.seed = *rc::gen::inRange<std::uint64_t>(0, 1000);
  c.offset = *rc::gen::inRange<std::int64_t>(0, 4);
  c.row_gap = *rc::gen::inRange<std::int64_t>(0, 9);
  if (takes_any_strides(operation)) c.layout = static_cast<Layout>(*rc::gen::inRange(0, 3));
  c.given_statistics = takes_statistics(operation) && *rc::gen::arbitrary<bool>();
  call.absent = *rc::gen::arbitrary<std::uint32_t>();
  try {
    operation.check(call.workload().args());
  } catch (const InvalidArgument&) { RC_DISCARD("some arguments belong together"); }
  return call;
}

// Where a row stands matters to what is dropped, and to nothing else.
DrawnCall any_call_by_rows(const Operation& operation) {
  const DrawnCall call = any_call(operation);
  RC_PRE(!drops(call.c));
  return call;
}

Configuration any_configuration(const Workload& workload) {
  Flags flags;
  flags.isa = isas_here();
  flags.threads = {1, 3};
  const Configuration configuration =
      *rc::gen::elementOf(configurations_of(workload, flags, Unnamed::all).able);
  std::vector<Configuration> plans = other_plans(configuration);
  plans.push_back(configuration);
  return *rc::gen::elementOf(plans);
}

void run_in_any_way(const Workload& workload) {
  const Configuration configuration = any_configuration(workload);
  RC_LOG() << command("verify", workload.the_case(), configuration) << "\n";
  run(workload, configuration);
}

class Properties : public testing::TestWithParam<const Operation*> {
 protected:
  static const Operation& operation() { return *GetParam(); }

  template <class Property>
  static void hold(Property property) {
    EXPECT_TRUE(rc::check(property));
  }
};

// Mean and rstd that are not those of x: beside large numbers x - mean and x̂ leave their type's
// range. A batch_norm has such without training.
bool has_statistics_of_others(const Case& c) {
  const auto training = c.options.find("training");
  return c.given_statistics || (training != c.options.end() && training->second == 0);
}

TEST_P(Properties, AnyCallIsRightAndGivesTheSameBitsInAnyWay) {
  hold([] {
    const DrawnCall call = any_call(operation());
    RC_PRE(!(call.c.input == "fltmax" && has_statistics_of_others(call.c)));
    const Workload workload = call.drawn();
    Judge judge(workload);
    std::map<const Argument*, std::string> first;
    for (int configuration = 0; configuration < 2; ++configuration) {
      run_in_any_way(workload);
      const Verdict verdict = judge();
      if (!verdict.passed()) RC_FAIL(verdict.complaints());
      for (const Verdict::Output& output : verdict.outputs)
        RC_ASSERT(output.bits == first.try_emplace(output.argument, output.bits).first->second);
    }
  });
}

// Where a row of a batch comes from.
struct Source {
  const Workload* workload;
  std::int64_t row;
};

// What belongs to one row of an argument that has rows.
std::vector<std::byte> row_of(const Workload& workload, const Argument& argument,
                              std::int64_t row) {
  return part_of(*workload.find(argument.name), row);
}

// The batch of these rows, run.
Workload run_batch(DrawnCall call, const std::vector<Source>& sources) {
  call.c.extents[call.c.operation->batch()] = std::ssize(sources);
  Workload batch = call.drawn();  // with the weights that all batches of a seed have
  for (const Argument& argument : batch.operation().arguments)
    if (argument.role == Role::input && has_rows(batch.operation(), argument) &&
        batch.find(argument.name))
      for (std::int64_t row = 0; row < call.c.batch(); ++row)
        put_part(*batch.find(argument.name), row,
                 row_of(*sources[row].workload, argument, sources[row].row));
  batch.seal();
  run_in_any_way(batch);
  return batch;
}

// A batch of these rows gives their results, bit for bit.
void expect_rows(const DrawnCall& call, const std::vector<Source>& sources) {
  const Workload batch = run_batch(call, sources);
  for (const Argument* output : batch.outputs())
    for (std::int64_t row = 0; has_rows(batch.operation(), *output) && row < std::ssize(sources);
         ++row)
      RC_ASSERT(std::ranges::equal(row_of(batch, *output, row),
                                   row_of(*sources[row].workload, *output, sources[row].row)));
}

std::vector<Source> rows_of(const Workload& workload) {
  std::vector<Source> sources;
  for (std::int64_t row = 0; row < workload.the_case().batch(); ++row)
    sources.push_back({&workload, row});
  return sources;
}

TEST_P(Properties, PermutedRowsGivePermutedResults) {
  if (operation().batch() < 0) GTEST_SKIP() << "it has no batch";
  hold([] {
    const DrawnCall call = any_call_by_rows(operation());
    const Workload workload = call.drawn();
    run_in_any_way(workload);
    std::vector<Source> rows = rows_of(workload);
    for (std::size_t i = rows.size(); i > 1; --i)
      std::swap(rows[i - 1], rows[*rc::gen::inRange<std::size_t>(0, i)]);
    expect_rows(call, rows);
  });
}

TEST_P(Properties, ASliceOfABatchGivesASliceOfItsResults) {
  if (operation().batch() < 0) GTEST_SKIP() << "it has no batch";
  hold([] {
    const DrawnCall call = any_call_by_rows(operation());
    const Workload workload = call.drawn();
    run_in_any_way(workload);
    std::vector<Source> rows = rows_of(workload);
    const auto first = *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(rows));
    const auto last = *rc::gen::inRange<std::ptrdiff_t>(first, std::ssize(rows)) + 1;
    expect_rows(call, {rows.begin() + first, rows.begin() + last});
  });
}

// The same call on other rows, with the same weights.
DrawnCall on_other_rows(DrawnCall call, std::int64_t rows) {
  call.c.first += call.c.batch();
  call.c.extents[call.c.operation->batch()] = rows;
  return call;
}

TEST_P(Properties, BatchesOneAfterTheOtherGiveTheirResultsOneAfterTheOther) {
  if (operation().batch() < 0) GTEST_SKIP() << "it has no batch";
  hold([] {
    const DrawnCall call = any_call_by_rows(operation());
    const DrawnCall more = on_other_rows(call, *rc::gen::inRange<std::int64_t>(1, 24));
    const Workload head = call.drawn(), tail = more.drawn();
    run_in_any_way(head);
    run_in_any_way(tail);
    std::vector<Source> rows = rows_of(head);
    for (const Source& source : rows_of(tail)) rows.push_back(source);
    expect_rows(call, rows);
  });
}

// Equal, or both NaN.
bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Whether the array can hold the values.
bool store(const Workload& workload, const Argument& argument, const std::vector<double>& values) {
  const Array& array = *workload.find(argument.name);
  const Form& form = array.form();
  const std::int64_t length = form.line_length();
  for (std::int64_t line = 0; line < form.lines(); ++line)
    array.store(line, 0, std::span(values).subspan(line * length, length));
  return std::ranges::equal(values_of(workload, argument.name), values, same);
}

// Null where there are none.
const std::vector<Law>* laws_of(const Operation& operation) {
  auto found = kLaws.find(text(operation.op, ' ', operation.pass));
  if (found == kLaws.end()) found = kLaws.find(operation.op);
  return found == kLaws.end() ? nullptr : &found->second;
}

// Every bit; but below normal numbers scaling loses some, of terms of a sum too.
bool scaled(double value, double factor, double actual, DType dtype) {
  const double expected = value * factor;
  const double lost = std::ldexp(std::max(1.0, std::fabs(factor)), limits_of(dtype).min_exponent);
  return same(expected, actual) || std::fabs(actual - expected) < lost;
}

class PropertiesOfFactors : public Properties {};

TEST_P(PropertiesOfFactors, ThatAreExactPassThrough) {
  hold([] {
    DrawnCall call = any_call(operation(), Choices::usual);
    // Factors leave the range of integers and of f16, and of numbers at the ends of float's.
    const Types& types = call.c.types;
    RC_PRE(is_floating(types.x) && types.x != DType::f16 && types.y != DType::f16);
    RC_PRE(call.c.input != "fltmax" && call.c.input != "denormal");
    const Law law = *rc::gen::elementOf(*laws_of(operation()));
    const Workload once = call.drawn();
    RC_PRE(static_cast<bool>(once.find(law.of)));
    // Of these numbers some go with x, and some with its square.
    RC_PRE(!law.degrees.contains("x") || once.find("moments") == nullptr);

    const double factor = law.negates ? -1 : std::ldexp(1.0, *rc::gen::inRange(-20, 20));
    const auto power = [&](std::string_view name) {
      const auto degree = law.degrees.find(name);
      return std::pow(factor, degree == law.degrees.end() ? 0 : degree->second);
    };
    if (call.c.options.contains("eps")) call.c.options["eps"] *= power("x") * power("x");
    const Workload multiplied = call.workload();
    for (const Argument& argument : operation().arguments) {
      if (argument.role == Role::output || !once.find(argument.name)) continue;
      std::vector<double> values = values_of(once, argument.name);
      for (double& value : values) value *= power(argument.name);
      RC_PRE(store(multiplied, argument, values));
    }
    run_in_any_way(once);
    run_in_any_way(multiplied);
    for (const Argument* output : once.outputs()) {
      const std::vector<double> before = values_of(once, output->name);
      const std::vector<double> after = values_of(multiplied, output->name);
      for (std::size_t i = 0; i < before.size(); ++i)
        if (!scaled(before[i], power(output->name), after[i], call.c.dtype_of(*output)))
          RC_FAIL(text(output->name, "[", i, "] went from ", before[i], " to ", after[i], " when ",
                       law.of, " was multiplied by ", factor));
    }
  });
}

class PropertiesOfCentring : public Properties {};

// Small integers and a power of two of them: every sum and every mean is exact.
TEST_P(PropertiesOfCentring, AShiftMovesTheMeanAndNothingElse) {
  hold([] {
    DrawnCall call = any_call_by_rows(operation());
    call.c.extent("cols") = std::int64_t{1} << *rc::gen::inRange(0, 10);
    const double shift = *rc::gen::inRange(-128, 129);
    const Argument& x = *operation().find("x");
    const Workload once = call.drawn(), shifted = call.drawn();
    std::vector<double> values = values_of(once, "x");
    std::uint32_t state = *rc::gen::arbitrary<std::uint32_t>();
    for (double& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<double>(state >> 16) / 0x1p16 * 200 - 100;
      value = std::floor(value);
    }
    RC_ASSERT(store(once, x, values));
    for (double& value : values) value += shift;
    RC_ASSERT(store(shifted, x, values));
    for (const Workload* workload : {&once, &shifted}) {
      for (const char* name : {"residual", "x_residual"})
        if (const Argument* residual = operation().find(name);
            residual && residual->dims == x.dims && workload->find(name))
          store(*workload, *residual, std::vector<double>(values.size()));
      draw_produced(*workload);
      run_in_any_way(*workload);
    }
    for (const Argument* output : once.outputs()) {
      const bool moves = output->name == "mean" || output->name == "sum";
      std::vector<double> expected = values_of(once, output->name);
      for (double& value : expected) value += moves ? shift : 0;
      RC_ASSERT(std::ranges::equal(values_of(shifted, output->name), expected, same));
    }
  });
}

class PropertiesOfColumnSums : public Properties {};

// Sums over rows are trees over runs of 16 rows: a batch of 16 * 2^k rows is a whole subtree, and
// what follows it, if not longer, the other.
TEST_P(PropertiesOfColumnSums, SumsOfTwoBatchesAddUp) {
  hold([] {
    DrawnCall call = any_call_by_rows(operation());
    RC_PRE(call.c.types.weight == DType::f32 && call.c.types.x != DType::f64);
    const bool multiplies = operation().op == "matmul";  // whose rows are those of all products
    if (multiplies) call.c.extent("m") = 16;
    call.c.extents[operation().batch()] = std::int64_t{multiplies ? 1 : 16}
                                          << *rc::gen::inRange(0, 4);
    const DrawnCall more =
        on_other_rows(call, *rc::gen::inRange<std::int64_t>(1, call.c.batch() + 1));
    const Workload head = call.drawn(), tail = more.drawn();
    run_in_any_way(head);
    run_in_any_way(tail);
    std::vector<Source> rows = rows_of(head);
    for (const Source& source : rows_of(tail)) rows.push_back(source);
    const Workload both = run_batch(call, rows);
    for (const Argument* output : both.outputs()) {
      if (has_rows(both.operation(), *output)) continue;
      // A product over rows is a chain.
      if (output->dims == "features cols" || output->dims == "classes cols") continue;
      std::vector<double> expected = values_of(head, output->name);
      const std::vector<double> others = values_of(tail, output->name);
      for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] = static_cast<float>(expected[i]) + static_cast<float>(others[i]);
      RC_ASSERT(std::ranges::equal(values_of(both, output->name), expected, same));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Operations, Properties,
                         testing::ValuesIn(catalog().begin(), catalog().end()), name_of_pass);
INSTANTIATE_TEST_SUITE_P(Operations, PropertiesOfFactors,
                         testing::ValuesIn(operations_where([](const Operation* operation) {
                           return laws_of(*operation) != nullptr;
                         })),
                         name_of_pass);
INSTANTIATE_TEST_SUITE_P(Operations, PropertiesOfCentring,
                         testing::ValuesIn(operations_where(centres_rows)), name_of_pass);
INSTANTIATE_TEST_SUITE_P(Operations, PropertiesOfColumnSums,
                         testing::ValuesIn(operations_where(sums_over_rows)), name_of_pass);

}  // namespace
}  // namespace isobit::lab
