// SPDX-License-Identifier: Apache-2.0
// Attention by warpgroups, as the emulator has it: the bits of flash_mma, which are those that the
// README defines, in every schedule and layout; beside what is not finite; what is declined.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "simt/attention_tensor.h"
#include "workloads.h"

namespace isobit::attention::by_tensor_cores {
namespace {

using lab::kDetectsRaces;

constexpr std::string_view kName = "flash_wgmma";
constexpr Way kWay{.name = kName};

// Fewer blocks than tiles: a block goes from one to the next.
constexpr Way kInTurns{.name = kName, .multiprocessors = 2};

TEST(AttentionWarpgroupKernels, HaveTheBitsOfTheirDefinitionInEverySchedule) {
  lab::watch();
  lab::in_every_schedule([&](bool in_order) {
    std::int64_t gap = 0;
    for (const Asked& asked : kAsked) {
      if (!in_order && kDetectsRaces && gap > 1) continue;
      Given<bf16> given({2, 2, 1, 5, 150, 24, 16}, asked, 8 * (gap++ % 2));
      expect_defined(given, in_order ? kWay : kInTurns);
      if (HasFatalFailure()) return;
    }
  });
}

// Parts of a head, tiles and panels that are not whole, rows that end within 16 bytes.
TEST(AttentionWarpgroupKernels, HaveTheBitsOfTheirDefinitionAtEveryEdge) {
  lab::watch();
  std::uint32_t seed = 7;
  for (const auto& [s, gap] : {std::pair{Shape{1, 2, 2, 1, 1, 1, 1}, 7},
                               {Shape{1, 1, 1, 17, 129, 64, 72}, 0},
                               {Shape{1, 2, 1, 70, 40, 76, 12}, 4},
                               {Shape{1, 1, 1, 3, 0, 8, 8}, 0},
                               {Shape{1, 1, 1, 66, 260, 136, 128}, 8},
                               {Shape{1, 1, 1, 130, 300, 24, 65}, 0}}) {
    if (kDetectsRaces && s.queries * s.keys > 3000) continue;
    Given<f16> given(s, {.options = {.causal = bottom_right}}, gap, ++seed);
    if (s.cols == 65) given.v = {1, 1, 300, 65, 7, ++seed};
    expect_defined(given, kWay, 7);
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionWarpgroupKernels, JoinRunsByPairs) {
  lab::watch();
  for (const std::int64_t keys : {2049, 4500}) {
    if (kDetectsRaces && keys > 2049) continue;
    Given<bf16> given({1, 1, 1, 20, keys, 16, 8}, {.options = {.causal = bottom_right}});
    expect_defined(given, kWay, 6);
    if (HasFatalFailure()) return;
  }
}

// A panel that one warpgroup alone sees, and tiles that see no key at all between others.
TEST(AttentionWarpgroupKernels, HaveTheBitsOfTheirDefinitionWhereOneSeesNothing) {
  lab::watch();
  for (const Options& options : {Options{.causal = top_left}, Options{.causal = bottom_right},
                                 Options{.causal = top_left, .window = 20}}) {
    if (kDetectsRaces && options.window == 0) continue;
    Given<bf16> given({1, 2, 1, 200, 136, 16, 8}, {.options = options});
    expect_defined(given, kInTurns, 9);
    if (HasFatalFailure()) return;
  }
}

template <class T>
void expect_bits_of_mma(Given<T>& given, const ForwardArgs& args, const Way& way = kWay) {
  given.forget();
  run(args, Way{});
  Given<T> usual = given;
  given.forget();
  run(args, way);
  for (std::size_t i = 0; i < given.y.all.size(); ++i)
    ASSERT_EQ(given.y.all[i].bits, usual.y.all[i].bits) << i;
  for (std::size_t i = 0; i < given.lse.size(); ++i) {
    ASSERT_EQ(bits(given.lse[i]), bits(usual.lse[i])) << i;
    ASSERT_EQ(bits(given.max[i]), bits(usual.max[i])) << i;
    ASSERT_EQ(bits(given.sum[i]), bits(usual.sum[i])) << i;
  }
}

// What is not finite reaches those who see it, in a part of v that warps make again.
TEST(AttentionWarpgroupKernels, HaveTheBitsOfMmaBesideWhatIsNotFinite) {
  lab::watch();
  for (const std::int64_t key : {3, 20, 139}) {
    if (kDetectsRaces && key != 20) continue;
    Given<bf16> given({1, 1, 1, 70, 150, 16, 72}, {.options = {.causal = bottom_right}}, 0, 3);
    given.v.at(0, 0, key, 5) = from_float<bf16>(kInf);
    given.v.at(0, 0, key, 66) = from_float<bf16>(kNan);
    given.k.at(0, 0, 100, 3) = from_float<bf16>(kNan);
    expect_bits_of_mma(given, given.args());
    ASSERT_EQ(widen<float>(given.y.at(0, 0, 0, 5)) == kInf, key <= 80);
    ASSERT_EQ(std::isnan(widen<float>(given.y.at(0, 0, 0, 66))), key <= 80);
    if (HasFatalFailure()) return;
  }
}

// A view of (batch, heads, rows, cols) by strides.
TensorView view_of(std::vector<bf16>& all, const std::array<std::int64_t, 4>& shape,
                   const std::array<std::int64_t, 4>& strides) {
  TensorView view{all.data(), 2 * std::ssize(all), DType::bf16, 4};
  for (std::size_t i = 0; i < 4; ++i) {
    view.shape[i] = shape[i];
    view.strides[i] = strides[i];
  }
  return view;
}

// Heads side by side in a row, as a linear layer leaves them, of one array that has q, k and v; a
// cache that is longer than its keys; heads and batches that are one and the same.
TEST(AttentionWarpgroupKernels, TakeHeadsAndBatchesHoweverTheyLie) {
  lab::watch();
  constexpr std::int64_t kBatch = 2, kHeads = 2, kRows = 20, kMost = 24, kDim = 16;
  Given<bf16> given({kBatch, kHeads, kHeads, kRows, kRows, kDim, kDim},
                    {.options = {.causal = bottom_right}});
  Numbers<bf16> all(1, 1, kBatch * kMost, 3 * kHeads * kDim, 0, 5);
  const std::array<std::int64_t, 4> shape{kBatch, kHeads, kRows, kDim};
  // Of batch, head and row.
  const std::array<std::int64_t, 4> ways[] = {
      {kMost * 3 * kHeads * kDim, kDim, 3 * kHeads * kDim, 1},  // heads in a row
      {kHeads * kMost * kDim, kMost * kDim, kDim, 1},           // rows in a head
      {0, kMost * kDim, kDim, 1},
      {kMost * kDim, 0, kDim, 1},
      {0, 0, kDim, 1},
      {0, kDim, 2 * kDim, 1}};
  for (const auto& of_q : ways)
    for (const auto& of_k : ways) {
      if (kDetectsRaces && &of_q != &of_k) continue;
      ForwardArgs args = given.args();
      args.q = view_of(all.all, shape, of_q);
      args.k = view_of(all.all, shape, of_k);
      args.v = view_of(all.all, shape, of_k);
      for (const auto& [view, place] : {std::pair{&args.k, 1}, {&args.v, 2}}) {
        view->data = static_cast<bf16*>(view->data) + place * kHeads * kDim;
        view->bytes -= 2 * place * kHeads * kDim;
      }
      expect_bits_of_mma(given, args);
      if (HasFatalFailure()) return;
    }
}

// Packed sequences, one of them without queries, one without keys.
TEST(AttentionWarpgroupKernels, TakePackedSequences) {
  lab::watch();
  std::vector<std::int64_t> of_queries{0, 3, 3, 140, 141, 150}, of_keys{0, 20, 25, 165, 165, 174};
  for (const bool by_heads : {false, true}) {
    if (kDetectsRaces && by_heads) continue;
    Given<bf16> given({1, 2, 1, 152, 180, 32, 24},
                      {.options = {.causal = bottom_right, .dropout = 0.2}}, 8);
    ForwardArgs args = given.args();
    if (by_heads) {  // of a token one head behind the other
      args.q.strides[1] = 40;
      args.q.strides[2] = 80;
    }
    args.query_starts = Given<bf16>::whole(of_queries);
    args.key_starts = Given<bf16>::whole(of_keys);
    expect_bits_of_mma(given, args);
    expect_bits_of_mma(given, args, kInTurns);
    if (HasFatalFailure()) return;
  }
}

// On a device nothing looks at ranges before: what leads out of the arrays is clamped.
TEST(AttentionWarpgroupKernels, ClampRangesThatAreNone) {
  lab::watch();
  Given<f16> given({3, 1, 1, 4, 140, 16, 8}, {.range = true});
  given.begin = {-5, std::int64_t{1} << 62, 20};
  given.end = {std::int64_t{1} << 62, 3, 10};
  expect_bits_of_mma(given, given.args());
}

// Against the reference, and bit by bit against flash_mma.
TEST(AttentionWarpgroupKernels, AreRightAndHaveTheBitsOfMma) {
  lab::watch();
  lab::attach_devices();
  lab::Flags flags;
  flags.device = {std::string(name_of(kDevice))};
  flags.variant = {"flash_mma", std::string(kName)};
  flags.dtype = {"f16", "bf16"};
  flags.options = {{"arithmetic", {"tensor"}}};
  flags.dims = {{"batch", {1}},   {"heads", {2}},     {"kv_heads", {1}},  {"seq_q", {70}},
                {"seq_k", {150}}, {"head_dim", {40}}, {"value_dim", {72}}};
  const auto expect = [&](std::size_t cases) {
    const std::vector<lab::Case> all = lab::cases_of(forward_operation(), flags, "test");
    EXPECT_EQ(all.size(), cases);
    for (const lab::Case& c : all) {
      lab::Workload workload(c);
      workload.draw();
      const std::vector<lab::Configuration> ways =
          lab::configurations_of(workload, flags, lab::Unnamed::all).able;
      ASSERT_EQ(ways.size(), 2U);
      lab::expect_right(workload, ways);
      if (HasFatalFailure()) return;
    }
  };
  flags.with = {"bias+mask"};
  expect(2);
  if (kDetectsRaces) return;
  flags.with.clear();
  flags.input = {"randn", "uniform", "integers", "alternating", "outlier", "denormal"};
  expect(12);
}

// The bits of sm_90 by the model, written down: those of flash_mma.
TEST(AttentionWarpgroupKernels, HaveTheBitsOfTheirGeneration) {
  lab::watch();
  std::uint64_t hash = 14695981039346656037u;
  Given<f16> given({1, 2, 1, 9, 140, 40, 24}, {.options = {.causal = bottom_right}});
  given.forget();
  run(given.args(), kWay);
  for (const f16& each : given.y.all) hash = (hash ^ each.bits) * 1099511628211u;
  for (const float each : given.lse)
    hash = (hash ^ std::bit_cast<std::uint32_t>(each)) * 1099511628211u;
  EXPECT_EQ(hash, 12291448176575093127u);
}

class Asking {
 public:
  explicit Asking(const Shape& shape) : given_(shape, {}) { typed() = given_.args(); }

  ForwardArgs& typed() { return *static_cast<ForwardArgs*>(args_.get()); }
  std::string reason(const Machine& machine) const {
    return forward_operation().declines(variant_named(kName), args_, machine);
  }
  std::string reason() const { return reason(lab::execution_for(kDevice).machine); }
  int chosen() const {
    return forward_operation().default_variant(args_, lab::execution_for(kDevice).machine);
  }

 private:
  Given<bf16> given_;
  Arguments args_ = forward_operation().make_arguments();
};

TEST(AttentionWarpgroupKernels, AreNobodysDefaultAndSayWhatTheyDecline) {
  lab::attach_devices();
  constexpr Shape kShape{2, 2, 2, 8, 8, 16, 16};
  Asking usual(kShape);
  EXPECT_EQ(usual.reason(), "");
  EXPECT_EQ(usual.chosen(), variant_named("flash_mma"));
  Machine machine = lab::execution_for(kDevice).machine;
  for (const int other : {80, 89, 100, 120}) {
    machine.gpu.capability = other;
    EXPECT_EQ(usual.reason(machine), "only GPUs of sm_90 have its instructions");
  }
  usual.typed().arithmetic = Arithmetic::canonical;
  EXPECT_EQ(usual.reason(), "has no arithmetic but tensor");

  Asking shifted(kShape);
  for (TensorView* each : {&shifted.typed().q, &shifted.typed().k}) each->shape[3] = 8;
  EXPECT_EQ(shifted.reason(), "");
  for (TensorView* each : {&shifted.typed().q, &shifted.typed().k}) {
    const TensorView before = *each;
    each->data = static_cast<bf16*>(each->data) + 4;
    each->bytes -= 8;
    EXPECT_EQ(shifted.reason(), "it takes q, k and v whose rows begin at 16 bytes");
    *each = before;
  }
  const auto with_strides = [&](const std::array<std::int64_t, 4>& strides) {
    Asking asking(kShape);
    TensorView& k = asking.typed().k;
    k.shape = {2, 2, 8, 4};
    asking.typed().q.shape[3] = 4;
    for (std::size_t i = 0; i < 4; ++i) k.strides[i] = strides[i];
    return asking.reason();
  };
  EXPECT_EQ(with_strides({256, 128, 8, 1}), "");
  EXPECT_EQ(with_strides({128, 64, 8, 2}), "it takes q, k and v whose rows are adjacent elements");
  EXPECT_EQ(with_strides({128, 64, 4, 1}), "it takes q, k and v whose rows begin at 16 bytes");
  EXPECT_EQ(with_strides({128, 64, 0, 1}),
            "it takes q, k and v whose rows and heads lie behind each other");
  EXPECT_EQ(with_strides({144, 72, 16, 1}),
            "it takes q, k and v whose rows and heads lie behind each other");
  EXPECT_EQ(with_strides({136, 64, 8, 1}),
            "it takes batches of q, k and v that are whole heads or rows apart");

  EXPECT_EQ(Asking({1, 1, 1, 8, 8, 16, 136}).reason(),
            "it takes heads of v of at most 128 elements");
  EXPECT_EQ(Asking({1, 1, 1, 8, 8, 320, 128}).reason(), "");
  EXPECT_EQ(Asking({1, 1, 1, 8, 8, 328, 16}).reason(),
            "needs 247224 bytes of shared memory for heads of 328 and 16 elements; a block has "
            "232448");
  EXPECT_EQ(Asking({1, 1, 1, 8, 8, 0, 16}).reason(), "it takes heads of one element and more");

  Asking in_blocks(kShape);
  std::vector<std::int64_t> blocks{0, 1}, ends{8, 8};
  in_blocks.typed().blocks = {blocks.data(), 16, DType::i64, 2, {2, 1}, {1, 1}};
  in_blocks.typed().key_end = Given<bf16>::whole(ends);
  EXPECT_EQ(in_blocks.reason(), "it takes no keys in blocks");
}

}  // namespace
}  // namespace isobit::attention::by_tensor_cores
