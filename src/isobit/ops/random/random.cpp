// SPDX-License-Identifier: Apache-2.0
// The random operator: its rules, its arguments, and what it is made of.
#include "isobit/ops/random/random.h"

#include <iterator>

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/random/cases.h"
#include "isobit/ops/random/problem.h"
#include "isobit/ops/random/reference.h"

namespace isobit::random {
namespace {

constexpr std::string_view kDistributions[] = {"uniform", "normal", "truncated_normal",
                                               "bernoulli"};

constexpr Dim kDims[] = {{.name = "rows", .usual = 64, .in_parity = 37},
                         {.name = "cols", .usual = 768, .in_parity = 1000}};

constexpr Argument kArguments[] = {
    argument<&Args::y>("y", Role::output, "rows cols", Elements::like_x, Presence::required)
        .means("in f32, f16, bf16 or f64; rows evenly spaced"),
};

constexpr Option kOptions[] = {
    option<&Args::distribution>("distribution", 0, kDistributions)
        .means("0 uniform, 1 normal, 2 truncated_normal, 3 bernoulli"),
    option<&Args::low>("low", 0).means("the least number of uniform and of truncated_normal"),
    option<&Args::high>("high", 1).means(
        "the end of uniform, which is not reached; the largest number of truncated_normal"),
    option<&Args::mean>("mean", 0).means("of normal; of truncated_normal, before it is cut"),
    option<&Args::std>("std", 1).means("likewise; not negative, and above 0 where it is cut"),
    option<&Args::p>("p", 0.5).means("of bernoulli: the probability of 1"),
    option<&Args::random_seed>("random_seed", 0).means("names one of 2^64 sequences"),
    option<&Args::random_offset>("random_offset", 0).means("of the first element in the sequence"),
};

double largest_of(DType dtype) {
  switch (dtype) {
    case DType::f16:  return 65504;
    case DType::bf16: return 0x1.fep127;
    case DType::f64:  return 0x1.fffffffffffffp1023;
    default:          return 0x1.fffffep127;
  }
}

// Comparisons alone, which no float mode changes.
void check_numbers(const Args& args) {
  const double largest = largest_of(args.y.dtype);
  const auto inside = [&](std::string_view name, double value) {
    require(-largest <= value && value <= largest, "random: ", name, " is ", value,
            "; must be a number of y's type, ", name_of(args.y.dtype));
  };
  const Distribution kind = args.distribution;
  const bool truncated = kind == Distribution::truncated_normal;
  if (kind == Distribution::uniform || truncated) {
    inside("low", args.low);
    inside("high", args.high);
    require(args.low < args.high, "random: low is ", args.low, " and high ", args.high,
            "; low must be less");
  }
  if (kind == Distribution::uniform)
    require(args.low >= -0x1p1022 && args.high <= 0x1p1022, "random: low is ", args.low,
            " and high ", args.high, "; their magnitudes must be at most 2^1022");
  if (kind == Distribution::normal || truncated) {
    inside("mean", args.mean);
    inside("std", args.std);
    require(args.std > 0 || (args.std == 0 && !truncated), "random: std is ", args.std, "; must ",
            truncated ? "be above 0 in truncated_normal" : "not be negative");
  }
  if (kind == Distribution::bernoulli)
    require(args.p >= 0 && args.p <= 1, "random: p is ", args.p, "; allowed: 0 to 1");
}

Problem check(const Args& args) {
  const Checker checker("random");
  const int code = static_cast<int>(args.distribution);
  require(0 <= code && code < std::ssize(kDistributions), "random: distribution is ", code,
          "; allowed: 0 to ", std::ssize(kDistributions) - 1);
  checker.dtype("y", args.y, {DType::f32, DType::f16, DType::bf16, DType::f64});
  const Matrix y = checker.matrix("y", args.y, Access::write);
  check_numbers(args);
  return {.dtype = args.y.dtype, .y = y};
}

Extents extents(const Args& args) {
  Extents result{1, args.y.shape[args.y.rank - 1]};
  for (int i = 0; i + 1 < args.y.rank; ++i) result[0] *= args.y.shape[i];
  return result;
}

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      .op = "random",
      .pass = "fwd",
      .summary =
          "Random numbers, each a function of the seed and of its place: uniform, normal, normal "
          "within bounds, or 0 and 1.",
      .version = 1,
      .dims = kDims,
      .arguments = kArguments,
      .options = kOptions,
      .check = check,
      .extents = extents,
      .variants = cpu_variants(),
      .cost = cost,
      .cases = cases,
      .reference = reference,
      .intermediates = intermediates};
  return kDefinition;
}

}  // namespace

void run(const Args& args, const Execution& execution) {
  isobit::run(definition(), args, execution);
}

const Operation& operation() {
  static const TypedOperation<Args, Problem> kOperation(definition());
  return kOperation;
}

}  // namespace isobit::random
