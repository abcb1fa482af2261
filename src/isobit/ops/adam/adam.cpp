// SPDX-License-Identifier: Apache-2.0
// The adam operator: its rules, its arguments, and what it is made of.
#include "isobit/ops/adam/adam.h"

#include "isobit/ops/adam/cases.h"
#include "isobit/ops/adam/problem.h"
#include "isobit/ops/adam/reference.h"
#include "isobit/optimizers/definition.h"

namespace isobit::adam {
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
    argument<&Args::exp_avg_sq>("exp_avg_sq", Role::input, "rows cols", Elements::like_x,
                                Presence::required, Drawn::weight)
        .means("like param"),
    argument<&Args::max_exp_avg_sq>("max_exp_avg_sq", Role::input, "rows cols", Elements::like_x,
                                    Presence::extra, Drawn::weight)
        .means("like param, or NULL; of AMSGrad"),
    argument<&Args::new_param>("new_param", Role::output, "rows cols", Elements::like_x,
                               Presence::required)
        .means("like param; may be param"),
    argument<&Args::new_exp_avg>("new_exp_avg", Role::output, "rows cols", Elements::like_x,
                                 Presence::required)
        .means("like param; may be exp_avg"),
    argument<&Args::new_exp_avg_sq>("new_exp_avg_sq", Role::output, "rows cols", Elements::like_x,
                                    Presence::required)
        .means("like param; may be exp_avg_sq"),
    argument<&Args::new_max_exp_avg_sq>("new_max_exp_avg_sq", Role::output, "rows cols",
                                        Elements::like_x, Presence::extra)
        .means("like param; may be max_exp_avg_sq; NULL without it"),
    argument<&Args::narrow>("narrow", Role::output, "rows cols", Elements::like_y, Presence::extra)
        .means("new_param in the type of grad, or NULL"),
};

constexpr Option kOptions[] = {
    option<&Args::lr>("lr", 1e-3).means("the learning rate"),
    option<&Args::beta1>("beta1", 0.9).means("of the average of gradients; in [0, 1)"),
    option<&Args::beta2>("beta2", 0.999).means("of the average of their squares; in [0, 1)"),
    option<&Args::eps>("eps", 1e-8).means("added to the root"),
    option<&Args::weight_decay>("weight_decay", 0).means("times the parameter"),
    option<&Args::step>("step", 1).means("counted from 1"),
    option<&Args::decoupled>("decoupled", 0)
        .means("the decay of AdamW, which the averages do not see"),
    option<&Args::maximize>("maximize", 0).means("climbs"),
};

constexpr optimizers::Names kNames = {{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
                                      {"new_exp_avg", "new_exp_avg_sq", "new_max_exp_avg_sq"}};

Problem check(const Args& args) {
  const optimizers::Views views = views_of(args);
  const optimizers::Check check("adam", views, kNames);
  check.require_state(0);
  check.require_state(1);
  require(args.max_exp_avg_sq.given() == args.new_max_exp_avg_sq.given(),
          "adam: ", args.max_exp_avg_sq.given() ? "new_max_exp_avg_sq" : "max_exp_avg_sq",
          " is missing");
  const double lr = check.at_least_zero("lr", args.lr);
  const double beta1 = check.below_one("beta1", args.beta1);
  const double beta2 = check.below_one("beta2", args.beta2);
  const double eps = check.at_least_zero("eps", args.eps);
  const double weight_decay = check.at_least_zero("weight_decay", args.weight_decay);
  require(args.step >= 1, "adam: step is ", args.step, "; must be at least 1");
  const simd::FloatMode mode;
  const double step_size =
      check.finite("lr / (1 - beta1^step)", lr / optimizers::complement_of_power(beta1, args.step));
  const double decay = check.finite("1 - lr weight_decay", 1 - lr * weight_decay);
  const auto rounded = [&](double value) { return check.rounded(value); };
  const bool decays = weight_decay != 0;
  return {check.arrays(),
          {.beta1 = rounded(beta1),
           .rest1 = rounded(1 - beta1),
           .beta2 = rounded(beta2),
           .rest2 = rounded(1 - beta2),
           .eps = rounded(eps),
           .sign = args.maximize ? -1.0 : 1.0,
           .coupled = rounded(weight_decay),
           .decay = rounded(decay),
           .step_size = rounded(step_size),
           .root = rounded(std::sqrt(optimizers::complement_of_power(beta2, args.step))),
           .couples = decays && !args.decoupled,
           .decays = decays && args.decoupled,
           .amsgrad = args.max_exp_avg_sq.given()}};
}

Cost cost(const Args& args) { return optimizers::cost(views_of(args)); }

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      .op = "adam",
      .pass = "fwd",
      .summary =
          "A step of Adam or, with decoupled, AdamW: the parameter moves by the average of "
          "gradients over "
          "the root of that of their squares.",
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

}  // namespace isobit::adam
