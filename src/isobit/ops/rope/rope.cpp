// SPDX-License-Identifier: Apache-2.0
// The rope operator: its rules, its arguments, and what its two passes are made of.
#include "isobit/ops/rope/rope.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/rope/cases.h"
#include "isobit/ops/rope/problem.h"
#include "isobit/ops/rope/reference.h"
#include "isobit/ops/rope_tables/rope_tables.h"

namespace isobit::rope {
namespace {

constexpr std::string_view kStyles[] = {"half", "interleaved"};

enum Place { kBatch, kSeq, kHeads, kKvHeads, kHeadDim, kTable, kPairs };

template <class Args>
constexpr Dim kDims[] = {
    {.name = "batch", .usual = 2, .in_parity = 7, .batch = true},
    {.name = "seq", .usual = 128, .in_parity = 19},
    {.name = "heads", .usual = 8, .in_parity = 3},
    {.name = "kv_heads", .usual = 2, .in_parity = 2},
    {.name = "head_dim", .usual = 64, .in_parity = 70},
    {.name = "table",
     .derived =
         [](const Extents& others, const void* args) {
           return others[kSeq] + static_cast<const Args*>(args)->offset_positions;
         }},
    {.name = "pairs",
     .derived =
         [](const Extents& others, const void* args) {
           const std::int64_t rotary_dim = static_cast<const Args*>(args)->rotary_dim;
           return (rotary_dim == 0 ? others[kHeadDim] : rotary_dim) / 2;
         }},
};

// What both passes take beside queries and keys.
template <class Args>
constexpr Argument kCos =
    argument<&Args::cos>("cos", Role::input, "table pairs", Elements::statistic, Presence::extra,
                         Drawn::normal)
        .means("(positions, rotary_dim / 2) in f32, or f64 beside f64; NULL: computed from base");
template <class Args>
constexpr Argument kSin = argument<&Args::sin>("sin", Role::input, "table pairs",
                                               Elements::statistic, Presence::extra, Drawn::normal)
                              .means("like cos; both are given or neither");
template <class Args>
constexpr Argument kPositions =
    argument<&Args::positions>("positions", Role::input, "batch seq", Elements::index,
                               Presence::extra, Drawn::index)
        .with_any_strides()
        .below_extent_of("seq")
        .means("(batch, seq) or (seq) in i64; NULL: 0, 1, 2, ...");

constexpr Argument kForwardArguments[] = {
    argument<&ForwardArgs::q>("q", Role::input, "batch seq heads head_dim", Elements::like_x,
                              Presence::required, Drawn::family)
        .with_any_strides()
        .means("(batch, seq, heads, head_dim) in f32, f16, bf16 or f64, of any strides"),
    argument<&ForwardArgs::k>("k", Role::input, "batch seq kv_heads head_dim", Elements::like_x,
                              Presence::optional, Drawn::family)
        .with_any_strides()
        .means("(batch, seq, kv_heads, head_dim) in q's dtype, of any strides"),
    kCos<ForwardArgs>,
    kSin<ForwardArgs>,
    kPositions<ForwardArgs>,
    argument<&ForwardArgs::y_q>("y_q", Role::output, "batch seq heads head_dim", Elements::like_x,
                                Presence::required)
        .with_any_strides()
        .means("like q; may be q"),
    argument<&ForwardArgs::y_k>("y_k", Role::output, "batch seq kv_heads head_dim",
                                Elements::like_x, Presence::optional)
        .with_any_strides()
        .means("like k, beside it; may be k"),
};

constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::grad_y_q>("grad_y_q", Role::input, "batch seq heads head_dim",
                                      Elements::like_x, Presence::required, Drawn::family)
        .with_any_strides()
        .means("(batch, seq, heads, head_dim) in f32, f16, bf16 or f64, of any strides"),
    argument<&BackwardArgs::grad_y_k>("grad_y_k", Role::input, "batch seq kv_heads head_dim",
                                      Elements::like_x, Presence::optional, Drawn::family)
        .with_any_strides()
        .means("(batch, seq, kv_heads, head_dim) in grad_y_q's dtype, of any strides"),
    kCos<BackwardArgs>,
    kSin<BackwardArgs>,
    kPositions<BackwardArgs>,
    argument<&BackwardArgs::grad_q>("grad_q", Role::output, "batch seq heads head_dim",
                                    Elements::like_x, Presence::required)
        .with_any_strides()
        .means("like grad_y_q; may be grad_y_q"),
    argument<&BackwardArgs::grad_k>("grad_k", Role::output, "batch seq kv_heads head_dim",
                                    Elements::like_x, Presence::optional)
        .with_any_strides()
        .means("like grad_y_k, beside it; may be grad_y_k"),
};

template <class Args>
inline constexpr Option kOptions[] = {
    option<&Args::style>("style", 0, kStyles)
        .means(
            "0 half: elements i and i + rotary_dim / 2 are a pair; 1 interleaved: 2i and 2i + 1"),
    option<&Args::base>("base", 10000)
        .defaulting_at_zero()
        .means("of the frequencies, where tables are computed; from 1 to 2^100"),
    option<&Args::offset_positions>("offset_positions", 0).means("added to every position"),
    option<&Args::rotary_dim>("rotary_dim", 0)
        .changing_plans(PlanDependence::value)
        .means("elements of a head that turn, the first ones; 0: all pairs of it"),
};

// The arrays of a pass by their roles, and their names.
struct Tensors {
  const TensorView &q, &k, &cos, &sin, &positions, &y_q, &y_k;
  std::string_view q_name, k_name, y_q_name, y_k_name;
};
Tensors tensors_of(const ForwardArgs& a) {
  return {a.q, a.k, a.cos, a.sin, a.positions, a.y_q, a.y_k, "q", "k", "y_q", "y_k"};
}
Tensors tensors_of(const BackwardArgs& a) {
  return {a.grad_y_q, a.grad_y_k, a.cos,      a.sin,    a.positions, a.grad_q,
          a.grad_k,   "grad_y_q", "grad_y_k", "grad_q", "grad_k"};
}

Steps steps_of(const TensorView& view) {
  return {view.strides[0], view.strides[1], view.strides[2], view.strides[3]};
}

class Check {
 public:
  explicit Check(const Tensors& given) : given_(given) {}

