// SPDX-License-Identifier: Apache-2.0
// Attention in arithmetic tensor on processors: every variant against the specification, whose
// products have the order of core/amx.h; what is not there, and what AMX leaves behind.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "attention_calls.h"
#include "isobit/core/amx.h"
#include "isobit/core/error.h"

namespace isobit::attention::amx_test {
namespace {

using lab::execution_for;
using Elements = std::vector<bf16>;

bf16 rounded(float x) { return from_float<bf16>(x); }

struct Shape {
  std::int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
};

// What a call gives, as bits.
using Bits = std::vector<std::uint32_t>;

// One call's arrays in bf16, whose elements are of size 1 times a factor.
struct Call {
  Shape s;
  Elements q, k, v, y, bias;
  Floats lse, max, sum;
  Options options;

  explicit Call(const Shape& shape, float size = 1) : s(shape) {
    q = drawn(s.batch * s.heads * s.queries * s.dim, 1, size);
    k = drawn(s.batch * s.kv_heads * s.keys * s.dim, 2, size);
    v = drawn(s.batch * s.kv_heads * s.keys * s.value_dim, 3, size);
    y.resize(static_cast<std::size_t>(s.batch * s.heads * s.queries * s.value_dim));
    lse.resize(static_cast<std::size_t>(s.batch * s.heads * s.queries));
    max = sum = lse;
  }
  static Elements drawn(std::int64_t count, std::uint32_t seed, float size) {
    Elements result;
    for (const float each : numbers(count, seed)) result.push_back(rounded(each * size));
    return result;
  }
  static TensorView of(Elements& elements, std::vector<std::int64_t> shape) {
    static Floats none;
    TensorView result = view(none.data(), {1, 1, 1, 1});
    result.data = elements.data();
    result.bytes = 2 * std::ssize(elements);
    result.dtype = DType::bf16;
    std::int64_t stride = 1;
    for (int i = 3; i >= 0; --i) {
      result.shape[i] = shape[static_cast<std::size_t>(i)];
      result.strides[i] = stride;
      stride *= result.shape[i];
    }
    return result;
  }
  ForwardArgs args() {
    ForwardArgs args;
    static_cast<Options&>(args) = options;
    args.arithmetic = Arithmetic::tensor;
    args.q = of(q, {s.batch, s.heads, s.queries, s.dim});
    args.k = of(k, {s.batch, s.kv_heads, s.keys, s.dim});
    args.v = of(v, {s.batch, s.kv_heads, s.keys, s.value_dim});
    args.y = of(y, {s.batch, s.heads, s.queries, s.value_dim});
    if (!bias.empty()) args.bias = of(bias, {s.batch, s.heads, s.queries, s.keys});
    args.lse = view(lse.data(), {s.batch, s.heads, s.queries});
    args.max = view(max.data(), {s.batch, s.heads, s.queries});
    args.sum = view(sum.data(), {s.batch, s.heads, s.queries});
    return args;
  }
  bf16& key(std::int64_t j, std::int64_t d) { return k[static_cast<std::size_t>(j * s.dim + d)]; }
  bf16& value(std::int64_t j, std::int64_t d) {
    return v[static_cast<std::size_t>(j * s.value_dim + d)];
  }
  float result(std::int64_t row, std::int64_t d) const {
    return to_float(y[static_cast<std::size_t>(row * s.value_dim + d)]);
  }
  Bits bits() const {
    Bits all;
    for (const bf16 each : y) all.push_back(each.bits);
    for (const Floats* each : {&lse, &max, &sum})
      for (const float number : *each) all.push_back(std::bit_cast<std::uint32_t>(number));
    return all;
  }
  // By one variant, with the default plan, or another. Where it declines, the results stay.
  bool by(const ForwardArgs& args, std::string_view name, const Execution& execution,
          const Plan* plan = nullptr) {
    const Operation& operation = forward_operation();
    const Arguments given = operation.make_arguments();
    *static_cast<ForwardArgs*>(given.get()) = args;
    const int variant = index_of(name);
    if (!operation.declines(variant, given, execution.machine).empty()) return false;
    std::fill(y.begin(), y.end(), rounded(kNan));
    for (Floats* each : {&lse, &max, &sum}) std::fill(each->begin(), each->end(), kNan);
    operation.run(variant, plan ? *plan : operation.choose(variant, given, execution.machine),
                  given, execution);
    return true;
  }
  static int index_of(std::string_view name) {
    const auto infos = forward_operation().variants();
    for (std::size_t i = 0; i < infos.size(); ++i)
      if (infos[i].device == Device::cpu && infos[i].name == name) return static_cast<int>(i);
    throw std::logic_error("no such variant");
  }
};

// Whether AMX is used here.
bool has_tiles() { return amx::why_not().empty() && Machine::here().isa == Isa::avx512; }

// Every variant gives what the specification does, on each instruction set, with 1 thread and 3.
Bits expect_one_result(Call& call, const ForwardArgs& args, const std::string& where) {
  EXPECT_TRUE(call.by(args, "naive", execution_for(Isa::scalar, 2))) << where;
  const Bits expected = call.bits();
  for (const int threads : {1, 3}) {
    for (const Isa isa : Machine::isas_here()) {
      EXPECT_TRUE(call.by(args, "flash", execution_for(isa, threads))) << where;
      EXPECT_EQ(call.bits(), expected) << where << " by flash " << name_of(isa);
    }
    const bool by_tiles = call.by(args, "amx", execution_for(Machine::here().isa, threads));
    EXPECT_EQ(by_tiles, has_tiles()) << where;
    if (by_tiles) { EXPECT_EQ(call.bits(), expected) << where << " by amx"; }
  }
  return expected;
}
Bits expect_one_result(Call& call, const std::string& where) {
  return expect_one_result(call, call.args(), where);
}

// Parts of tiles, of steps, of panels and of a block of queries; runs of panels.
constexpr Shape kShapes[] = {
    {1, 1, 1, 1, 1, 1, 1},      {2, 2, 1, 3, 5, 31, 17},     {1, 2, 2, 16, 32, 32, 16},
    {1, 4, 2, 33, 129, 64, 64}, {1, 1, 1, 70, 300, 72, 130}, {1, 1, 1, 17, 127, 33, 15},
    {1, 1, 1, 5, 4500, 16, 8},  {2, 1, 1, 40, 96, 300, 7},   {1, 1, 1, 20, 40, 0, 3},
    {1, 1, 1, 20, 40, 3, 0},    {1, 1, 1, 20, 0, 8, 8},      {1, 1, 1, 2, 3, 8400, 2}};

TEST(AmxAttention, IsOneOfEveryShape) {
  for (const Shape& s : kShapes)
    for (const Causal causal : {Causal::no, Causal::bottom_right}) {
      Call call(s);
      call.options.causal = causal;
      expect_one_result(call, std::to_string(s.queries) + " x " + std::to_string(s.keys) + " x " +
                                  std::to_string(s.dim));
    }
}

TEST(AmxAttention, IsOneWithEveryOption) {
  const Options options[] = {{.causal = Causal::top_left, .window = 40},
                             {.window = 7},
                             {.scale = -0.7},
                             {.scale = 1e-200},
                             {.scale = 300},
                             {.softcap = 2},
                             {.causal = Causal::bottom_right, .dropout = 0.3, .dropout_seed = 5}};
  for (const Options& each : options)
    for (const int with : {0, 1, 2}) {
      Call call({1, 2, 1, 70, 300, 40, 20});
      call.options = each;
      if (with == 1) call.bias = Call::drawn(2 * 70 * 300, 9, 3);
      ForwardArgs args = call.args();
      std::vector<unsigned char> mask(2 * 70 * 300);
      for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 7 != 3 && i % 900 > 250;
      const Floats slopes = {0.25F, -0.0625F};
      if (with == 2) {
        args.mask = {mask.data(), std::ssize(mask), DType::boolean,
                     4,           {1, 2, 70, 300},  {42000, 21000, 300, 1}};
        args.slopes = view(slopes.data(), {1, 2});
      }
      expect_one_result(call, args, "scale " + std::to_string(each.scale));
    }
}

// Sizes that leave the range on both sides, on the way to scores and in sums.
TEST(AmxAttention, IsOneOfEverySize) {
  for (const float size :
       {0x1p-100F, 0x1p-64F, 0x1p-40F, 0x1p5F, 0x1p20F, 0x1p62F, 0x1p66F, 0x1p120F}) {
    Call call({1, 2, 1, 40, 200, 64, 24}, size);
    expect_one_result(call, "size " + std::to_string(std::ilogb(size)));
  }
  Call subnormal({1, 1, 1, 20, 150, 40, 20});
  for (std::size_t i = 0; i < subnormal.k.size(); i += 3) subnormal.k[i].bits &= 0x807f;
  for (std::size_t i = 0; i < subnormal.v.size(); i += 3) subnormal.v[i].bits &= 0x807f;
  expect_one_result(subnormal, "with subnormal elements");
}

// One chain would lose each 1 beside 2^24, and so would a sum of neighbours.
TEST(AmxAttention, AddsInStepsOfEvenAndOddElements) {
  const float terms[] = {0x1p24F, 1, 0, 1, -0x1p24F, 1};
  for (const Isa isa : Machine::isas_here())
    for (const char* name : {"naive", "flash", "amx"}) {
      Call scores({1, 1, 1, 1, 1, 6, 1});
      for (int d = 0; d < 6; ++d) {
        scores.q[static_cast<std::size_t>(d)] = rounded(terms[d]);
        scores.key(0, d) = rounded(1);
      }
      scores.options.scale = 1;
      if (scores.by(scores.args(), name, execution_for(isa, 1))) {
        EXPECT_FLOAT_EQ(scores.lse[0], 3) << name;
      }
      Call values({1, 1, 1, 1, 6, 1, 1});  // with weights of 1
      values.q[0] = rounded(0);
      for (int j = 0; j < 6; ++j) values.value(j, 0) = rounded(terms[j]);
      if (values.by(values.args(), name, execution_for(isa, 1))) {
        EXPECT_EQ(values.result(0, 0), 0.5F) << name;
      }
    }
}

// Weights that are multiplied have 8 bits, and those that are added all of theirs.
TEST(AmxAttention, RoundsWeightsAndNotTheirSum) {
  for (const char* name : {"naive", "flash", "amx"}) {
    Call call({1, 1, 1, 1, 2, 1, 2});
    call.q[0] = rounded(1);
    call.key(0, 0) = rounded(0);
    call.key(1, 0) = rounded(-0.125F);
    call.options.scale = 1;
    for (int j = 0; j < 2; ++j)
      for (int d = 0; d < 2; ++d) call.value(j, d) = rounded(j == d ? 0x1p20F : 0);
    if (!call.by(call.args(), name, execution_for(Machine::here().isa, 1))) continue;
    const double weight = std::exp(-0.125);
    EXPECT_NEAR(call.sum[0], 1 + weight, 1e-6) << name;
    const float multiplied = to_float(rounded(static_cast<float>(weight)));
    EXPECT_EQ(call.result(0, 1), to_float(rounded(multiplied * (1 / call.sum[0]) * 0x1p20F)))
        << name;
  }
}

// What is not finite in v reaches the queries that see it; what they do not see is not there.
TEST(AmxAttention, WhatIsNotFiniteStaysWithThoseWhoSeeIt) {
  for (const float other : {kNan, kInf, -kInf})
    for (const bool in_k : {false, true}) {
      Call call({1, 1, 1, 150, 150, 40, 20});
      call.options.causal = Causal::top_left;
      (in_k ? call.key(140, 3) : call.value(140, 3)) = rounded(other);
      if (!in_k) call.value(10, 5) = rounded(kInf);
      expect_one_result(call, std::to_string(other));
      for (std::int64_t i = 0; i < 150; ++i)
        for (std::int64_t d = 0; d < 20; ++d) {
          const float found = call.result(i, d);
          if (in_k) {
            if (other != other) { ASSERT_EQ(std::isnan(found), i >= 140) << i << ' ' << d; }
            if (i < 140) { ASSERT_TRUE(std::isfinite(found)) << i << ' ' << d; }
          } else if (d == 3 && i >= 140) {
            ASSERT_TRUE(std::isnan(other) ? std::isnan(found) : found == other) << i;
          } else {
            ASSERT_EQ(found == kInf, d == 5 && i >= 10) << i << ' ' << d;
            ASSERT_FALSE(std::isnan(found)) << i << ' ' << d;
          }
        }
    }
  // Infinities of both signs, and weights that are dropped.
  Call call({1, 1, 1, 40, 300, 8, 8});
  call.options.dropout = 0.5;
  for (int j = 0; j < 300; j += 5) call.value(j, j % 8) = rounded(j % 2 == 0 ? kInf : -kInf);
  expect_one_result(call, "with dropout");
}

TEST(AmxAttention, PlansChangeNoBit) {
  Call call({1, 4, 2, 300, 200, 64, 40});
  const Bits expected = expect_one_result(call, "any plan");
  for (const int columns : {1, 2, 4, 8, 16})
    for (const char* name : {"flash", "amx"}) {
      const Plan plan = {columns};
      if (call.by(call.args(), name, execution_for(Machine::here().isa, 2), &plan)) {
        EXPECT_EQ(call.bits(), expected) << name << ' ' << columns;
      }
    }
}

// Some queries of a call, and one sequence of a batch, have the bits that they have among all.
TEST(AmxAttention, RowsAloneAreWhatTheyAreInCompany) {
  const Execution execution = execution_for(Machine::here().isa, 2);
  Call all({3, 2, 1, 70, 200, 33, 9});
  forward(all.args(), execution);
  for (const std::int64_t count : {1, 2, 15, 17, 33, 70})
    for (const std::int64_t b : {0, 2}) {
      const std::int64_t first = 70 - count;
      Call some({1, 1, 1, count, 200, 33, 9});
      const auto copy = [](const Elements& from, std::int64_t at, Elements& to) {
        std::copy_n(from.begin() + at, to.size(), to.begin());
      };
      copy(all.q, ((b * 2 + 1) * 70 + first) * 33, some.q);
      copy(all.k, b * 200 * 33, some.k);
      copy(all.v, b * 200 * 9, some.v);
      forward(some.args(), execution);
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t d = 0; d < 9; ++d)
          ASSERT_EQ(some.result(i, d), all.result((b * 2 + 1) * 70 + first + i, d))
              << count << ' ' << i;
    }
}

// Packed sequences, and the same keys in blocks that lie anywhere.
TEST(AmxAttention, SequencesHaveTheBitsThatTheyHaveAlone) {
  const std::vector<std::int64_t> queries = {0, 40, 41, 70}, keys = {0, 150, 150, 300};
  Call all({1, 2, 1, 75, 300, 24, 12});
  all.options.causal = Causal::bottom_right;
  const auto whole = [](const std::vector<std::int64_t>& numbers, std::int64_t rows = 0) {
    TensorView result;
    result.data = const_cast<std::int64_t*>(numbers.data());
    result.bytes = 8 * std::ssize(numbers);
    result.dtype = DType::i64;
    result.rank = rows == 0 ? 1 : 2;
    result.shape = {rows == 0 ? std::ssize(numbers) : rows,
                    rows == 0 ? 0 : std::ssize(numbers) / rows};
    result.strides = {rows == 0 ? 1 : std::ssize(numbers) / rows, rows == 0 ? 0 : 1};
    return result;
  };
  ForwardArgs args = all.args();
  args.query_starts = whole(queries);
  args.key_starts = whole(keys);
  expect_one_result(all, args, "packed");

  // Blocks of 30 keys: block b of all keys is in place (7 b + 3) % 10.
  Call pooled = all;
  pooled.options = all.options;
  std::vector<std::int64_t> blocks(15, 0), ends = {150, 0, 150};
  for (std::int64_t b = 0; b < 10; ++b) {
    const std::int64_t place = (7 * b + 3) % 10;
    std::copy_n(all.k.begin() + b * 30 * 24, 30 * 24, pooled.k.begin() + place * 30 * 24);
    std::copy_n(all.v.begin() + b * 30 * 12, 30 * 12, pooled.v.begin() + place * 30 * 12);
    blocks[static_cast<std::size_t>(b < 5 ? b : 10 + b - 5)] = place;
  }
  ForwardArgs in_blocks = pooled.args();
  in_blocks.k = Call::of(pooled.k, {10, 1, 30, 24});
  in_blocks.v = Call::of(pooled.v, {10, 1, 30, 12});
  in_blocks.query_starts = args.query_starts;
  in_blocks.key_end = whole(ends);
  in_blocks.blocks = whole(blocks, 3);
  expect_one_result(pooled, in_blocks, "in blocks");
  EXPECT_EQ(pooled.bits(), all.bits());

  for (int s = 0; s < 3; ++s) {
    const auto at = static_cast<std::size_t>(s);
    const std::int64_t m = queries[at + 1] - queries[at], n = keys[at + 1] - keys[at];
    Call alone({1, 2, 1, m, n, 24, 12});
    alone.options = all.options;
    for (std::int64_t h = 0; h < 2; ++h)
      std::copy_n(all.q.begin() + (h * 75 + queries[at]) * 24, m * 24,
                  alone.q.begin() + h * m * 24);
    std::copy_n(all.k.begin() + keys[at] * 24, n * 24, alone.k.begin());
    std::copy_n(all.v.begin() + keys[at] * 12, n * 12, alone.v.begin());
    forward(alone.args(), execution_for(Machine::here().isa, 1));
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t d = 0; d < 12; ++d)
          ASSERT_EQ(alone.result(h * m + i, d), all.result(h * 75 + queries[at] + i, d))
              << s << ' ' << h << ' ' << i;
  }
}

