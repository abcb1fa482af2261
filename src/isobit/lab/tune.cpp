// SPDX-License-Identifier: Apache-2.0
// `isobit tune`: races every variant and plan against the default, and stores what is faster for
// the calls of this machine.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "isobit/core/error.h"
#include "isobit/dispatch/plan_file.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/contest.h"
#include "isobit/lab/output.h"
#include "isobit/lab/triton.h"
#include "isobit/lab/usage.h"

namespace isobit::lab {
namespace {

constexpr ContestLength kUsual = {{.seconds = 0.06, .rounds = 3}, {.seconds = 0.5, .rounds = 15}};
constexpr ContestLength kQuick = {{.seconds = 0.02, .rounds = 3}, {.seconds = 0.1, .rounds = 7}};

bool same(const Way& a, const Way& b) { return a.variant == b.variant && a.plan == b.plan; }

std::string text(const Timed& timed) {
  return fmt::format("{} {}", timed.way.info.name, plan_text(timed.way));
}

class Tune {
 public:
  explicit Tune(const Flags& flags) : flags_(flags), lines_(flags, "tune") {}

  void measure(const Case& c, const std::string& isa, int threads) {
    Workload workload(c, [&](const Case& of, const Argument& argument) {
      return contains(flags_.without, argument.name) ? std::nullopt : any_argument(of, argument);
    });
    workload.draw();
    c.operation->check(workload.args());
    const std::vector<Way> ways = ways_for(workload, isa, threads);
    // A plan may change speed only. One that changes a bit is an error of the library.
    if (const std::string found = difference(workload, ways); !found.empty()) {
      fmt::print(stderr, "failed: {}\n", found);
      ++failed_;
      return;
    }
    const Contest contest = compete(workload, ways, flags_.quick ? kQuick : kUsual);
    if (!flags_.dry_run) store(workload, contest);
    tell(c, contest);
  }

  int finish() const {
    if (!flags_.json) {
      table_.print();
      fmt::print("{} of {} cases have a better plan than the default\n", won_, cases_);
      if (won_ > 0 && !flags_.dry_run)
        fmt::print("stored in {}, for processes that start from now on\n", plan_file().string());
    }
    return failed_ == 0 ? kPassed : kFailed;
  }

 private:
  // The default way, then the others that were selected.
  std::vector<Way> ways_for(const Workload& workload, const std::string& isa, int threads) const {
    Flags flags = flags_;
    flags.isa = {isa};
    flags.threads = {threads};
    if (flags.variant.empty()) flags.variant = {"all"};
    if (flags.plan.empty()) flags.plan = {"all"};
    const std::vector<Way> others = ways_of(workload, flags, Unnamed::all).able;
    require_real_time(others);
    flags.variant = {};
    flags.plan = {"default"};
    std::vector<Way> ways = ways_of(workload, flags, Unnamed::best).able;
    std::copy_if(others.begin(), others.end(), std::back_inserter(ways),
                 [&](const Way& way) { return !same(way, ways[0]); });
    return ways;
  }

  // At once, so that what was measured outlives an interruption.
  void store(const Workload& workload, const Contest& contest) const {
    const Way& best = contest.best.way;
    const PlanKey key =
        plan_key(workload.operation(), workload.args(), execution_for(best).machine);
    update_plans(plan_file(), [&](PlanTable& plans) {
      if (contest.won())
        plans.set(key, tuned_plan(best.info, best.plan));
      else
        plans.forget(key);
    });
  }

  void tell(const Case& c, const Contest& contest) {
    constexpr double kMicro = 1e6;
    const auto& [usual, best] = contest;
    ++cases_;
    won_ += contest.won();
    Json line = describe(c, best.way);
    line["without"] = flags_.without;
    line["median_us"] = best.times.median * kMicro;
    line["p20_us"] = best.times.p20 * kMicro;
    line["p80_us"] = best.times.p80 * kMicro;
    line["default"] = {{"variant", usual.way.info.name},
                       {"plan", describe(c, usual.way)["plan"]},
                       {"median_us", usual.times.median * kMicro}};
    line["ratio"] = contest.ratio();
    line["stored"] = contest.won() && !flags_.dry_run;
    lines_.add(line);
    table_.add({std::string(c.operation->op), std::string(c.operation->pass),
                std::to_string(c.rows), std::to_string(c.cols), types_text(c.types),
                choices_text(c), std::string(name_of(best.way.isa)),
                std::to_string(best.way.threads), text(usual),
                short_number(usual.times.median * kMicro), text(best),
                short_number(best.times.median * kMicro), fmt::format("{:.2f}", contest.ratio()),
                contest.won() ? flags_.dry_run ? "better" : "stored" : ""});
  }

  const Flags& flags_;
  JsonLines lines_;
  Table table_{{"op", "pass", ">rows", ">cols", "dtype", "options", "isa", ">threads", "default",
                ">us", "best", ">us", ">ratio", ""}};
  int cases_ = 0, won_ = 0, failed_ = 0;
};

void require_optional(const std::vector<std::string>& names,
                      const std::vector<const Operation*>& operations) {
  std::vector<std::string_view> known;
  for (const Operation* operation : operations)
    for (const Argument& argument : operation->arguments)
      if (argument.presence == Presence::optional && !contains(known, argument.name))
        known.push_back(argument.name);
  for (const std::string& name : names) index_of("optional argument", name, known);
}

int clear(const Flags& flags) {
  const std::vector<const Operation*> operations = operations_of(flags);
  const std::filesystem::path file = plan_file();
  std::size_t before = 0, after = 0;
  if (std::error_code none; std::filesystem::exists(file, none))
    update_plans(file, [&](PlanTable& plans) {
      before = plans.size();
      for (const Operation* operation : operations) plans.forget_operator(operation->op);
      if (flags.ops.empty()) plans = {};
      after = plans.size();
    });
  if (!flags.json) fmt::print("plans forgotten: {}, left: {}\n", before - after, after);
  return kPassed;
}

}  // namespace

int tune(const Flags& flags) {
  if (flags.clear) return clear(flags);
  if (flags.ops.empty() && !flags.all)
    throw UsageError("tune needs an operator, or --all\n  `isobit list` shows them");
  if (contains(flags.device, kTriton))
    throw UsageError("tune stores plans for the library, which has none of Triton's variants");
  const std::vector<const Operation*> operations = operations_of(flags);
  require_optional(flags.without, operations);
  std::vector<std::string> isas = flags.isa;
  if (isas.empty()) isas = {"auto"};
  std::vector<int> threads = flags.threads;
  if (threads.empty()) threads = {Machine::here().threads};

  struct Point {
    Case c;
    std::string isa;
    int threads;
  };
  std::vector<Point> points;
  for (const Operation* operation : operations)
    for (const Case& c : cases_of(*operation, flags, flags.quick ? "bench-quick" : "bench"))
      for (const std::string& isa : isas)
        for (int count : threads) points.push_back({c, isa, count});

  Tune tune(flags);
  Progress progress(points.size());
  for (const auto& [c, isa, count] : points) {
    progress.step(fmt::format("{} {} {} x {}", c.operation->op, c.operation->pass, c.rows, c.cols));
    tune.measure(c, isa, count);
  }
  progress.clear();
  return tune.finish();
}

}  // namespace isobit::lab