  template <class Args>
  Problem operator()(const Args& args) {
    problem_.backward = std::is_same_v<Args, BackwardArgs>;
    const int code = static_cast<int>(args.style);
    require(0 <= code && code < std::ssize(kStyles), "rope: style is ", code, "; allowed: 0 to ",
            std::ssize(kStyles) - 1);
    problem_.style = args.style;
    problem_.dtype = given_.q.dtype;
    checker_.any_strides(given_.q_name, given_.q, Access::read);
    checker_.dtype(given_.q_name, given_.q, {DType::f32, DType::f16, DType::bf16, DType::f64});
    require(given_.q.rank == 4, "rope: ", given_.q_name, " has ", given_.q.rank,
            " dimensions; must have 4: batch, seq, heads, head_dim");
    problem_.batch = given_.q.shape[0];
    problem_.seq = given_.q.shape[1];
    problem_.head_dim = given_.q.shape[3];
    problem_.q = heads(given_.q_name, given_.q, given_.y_q_name, given_.y_q);
    require(given_.k.given() || !given_.y_k.given(), "rope: ", given_.y_k_name,
            " is given, but there is no ", given_.k_name);
    if (given_.k.given()) check_k();
    const std::int64_t rotary_dim = args.rotary_dim;
    require(rotary_dim >= 0 && rotary_dim % 2 == 0 && rotary_dim <= problem_.head_dim,
            "rope: rotary_dim is ", rotary_dim, "; allowed: even numbers from 0 to ",
            problem_.head_dim, ", the elements of a head");
    problem_.pairs = (rotary_dim == 0 ? problem_.head_dim : rotary_dim) / 2;
    problem_.base = args.base;
    check_tables();
    check_positions(args.offset_positions);
    check_places();
    return problem_;
  }

 private:
  Heads heads(std::string_view name, const TensorView& x, std::string_view y_name,
              const TensorView& y) const {
    checker_.any_strides(y_name, y, Access::write);
    checker_.same_dtype(y_name, y, name, x.dtype);
    checker_.same_shape(y_name, y, name, x);
    // no_overlap() looks at memory, not at the order in it; of nothing there is none.
    if (x.data == y.data && std::ranges::count(x.shape.begin(), x.shape.begin() + 4, 0) == 0)
      for (int dim = 0; dim < 4; ++dim)
        require(x.strides[dim] == y.strides[dim] || x.shape[dim] <= 1, "rope: ", y_name, " is ",
                name, ", but its stride in dimension ", dim, " is ", y.strides[dim], "; ", name,
                " has ", x.strides[dim]);
    return {static_cast<const std::byte*>(x.data), static_cast<std::byte*>(y.data), x.shape[2],
            steps_of(x), steps_of(y)};
  }

  void check_k() {
    checker_.any_strides(given_.k_name, given_.k, Access::read);
    checker_.same_dtype(given_.k_name, given_.k, given_.q_name, given_.q.dtype);
    TensorView expected = given_.q;
    if (given_.k.rank == 4) expected.shape[2] = given_.k.shape[2];
    checker_.same_shape(given_.k_name, given_.k, given_.q_name, expected);
    problem_.k = heads(given_.k_name, given_.k, given_.y_k_name, given_.y_k);
  }