// On any processor, the same numbers.
TEST(AmxAttention, HasTheBitsThatAreWrittenDown) {
  Call call({1, 4, 2, 70, 300, 72, 40});
  call.options.causal = Causal::bottom_right;
  forward(call.args(), execution_for(Machine::here().isa, 2));
  std::uint64_t hash = 14695981039346656037u;
  for (const std::uint32_t bits : call.bits()) hash = (hash ^ bits) * 1099511628211u;
  EXPECT_EQ(hash, 13363630701733068660u);
}

TEST(AmxAttention, IsChosenWhereItIsAskedForAndNowhereElse) {
  Call call({1, 1, 1, 4, 8, 8, 8});
  const Operation& operation = forward_operation();
  const Arguments given = operation.make_arguments();
  auto& args = *static_cast<ForwardArgs*>(given.get()) = call.args();
  Machine machine = Machine::here();
  if (has_tiles()) { EXPECT_EQ(operation.default_variant(given, machine), Call::index_of("amx")); }
  machine.isa = Isa::scalar;
  EXPECT_EQ(operation.default_variant(given, machine), Call::index_of("flash"));
  EXPECT_EQ(operation.declines(Call::index_of("amx"), given, machine), "needs avx512 besides AMX");
  for (const char* other : {"decode", "mixed"})
    EXPECT_EQ(operation.declines(Call::index_of(other), given, machine),
              "has no arithmetic but canonical");
  args.arithmetic = Arithmetic::canonical;
  EXPECT_EQ(operation.default_variant(given, Machine::here()), Call::index_of("decode"));
  EXPECT_EQ(operation.declines(Call::index_of("amx"), given, Machine::here()),
            "has no arithmetic but tensor");
}

