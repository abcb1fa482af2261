// SPDX-License-Identifier: Apache-2.0
// The elementwise operator: its rules, its arguments, and what it is made of.
#include "isobit/ops/elementwise/elementwise.h"

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/elementwise/cases.h"
#include "isobit/ops/elementwise/problem.h"
#include "isobit/ops/elementwise/reference.h"

namespace isobit::elementwise {
namespace {

constexpr std::string_view kKinds[] = {"add", "increment"};

bool adds(const void* args) { return static_cast<const Args*>(args)->kind == Kind::add; }

constexpr Dim kDims[] = {{.name = "rows", .usual = 64, .in_parity = 37, .batch = true},
                         {.name = "cols", .usual = 768, .in_parity = 1000}};

constexpr Argument kArguments[] = {
    argument<&Args::x>("x", Role::input, "rows cols", Elements::like_x, Presence::required,
                       Drawn::family)
        .means("in f32, f16, bf16, f64 or i32; rows evenly spaced"),
    argument<&Args::residual>("residual", Role::input, "rows cols", Elements::like_x,
                              Presence::required, Drawn::family)
        .where(adds)
        .means("like x; with kind add only"),
    argument<&Args::y>("y", Role::output, "rows cols", Elements::like_x, Presence::required)
        .means("like x; may be x or residual"),
};

constexpr Option kOptions[] = {
    option<&Args::kind>("kind", 0, kKinds).means("add: x + residual; increment: x + 1")};

Problem check(const Args& args) {
  const Checker checker("elementwise");
  checker.dtype("x", args.x, {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32});
  Problem problem{args.kind, args.x.dtype, checker.matrix("x", args.x, Access::read), {}, {}};
  if (args.kind == Kind::add) {
    problem.residual = checker.matrix_like("residual", args.residual, Access::read, "x", args.x);
    checker.same_dtype("residual", args.residual, "x", args.x.dtype);
  } else {
    require(!args.residual.given(), "elementwise: residual is given, but increment has none");
  }
  problem.y = checker.matrix_like("y", args.y, Access::write, "x", args.x);
  checker.same_dtype("y", args.y, "x", args.x.dtype);
  checker.no_overlap({{"y", args.y, problem.y, {"x", "residual"}}},
                     {{"x", args.x, problem.x}, {"residual", args.residual, problem.residual}});

  const auto adjacent = [](const Matrix& matrix) {
    return matrix.rows <= 1 || matrix.stride == matrix.cols;
  };
  if (adjacent(problem.x) && adjacent(problem.residual) && adjacent(problem.y))
    for (Matrix* matrix : {&problem.x, &problem.residual, &problem.y}) {
      matrix->cols *= matrix->rows;
      matrix->rows = 1;
    }
  return problem;
}

Extents extents(const Args& args) {
  Extents result{1, args.x.shape[args.x.rank - 1]};
  for (int i = 0; i + 1 < args.x.rank; ++i) result[0] *= args.x.shape[i];
  return result;
}

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      .op = "elementwise",
      .pass = "fwd",
      .summary = "y = x + residual (add) or x + 1 (increment), rounded once; integers wrap around.",
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

}  // namespace isobit::elementwise