  void check_tables() {
    problem_.tables = given_.cos.given();
    require(given_.sin.given() == problem_.tables,
            "rope: cos and sin are given together or not at all");
    if (!problem_.tables) {
      require(problem_.base >= 1 && problem_.base <= rope_tables::kMostBase, "rope: base is ",
              problem_.base, "; allowed: 1 to 2^100");
      problem_.end = rope_tables::kMostPositions;
      return;
    }
    checker_.dtype("cos", given_.cos, {problem_.real()});
    checker_.same_dtype("sin", given_.sin, "cos", given_.cos.dtype);
    problem_.cos = checker_.matrix("cos", given_.cos, Access::read);
    problem_.sin = checker_.matrix_like("sin", given_.sin, Access::read, "cos", given_.cos);
    require(problem_.cos.cols == problem_.pairs, "rope: cos has ", problem_.cos.cols,
            " columns; must have ", problem_.pairs, ", one for each pair that turns");
    problem_.end = problem_.cos.rows;
  }

  // What stands in `positions` only a variant can see: it may be on another device.
  void check_positions(std::int64_t offset) {
    problem_.offset = offset;
    require(offset >= 0 && offset <= rope_tables::kMostPositions, "rope: offset_positions is ",
            offset, "; allowed: 0 to 2^27");
    const TensorView& positions = given_.positions;
    if (!positions.given()) {
      require(problem_.seq <= problem_.end - offset || problem_.tokens() == 0, "rope: there are ",
              problem_.seq, " positions from ", offset, " on; ",
              problem_.tables ? "cos has " : "tables of ", problem_.end,
              problem_.tables ? " rows" : " rows can be computed");
      return;
    }
    checker_.any_strides("positions", positions, Access::read);
    checker_.dtype("positions", positions, {DType::i64});
    TensorView expected = positions;
    expected.rank = positions.rank == 1 ? 1 : 2;
    if (positions.rank != 1) expected.shape[0] = problem_.batch;
    expected.shape[expected.rank - 1] = problem_.seq;
    checker_.same_shape("positions", positions,
                        expected.rank == 1 ? "the sequence" : "the batch of sequences", expected);
    problem_.positions = static_cast<const std::int64_t*>(positions.data);
    problem_.position_batch_step = positions.rank == 1 ? 0 : positions.strides[0];
    problem_.position_step = positions.strides[positions.rank - 1];
  }

  // Queries and keys may be columns of one buffer.
  void check_places() const {
    const Tensors& t = given_;
    checker_.no_overlap({{t.y_q_name, t.y_q, checker_.rows_around(t.y_q), {t.q_name}},
                         {t.y_k_name, t.y_k, checker_.rows_around(t.y_k), {t.k_name}}},
                        {{t.q_name, t.q, checker_.rows_around(t.q)},
                         {t.k_name, t.k, checker_.rows_around(t.k)},
                         {"cos", t.cos, problem_.cos},
                         {"sin", t.sin, problem_.sin},
                         {"positions", t.positions, checker_.rows_around(t.positions)}});
  }

  const Tensors& given_;
  Checker checker_{"rope"};
  Problem problem_{};
};

template <class Args>
Problem check(const Args& args) {
  return Check(tensors_of(args))(args);
}

template <class Args>
Extents extents(const Args& args) {
  const Tensors t = tensors_of(args);
  Extents result{};
  result[kBatch] = t.q.shape[0];
  result[kSeq] = t.q.shape[1];
  result[kHeads] = t.q.shape[2];
  result[kKvHeads] = t.k.given() ? t.k.shape[2] : 0;
  result[kHeadDim] = t.q.shape[3];
  result[kTable] = kDims<Args>[kTable].derived(result, &args);
  result[kPairs] = kDims<Args>[kPairs].derived(result, &args);
  return result;
}

const Definition<ForwardArgs, Problem>& forward_definition() {
  static const Definition<ForwardArgs, Problem> kDefinition = {
      .op = "rope",
      .pass = "fwd",
      .summary =
          "Rotary position embeddings of queries, and of keys with as many heads or others: each "
          "pair (a, b) of a head becomes (a cos - b sin, b cos + a sin).",
      .version = 1,
      .dims = kDims<ForwardArgs>,
      .arguments = kForwardArguments,
      .options = kOptions<ForwardArgs>,
      .check = check<ForwardArgs>,
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
      .op = "rope",
      .pass = "bwd",
      .summary =
          "The gradients of rope_forward: each pair (a, b) of a head's gradient becomes "
          "(a cos + b sin, b cos - a sin).",
      .version = 1,
      .dims = kDims<BackwardArgs>,
      .arguments = kBackwardArguments,
      .options = kOptions<BackwardArgs>,
      .check = check<BackwardArgs>,
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

}  // namespace isobit::rope
