// SPDX-License-Identifier: Apache-2.0
// The dropout operator: its rules, its arguments, and what it is made of.
#include "isobit/ops/dropout/dropout.h"

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/dropout/cases.h"
#include "isobit/ops/dropout/problem.h"
#include "isobit/ops/dropout/reference.h"

namespace isobit::dropout {
namespace {

constexpr Dim kDims[] = {{.name = "rows", .usual = 64, .in_parity = 37},
                         {.name = "cols", .usual = 768, .in_parity = 1000}};

constexpr Argument kArguments[] = {
    argument<&Args::x>("x", Role::input, "rows cols", Elements::like_x, Presence::required,
                       Drawn::family)
        .means("in f32, f16, bf16 or f64; rows evenly spaced"),
    argument<&Args::y>("y", Role::output, "rows cols", Elements::like_x, Presence::required)
        .means("like x; may be x"),
};

constexpr Option kOptions[] = {
    option<&Args::p>("p", 0.5).means("the probability of an element to become 0; from 0 to 1"),
    option<&Args::dropout_seed>("dropout_seed", 0)
        .means("of the mask, with an element's row and column"),
};

Problem check(const Args& args) {
  const Checker checker("dropout");
  checker.dtype("x", args.x, {DType::f32, DType::f16, DType::bf16, DType::f64});
  const Matrix x = checker.matrix("x", args.x, Access::read);
  const Matrix y = checker.matrix_like("y", args.y, Access::write, "x", args.x);
  checker.same_dtype("y", args.y, "x", args.x.dtype);
  require(args.p >= 0 && args.p <= 1, "dropout: p is ", args.p, "; allowed: 0 to 1");
  checker.no_overlap({{"y", args.y, y, {"x"}}}, {{"x", args.x, x}});
  return {.dtype = args.x.dtype, .x = x, .y = y, .p = args.p, .seed = args.dropout_seed};
}

Extents extents(const Args& args) {
  Extents result{1, args.x.shape[args.x.rank - 1]};
  for (int i = 0; i + 1 < args.x.rank; ++i) result[0] *= args.x.shape[i];
  return result;
}

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      .op = "dropout",
      .pass = "fwd",
      .summary =
          "Each element of x is 0 with probability p, else x / (1 - p); which ones depends on the "
          "seed and on their places.",
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

}  // namespace isobit::dropout
