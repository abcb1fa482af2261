// SPDX-License-Identifier: Apache-2.0
// The reduce operator: its arguments, options and what it is made of.
#include "isobit/ops/reduce/reduce.h"

#include "isobit/dispatch/definition.h"
#include "isobit/ops/reduce/cases.h"
#include "isobit/ops/reduce/problem.h"
#include "isobit/ops/reduce/reference.h"

namespace isobit::reduce {
namespace {

constexpr std::string_view kKinds[] = {"sum",     "mean",     "var",     "std", "l2", "l1",
                                       "largest", "smallest", "nonzero", "max", "min"};

constexpr Dim kDims[] = {{.name = "kept", .usual = 64, .in_parity = 37, .batch = true},
                         {.name = "reduced", .usual = 768, .in_parity = 1000}};

bool reads_x(const void* args) {
  return isobit::reduce::reads_x(static_cast<const BackwardArgs*>(args)->reduction);
}

constexpr Argument kForwardArguments[] = {
    argument<&ForwardArgs::x>("x", Role::input, "kept reduced", Elements::like_x,
                              Presence::required, Drawn::family)
        .with_any_strides()
        .means("in f32, f16, bf16 or f64, of any strides; y's dimensions, and more, over which it "
               "is reduced"),
    argument<&ForwardArgs::y>("y", Role::output, "kept", Elements::like_y, Presence::required)
        .with_any_strides()
        .means("in x's dtype or, beside 16 bits, f32; of any strides"),
};
constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::x>("x", Role::input, "kept reduced", Elements::like_x,
                               Presence::required, Drawn::family)
        .with_any_strides()
        .where(reads_x)
        .means("as in forward; of sum, mean and nonzero not read, or NULL"),
    argument<&BackwardArgs::grad_y>("grad_y", Role::input, "kept", Elements::like_y,
                                    Presence::required, Drawn::gradient)
        .with_any_strides()
        .means("like y of forward"),
    argument<&BackwardArgs::grad_x>("grad_x", Role::output, "kept reduced", Elements::like_x,
                                    Presence::required)
        .with_any_strides()
        .means("like x"),
};

template <class Args>
constexpr Option kOptions[] = {
    option<&Args::reduction>("reduction", 0, kKinds)
        .means("0 sum, 1 mean, 2 var, 3 std; of magnitudes 4 l2, 5 l1, 6 largest, 7 smallest; 8 "
               "how many are not 0; of elements 9 max, 10 min"),
    option<&Args::correction>("correction", 1)
        .means("var and std divide by the count less this, by 0 at least"),
};

template <class Args>
Extents extents(const Args& args) {
  const auto of = [](const TensorView& x, const TensorView& y) {
    Extents result{1, 1};
    for (int i = 0; i < x.rank; ++i) result[i < y.rank ? 0 : 1] *= x.shape[i];
    return result;
  };
  if constexpr (requires { args.grad_y; })
    return of(args.grad_x, args.grad_y);
  else
    return of(args.x, args.y);
}

const Definition<ForwardArgs, Problem>& forward_definition() {
  static const Definition<ForwardArgs, Problem> kDefinition = {
      .op = "reduce",
      .pass = "fwd",
      .summary =
          "The sum, the mean, the variance, its root, a norm, or the largest or smallest of the "
          "elements of x at each index of the dimensions that y keeps.",
      .version = 1,
      .dims = kDims,
      .arguments = kForwardArguments,
      .options = kOptions<ForwardArgs>,
      .check = check_forward,
      .extents = extents<ForwardArgs>,
      .variants = cpu_forward_variants(),
      .cost = forward_cost,
      .cases = forward_cases,
      .reference = forward_reference,
      .intermediates = forward_intermediates};
  return kDefinition;
}

const Definition<BackwardArgs, Problem>& backward_definition() {
  static const Definition<BackwardArgs, Problem> kDefinition = {
      .op = "reduce",
      .pass = "bwd",
      .summary = "The gradient of reduce_forward. What it must know of x it finds again.",
      .version = 1,
      .dims = kDims,
      .arguments = kBackwardArguments,
      .options = kOptions<BackwardArgs>,
      .check = check_backward,
      .extents = extents<BackwardArgs>,
      .variants = cpu_backward_variants(),
      .cost = backward_cost,
      .cases = backward_cases,
      .reference = backward_reference,
      .intermediates = backward_intermediates};
  return kDefinition;
}

}  // namespace

void forward(const ForwardArgs& args, const Execution& execution) {
  run(forward_definition(), args, execution);
}
void backward(const BackwardArgs& args, const Execution& execution) {
  run(backward_definition(), args, execution);
}

const Operation& forward_operation() {
  static const TypedOperation<ForwardArgs, Problem> kOperation(forward_definition());
  return kOperation;
}
const Operation& backward_operation() {
  static const TypedOperation<BackwardArgs, Problem> kOperation(backward_definition());
  return kOperation;
}

}  // namespace isobit::reduce
