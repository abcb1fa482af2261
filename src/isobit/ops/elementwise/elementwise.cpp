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

constexpr Argument kArguments[] = {
    argument<&Args::x>("x", Role::input, Extent::matrix, Elements::like_x, Presence::required),
    argument<&Args::residual>("residual", Role::input, Extent::matrix, Elements::like_x,
                              Presence::required, adds),
    argument<&Args::y>("y", Role::output, Extent::matrix, Elements::like_x, Presence::required),
};

constexpr Option kOptions[] = {option<&Args::kind>("kind", 0, kKinds)};

Problem check(const Args& args) {
  const Checker checker("elementwise");
  checker.dtype("x", args.x, {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32});
  Problem problem{args.kind, args.x.dtype, checker.matrix("x", args.x, Access::read), {}, {}};
  if (args.kind == Kind::add) {
    problem.residual = checker.matrix_like("residual", args.residual, Access::read, "x", args.x);
    checker.same_dtype("residual", args.residual, "x", args.x.dtype);
  } else {
    require(!args.residual.given(), "elementwise: residual is given; increment takes none");
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

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      "elementwise",  "fwd", kArguments, kOptions,  check,
      cpu_variants(), cost,  cases,      reference, intermediates};
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
