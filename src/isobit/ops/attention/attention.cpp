// SPDX-License-Identifier: Apache-2.0
// The attention operator: its arguments and options, its rules, and what its passes are made of.
#include "isobit/ops/attention/attention.h"

#include <array>
#include <iterator>

#include "isobit/core/check.h"
#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/attention/cases.h"
#include "isobit/ops/attention/problem.h"
#include "isobit/ops/attention/reference.h"

namespace isobit::attention {
namespace {

constexpr std::string_view kCausals[] = {"no", "top_left", "bottom_right"};
constexpr std::int64_t kMostRows = std::int64_t{1} << 31;  // of each dim that dropout counts

constexpr Dim kDims[] = {
    {.name = "batch", .usual = 2, .in_parity = 3, .batch = true},
    {.name = "heads", .usual = 8, .in_parity = 4},
    {.name = "kv_heads", .usual = 8, .in_parity = 2},
    {.name = "seq_q", .usual = 128, .in_parity = 37},
    {.name = "seq_k", .usual = 128, .in_parity = 150},
    {.name = "head_dim", .usual = 64, .in_parity = 34},
    {.name = "value_dim", .usual = 64, .in_parity = 20},
};
constexpr std::string_view kOfQ = "batch heads seq_q head_dim",
                           kOfK = "batch kv_heads seq_k head_dim",
                           kOfV = "batch kv_heads seq_k value_dim",
                           kOfY = "batch heads seq_q value_dim",
                           kOfScores = "batch heads seq_q seq_k", kOfRows = "batch heads seq_q";

template <class Args>
constexpr Argument kQ =
    argument<&Args::q>("q", Role::input, kOfQ, Elements::like_x, Presence::required, Drawn::family)
        .with_any_strides()
        .means("(batch, heads, seq_q, head_dim) in f32, f16, bf16 or f64, of any strides");
template <class Args>
constexpr Argument kK =
    argument<&Args::k>("k", Role::input, kOfK, Elements::like_x, Presence::required, Drawn::family)
        .with_any_strides()
        .means("(batch, kv_heads, seq_k, head_dim) like q; heads is a multiple of kv_heads");
template <class Args>
constexpr Argument kV =
    argument<&Args::v>("v", Role::input, kOfV, Elements::like_x, Presence::required, Drawn::family)
        .with_any_strides()
        .means("(batch, kv_heads, seq_k, value_dim) like q");
template <class Args>
constexpr Argument kBias = argument<&Args::bias>("bias", Role::input, kOfScores, Elements::like_x,
                                                 Presence::extra, Drawn::normal)
                               .with_any_strides()
                               .means(
                                   "(batch, heads, seq_q, seq_k) like q, or NULL; added to "
                                   "scores; strides of 0 repeat it");
template <class Args>
constexpr Argument kMask = argument<&Args::mask>("mask", Role::input, kOfScores, Elements::mask,
                                                 Presence::extra, Drawn::mask)
                               .with_any_strides()
                               .means(
                                   "(batch, heads, seq_q, seq_k) in bool, or NULL; true where a "
                                   "key is allowed");

template <class Args>
constexpr Argument kSlopes =
    argument<&Args::slopes>("slopes", Role::input, "batch heads", Elements::statistic,
                            Presence::extra, Drawn::normal)
        .with_any_strides()
        .added_later()
        .means(
            "(batch, heads) in f32 (f64 beside f64), or NULL; scores are lessened by slope "
            "|i + seq_k - seq_q - j| of query i and key j; without gradient");

template <class Args>
constexpr Argument kKeyBegin =
    argument<&Args::key_begin>("key_begin", Role::input, "batch", Elements::index, Presence::extra,
                               Drawn::begin)
        .with_any_strides()
        .below_extent_of("seq_k")
        .added_later()
        .means("(batch) in i64, or NULL; the first key that a sequence has; NULL: 0");
template <class Args>
constexpr Argument kKeyEnd =
    argument<&Args::key_end>("key_end", Role::input, "batch", Elements::index, Presence::extra,
                             Drawn::end)
        .with_any_strides()
        .below_extent_of("seq_k")
        .added_later()
        .means("(batch) in i64, or NULL; behind the last key that a sequence has; NULL: seq_k");

constexpr Argument kForwardArguments[] = {
    kQ<ForwardArgs>,
    kK<ForwardArgs>,
    kV<ForwardArgs>,
    kBias<ForwardArgs>,
    kMask<ForwardArgs>,
    argument<&ForwardArgs::y>("y", Role::output, kOfY, Elements::like_x, Presence::required)
        .with_any_strides()
        .means("(batch, heads, seq_q, value_dim) like q"),
    argument<&ForwardArgs::lse>("lse", Role::output, kOfRows, Elements::statistic,
                                Presence::optional)
        .with_any_strides()
        .means("(batch, heads, seq_q) in f32 (f64 beside f64), or NULL: the logarithm of the sum "
               "of e^score"),
    argument<&ForwardArgs::max>("max", Role::output, kOfRows, Elements::statistic,
                                Presence::optional)
        .with_any_strides()
        .means("like lse, or NULL; for backward: a whole number, the largest score times log2 e"),
    argument<&ForwardArgs::sum>("sum", Role::output, kOfRows, Elements::statistic,
                                Presence::optional)
        .with_any_strides()
        .means("like lse, or NULL; for backward: the sum of e^score / 2^max"),
    kSlopes<ForwardArgs>,
    kKeyBegin<ForwardArgs>,
    kKeyEnd<ForwardArgs>,
};

constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::grad_y>("grad_y", Role::input, kOfY, Elements::like_x,
                                    Presence::required, Drawn::gradient)
        .with_any_strides()
        .means("(batch, heads, seq_q, value_dim) like q"),
    argument<&BackwardArgs::grad_lse>("grad_lse", Role::input, kOfRows, Elements::statistic,
                                      Presence::extra, Drawn::gradient)
        .with_any_strides()
        .means("(batch, heads, seq_q) in f32 (f64 beside f64), or NULL"),
    kQ<BackwardArgs>,
    kK<BackwardArgs>,
    kV<BackwardArgs>,
    kBias<BackwardArgs>,
    kMask<BackwardArgs>,
    argument<&BackwardArgs::y>("y", Role::input, kOfY, Elements::like_x, Presence::required,
                               Drawn::produced)
        .with_any_strides()
        .means("as forward gave it"),
    argument<&BackwardArgs::max>("max", Role::input, kOfRows, Elements::statistic,
                                 Presence::required, Drawn::produced)
        .with_any_strides()
        .means("as forward gave it"),
    argument<&BackwardArgs::sum>("sum", Role::input, kOfRows, Elements::statistic,
                                 Presence::required, Drawn::produced)
        .with_any_strides()
        .means("as forward gave it"),
    argument<&BackwardArgs::grad_q>("grad_q", Role::output, kOfQ, Elements::like_x,
                                    Presence::optional)
        .with_any_strides()
        .means("like q, or NULL"),
    argument<&BackwardArgs::grad_k>("grad_k", Role::output, kOfK, Elements::like_x,
                                    Presence::optional)
        .with_any_strides()
        .means("like k, or NULL"),
    argument<&BackwardArgs::grad_v>("grad_v", Role::output, kOfV, Elements::like_x,
                                    Presence::optional)
        .with_any_strides()
        .means("like v, or NULL"),
    argument<&BackwardArgs::grad_bias>("grad_bias", Role::output, kOfScores, Elements::like_x,
                                       Presence::extra)
        .with_any_strides()
        .means("(batch, heads, seq_q, seq_k) like q, or NULL; of a bias that repeats, the terms"),
    kSlopes<BackwardArgs>,
    kKeyBegin<BackwardArgs>,
    kKeyEnd<BackwardArgs>,
};

template <class Args>
inline constexpr Option kOptions[] = {
    option<&Args::causal>("causal", 0, kCausals)
        .means("0 no; 1 top_left: query i sees keys up to i; 2 bottom_right: the last query sees "
               "keys up to the last"),
    option<&Args::window>("window", 0)
        .changing_plans(PlanDependence::presence)
        .means("keys less than this far from the query's own position; 0: all"),
    option<&Args::scale>("scale", 0).means("of q k'; 0: 1 / sqrt(head_dim)"),
    option<&Args::softcap>("softcap", 0)
        .changing_plans(PlanDependence::presence)
        .means("scores become softcap tanh(score / softcap); 0: they do not"),
    option<&Args::dropout>("dropout", 0)
        .changing_plans(PlanDependence::presence)
        .means("probability that a weight is dropped, from 0 to below 1"),
    option<&Args::dropout_seed>("dropout_seed", 0)
        .means("of the weights that are dropped, with their batch, head, query and key"),
};

Array array_of(const TensorView& view) {
  if (!view.given()) return {};
  Array array{static_cast<std::byte*>(view.data), size_of(view.dtype)};
  array.batch = view.strides[0];
  if (view.rank >= 2) array.head = view.strides[1];
  if (view.rank >= 3) array.row = view.strides[2];
  if (view.rank == 4) array.col = view.strides[3];
  return array;
}

// What both passes take, by name.
class Check {
 public:
  template <class Args>
  explicit Check(const Args& args) : q_(args.q) {
    checker_.any_strides("q", args.q, Access::read);
    checker_.dtype("q", args.q, {DType::f32, DType::f16, DType::bf16, DType::f64});
    input("k", args.k);
    input("v", args.v);
    for (const auto& [name, view] : {std::pair<std::string_view, const TensorView&>("q", args.q),
                                     {"k", args.k},
                                     {"v", args.v}})
      require(view.rank == 4, "attention: ", name, " has ", view.rank,
              " dimensions; must have 4: batch, heads, sequence, elements");
    Problem& p = problem_;
    p.dtype = args.q.dtype;
    p.batch = args.q.shape[0];
    p.heads = args.q.shape[1];
    p.kv_heads = args.k.shape[1];
    p.seq_q = args.q.shape[2];
    p.seq_k = args.k.shape[2];
    p.head_dim = args.q.shape[3];
    p.value_dim = args.v.shape[3];
    shaped("k", args.k, "k beside q", {p.batch, p.kv_heads, p.seq_k, p.head_dim});
    shaped("v", args.v, "v beside q and k", {p.batch, p.kv_heads, p.seq_k, p.value_dim});
    require(p.kv_heads == 0 ? p.heads == 0 : p.heads % p.kv_heads == 0, "attention: q has ",
            p.heads, " heads; must be a multiple of the ", p.kv_heads, " of k");
    if (args.bias.given()) {
      input("bias", args.bias);
      shaped("bias", args.bias, "the product of q and k", scores());
    }
    if (args.mask.given()) {
      checker_.dtype("mask", args.mask, {DType::boolean});
      checker_.any_strides("mask", args.mask, Access::read);
      shaped("mask", args.mask, "the product of q and k", scores());
    }
    if (args.slopes.given()) {
      checker_.any_strides("slopes", args.slopes, Access::read);
      checker_.dtype("slopes", args.slopes, {p.real()});
      TensorView expected = q_;
      expected.rank = 2;
      checker_.same_shape("slopes", args.slopes, "a slope of each head of q", expected);
      p.slopes = array_of(args.slopes);
    }
    if (args.key_begin.given()) p.key_begin = places("key_begin", args.key_begin);
    if (args.key_end.given()) p.key_end = places("key_end", args.key_end);
    p.apart = p.seq_k - p.seq_q;
    check_options(args);
    p.q = array_of(args.q);
    p.k = array_of(args.k);
    p.v = array_of(args.v);
    p.bias = array_of(args.bias);
    p.mask = array_of(args.mask);
  }

