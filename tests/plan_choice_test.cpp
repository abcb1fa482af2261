// SPDX-License-Identifier: Apache-2.0
// How a call finds its stored plan: which calls share a key, and what is not believed of a plan.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "isobit/dispatch/definition.h"
#include "isobit/dispatch/plan_file.h"
#include "isobit/lab/fastest.h"
#include "isobit/ops/catalog.h"
#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/simd/parallel_for.h"

namespace isobit {
namespace {

using lab::Case;
using lab::Configuration;
using lab::Form;
using lab::Workload;

// An operator whose result tells who computed it, which no real one may: 1 the default, 10 + its
// knob another variant, 20 a variant that declines.
struct ToyArgs {
  TensorView x, y;
};
struct ToyProblem {
  float* y;
};
using ToyVariant = Variant<ToyArgs, ToyProblem>;

constexpr int kLevels[] = {0, 1, 2};
constexpr Knob kKnobs[] = {{"level", kLevels, "is told"}};

template <int kValue>
void tell(const ToyArgs&, const ToyProblem& problem, const Plan& plan, const Execution&) {
  *problem.y = static_cast<float>(kValue + plan[0]);
}

constexpr ToyVariant kVariants[] = {
    {.name = "usual", .run = tell<1>},
    {.name = "other", .knobs = kKnobs, .run = tell<10>},
    {.name = "own", .bits = Bits::own, .run = tell<30>},
    {.name = "unable",
     .declines = [](const ToyProblem&, const Machine&) { return std::string("it cannot"); },
     .run = tell<20>},
};

constexpr Dim kToyDims[] = {{.name = "rows", .usual = 1, .in_parity = 1, .batch = true},
                            {.name = "cols", .usual = 1, .in_parity = 1}};
constexpr Argument kToyArguments[] = {
    argument<&ToyArgs::x>("x", Role::input, "rows cols", Elements::like_x, Presence::required,
                          Drawn::family),
    argument<&ToyArgs::y>("y", Role::output, "rows cols", Elements::like_x, Presence::required),
};

const Definition<ToyArgs, ToyProblem>& toy() {
  static const Definition<ToyArgs, ToyProblem> kToy = {
      .op = "toy",
      .pass = "fwd",
      .summary = "tells who computed it",
      .version = 1,
      .dims = kToyDims,
      .arguments = kToyArguments,
      .options = {},
      .check = [](const ToyArgs& args) { return ToyProblem{static_cast<float*>(args.y.data)}; },
      .extents = [](const ToyArgs&) { return Extents{1, 1}; },
      .variants = kVariants,
      .cost = nullptr,
      .cases = nullptr,
      .reference = nullptr,
      .intermediates = nullptr};
  return kToy;
}

struct ToyCall {
  float x = 0, y = 0;
  ToyArgs args = {matrix_view(&x, 4, DType::f32, 1, 1, 1), matrix_view(&y, 4, DType::f32, 1, 1, 1)};

  PlanKey key() const {
    return plan_key("toy", "fwd", kToyDims, kToyArguments, {}, {1, 1}, &args, Machine::here());
  }
};

// The variant that a stored plan makes the toy take, and its level; nothing where it is a miss.
std::optional<Choice> choice(const TunedPlan& plan) {
  const ToyCall call;
  PlanTable table;
  table.set(call.key(), plan);
  return detail::tuned(toy(), table, call.args, toy().check(call.args), Machine::here());
}

TEST(StoredPlan, IsTaken) {
  const auto chosen = choice({"other", {{"level", 2}}});
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->variant, 1);
  EXPECT_EQ(chosen->plan[0], 2);
}

TEST(StoredPlan, ThatDoesNotFitTheLibraryIsAMiss) {
  EXPECT_FALSE(choice({"gone", {}}));
  EXPECT_FALSE(choice({"unable", {}}));
  EXPECT_FALSE(choice({"other", {}}));
  EXPECT_FALSE(choice({"other", {{"level", 3}}}));
  EXPECT_FALSE(choice({"other", {{"height", 1}}}));
  EXPECT_FALSE(choice({"other", {{"level", 1}, {"height", 1}}}));
  EXPECT_FALSE(choice({"own", {}})) << "its bits are not the operator's";
  EXPECT_FALSE(choice({"usual", {{"level", 1}}}));
  EXPECT_TRUE(choice({"usual", {}}));
}

// A process of its own, which has not read any plans yet, with these for the toy.
int status_with_stored_plan(const TunedPlan& plan, int (*body)()) {
  std::string home = "/tmp/isobit_choice_XXXXXX";
  mkdtemp(home.data());
  setenv("XDG_CACHE_HOME", home.c_str(), 1);
  update_plans(plan_file(), [&](PlanTable& table) { table.set(ToyCall().key(), plan); });
  const int status = body();
  std::filesystem::remove_all(home);
  return status;
}

int told() {
  const ToyCall call;
  run(toy(), call.args, simd::here());
  return static_cast<int>(call.y);
}

TEST(StoredPlanDeathTest, IsWhatACallRuns) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(status_with_stored_plan({"other", {{"level", 2}}}, told)),
              testing::ExitedWithCode(12), "");
  EXPECT_EXIT(std::_Exit(status_with_stored_plan({"unable", {}}, told)), testing::ExitedWithCode(1),
              "");
}

