// SPDX-License-Identifier: Apache-2.0
// The scan operator: its rules, its arguments, and what it is made of.
#include "isobit/ops/scan/scan.h"

#include <algorithm>
#include <iterator>

#include "isobit/core/check.h"
#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/scan/cases.h"
#include "isobit/ops/scan/problem.h"
#include "isobit/ops/scan/reference.h"

namespace isobit::scan {
namespace {

constexpr std::string_view kKinds[] = {"sum", "prod", "max", "min", "logsumexp"};

constexpr Dim kDims[] = {{.name = "outer", .usual = 4, .in_parity = 3, .batch = true},
                         {.name = "length", .usual = 4096, .in_parity = 1100},
                         {.name = "inner", .usual = 1, .in_parity = 5}};

bool finds(const Args& args) { return args.kind == Kind::max || args.kind == Kind::min; }

constexpr Argument kArguments[] = {
    argument<&Args::x>("x", Role::input, "outer length inner", Elements::like_x, Presence::required,
                       Drawn::family)
        .with_any_strides()
        .means("(..., length, inner) in f32, f16, bf16, f64, i32 or i64, and of any strides"),
    argument<&Args::init>("init", Role::input, "outer inner", Elements::like_y, Presence::extra,
                          Drawn::family)
        .with_any_strides()
        .means("(..., inner) in the dtype of y, or NULL; what comes before the first"),
    argument<&Args::reset>("reset", Role::input, "outer length inner", Elements::mask,
                           Presence::extra, Drawn::mask)
        .with_any_strides()
        .means("like x in bool or u8, or NULL; not 0 where a segment begins"),
    argument<&Args::y>("y", Role::output, "outer length inner", Elements::like_y,
                       Presence::required)
        .with_any_strides()
        .means("like x, in its dtype or a wider one that is computed in; may be x"),
    argument<&Args::index>("index", Role::output, "outer length inner", Elements::index,
                           Presence::extra)
        .with_any_strides()
        .where([](const void* args) { return finds(*static_cast<const Args*>(args)); })
        .means("like x in i64, or NULL; for max and min, where it stands; -1: in init or nowhere"),
};

constexpr Option kOptions[] = {
    option<&Args::kind>("kind", 0, kKinds).means("0 sum, 1 prod, 2 max, 3 min, 4 logsumexp"),
    option<&Args::exclusive>("exclusive", 0).means("of what comes before each element only"),
    option<&Args::reverse>("reverse", 0).means("from the end of each segment to its beginning"),
};

// The dtype of y, in which is computed.
void check_y(const Checker& checker, const Args& args) {
  if (finds(args)) return checker.dtype("y", args.y, {args.x.dtype});
  switch (args.x.dtype) {
    case DType::f16:
    case DType::bf16: return checker.dtype("y", args.y, {args.x.dtype, DType::f32});
    case DType::f32:  return checker.dtype("y", args.y, {DType::f32, DType::f64});
    case DType::i32:  return checker.dtype("y", args.y, {DType::i32, DType::i64});
    default:          return checker.dtype("y", args.y, {args.x.dtype});
  }
}

bool same_strides(const TensorView& a, const TensorView& b) {
  for (int i = 0; i < a.rank; ++i)
    if (a.shape[i] > 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

Axis axis_of(const Args& args, int dim) {
  const auto stride = [dim](const TensorView& view) {
    return view.given() ? view.strides[dim] : 0;
  };
  const int last = args.x.rank - 1;
  const int in_init = dim == last ? last - 1 : dim;
  return {.extent = args.x.shape[dim],
          .x = stride(args.x),
          .y = stride(args.y),
          .init = args.init.given() && dim != last - 1 ? args.init.strides[in_init] : 0,
          .reset = stride(args.reset),
          .index = stride(args.index)};
}

// Whether two loops are one that takes the turns of both.
bool mergeable(const Axis& outer, const Axis& inner) {
  const auto one = [&](std::int64_t Axis::* stride) {
    return outer.*stride == inner.*stride * inner.extent;
  };
  return one(&Axis::x) && one(&Axis::y) && one(&Axis::init) && one(&Axis::reset) &&
         one(&Axis::index);
}

// All loops but the one that is scanned, outermost first, as few as there can be.
void set_loops(const Args& args, Problem& problem) {
  std::array<Axis, kMaxRank>& all = problem.outer;
  int count = 0;
  for (int i = 0; i < args.x.rank; ++i) {
    if (i == args.x.rank - 2 || args.x.shape[i] == 1) continue;
    const Axis axis = axis_of(args, i);
    int at = count++;
    for (; at > 0 && all[at - 1].y < axis.y; --at) all[at] = all[at - 1];
    all[at] = axis;
  }
  for (int i = 1; i < count;) {
    if (!mergeable(all[i - 1], all[i])) {
      ++i;
      continue;
    }
    all[i].extent *= all[i - 1].extent;
    std::copy(all.begin() + i, all.begin() + count, all.begin() + i - 1);
    --count;
  }
  if (count > 0) problem.inner = all[--count];
  problem.outer_count = count;
}

Problem check(const Args& args) {
  const int code = static_cast<int>(args.kind);
  require(0 <= code && code < std::ssize(kKinds), "scan: kind is ", code, "; allowed: 0 to ",
          std::ssize(kKinds) - 1);
  const Checker checker("scan");
  checker.any_strides("x", args.x, Access::read);
  checker.any_strides("y", args.y, Access::write);
  checker.dtype("x", args.x,
                {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64});
  require(args.kind != Kind::logsumexp || is_floating(args.x.dtype), "scan: x has dtype ",
          name_of(args.x.dtype), "; logsumexp needs a floating one");
  check_y(checker, args);
  require(args.x.rank >= 2, "scan: x has 1 dimension; must have at least 2");
  checker.same_shape("y", args.y, "x", args.x);
  const auto span = [&](const TensorView& view) {
    return view.given() ? checker.span(view) : Matrix{};
  };
  if (args.init.given()) {
    checker.any_strides("init", args.init, Access::read);
    checker.same_dtype("init", args.init, "y", args.y.dtype);
    TensorView expected = args.x;
    expected.rank = args.x.rank - 1;
    expected.shape[expected.rank - 1] = args.x.shape[args.x.rank - 1];
    checker.same_shape("init", args.init, "x without its length", expected);
  }
  if (args.reset.given()) {
    checker.dtype("reset", args.reset, {DType::boolean, DType::u8});
    checker.any_strides("reset", args.reset, Access::read);
    checker.same_shape("reset", args.reset, "x", args.x);
  }
  if (args.index.given()) {
    require(finds(args), "scan: index is given, but ", kKinds[code], " finds none");
    checker.any_strides("index", args.index, Access::write);
    checker.dtype("index", args.index, {DType::i64});
    checker.same_shape("index", args.index, "x", args.x);
  }
  checker.no_overlap({{"y", args.y, span(args.y), {"x"}}, {"index", args.index, span(args.index)}},
                     {{"x", args.x, span(args.x)},
                      {"init", args.init, span(args.init)},
                      {"reset", args.reset, span(args.reset)}});
  Problem problem{
      .kind = args.kind,
      .exclusive = args.exclusive,
      .reverse = args.reverse,
      .x_dtype = args.x.dtype,
      .y_dtype = args.y.dtype,
      .first = {static_cast<const std::byte*>(args.x.data),
                static_cast<const std::byte*>(args.init.data),
                static_cast<const std::byte*>(args.reset.data),
                static_cast<std::byte*>(args.y.data), static_cast<std::int64_t*>(args.index.data)},
      .along = axis_of(args, args.x.rank - 2),
      .inner = {}};
  if (!args.init.given()) problem.first.init = nullptr;
  if (!args.reset.given()) problem.first.reset = nullptr;
  if (!args.index.given()) problem.first.index = nullptr;
  if (std::find(args.x.shape.begin(), args.x.shape.begin() + args.x.rank, 0) !=
      args.x.shape.begin() + args.x.rank) {
    problem.along.extent = 0;
    return problem;
  }
  require(!problem.in_place() || same_strides(args.x, args.y),
          "scan: y starts where x does, but has other strides");
  set_loops(args, problem);
  return problem;
}

Extents extents(const Args& args) {
  Extents result{1, args.x.shape[args.x.rank - 2], args.x.shape[args.x.rank - 1]};
  for (int i = 0; i + 2 < args.x.rank; ++i) result[0] *= args.x.shape[i];
  return result;
}

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      .op = "scan",
      .pass = "fwd",
      .summary =
          "Running sums, products, maxima, minima or logsumexps along the dimension before the "
          "last.",
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

}  // namespace isobit::scan