  Problem operator()(const ForwardArgs& args) {
    output("y", args.y, "y of q and v", rows_of(problem_.value_dim));
    for (const auto& [name, view, array] :
         {std::tuple<std::string_view, const TensorView&, Array Problem::*>("lse", args.lse,
                                                                            &Problem::lse),
          {"max", args.max, &Problem::max},
          {"sum", args.sum, &Problem::sum}})
      if (view.given()) problem_.*array = statistic(name, view, Access::write);
    checker_.no_overlap(
        {named("y", args.y), named("lse", args.lse), named("max", args.max),
         named("sum", args.sum)},
        {named("q", args.q), named("k", args.k), named("v", args.v), named("bias", args.bias),
         named("mask", args.mask), named("slopes", args.slopes), named("key_begin", args.key_begin),
         named("key_end", args.key_end)});
    problem_.y = array_of(args.y);
    return problem_;
  }

  Problem operator()(const BackwardArgs& args) {
    const Problem& p = problem_;
    input("grad_y", args.grad_y);
    shaped("grad_y", args.grad_y, "y of q and v", rows_of(p.value_dim));
    input("y", args.y);
    shaped("y", args.y, "y of q and v", rows_of(p.value_dim));
    problem_.max = statistic("max", args.max, Access::read);
    problem_.sum = statistic("sum", args.sum, Access::read);
    if (args.grad_lse.given())
      problem_.grad_lse = statistic("grad_lse", args.grad_lse, Access::read);
    if (args.grad_q.given()) output("grad_q", args.grad_q, "a gradient of q", rows_of(p.head_dim));
    if (args.grad_k.given())
      output("grad_k", args.grad_k, "a gradient of k", {p.batch, p.kv_heads, p.seq_k, p.head_dim});
    if (args.grad_v.given())
      output("grad_v", args.grad_v, "a gradient of v", {p.batch, p.kv_heads, p.seq_k, p.value_dim});
    if (args.grad_bias.given()) {
      require(args.bias.given(), "attention: grad_bias is given, but there is no bias");
      output("grad_bias", args.grad_bias, "the product of q and k", scores());
    }
    checker_.no_overlap(
        {named("grad_q", args.grad_q), named("grad_k", args.grad_k), named("grad_v", args.grad_v),
         named("grad_bias", args.grad_bias)},
        {named("grad_y", args.grad_y), named("grad_lse", args.grad_lse), named("q", args.q),
         named("k", args.k), named("v", args.v), named("bias", args.bias), named("mask", args.mask),
         named("y", args.y), named("max", args.max), named("sum", args.sum),
         named("slopes", args.slopes), named("key_begin", args.key_begin),
         named("key_end", args.key_end)});
    problem_.grad_y = array_of(args.grad_y);
    problem_.y = array_of(args.y);
    problem_.grad_q = array_of(args.grad_q);
    problem_.grad_k = array_of(args.grad_k);
    problem_.grad_v = array_of(args.grad_v);
    problem_.grad_bias = array_of(args.grad_bias);
    return problem_;
  }

