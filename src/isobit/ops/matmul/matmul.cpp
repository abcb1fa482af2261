// SPDX-License-Identifier: Apache-2.0
// The matmul operator: its rules, its arguments, and what it is made of.
#include "isobit/ops/matmul/matmul.h"

#include <algorithm>
#include <iterator>

#include "isobit/core/check.h"
#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/matmul/cases.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/ops/matmul/reference.h"

namespace isobit::matmul {
namespace {

constexpr std::string_view kActivations[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};

constexpr Dim kDims[] = {{.name = "batch", .usual = 1, .in_parity = 3, .batch = true},
                         {.name = "m", .usual = 512, .in_parity = 37},
                         {.name = "n", .usual = 512, .in_parity = 50},
                         {.name = "k", .usual = 512, .in_parity = 1100}};

constexpr Argument kArguments[] = {
    argument<&Args::a>("a", Role::input, "batch m k", Elements::like_x, Presence::required,
                       Drawn::family)
        .with_any_strides()
        .means("(..., m, k) in f32, f16, bf16 or f64, and of any strides"),
    argument<&Args::b>("b", Role::input, "batch k n", Elements::like_x, Presence::required,
                       Drawn::family)
        .with_any_strides()
        .means("(..., k, n) in the dtype of a, and of any strides"),
    argument<&Args::bias>("bias", Role::input, "n", Elements::like_weight, Presence::extra,
                          Drawn::weight)
        .with_any_strides()
        .means("(n) in the dtype of a or f32 (beside f64: f64), or NULL"),
    argument<&Args::c>("c", Role::input, "batch m n", Elements::like_y, Presence::extra,
                       Drawn::family)
        .with_any_strides()
        .means("like y, or NULL; not read where beta is 0"),
    argument<&Args::residual>("residual", Role::input, "batch m n", Elements::like_y,
                              Presence::extra, Drawn::family)
        .with_any_strides()
        .means("like y, or NULL; added last"),
    argument<&Args::y>("y", Role::output, "batch m n", Elements::like_y, Presence::required)
        .with_any_strides()
        .means("(..., m, n) in the dtype of a, f32 beside f16 and bf16, or f16 or bf16 beside f32; "
               "may be c or residual"),
    argument<&Args::pre>("pre", Role::output, "batch m n", Elements::like_y, Presence::extra)
        .with_any_strides()
        .means("like y, or NULL; what the activation is applied to, rounded"),
};

constexpr Option kOptions[] = {
    option<&Args::alpha>("alpha", 1).means("times a b"),
    option<&Args::beta>("beta", 0)
        .changing_plans(PlanDependence::presence)
        .means("times c; 0: c is not read"),
    option<&Args::activation>("activation", 0, kActivations)
        .means("0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 silu"),
};

void check_dtypes(const Checker& checker, const Args& args) {
  checker.dtype("a", args.a, {DType::f32, DType::f16, DType::bf16, DType::f64});
  checker.same_dtype("b", args.b, "a", args.a.dtype);
  switch (args.a.dtype) {
    case DType::f32: checker.dtype("y", args.y, {DType::f32, DType::f16, DType::bf16}); break;
    case DType::f64: checker.dtype("y", args.y, {DType::f64}); break;
    default:         checker.dtype("y", args.y, {args.a.dtype, DType::f32}); break;
  }
  if (!args.bias.given()) return;
  if (args.a.dtype == DType::f64)
    checker.dtype("bias", args.bias, {DType::f64});
  else
    checker.dtype("bias", args.bias, {args.a.dtype, DType::f32});
}

void check_shapes(const Checker& checker, const Args& args) {
  const int rank = args.a.rank;
  require(rank >= 2, "matmul: a has 1 dimension; must have at least 2");
  require(args.b.rank == rank, "matmul: b has ", args.b.rank, " dimensions; a has ", rank);
  TensorView expected = args.a;
  expected.shape[rank - 2] = args.a.shape[rank - 1];
  expected.shape[rank - 1] = args.b.shape[rank - 1];
  checker.same_shape("b", args.b, "a's batch, its k and n", expected);
  expected.shape[rank - 2] = args.a.shape[rank - 2];
  checker.same_shape("y", args.y, "the product of a and b", expected);
  if (args.bias.given()) {
    require(args.bias.rank == 1 && args.bias.shape[0] == expected.shape[rank - 1],
            "matmul: bias has ", args.bias.rank, " dimensions and ", args.bias.shape[0],
            " elements; must have 1 dimension and ", expected.shape[rank - 1], " elements");
  }
  const auto like_y = [&](std::string_view name, const TensorView& view, Access access) {
    if (!view.given()) return;
    checker.any_strides(name, view, access);
    checker.same_dtype(name, view, "y", args.y.dtype);
    checker.same_shape(name, view, "y", args.y);
  };
  like_y("c", args.c, Access::read);
  like_y("residual", args.residual, Access::read);
  like_y("pre", args.pre, Access::write);
  require(args.beta == 0 || args.c.given(), "matmul: beta is ", args.beta, ", but c is not given");
}

// What starts where y does is y itself, or its elements would be overwritten before they are read.
void check_in_place(std::string_view name, const TensorView& view, const TensorView& y) {
  if (!view.given() || view.data != y.data) return;
  for (int i = 0; i < y.rank; ++i)
    require(y.shape[i] <= 1 || view.strides[i] == y.strides[i], "matmul: y starts where ", name,
            " does, but has other strides");
}

Array array_of(const TensorView& view) {
  if (!view.given()) return {};
  Array array{static_cast<std::byte*>(view.data), view.dtype, 0, view.strides[view.rank - 1]};
  if (view.rank > 1) array.row = view.strides[view.rank - 2];
  return array;
}

// Turns of all loops as one, where every array moves on evenly; the last ones as rows of a where
// all of them are multiplied by the same b.
void join_loops(Problem& problem) {
  for (int i = 1; i < problem.loop_count;) {
    Loop &outer = problem.loops[i - 1], &inner = problem.loops[i];
    bool even = true;
    for (std::size_t j = 0; j < inner.steps.size(); ++j)
      even &= outer.steps[j] == inner.steps[j] * inner.extent;
    if (!even) {
      ++i;
      continue;
    }
    inner.extent *= outer.extent;
    std::copy(problem.loops.begin() + i, problem.loops.begin() + problem.loop_count,
              problem.loops.begin() + i - 1);
    --problem.loop_count;
  }
  if (problem.loop_count == 0) return;
  const Loop& last = problem.loops[problem.loop_count - 1];
  bool rows = last.steps[1] == 0;
  for (std::size_t j = 0; j < last.steps.size(); ++j) {
    const Array& array = problem.first.*Arrays::kAll[j];
    if (j == 1 || !array || Arrays::kAll[j] == &Arrays::bias) continue;
    rows &= problem.m == 1 || last.steps[j] == array.row * problem.m;
  }
  if (!rows) return;
  if (problem.m == 1)
    for (std::size_t j = 0; j < last.steps.size(); ++j)
      if (j != 1) (problem.first.*Arrays::kAll[j]).row = last.steps[j];
  problem.m *= last.extent;
  --problem.loop_count;
}

Problem check(const Args& args) {
  const int code = static_cast<int>(args.activation);
  require(0 <= code && code < std::ssize(kActivations), "matmul: activation is ", code,
          "; allowed: 0 to ", std::ssize(kActivations) - 1);
  const Checker checker("matmul");
  checker.any_strides("a", args.a, Access::read);
  checker.any_strides("b", args.b, Access::read);
  checker.any_strides("y", args.y, Access::write);
  if (args.bias.given()) checker.any_strides("bias", args.bias, Access::read);
  check_dtypes(checker, args);
  check_shapes(checker, args);
  const DType real = args.a.dtype == DType::f64 ? DType::f64 : DType::f32;
  const auto span = [&](const TensorView& view) {
    return view.given() ? checker.span(view) : Matrix{};
  };
  checker.no_overlap(
      {{"y", args.y, span(args.y), {"c", "residual"}}, {"pre", args.pre, span(args.pre)}},
      {{"a", args.a, span(args.a)},
       {"b", args.b, span(args.b)},
       {"bias", args.bias, span(args.bias)},
       {"c", args.c, span(args.c)},
       {"residual", args.residual, span(args.residual)}});
  check_in_place("c", args.c, args.y);
  check_in_place("residual", args.residual, args.y);

  const int rank = args.a.rank;
  Problem problem{.activation = args.activation,
                  .alpha = checker.finite("alpha", args.alpha, real),
                  .beta = checker.finite("beta", args.beta, real),
                  .m = args.a.shape[rank - 2],
                  .n = args.b.shape[rank - 1],
                  .k = args.a.shape[rank - 1],
                  .first = {array_of(args.a), array_of(args.b), array_of(args.bias),
                            args.beta == 0 ? Array{} : array_of(args.c), array_of(args.residual),
                            array_of(args.y), array_of(args.pre)}};
  const TensorView* views[] = {&args.a,        &args.b, &args.bias, &args.c,
                               &args.residual, &args.y, &args.pre};
  for (int i = 0; i + 2 < rank; ++i) {
    if (args.a.shape[i] == 1) continue;
    Loop& loop = problem.loops[problem.loop_count++];
    loop.extent = args.a.shape[i];
    for (std::size_t j = 0; j < loop.steps.size(); ++j)
      loop.steps[j] =
          views[j]->rank == rank && problem.first.*Arrays::kAll[j] ? views[j]->strides[i] : 0;
  }
  if (problem.empty()) return problem;
  join_loops(problem);
  // Rows of y are adjacent elements wherever they can be.
  if (problem.n > 1 && problem.first.y.col != 1 && (problem.first.y.row == 1 || problem.m == 1))
    problem = problem.transposed();
  return problem;
}

Extents extents(const Args& args) {
  const int rank = args.a.rank;
  Extents result{1, args.a.shape[rank - 2], args.b.shape[rank - 1], args.a.shape[rank - 1]};
  for (int i = 0; i + 2 < rank; ++i) result[0] *= args.a.shape[i];
  return result;
}

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      .op = "matmul",
      .pass = "fwd",
      .summary =
          "y = activation(alpha a b + beta c + bias) + residual, of matrices or batches of them.",
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
      .intermediates = intermediates,
      .limit = limit};
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

}  // namespace isobit::matmul
