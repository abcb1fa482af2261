// SPDX-License-Identifier: Apache-2.0
// The lion operator: its rules, its arguments, and what it is made of.
#include "isobit/ops/lion/lion.h"

#include "isobit/ops/lion/cases.h"
#include "isobit/ops/lion/problem.h"
#include "isobit/ops/lion/reference.h"
#include "isobit/optimizers/definition.h"

namespace isobit::lion {
namespace {

constexpr Argument kArguments[] = {
    argument<&Args::param>("param", Role::input, "rows cols", Elements::like_x, Presence::required,
                           Drawn::family)
        .means("in f32, f16, bf16 or f64; rows evenly spaced"),
    argument<&Args::grad>("grad", Role::input, "rows cols", Elements::like_y, Presence::required,
                          Drawn::family)
        .means("like param, or f16 or bf16 beside f32"),
    argument<&Args::exp_avg>("exp_avg", Role::input, "rows cols", Elements::like_x,
                             Presence::required, Drawn::family)
        .means("like param"),
    argument<&Args::new_param>("new_param", Role::output, "rows cols", Elements::like_x,
                               Presence::required)
        .means("like param; may be param"),
    argument<&Args::new_exp_avg>("new_exp_avg", Role::output, "rows cols", Elements::like_x,
                                 Presence::required)
        .means("like param; may be exp_avg"),
    argument<&Args::narrow>("narrow", Role::output, "rows cols", Elements::like_y, Presence::extra)
        .means("new_param in the type of grad, or NULL"),
};

constexpr Option kOptions[] = {
    option<&Args::lr>("lr", 1e-4).means("the learning rate"),
    option<&Args::beta1>("beta1", 0.9).means("of the average whose sign is taken; in [0, 1)"),
    option<&Args::beta2>("beta2", 0.99).means("of the average that is kept; in [0, 1)"),
    option<&Args::weight_decay>("weight_decay", 0)
        .means("times the parameter, which no average sees"),
    option<&Args::maximize>("maximize", 0).means("climbs"),
};

constexpr optimizers::Names kNames = {{"exp_avg", "", ""}, {"new_exp_avg", "", ""}};

Problem check(const Args& args) {
  const optimizers::Views views = views_of(args);
  const optimizers::Check check("lion", views, kNames);
  check.require_state(0);
  const double lr = check.at_least_zero("lr", args.lr);
  const double beta1 = check.below_one("beta1", args.beta1);
  const double beta2 = check.below_one("beta2", args.beta2);
  const double weight_decay = check.at_least_zero("weight_decay", args.weight_decay);
  const simd::FloatMode mode;
  const double decay = check.finite("1 - lr weight_decay", 1 - lr * weight_decay);
  const auto rounded = [&](double value) { return check.rounded(value); };
  return {check.arrays(),
          {.lr = rounded(lr),
           .beta1 = rounded(beta1),
           .rest1 = rounded(1 - beta1),
           .beta2 = rounded(beta2),
           .rest2 = rounded(1 - beta2),
           .sign = args.maximize ? -1.0 : 1.0,
           .decay = rounded(decay),
           .decays = weight_decay != 0}};
}

Cost cost(const Args& args) { return optimizers::cost(views_of(args)); }

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      .op = "lion",
      .pass = "fwd",
      .summary =
          "A step of Lion: the parameter moves by lr against the sign of an average of gradients.",
      .version = 1,
      .dims = optimizers::kDims,
      .arguments = kArguments,
      .options = kOptions,
      .check = check,
      .extents = optimizers::extents<Args>,
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

}  // namespace isobit::lion
