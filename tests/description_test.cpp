// SPDX-License-Identifier: Apache-2.0
// Descriptions of operators that nobody has written yet: dims that others determine, dims that
// contradict themselves, arguments that are drawn each in its own manner, options below zero.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "isobit/dispatch/definition.h"
#include "isobit/dispatch/plan_key.h"
#include "isobit/lab/reference.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/usage.h"
#include "isobit/lab/workload.h"

namespace isobit {
namespace {

// Picks every stride-th element of a row, where a mask lets it, at positions that are given.
struct Args {
  TensorView x, mask, positions, y;
  std::int64_t stride = 2, dim = -1;
};
struct Problem {};

constexpr Dim kDims[] = {{.name = "batch", .usual = 2, .in_parity = 3, .batch = true},
                         {.name = "length", .usual = 9, .in_parity = 7},
                         {.name = "picked",
                          .usual = 0,
                          .in_parity = 0,
                          .derived = [](const Extents& others, const void* args) {
                            const std::int64_t stride = static_cast<const Args*>(args)->stride;
                            return (others[1] + stride - 1) / stride;
                          }}};
constexpr Argument kArguments[] = {
    argument<&Args::x>("x", Role::input, "batch length", Elements::like_x, Presence::required,
                       Drawn::family),
    argument<&Args::mask>("mask", Role::input, "batch length", Elements::mask, Presence::required,
                          Drawn::mask),
    [] {
      Argument positions = argument<&Args::positions>(
          "positions", Role::input, "batch", Elements::index, Presence::required, Drawn::index);
      positions.below = "length";
      return positions;
    }(),
    argument<&Args::y>("y", Role::output, "batch picked", Elements::like_x, Presence::required),
};
constexpr Option kOptions[] = {
    option<&Args::stride>("stride", 2).changing_plans(PlanDependence::value),
    option<&Args::dim>("dim", -1)};

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      .op = "pick",
      .pass = "fwd",
      .summary = "picks",
      .version = 3,
      .dims = kDims,
      .arguments = kArguments,
      .options = kOptions,
      .check = [](const Args&) { return Problem{}; },
      .extents = [](const Args&) { return Extents{}; },
      .variants = {},
      .cost = nullptr,
      .cases = [](std::string_view) { return std::vector<CaseGrid>(); },
      .reference = nullptr,
      .intermediates = nullptr};
  return kDefinition;
}

const Operation& pick() {
  static const TypedOperation<Args, Problem> kPick(definition());
  return kPick;
}

lab::Case case_of(const lab::Flags& flags) { return lab::cases_of(pick(), flags, "quick").at(0); }

lab::Flags flags_of(std::int64_t length) {
  lab::Flags flags;
  flags.ops = {"pick"};
  flags.dims["length"] = {length};
  return flags;
}

TEST(Description, ADimMayFollowFromOthersAndOptions) {
  lab::Flags flags = flags_of(10);
  EXPECT_EQ(case_of(flags).extents, (Extents{2, 10, 5}));
  flags.options["stride"] = {"3"};
  const lab::Case c = case_of(flags);
  EXPECT_EQ(c.extent("picked"), 4);
  EXPECT_EQ(lab::Workload(c).find("y")->form().extents, (std::vector<std::int64_t>{2, 4}));
  flags.dims["picked"] = {4};
  EXPECT_THROW(case_of(flags), lab::UsageError);
}

TEST(Description, ADimThatTheOperatorLacksIsRefused) {
  lab::Flags flags = flags_of(10);
  flags.dims["width"] = {4};
  try {
    case_of(flags);
    ADD_FAILURE() << "accepted";
  } catch (const lab::UsageError& error) {
    EXPECT_STREQ(error.what(), "pick has no --width; known: --batch, --length");
  }
  flags.all = true;
  EXPECT_NO_THROW(case_of(flags));
}

// Whole options could not be negative.
TEST(Description, AnIntegerMayBeNegative) {
  lab::Flags flags = flags_of(10);
  flags.options["dim"] = {"-2"};
  const lab::Case c = case_of(flags);
  EXPECT_EQ(c.options.at("dim"), -2);
  EXPECT_EQ(describe(c).at("dim"), -2);
  flags.options["dim"] = {"-1.5"};
  EXPECT_THROW(case_of(flags), lab::UsageError);
}

