// SPDX-License-Identifier: Apache-2.0
// The attention operator: its arguments and options, its rules, and what its passes are made of.
#include "isobit/ops/attention/attention.h"

#include "isobit/dispatch/definition.h"
#include "isobit/ops/attention/cases.h"
#include "isobit/ops/attention/problem.h"
#include "isobit/ops/attention/reference.h"

namespace isobit::attention {
namespace {

constexpr Dim kDims[] = {
    {.name = "batch", .usual = 2, .in_parity = 3, .batch = true},
    {.name = "heads", .usual = 8, .in_parity = 4},
    {.name = "kv_heads", .usual = 8, .in_parity = 2},
    {.name = "seq_q", .usual = 128, .in_parity = 37},
    {.name = "seq_k", .usual = 128, .in_parity = 150},
    {.name = "head_dim", .usual = 64, .in_parity = 34},
    {.name = "value_dim", .usual = 64, .in_parity = 20},
    {.name = "starts", .usual = 3, .in_parity = 3},
    {.name = "places", .usual = 2, .in_parity = 2},
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
        .single_beside_both("query_starts", "blocks")
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
        .single_beside_both("query_starts", "blocks")
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
        .for_each_in_a_row_of("blocks")
        .added_later()
        .means("(batch) in i64, or NULL; the first key that a sequence has; NULL: 0");
template <class Args>
constexpr Argument kKeyEnd =
    argument<&Args::key_end>("key_end", Role::input, "batch", Elements::index, Presence::extra,
                             Drawn::end)
        .with_any_strides()
        .below_extent_of("seq_k")
        .for_each_in_a_row_of("blocks")
        .added_later()
        .means("(batch) in i64, or NULL; behind the last key that a sequence has; NULL: seq_k");

template <class Args>
constexpr Argument kQueryStarts =
    argument<&Args::query_starts>("query_starts", Role::input, "starts", Elements::index,
                                  Presence::extra, Drawn::starts)
        .with_any_strides()
        .below_extent_of("seq_q")
        .added_later()
        .means(
            "(sequences + 1) in i64, or NULL; sequences are packed in a batch of 1: the s-th has "
            "the queries from query_starts[s] to before query_starts[s + 1], and the bits that it "
            "has alone; the first is 0");
template <class Args>
constexpr Argument kKeyStarts =
    argument<&Args::key_starts>("key_starts", Role::input, "starts", Elements::index,
                                Presence::extra, Drawn::starts)
        .with_any_strides()
        .below_extent_of("seq_k")
        .added_later()
        .means("like query_starts, or NULL; the same of keys");

constexpr Argument kForwardArguments[] = {
    kQ<ForwardArgs>,
    kK<ForwardArgs>,
    kV<ForwardArgs>,
    kBias<ForwardArgs>,
    kMask<ForwardArgs>,
    argument<&ForwardArgs::y>("y", Role::output, kOfY, Elements::like_x, Presence::required)
        .with_any_strides()
        .single_beside_both("query_starts", "blocks")
        .means("(batch, heads, seq_q, value_dim) like q"),
    argument<&ForwardArgs::lse>("lse", Role::output, kOfRows, Elements::statistic,
                                Presence::optional)
        .with_any_strides()
        .single_beside_both("query_starts", "blocks")
        .means("(batch, heads, seq_q) in f32 (f64 beside f64), or NULL: the logarithm of the sum "
               "of e^score"),
    argument<&ForwardArgs::max>("max", Role::output, kOfRows, Elements::statistic,
                                Presence::optional)
        .with_any_strides()
        .single_beside_both("query_starts", "blocks")
        .means("like lse, or NULL; for backward: a whole number, the largest score times log2 e"),
    argument<&ForwardArgs::sum>("sum", Role::output, kOfRows, Elements::statistic,
                                Presence::optional)
        .with_any_strides()
        .single_beside_both("query_starts", "blocks")
        .means("like lse, or NULL; for backward: the sum of e^score / 2^max"),
    kSlopes<ForwardArgs>,
    kKeyBegin<ForwardArgs>,
    kKeyEnd<ForwardArgs>,
    kQueryStarts<ForwardArgs>,
    kKeyStarts<ForwardArgs>,
    argument<&ForwardArgs::blocks>("blocks", Role::input, "batch places", Elements::index,
                                   Presence::extra, Drawn::index)
        .with_any_strides()
        .below_extent_of("batch")
        .added_later()
        .means(
            "(sequences, places) in i64, or NULL; k and v are then pools (blocks, kv_heads, keys "
            "of a block, elements): key j of sequence s is in block blocks[s, j / keys of a "
            "block], and key_end[s] is the number of its keys"),
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
    kQueryStarts<BackwardArgs>,
    kKeyStarts<BackwardArgs>,
};

template <class Args>
constexpr Option kOptions[] = {
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
    option<&Args::arithmetic>("arithmetic", 0, kArithmetics)
        .added_later()
        .means(
            "0 canonical, the same bits everywhere; 1 tensor, those of a GPU's tensor cores or, of "
            "forward on a processor, of AMX"),
};

// Nothing stands in for tensor cores where there are none; processors without AMX have its order.
bool has_tensor_cores(const Problem& p, const Machine& machine) {
  return machine.device != Device::cpu && size_of(p.dtype) == 2 && machine.gpu.capability >= 80;
}
std::string refuses_forward(const Problem& p, const Machine& machine) {
  if (p.arithmetic == Arithmetic::canonical || has_tensor_cores(p, machine)) return {};
  if (machine.device == Device::cpu && p.dtype == DType::bf16) return {};
  return "arithmetic tensor needs bf16 on a processor, or f16 or bf16 on a GPU with tensor cores "
         "(sm_80 and later); use canonical";
}
// Gradients of what a processor computed in either arithmetic are canonical.
std::string refuses_backward(const Problem& p, const Machine& machine) {
  if (p.arithmetic == Arithmetic::canonical || has_tensor_cores(p, machine)) return {};
  return "arithmetic tensor needs f16 or bf16 on a GPU with tensor cores (sm_80 and later); use "
         "canonical";
}

std::int64_t places_of(const ForwardArgs& args) { return args.blocks.shape[1]; }
std::int64_t places_of(const BackwardArgs&) { return 0; }

template <class Args>
Extents extents(const Args& args) {
  return {args.q.shape[0], args.q.shape[1], args.k.shape[1], args.q.shape[2],
          args.k.shape[2], args.q.shape[3], args.v.shape[3], args.query_starts.shape[0],
          places_of(args)};
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
      .check = check,
      .extents = extents<ForwardArgs>,
      .check_contents = check_contents,
      .refuses = refuses_forward,
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
      .check = check,
      .extents = extents<BackwardArgs>,
      .check_contents = check_contents,
      .refuses = refuses_backward,
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
