// SPDX-License-Identifier: Apache-2.0
// `isobit tune`: times every variant and plan against the default, and stores what is faster for
// the calls of this machine.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "isobit/core/error.h"
#include "isobit/dispatch/plan_file.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/fastest.h"
#include "isobit/lab/output.h"
#include "isobit/lab/triton.h"
#include "isobit/lab/usage.h"

namespace isobit::lab {
namespace {

constexpr SearchLength kUsual = {{.seconds = 0.06, .rounds = 3}, {.seconds = 0.5, .rounds = 15}};
constexpr SearchLength kQuick = {{.seconds = 0.02, .rounds = 3}, {.seconds = 0.1, .rounds = 7}};

bool same(const Configuration& a, const Configuration& b) {
  return a.variant == b.variant && a.plan == b.plan;
}

std::string in_words(const Timed& timed) {
  return fmt::format("{} {}", timed.configuration.info.name, plan_text(timed.configuration));
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
    const std::vector<Configuration> configurations = configurations_for(workload, isa, threads);
    // A plan may change speed only. One that changes a bit is an error of the library.
    if (const std::string found = difference(workload, configurations); !found.empty()) {
      fmt::print(stderr, "failed: {}\n", found);
      ++failed_;
      return;
    }
    const Fastest fastest = find_fastest(workload, configurations, flags_.quick ? kQuick : kUsual);
    if (!flags_.dry_run) store(workload, fastest);
    tell(c, fastest);
  }

  int finish() const {
    if (!flags_.json) {
      table_.print();
      fmt::print("a better plan than the default was found for {} of {} cases\n", faster_, cases_);
      if (faster_ > 0 && !flags_.dry_run)
        fmt::print("stored in {}; processes that start from now on use them\n",
                   plan_file().string());
    }
    return failed_ == 0 ? kPassed : kFailed;
  }

 private:
  // The default configuration, then the others that were selected.
  std::vector<Configuration> configurations_for(const Workload& workload, const std::string& isa,
                                                int threads) const {
    Flags flags = flags_;
    flags.isa = {isa};
    flags.threads = {threads};
    if (flags.variant.empty()) flags.variant = {"all"};
    if (flags.plan.empty()) flags.plan = {"all"};
    const std::vector<Configuration> others = configurations_of(workload, flags, Unnamed::all).able;
    require_real_time(others);
    flags.variant = {};
    flags.plan = {"default"};
    std::vector<Configuration> configurations =
        configurations_of(workload, flags, Unnamed::best).able;
    std::copy_if(others.begin(), others.end(), std::back_inserter(configurations),
                 [&](const Configuration& configuration) {
                   return !same(configuration, configurations[0]);
                 });
    return configurations;
  }

  // At once, so that what was measured outlives an interruption.
  void store(const Workload& workload, const Fastest& fastest) const {
    const Configuration& best = fastest.best.configuration;
    const PlanKey key =
        plan_key(workload.operation(), workload.args(), execution_for(best).machine);
    update_plans(plan_file(), [&](PlanTable& plans) {
      if (fastest.is_faster())
        plans.set(key, tuned_plan(best.info, best.plan));
      else
        plans.forget(key);
    });
  }

  void tell(const Case& c, const Fastest& fastest) {
    constexpr double kMicro = 1e6;
    const auto& [usual, best] = fastest;
    ++cases_;
    faster_ += fastest.is_faster();
    Json line = describe(c, best.configuration);
    line["without"] = flags_.without;
    line["median_us"] = best.times.median * kMicro;
    line["p20_us"] = best.times.p20 * kMicro;
    line["p80_us"] = best.times.p80 * kMicro;
    line["default"] = {{"variant", usual.configuration.info.name},
                       {"plan", describe(c, usual.configuration)["plan"]},
                       {"median_us", usual.times.median * kMicro}};
    line["ratio"] = fastest.ratio();
    line["stored"] = fastest.is_faster() && !flags_.dry_run;
    lines_.add(line);
    table_.add({std::string(c.operation->op), std::string(c.operation->pass), extents_text(c),
                types_text(c.types), choices_text(c), std::string(name_of(best.configuration.isa)),
                std::to_string(best.configuration.threads), in_words(usual),
                short_number(usual.times.median * kMicro), in_words(best),
                short_number(best.times.median * kMicro), fmt::format("{:.2f}", fastest.ratio()),
                fastest.is_faster() ? flags_.dry_run ? "better" : "stored" : ""});
  }

  const Flags& flags_;
  JsonLines lines_;
  Table table_{{"op", "pass", ">shape", "dtype", "options", "isa", ">threads", "default", ">us",
                "best", ">us", ">ratio", ""}};
  int cases_ = 0, faster_ = 0, failed_ = 0;
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
  if (!flags.json) fmt::print("plans deleted: {}, remaining: {}\n", before - after, after);
  return kPassed;
}

}  // namespace

int tune(const Flags& flags) {
  if (flags.clear) return clear(flags);
  if (flags.ops.empty() && !flags.all)
    throw UsageError("tune needs an operator, or --all\n  `isobit list` shows them");
  if (contains(flags.device, kTriton))
    throw UsageError(
        "tune does not support triton: plans are stored for the library, which does not contain "
        "Triton's variants");
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
    progress.step(fmt::format("{} {} {}", c.operation->op, c.operation->pass, extents_text(c)));
    tune.measure(c, isa, count);
  }
  progress.clear();
  return tune.finish();
}

}  // namespace isobit::lab
