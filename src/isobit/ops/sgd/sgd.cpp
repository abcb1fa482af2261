// SPDX-License-Identifier: Apache-2.0
// The sgd operator: its rules, its arguments, and what it is made of.
#include "isobit/ops/sgd/sgd.h"

#include "isobit/ops/sgd/cases.h"
#include "isobit/ops/sgd/problem.h"
#include "isobit/ops/sgd/reference.h"
#include "isobit/optimizers/definition.h"

namespace isobit::sgd {
namespace {

bool averages(const void* args) { return static_cast<const Args*>(args)->momentum != 0; }

constexpr Argument kArguments[] = {
    argument<&Args::param>("param", Role::input, "rows cols", Elements::like_x, Presence::required,
                           Drawn::family)
        .means("in f32, f16, bf16 or f64; rows evenly spaced"),
    argument<&Args::grad>("grad", Role::input, "rows cols", Elements::like_y, Presence::required,
                          Drawn::family)
        .means("like param, or f16 or bf16 beside f32"),
    argument<&Args::momentum_buffer>("momentum_buffer", Role::input, "rows cols", Elements::like_x,
                                     Presence::optional, Drawn::family)
        .where(averages)
        .means("like param, or NULL at the first step; with momentum only"),
    argument<&Args::new_param>("new_param", Role::output, "rows cols", Elements::like_x,
                               Presence::required)
        .means("like param; may be param"),
    argument<&Args::new_momentum_buffer>("new_momentum_buffer", Role::output, "rows cols",
                                         Elements::like_x, Presence::required)
        .where(averages)
        .means("like param; may be momentum_buffer; with momentum only"),
    argument<&Args::narrow>("narrow", Role::output, "rows cols", Elements::like_y, Presence::extra)
        .means("new_param in the type of grad, or NULL"),
};

constexpr Option kOptions[] = {
    option<&Args::lr>("lr", 1e-3).means("the learning rate"),
    option<&Args::momentum>("momentum", 0).means("of the average of gradients; 0: none"),
    option<&Args::dampening>("dampening", 0).means("1 - the factor of the gradient in it"),
    option<&Args::weight_decay>("weight_decay", 0).means("times the parameter"),
    option<&Args::nesterov>("nesterov", 0).means("looks ahead"),
    option<&Args::maximize>("maximize", 0).means("climbs"),
};

constexpr optimizers::Names kNames = {{"momentum_buffer", "", ""}, {"new_momentum_buffer", "", ""}};

Problem check(const Args& args) {
  const optimizers::Views views = views_of(args);
  const optimizers::Check check("sgd", views, kNames);
  if (averages(&args)) {
    check.require_new_state(0);
  } else {
    require(!args.momentum_buffer.given(),
            "sgd: momentum_buffer is given, but there is no momentum");
    require(!args.new_momentum_buffer.given(),
            "sgd: new_momentum_buffer is given, but there is no momentum");
  }
  const double lr = check.at_least_zero("lr", args.lr);
  const double momentum = check.at_least_zero("momentum", args.momentum);
  const double dampening = check.finite("dampening", args.dampening);
  const double weight_decay = check.at_least_zero("weight_decay", args.weight_decay);
  const simd::FloatMode mode;
  const auto rounded = [&](double value) { return check.rounded(value); };
  return {check.arrays(),
          {.lr = rounded(lr),
           .momentum = rounded(momentum),
           .rest = rounded(1 - dampening),
           .sign = args.maximize ? -1.0 : 1.0,
           .coupled = rounded(weight_decay),
           .couples = weight_decay != 0,
           .averages = momentum != 0,
           .first = !args.momentum_buffer.given(),
           .nesterov = args.nesterov}};
}

Cost cost(const Args& args) { return optimizers::cost(views_of(args)); }

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      .op = "sgd",
      .pass = "fwd",
      .summary = "A step of gradient descent, along the gradient or its average.",
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

}  // namespace isobit::sgd