TEST(StoredPlanDeathTest, IsReadByManyFirstCallsAndInAChild) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto body = [] {
    std::array<int, 8> seen{};
    std::vector<std::thread> callers;
    for (int& number : seen) callers.emplace_back([&number] { number = told(); });
    for (std::thread& caller : callers) caller.join();
    const pid_t child = fork();
    if (child == 0) std::_Exit(told());
    int status = 0;
    waitpid(child, &status, 0);
    if (std::set<int>(seen.begin(), seen.end()) != std::set<int>{12}) return 1;
    return WEXITSTATUS(status);
  };
  EXPECT_EXIT(std::_Exit(status_with_stored_plan({"other", {{"level", 2}}}, body)),
              testing::ExitedWithCode(12), "");
}

// The toy's variants differ in bits: exactly what tuning must not accept.
TEST(Fastest, RefusesAWayWithOtherBits) {
  const TypedOperation<ToyArgs, ToyProblem> operation(toy());
  Case c;
  c.operation = &operation;
  c.extents = {1, 1};
  Workload workload(c);
  workload.seal();
  const std::vector<VariantInfo> infos = operation.variants();
  const Configuration usual{.variant = 0, .info = infos[0]}, other{.variant = 1, .info = infos[1]};
  EXPECT_EQ(lab::difference(workload, {usual, usual}), "");
  EXPECT_NE(lab::difference(workload, {usual, other}).find("bits differ from those of usual"),
            std::string::npos);
}

TEST(Fastest, IsWonByAClearMarginOnly) {
  const auto fastest = [](double usual, double best, double p80) {
    return lab::Fastest{{{}, {usual, usual, usual}}, {{}, {best, best, p80}}};
  };
  EXPECT_TRUE(fastest(1.00, 0.90, 0.95).is_faster());
  EXPECT_FALSE(fastest(1.00, 0.98, 0.98).is_faster()) << "too little";
  EXPECT_FALSE(fastest(1.00, 0.90, 1.10).is_faster()) << "too uncertain";
  EXPECT_FALSE(fastest(1.00, 1.00, 1.00).is_faster());
}

PlanKey key_of(const Operation& operation, std::int64_t rows, std::int64_t cols,
               const std::set<std::string_view>& without = {}, DType dtype = DType::f32,
               int threads = 1, const std::map<std::string_view, double>& options = {}) {
  Case c = lab::cases_of(operation, {}, "quick").front();
  c.extents = {rows, cols};
  c.types = {dtype, dtype};
  for (const auto& [name, value] : options) c.options[name] = value;
  const Workload workload(c, [&](const Case& of, const Argument& argument) {
    return without.contains(argument.name) ? std::nullopt : lab::any_argument(of, argument);
  });
  Machine machine = Machine::here();
  machine.threads = threads;
  return plan_key(operation, workload.args(), machine);
}

const Operation& operation_named(std::string_view op, std::string_view pass) {
  for (const Operation* operation : catalog())
    if (operation->op == op && operation->pass == pass) return *operation;
  throw std::runtime_error("no such operation");
}

TEST(PlanKeys, RowsAreRoundedToThePowerOfTwoNearestByRatio) {
  for (const auto& [rows, rounded] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 0},
           {1, 1},
           {2, 2},
           {3, 4},
           {5, 4},
           {6, 8},
           {724, 512},
           {725, 1024},
           {1448, 1024},
           {1449, 2048},
           {std::int64_t{1} << 40, std::int64_t{1} << 31}})
    EXPECT_EQ(nearest_power_of_two(rows), rounded) << rows;
  const Operation& forward = operation_named("layernorm", "fwd");
  EXPECT_EQ(key_of(forward, 1000, 768), key_of(forward, 1024, 768));
  EXPECT_NE(key_of(forward, 1000, 768), key_of(forward, 2048, 768));
  EXPECT_NE(key_of(forward, 1000, 768), key_of(forward, 1000, 769));
}

