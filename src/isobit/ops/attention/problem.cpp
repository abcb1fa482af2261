// SPDX-License-Identifier: Apache-2.0
// What a call of attention must keep to: shapes, types and strides, options, and what arrays of
// whole numbers contain.
#include "isobit/ops/attention/problem.h"

#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

#include "isobit/core/check.h"
#include "isobit/core/error.h"

namespace isobit::attention {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 31;  // of each dim that dropout counts
constexpr std::int64_t kMostKeys = std::int64_t{1} << 50;  // of the blocks of a sequence

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
  explicit Check(const Args& args) : q_(args.q), blocks_(blocks_of(args)) {
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
    p.sequences = p.batch;
    p.head_dim = args.q.shape[3];
    p.value_dim = args.v.shape[3];
    const std::int64_t batch = blocks_.given() ? args.k.shape[0] : p.batch;
    shaped("k", args.k, "k beside q", {batch, p.kv_heads, p.seq_k, p.head_dim});
    shaped("v", args.v, "v beside q and k", {batch, p.kv_heads, p.seq_k, p.value_dim});
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
    check_sequences(args);
    if (args.key_begin.given()) p.key_begin = places("key_begin", args.key_begin);
    if (args.key_end.given()) p.key_end = places("key_end", args.key_end);
    p.apart = p.seq_k - p.seq_q;
    check_options(args);
    const int arithmetic = static_cast<int>(args.arithmetic);
    require(0 <= arithmetic && arithmetic < std::ssize(kArithmetics), "attention: arithmetic is ",
            arithmetic, "; allowed: 0 to ", std::ssize(kArithmetics) - 1);
    p.arithmetic = args.arithmetic;
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
         named("key_end", args.key_end), named("query_starts", args.query_starts),
         named("key_starts", args.key_starts), named("blocks", args.blocks)});
    problem_.y = array_of(args.y);
    return done();
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
         named("key_end", args.key_end), named("query_starts", args.query_starts),
         named("key_starts", args.key_starts)});
    problem_.grad_y = array_of(args.grad_y);
    problem_.y = array_of(args.y);
    problem_.grad_q = array_of(args.grad_q);
    problem_.grad_k = array_of(args.grad_k);
    problem_.grad_v = array_of(args.grad_v);
    problem_.grad_bias = array_of(args.grad_bias);
    return done();
  }

 private:
  using Shape = std::array<std::int64_t, 4>;
  static TensorView blocks_of(const ForwardArgs& args) { return args.blocks; }
  static TensorView blocks_of(const BackwardArgs&) { return {}; }

  // Packed sequences, and keys in blocks.
  template <class Args>
  void check_sequences(const Args& args) {
    Problem& p = problem_;
    const bool packed = args.query_starts.given(), pooled = blocks_.given();
    if (packed) {
      p.query_starts = whole("query_starts", args.query_starts, 1);
      require(args.query_starts.shape[0] > 0,
              "attention: query_starts has shape (0); must be (sequences + 1)");
      require(p.batch == 1, "attention: q has a batch of ", p.batch,
              " beside query_starts; must be 1, as packed sequences lie one behind the other");
      require(args.key_starts.given() || pooled, "attention: query_starts is given without ",
              pooled_here<Args>(), "; what keys the sequences have must be said too");
      p.sequences = args.query_starts.shape[0] - 1;
    }
    if (args.key_starts.given()) {
      require(packed, "attention: key_starts is given without query_starts");
      require(!pooled,
              "attention: key_starts is given beside blocks; key_end says how many keys they hold");
      p.key_starts = whole("key_starts", args.key_starts, 1);
      checker_.same_shape("key_starts", args.key_starts, "query_starts", args.query_starts);
      for (const auto& [name, view] :
           {std::pair<std::string_view, const TensorView&>("key_begin", args.key_begin),
            {"key_end", args.key_end}})
        require(!view.given(), "attention: ", name,
                " is given beside key_starts, which says what keys the sequences have");
    }
    if (pooled) {
      p.blocks = whole("blocks", blocks_, 2);
      const std::int64_t rows = blocks_.shape[0], places = blocks_.shape[1];
      require(rows == p.sequences, "attention: blocks has ", rows, " rows; there are ", p.sequences,
              " sequences");
      require(args.key_end.given(),
              "attention: blocks is given without key_end, the number of keys of each sequence");
      p.block = p.seq_k;
      p.pool = args.k.shape[0];
      require(p.block == 0 || places <= kMostKeys / p.block, "attention: blocks has ", places,
              " columns; of blocks of ", p.block, " keys there may be ", kMostKeys / p.block);
      p.seq_k = p.block * places;
    }
    for (const auto& [name, view] :
         {std::pair<std::string_view, const TensorView&>("bias", args.bias), {"mask", args.mask}})
      require(!view.given() || (!packed && !pooled), "attention: ", name, " is given beside ",
              packed ? "query_starts" : "blocks",
              "; leave it out, or call each sequence by itself");
  }
  template <class Args>
  static const char* pooled_here() {
    return std::is_same_v<Args, ForwardArgs> ? "key_starts or blocks" : "key_starts";
  }
  // Of the packed ones, arrays have no batch.
  Problem done() {
    if (problem_.query_starts)
      for (Array Problem::* array :
           {&Problem::q, &Problem::k, &Problem::v, &Problem::y, &Problem::lse, &Problem::max,
            &Problem::sum, &Problem::slopes, &Problem::grad_y, &Problem::grad_lse, &Problem::grad_q,
            &Problem::grad_k, &Problem::grad_v})
        if (!(problem_.blocks && (array == &Problem::k || array == &Problem::v)))
          (problem_.*array).batch = 0;
    return problem_;
  }

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
    expected.shape[0] = problem_.sequences;
    checker_.same_shape(name, view, "a number of each sequence of q", expected);
    return array_of(view);
  }
  Array whole(std::string_view name, const TensorView& view, int rank) const {
    checker_.any_strides(name, view, Access::read);
    checker_.dtype(name, view, {DType::i64});
    require(view.rank == rank, "attention: ", name, " has ", view.rank, " dimensions; must have ",
            rank);
    return array_of(view);
  }

  void check_options(const Options& options) {
    Problem& p = problem_;
    const int code = static_cast<int>(options.causal);
    require(0 <= code && code < std::ssize(kCausals), "attention: causal is ", code,
            "; allowed: 0 to ", std::ssize(kCausals) - 1);
    p.causal = options.causal != Causal::no;
    p.from_the_end = options.causal == Causal::bottom_right;
    p.offset = p.from_the_end ? p.seq_k - p.seq_q : 0;
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
      for (std::int64_t extent : {p.sequences, p.heads, p.seq_q, p.seq_k})
        require(extent <= kMostRows, "attention: a dimension has ", extent,
                " elements; with dropout at most ", kMostRows);
  }

  const Checker checker_{"attention"};
  const TensorView& q_;
  const TensorView blocks_;
  Problem problem_{};
};