 private:
  using Shape = std::array<std::int64_t, 4>;
  Shape scores() const { return {problem_.batch, problem_.heads, problem_.seq_q, problem_.seq_k}; }
  Shape rows_of(std::int64_t cols) const {
    return {problem_.batch, problem_.heads, problem_.seq_q, cols};
  }

  // Heads of several arrays may lie side by side in one buffer.
  static Checker::Named named(std::string_view name, const TensorView& view) {
    return {name, view, view.given() ? Checker::rows_around(view) : Matrix{}};
  }
  void input(std::string_view name, const TensorView& view) const {
    checker_.any_strides(name, view, Access::read);
    checker_.same_dtype(name, view, "q", q_.dtype);
  }
  void output(std::string_view name, const TensorView& view, std::string_view beside,
              const Shape& shape) const {
    checker_.any_strides(name, view, Access::write);
    checker_.same_dtype(name, view, "q", q_.dtype);
    shaped(name, view, beside, shape);
  }
  void shaped(std::string_view name, const TensorView& view, std::string_view beside,
              const Shape& shape) const {
    TensorView expected = view;
    expected.rank = 4;
    std::copy(shape.begin(), shape.end(), expected.shape.begin());
    checker_.same_shape(name, view, beside, expected);
  }
  Array statistic(std::string_view name, const TensorView& view, Access access) const {
    checker_.any_strides(name, view, access);
    checker_.dtype(name, view, {problem_.real()});
    TensorView expected = q_;
    expected.rank = 3;
    checker_.same_shape(name, view, "a row of numbers of q", expected);
    return array_of(view);
  }
  Array places(std::string_view name, const TensorView& view) const {
    checker_.any_strides(name, view, Access::read);
    checker_.dtype(name, view, {DType::i64});
    TensorView expected = q_;
    expected.rank = 1;
    checker_.same_shape(name, view, "a number of each sequence of q", expected);
    return array_of(view);
  }