TEST(PlanKeys, CallsThatDoTheSameWorkShareOne) {
  const Operation &forward = operation_named("layernorm", "fwd"),
                  &backward = operation_named("layernorm", "bwd");
  EXPECT_EQ(key_of(forward, 8, 8), key_of(forward, 8, 8, {"bias", "mean", "rstd"}));
  EXPECT_EQ(key_of(backward, 8, 8), key_of(backward, 8, 8, {"grad_bias"}));
  EXPECT_EQ(key_of(forward, 8, 8),
            key_of(forward, 8, 8, {}, DType::f32, 1, {{"eps", 0}, {"dropout_seed", 7}}));
  EXPECT_EQ(key_of(forward, 8, 8, {}, DType::f32, 1, {{"dropout", 0.1}}),
            key_of(forward, 8, 8, {}, DType::f32, 1, {{"dropout", 0.5}}));
  const std::vector<PlanKey> different = {
      key_of(forward, 8, 8),
      key_of(backward, 8, 8),
      key_of(backward, 8, 8, {"mean", "rstd"}),
      key_of(backward, 8, 8, {"grad_x"}),
      key_of(backward, 8, 8, {"grad_weight", "grad_bias"}),
      key_of(backward, 8, 8, {}, DType::bf16),
      key_of(backward, 8, 8, {}, DType::f32, 2),
      key_of(backward, 8, 8, {}, DType::f32, 1, {{"dropout", 0.1}}),
      key_of(backward, 8, 8, {}, DType::f32, 1, {{"zero_centered", 1}}),
  };
  for (std::size_t i = 0; i < different.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(different[i], different[j]) << i << " " << j;
}

// A row of 4 x 6 is one of 24.
TEST(PlanKeys, RowsOfSeveralDimensionsAreAsLongAsTheirWeights) {
  layernorm::ForwardArgs args;
  args.x = args.y = {nullptr, 0, DType::f32, 3, {10, 4, 6}, {24, 6, 1}};
  args.weight = {nullptr, 0, DType::f32, 2, {4, 6}, {6, 1}};
  args.hidden_dims = 2;
  const Operation& forward = operation_named("layernorm", "fwd");
  const Arguments named(std::shared_ptr<void>(&args, [](void*) {}));
  const PlanKey key = plan_key(forward, named, Machine::here());
  EXPECT_EQ(key.extents[0], 8);
  EXPECT_EQ(key.extents[1], 24);
}

// What one GPU likes tells nothing of another; the processor's threads do not matter there.
TEST(PlanKeys, OfGpusTellTheirModel) {
  const Operation& forward = operation_named("layernorm", "fwd");
  const Workload workload(lab::cases_of(forward, {}, "quick").front());
  const auto key = [&](int capability, int multiprocessors, int threads) {
    Machine machine;
    machine.device = Device::cuda;
    machine.gpu = {.capability = capability, .multiprocessors = multiprocessors};
    machine.threads = threads;
    return plan_key(forward, workload.args(), machine);
  };
  EXPECT_EQ(key(90, 132, 1), key(90, 132, 16));
  EXPECT_NE(key(90, 132, 1), key(90, 114, 1));
  EXPECT_NE(key(90, 132, 1), key(100, 132, 1));
  const auto of_amd = [&](int gfx) {
    Machine machine;
    machine.device = Device::hip;
    machine.gpu = {.multiprocessors = 132, .gfx = gfx};
    return plan_key(forward, workload.args(), machine);
  };
  EXPECT_NE(of_amd(90), of_amd(94));
  EXPECT_NE(of_amd(90), key(90, 132, 1));
}

TEST(PlanKeys, EveryOperationAndChoiceHasItsOwnAndItIsWhole) {
  std::set<std::string> calls;
  std::size_t count = 0;
  for (const Operation* operation : catalog()) {
    const std::vector<Case> cases = lab::cases_of(*operation, {}, "quick");
    std::set<std::vector<double>> choices;
    for (const Case& c : cases) {
      std::vector<double> values;
      for (const Option& option : operation->options)
        if (!option.choices.empty()) values.push_back(c.options.at(option.name));
      if (c.types.x != cases[0].types.x || !choices.insert(values).second) continue;
      const Workload workload(c);
      const PlanKey key = plan_key(*operation, workload.args(), Machine::here());
      EXPECT_EQ(key.call.back(), '\0') << key.text() << " may be cut off";
      calls.emplace(key.text());
      ++count;
    }
  }
  EXPECT_EQ(calls.size(), count);
}

}  // namespace
}  // namespace isobit
