// SPDX-License-Identifier: Apache-2.0
// `isobit verify`: every case in every configuration, against the reference.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <tuple>

#include "isobit/core/error.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/output.h"
#include "isobit/lab/triton.h"
#include "isobit/lab/usage.h"
#include "isobit/lab/verdict.h"

namespace isobit::lab {
namespace {

constexpr int kTold = 10;  // failures that are told one by one

// The worst C of each output over the shapes, options and configurations of one pass.
class Summary {
 public:
  explicit Summary(const Operation& operation) : operation_(operation) {}

  void add(const Case& c, const Configuration& configuration, const Verdict& verdict,
           bool canonical) {
    Row& row = rows_[{configuration.variant, types_text(c.types), c.input}];
    row.variant = name_and_place(configuration.info);
    ++row.cases;
    row.failed += !verdict.passed();
    row.others += !canonical;
    in_triton_ |= in_triton(configuration.info);
    for (const Verdict::Output& output : verdict.outputs) {
      Worst& worst = row.worst[output.argument->name];
      if (output.deviation.c >= worst.of_all.c) worst.limit = verdict.limit;
      worst.passed &= output.deviation.c <= verdict.limit;
      worst.of_all.merge(output.deviation);
    }
  }

  // A row for each output of each of them: the largest error, and whether it may be so large.
  void print_outputs() const {
    if (rows_.empty()) return;
    Table table({"variant", "dtype", "input", "output", ">largest error", ">ulp", ">C", ">limit",
                 "verdict"});
    for (const auto& [key, row] : rows_)
      for (const Argument& argument : operation_.arguments) {
        const auto found = row.worst.find(argument.name);
        if (found == row.worst.end()) continue;
        const auto& [worst, limit, passed] = found->second;
        table.add({row.variant, std::get<1>(key), std::get<2>(key), std::string(argument.name),
                   fmt::format("{:.2g}", worst.max_abs), fmt::format("{:.2g}", worst.max_ulp),
                   fmt::format("{:.2g}", worst.c), fmt::format("{:.3g}", limit),
                   passed ? "pass" : "fail"});
      }
    print_under_heading(table);
  }

  void print() const {
    if (rows_.empty()) return;
    std::vector<std::string> heads = {"variant", "dtype", "input", ">cases", ">failed"};
    if (in_triton_) heads.emplace_back(">different bits");
    for (const Argument& argument : operation_.arguments)
      if (argument.role == Role::output) heads.push_back(fmt::format(">C {}", argument.name));
    Table table(std::move(heads));
    for (const auto& [key, row] : rows_) {
      const auto& [index, types, input] = key;
      std::vector<std::string> cells = {row.variant, types, input, std::to_string(row.cases),
                                        std::to_string(row.failed)};
      if (in_triton_) cells.push_back(std::to_string(row.others));
      for (const Argument& argument : operation_.arguments) {
        if (argument.role != Role::output) continue;
        const auto worst = row.worst.find(argument.name);
        cells.push_back(worst == row.worst.end() ? ""
                                                 : fmt::format("{:.2g}", worst->second.of_all.c));
      }
      table.add(std::move(cells));
    }
    print_under_heading(table);
  }

 private:
  struct Worst {
    Deviation of_all;
    double limit = 0;  // of the case with the largest C
    bool passed = true;
  };
  struct Row {
    std::string variant;
    int cases = 0, failed = 0, others = 0;
    std::map<std::string_view, Worst> worst;  // by the output's name
  };

  void print_under_heading(const Table& table) const {
    fmt::print("{} {}\n", operation_.op, operation_.pass);
    table.print();
    fmt::print("\n");
  }

  const Operation& operation_;
  std::map<std::tuple<int, std::string, std::string>, Row> rows_;
  bool in_triton_ = false;
};

}  // namespace

int verify(const Flags& flags) {
  if (flags.ops.empty() && !flags.all)
    throw UsageError("verify needs an operator, or --all\n  `isobit list` shows them");
  const std::vector<const Operation*> operations = operations_of(flags);
  std::vector<std::vector<Case>> cases;
  std::size_t total = 0;
  for (const Operation* operation : operations)
    total += cases.emplace_back(cases_of(*operation, flags, "quick")).size();

  JsonLines lines(flags, "verify");
  Progress progress(total);
  int runs = 0, failures = 0, others = 0;
  std::string declined;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    Summary summary(*operations[i]);
    for (const Case& c : cases[i]) {
      progress.step(fmt::format("{} {} {}", c.operation->op, c.operation->pass, c.input));
      Workload workload(c);
      workload.draw();
      c.operation->check(workload.args());
      Judge judge(workload);
      const Configurations configurations = configurations_of(workload, flags, Unnamed::all);
      declined = configurations.reasons();
      std::vector<std::string> expected;  // where bits have to be compared
      for (const Configuration& configuration : configurations.able) {
        if (in_triton(configuration.info) && expected.empty()) expected = canonical_bits(workload);
        run(workload, configuration);
        const Verdict verdict = judge();
        Json line = describe(c, configuration);
        line["outputs"] = verdict.outputs_json();
        line["limit"] = verdict.limit;
        line["passed"] = verdict.passed();
        const bool canonical = !in_triton(configuration.info) || output_bits(workload) == expected;
        if (in_triton(configuration.info)) line["canonical"] = canonical;
        lines.add(line);
        summary.add(c, configuration, verdict, canonical);
        others += !canonical;
        ++runs;
        if (verdict.passed() || ++failures > kTold) continue;
        progress.clear();
        fmt::print(stderr, "failed: {}\n{}", command("verify", c, configuration),
                   verdict.complaints());
      }
    }
    progress.clear();
    if (flags.json) continue;
    if (flags.report)
      summary.print_outputs();
    else
      summary.print();
  }
  if (runs == 0)
    throw Unsupported("no variant supports these cases; nothing was verified" + declined);
  if (failures > kTold) fmt::print(stderr, "and {} more failures\n", failures - kTold);
  if (!flags.json)
    fmt::print(
        "{} passed, {} failed{}\n", runs - failures, failures,
        others == 0 ? "" : fmt::format(", {} with bits different from the library's", others));
  return failures == 0 ? kPassed : kFailed;
}

}  // namespace isobit::lab