// Where packed sequences begin.
void check_starts(const char* name, const Array& starts, std::int64_t sequences, std::int64_t rows,
                  const char* of) {
  if (!starts) return;
  std::int64_t before = Problem::number(starts, 0);
  require(before == 0, "attention: ", name, "[0] is ", before, "; must be 0");
  for (std::int64_t s = 1; s <= sequences; ++s) {
    const std::int64_t here = Problem::number(starts, s);
    require(here >= before, "attention: ", name, "[", s, "] is ", here, "; must be ", before,
            " or more");
    before = here;
  }
  require(before <= rows, "attention: ", name, " ends with ", before, "; ", of, " has ", rows,
          " rows");
}

// Blocks that hold keys.
void check_blocks(const Problem& p, std::int64_t s, const Range& keys) {
  for (std::int64_t at = keys.count() == 0 ? keys.end : keys.begin; at < keys.end;) {
    const std::int64_t place = at / p.block, found = Problem::number(p.blocks, s, place);
    require(0 <= found && found < p.pool, "attention: blocks[", s, ", ", place, "] is ", found,
            "; must be from 0 to below ", p.pool, ", the number of blocks of k");
    at = (place + 1) * p.block;
  }
}

}  // namespace

Problem check(const ForwardArgs& args) { return Check(args)(args); }
Problem check(const BackwardArgs& args) { return Check(args)(args); }

void check_contents(const Problem& p) {
  check_starts("query_starts", p.query_starts, p.sequences, p.seq_q, "q");
  check_starts("key_starts", p.key_starts, p.sequences, p.seq_k, "k");
  if (!p.key_begin && !p.key_end) return;
  for (std::int64_t b = 0; b < p.sequences; ++b) {
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
    if (p.blocks) check_blocks(p, b, {begin, end});
  }
}

}  // namespace isobit::attention