  void check_options(const Options& options) {
    Problem& p = problem_;
    const int code = static_cast<int>(options.causal);
    require(0 <= code && code < std::ssize(kCausals), "attention: causal is ", code,
            "; allowed: 0 to ", std::ssize(kCausals) - 1);
    p.causal = options.causal != Causal::no;
    p.offset = options.causal == Causal::bottom_right ? p.seq_k - p.seq_q : 0;
    require(options.window >= 0, "attention: window is ", options.window, "; must not be negative");
    // Beyond the longest sequence it is none; so no sum with it wraps around.
    p.window = options.window > std::int64_t{1} << 50 ? 0 : options.window;
    checker_.finite("scale", options.scale, p.real());
    checker_.finite("softcap", options.softcap, p.real());
    require(options.softcap >= 0, "attention: softcap is ", options.softcap,
            "; must not be negative");
    p.scale = options.scale;
    p.softcap = options.softcap;
    require(options.dropout >= 0 && options.dropout < 1, "attention: dropout is ", options.dropout,
            "; must be at least 0 and less than 1");
    p.dropout = options.dropout;
    p.dropout_seed = options.dropout_seed;
    if (p.dropout > 0)
      for (std::int64_t extent : {p.batch, p.heads, p.seq_q, p.seq_k})
        require(extent <= kMostRows, "attention: a dimension has ", extent,
                " elements; with dropout at most ", kMostRows);
  }

