// SPDX-License-Identifier: Apache-2.0
// The rope_tables operator: its rules, its arguments, and what it is made of.
#include "isobit/ops/rope_tables/rope_tables.h"

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/rope_tables/cases.h"
#include "isobit/ops/rope_tables/problem.h"
#include "isobit/ops/rope_tables/reference.h"

namespace isobit::rope_tables {
namespace {

constexpr Dim kDims[] = {{.name = "length", .usual = 256, .in_parity = 100},
                         {.name = "pairs", .usual = 64, .in_parity = 37}};

constexpr Argument kArguments[] = {
    argument<&Args::inv_freq>("inv_freq", Role::input, "pairs", Elements::like_weight,
                              Presence::extra, Drawn::weight)
        .means("f32 or f64, or NULL: base^(-i / pairs), rounded to f64"),
    argument<&Args::positions>("positions", Role::input, "length", Elements::index, Presence::extra,
                               Drawn::index)
        .below_extent_of("length")
        .means("i64, or NULL: 0, 1, 2, ..."),
    argument<&Args::cos>("cos", Role::output, "length pairs", Elements::like_x, Presence::required)
        .means("f32 or f64; rows evenly spaced"),
    argument<&Args::sin>("sin", Role::output, "length pairs", Elements::like_x, Presence::required)
        .means("like cos"),
};

constexpr Option kOptions[] = {
    option<&Args::base>("base", 10000)
        .defaulting_at_zero()
        .means("of the frequencies; from 1 to 2^100"),
    option<&Args::offset_positions>("offset_positions", 0).means("added to every position"),
};

Problem check(const Args& args) {
  const Checker checker("rope_tables");
  Problem problem{.dtype = args.cos.dtype,
                  .inv_freq_dtype = args.inv_freq.dtype,
                  .cos = checker.matrix("cos", args.cos, Access::write),
                  .sin = checker.matrix_like("sin", args.sin, Access::write, "cos", args.cos),
                  .inv_freq = {},
                  .offset = args.offset_positions,
                  .base = args.base};
  checker.dtype("cos", args.cos, {DType::f32, DType::f64});
  checker.same_dtype("sin", args.sin, "cos", args.cos.dtype);
  const std::int64_t length = problem.cos.rows;
  require(args.base >= 1 && args.base <= kMostBase, "rope_tables: base is ", args.base,
          "; allowed: 1 to 2^100");
  require(args.offset_positions >= 0 && args.offset_positions <= kMostPositions - length,
          "rope_tables: offset_positions is ", args.offset_positions, " and there are ", length,
          " positions; allowed: from 0 on, below 2^27 in all");
  if (args.inv_freq.given()) {
    checker.dtype("inv_freq", args.inv_freq, {DType::f32, DType::f64});
    problem.inv_freq = checker.vector("inv_freq", args.inv_freq, problem.cos.cols, "pairs");
  }
  Matrix positions;
  if (args.positions.given()) {
    checker.dtype("positions", args.positions, {DType::i64});
    positions = checker.vector("positions", args.positions, length, "positions");
    problem.positions = reinterpret_cast<const std::int64_t*>(positions.data);
    problem.position_step = 1;
  }
  checker.no_overlap(
      {{"cos", args.cos, problem.cos}, {"sin", args.sin, problem.sin}},
      {{"inv_freq", args.inv_freq, problem.inv_freq}, {"positions", args.positions, positions}});
  return problem;
}

Extents extents(const Args& args) {
  Extents result{1, args.cos.shape[args.cos.rank - 1]};
  for (int i = 0; i + 1 < args.cos.rank; ++i) result[0] *= args.cos.shape[i];
  return result;
}

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      .op = "rope_tables",
      .pass = "fwd",
      .summary =
          "The cosines and sines that rope turns by: of the angles position * inv_freq, in f64, "
          "rounded once.",
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

}  // namespace isobit::rope_tables