// Of all inputs but x and residual only normal numbers were drawn.
TEST(Description, EachInputIsDrawnAsItIsDescribed) {
  lab::Case c = case_of(flags_of(50));
  c.extent("batch") = 400;
  lab::Workload workload(c);
  workload.draw();
  const lab::Array &mask = *workload.find("mask"), &positions = *workload.find("positions");
  EXPECT_EQ(mask.form().dtype, DType::boolean);
  EXPECT_EQ(positions.form().dtype, DType::i64);
  std::vector<double> values(400), line(50);
  positions.load(0, 0, std::span<double>(values));
  for (double value : values) EXPECT_TRUE(value >= 0 && value < 50 && value == std::floor(value));
  EXPECT_EQ(*std::ranges::max_element(values), 49);
  double set = 0;
  for (int i = 0; i < 400; ++i) {
    mask.load(i, 0, std::span<double>(line));
    for (double value : line) set += value;
  }
  EXPECT_NEAR(set / (400 * 50), 0.5, 0.05);

  // A part of the batch is the same part whoever draws it.
  lab::Case later = c;
  later.first = 7;
  lab::Workload part(later);
  part.draw();
  std::vector<double> shifted(100);
  part.find("positions")->load(0, 0, std::span<double>(shifted));
  EXPECT_TRUE(std::equal(shifted.begin(), shifted.end(), values.begin() + 7));
}

// n = 1 and n = 8192 shared a plan, and so did stride 1 and 2.
TEST(Description, PlansDependOnEveryDimAndOnOptionsThatSaySo) {
  const auto key = [](const Extents& extents, std::int64_t stride, std::int64_t dim) {
    Args args;
    args.stride = stride;
    args.dim = dim;
    args.x.rank = 1;
    return plan_key("pick", "fwd", kDims, kArguments, kOptions, extents, &args, Machine::here());
  };
  EXPECT_EQ(key({8, 100, 50}, 2, -1), key({9, 100, 50}, 2, -1)) << "the batch is rounded";
  EXPECT_EQ(key({8, 100, 50}, 2, -1), key({8, 100, 50}, 2, 0)) << "dim changes no plan";
  EXPECT_NE(key({8, 100, 50}, 2, -1), key({8, 101, 50}, 2, -1));
  EXPECT_NE(key({8, 100, 1}, 2, -1), key({8, 100, 8192}, 2, -1));
  EXPECT_NE(key({8, 100, 50}, 1, -1), key({8, 100, 50}, 2, -1));
  EXPECT_NE(key({8, 100, 50}, 12, -1), key({8, 100, 50}, 1, -1));
}

template <std::size_t kDimCount>
std::string refused(const Dim (&dims)[kDimCount], std::string_view of_x) {
  static Argument arguments[] = {kArguments[0]};
  arguments[0].dims = of_x;
  Definition<Args, Problem> wrong = definition();
  wrong.dims = dims;
  wrong.arguments = arguments;
  try {
    const TypedOperation<Args, Problem> operation(wrong);
  } catch (const std::logic_error& error) { return error.what(); }
  return "accepted";
}

TEST(Description, ThatContradictsItselfIsRefused) {
  EXPECT_EQ(refused({{.name = "a"}, {.name = "b"}}, "a b"), "accepted");
  EXPECT_EQ(refused({{.name = "a"}, {.name = "a"}}, "a"),
            "the description of pick fwd: a is named twice");
  EXPECT_EQ(refused({{.name = "a", .batch = true}, {.name = "b", .batch = true}}, "a b"),
            "the description of pick fwd: b is a second batch dim");
  EXPECT_EQ(refused({{.name = "a"}, {.name = "b", .batch = true}}, "a b"),
            "the description of pick fwd: x does not begin with its batch dim");
  EXPECT_EQ(refused({{.name = "a"}}, "a a"), "the description of pick fwd: x has one dim twice");
  EXPECT_EQ(refused({{.name = "a"}}, "a c"),
            "the description of pick fwd: c is a dim of an argument only");
}

}  // namespace
}  // namespace isobit