TEST(AmxAttention, IsRefusedOfOtherTypesAndOfGradients) {
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Unsupported& error) { return error.what(); }
    return "";
  };
  for (const DType dtype : {DType::f32, DType::f16, DType::f64}) {
    Call call({1, 1, 1, 2, 2, 2, 2});
    for (Elements* each : {&call.q, &call.k, &call.v, &call.y}) each->resize(32);
    ForwardArgs args = call.args();
    for (TensorView* each : {&args.q, &args.k, &args.v, &args.y}) each->dtype = dtype;
    args.lse = args.max = args.sum = {};
    EXPECT_EQ(message([&] { forward(args, execution_for(Machine::here().isa, 1)); }),
              "attention: arithmetic tensor needs bf16 on a processor, or f16 or bf16 on a GPU "
              "with tensor cores (sm_80 and later); use canonical");
  }
  Call call({1, 1, 1, 2, 2, 2, 2});
  BackwardArgs args = backward_of(call.args());
  Elements grad_y = call.y, grad_q = call.q;
  args.grad_y = Call::of(grad_y, {1, 1, 2, 2});
  args.grad_q = Call::of(grad_q, {1, 1, 2, 2});
  args.arithmetic = Arithmetic::tensor;
  EXPECT_EQ(message([&] { backward(args, execution_for(Machine::here().isa, 1)); }),
            "attention: arithmetic tensor needs f16 or bf16 on a GPU with tensor cores (sm_80 and "
            "later); use canonical");
}

#if defined(__x86_64__)
// State components in use: a thread that leaves tiles in its registers has them saved and restored
// at every switch from then on.
TEST(AmxAttention, LeavesNoTilesInRegisters) {
  if (!has_tiles()) GTEST_SKIP() << "has no AMX";
  Call call({1, 1, 1, 40, 70, 8, 8});
  ASSERT_TRUE(call.by(call.args(), "amx", execution_for(Machine::here().isa, 1)));
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  EXPECT_EQ(low & 3u << 17, 0U);
}
#endif

}  // namespace
}  // namespace isobit::attention::amx_test