  const Checker checker_{"attention"};
  const TensorView& q_;
  Problem problem_{};
};

template <class Args>
Problem check(const Args& args) {
  return Check(args)(args);
}

// Ranges of keys, where their memory may be read.
void check_contents(const Problem& p) {
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const auto number = [&](const char* name, const Array& array, std::int64_t otherwise) {
      if (!array) return otherwise;
      const std::int64_t found = *reinterpret_cast<const std::int64_t*>(array.at(b, 0));
      require(0 <= found && found <= p.seq_k, "attention: ", name, "[", b, "] is ", found,
              "; must be from 0 to ", p.seq_k, ", the number of keys");
      return found;
    };
    const std::int64_t begin = number("key_begin", p.key_begin, 0);
    const std::int64_t end = number("key_end", p.key_end, p.seq_k);
    require(begin <= end, "attention: key_begin[", b, "] is ", begin, "; key_end[", b, "] is ", end,
            "; a sequence may not end before it begins");
  }
}

template <class Args>
Extents extents(const Args& args) {
  return {args.q.shape[0], args.q.shape[1], args.k.shape[1], args.q.shape[2],
          args.k.shape[2], args.q.shape[3], args.v.shape[3]};
}

const Definition<ForwardArgs, Problem>& forward_definition() {
  static const Definition<ForwardArgs, Problem> kDefinition = {
      .op = "attention",
      .pass = "fwd",
      .summary = "y = softmax(q k' scale + bias) v, of each query over the keys that it sees.",
      .version = 1,
      .dims = kDims,
      .arguments = kForwardArguments,
      .options = kOptions<ForwardArgs>,
      .check = check<ForwardArgs>,
      .extents = extents<ForwardArgs>,
      .check_contents = check_contents,
      .variants = cpu_forward_variants(),
      .cost = forward_cost,
      .cases = forward_cases,
      .reference = forward_reference,
      .intermediates = forward_intermediates,
      .limit = forward_limit};
  return kDefinition;
}

const Definition<BackwardArgs, Problem>& backward_definition() {
  static const Definition<BackwardArgs, Problem> kDefinition = {
      .op = "attention",
      .pass = "bwd",
      .summary =
          "The gradients of attention, from what forward gave: weights are made anew, and never "
          "stored as a whole.",
      .version = 1,
      .dims = kDims,
      .arguments = kBackwardArguments,
      .options = kOptions<BackwardArgs>,
      .check = check<BackwardArgs>,
      .extents = extents<BackwardArgs>,
      .check_contents = check_contents,
      .variants = cpu_backward_variants(),
      .cost = backward_cost,
      .cases = backward_cases,
      .reference = backward_reference,
      .intermediates = backward_intermediates,
      .limit = backward_limit};
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

}  // namespace isobit::attention
