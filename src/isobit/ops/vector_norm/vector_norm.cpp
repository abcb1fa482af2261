// SPDX-License-Identifier: Apache-2.0
// The vector_norm operator: its rules, its arguments, and what it is made of.
#include "isobit/ops/vector_norm/vector_norm.h"

#include <iterator>

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/vector_norm/cases.h"
#include "isobit/ops/vector_norm/problem.h"
#include "isobit/ops/vector_norm/reference.h"

namespace isobit::vector_norm {
namespace {

constexpr std::string_view kOrders[] = {"l2", "l1", "max"};

constexpr Dim kDims[] = {{.name = "rows", .usual = 64, .in_parity = 37, .batch = true},
                         {.name = "cols", .usual = 768, .in_parity = 1000}};

constexpr Argument kArguments[] = {
    argument<&Args::x>("x", Role::input, "rows cols", Elements::like_x, Presence::required,
                       Drawn::family)
        .means("in f32, f16, bf16 or f64; rows evenly spaced"),
    argument<&Args::norm>("norm", Role::output, "rows", Elements::statistic, Presence::required)
        .means("one number for each row, in f32, or f64 beside f64"),
};

constexpr Option kOptions[] = {
    option<&Args::order>("order", 0, kOrders).means("0 l2, 1 l1, 2 max")};

Problem check(const Args& args) {
  const Checker checker("vector_norm");
  const int code = static_cast<int>(args.order);
  require(0 <= code && code < std::ssize(kOrders), "vector_norm: order is ", code,
          "; allowed: 0 to ", std::ssize(kOrders) - 1);
  checker.dtype("x", args.x, {DType::f32, DType::f16, DType::bf16, DType::f64});
  const Matrix x = checker.matrix("x", args.x, Access::read);
  require(args.norm.given(), "vector_norm: norm is missing");
  const DType real = args.x.dtype == DType::f64 ? DType::f64 : DType::f32;
  checker.dtype("norm", args.norm, {real});
  const Matrix norm = checker.vector("norm", args.norm, x.rows, "rows");
  checker.no_overlap({{"norm", args.norm, norm}}, {{"x", args.x, x}});
  return {args.order, args.x.dtype, x, norm.data, x.rows, x.cols};
}

Extents extents(const Args& args) {
  Extents result{1, args.x.shape[args.x.rank - 1]};
  for (int i = 0; i + 1 < args.x.rank; ++i) result[0] *= args.x.shape[i];
  return result;
}

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      .op = "vector_norm",
      .pass = "fwd",
      .summary =
          "The length of each row: the root of its sum of squares, its sum of magnitudes, or its "
          "largest magnitude.",
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

}  // namespace isobit::vector_norm
