// SPDX-License-Identifier: Apache-2.0
// Attention by tensor cores, as the emulator has them: the bits that the README defines, in every
// schedule, layout and plan; beside what is not finite; packed sequences and keys in blocks.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "simt/attention_tensor.h"
#include "simt/tensor.h"
#include "workloads.h"

namespace isobit::attention::by_tensor_cores {
namespace {

using lab::kDetectsRaces;

TEST(AttentionTensorKernels, HaveTheBitsOfTheirDefinitionInEverySchedule) {
  lab::watch();
  lab::in_every_schedule([&](bool in_order) {
    std::int64_t gap = 0;
    for (const Asked& asked : kAsked) {
      Given<bf16> given({2, 2, 1, 5, 150, 24, 16}, asked, 8 * (gap++ % 2));
      expect_defined(given, in_order ? 128 : 64);
      if (HasFatalFailure()) return;
    }
  });
}

// Parts of a head, tiles and panels that are not whole, keys that lie at any address.
TEST(AttentionTensorKernels, HaveTheBitsOfTheirDefinitionAtEveryEdge) {
  lab::watch();
  std::uint32_t seed = 7;
  for (const Shape& s : {Shape{1, 2, 2, 1, 1, 1, 1},
                         {1, 1, 1, 17, 129, 64, 65},
                         {1, 2, 1, 70, 40, 80, 9},
                         {1, 1, 1, 3, 0, 8, 8},
                         {1, 1, 1, 2, 5, 0, 8},
                         {1, 1, 1, 66, 260, 130, 72}})
    for (const int gap : {0, 3, 8}) {
      if (kDetectsRaces && s.queries * s.keys > 3000) continue;
      Given<f16> given(s, {.options = {.causal = bottom_right}}, gap, ++seed);
      for (const int queries : {64, 128}) {
        expect_defined(given, queries, 7);
        if (HasFatalFailure()) return;
      }
    }
}

TEST(AttentionTensorKernels, JoinRunsByPairs) {
  lab::watch();
  for (const std::int64_t keys : {2049, 4500}) {
    if (kDetectsRaces && keys > 2049) continue;
    Given<bf16> given({1, 1, 1, 20, keys, 16, 8}, {.options = {.causal = bottom_right}});
    expect_defined(given, 64, 6);
    if (HasFatalFailure()) return;
  }
}

// What it is computed beside changes nothing: a batch, a tile, what comes before it in its tile.
TEST(AttentionTensorKernels, GiveAQueryTheBitsThatItHasAlone) {
  lab::watch();
  Given<f16> all({1, 2, 1, 70, 200, 40, 24}, {.options = {.causal = bottom_right}});
  run(all.args(), 128);
  for (const std::int64_t i : {0, 15, 16, 63, 64, 69}) {
    if (kDetectsRaces && i > 0) break;
    Given<f16> one = all;
    one.forget();
    ForwardArgs args = one.args();
    for (TensorView* each : {&args.q, &args.y}) {
      each->data = static_cast<f16*>(each->data) + i * each->strides[2];
      each->bytes -= 2 * i * each->strides[2];
      each->shape[2] = 1;
    }
    for (TensorView* each : {&args.k, &args.v}) each->shape[2] = 200 - 70 + i + 1;
    args.lse = args.max = args.sum = {};
    run(args, 64);
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t c = 0; c < 24; ++c)
        ASSERT_EQ(one.y.at(0, h, i, c).bits, all.y.at(0, h, i, c).bits) << i << ", " << c;
  }
}

TEST(AttentionTensorKernels, ShowWhatIsNotFiniteToThoseWhoSeeIt) {
  lab::watch();
  for (const std::int64_t key : {3, 20, 139}) {
    if (kDetectsRaces && key != 20) continue;
    Given<bf16> given({1, 1, 1, 20, 150, 16, 70}, {.options = {.causal = bottom_right}}, 0, 3);
    Given<bf16> usual = given;
    given.v.at(0, 0, key, 5) = from_float<bf16>(kInf);
    given.v.at(0, 0, key, 66) = from_float<bf16>(kNan);
    run(given.args(), 64);
    run(usual.args(), 64);
    for (std::int64_t i = 0; i < 20; ++i)
      for (std::int64_t c = 0; c < 70; ++c) {
        const float found = widen<float>(given.y.at(0, 0, i, c));
        const bool sees = key <= i + 130;
        if (sees && c == 66)
          ASSERT_TRUE(std::isnan(found)) << i << ", " << c;
        else if (sees && c == 5)
          ASSERT_EQ(found, kInf) << i << ", " << c;
        else
          ASSERT_EQ(given.y.at(0, 0, i, c).bits, usual.y.at(0, 0, i, c).bits) << i << ", " << c;
      }
  }
  // A score that is NaN makes its row NaN, and a key that is not there no row.
  Given<f16> given({1, 1, 1, 3, 40, 16, 8}, {.options = {.causal = top_left}}, 0, 3);
  given.k.at(0, 0, 1, 0) = from_float<f16>(kNan);
  run(given.args(), 64);
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t c = 0; c < 8; ++c)
      ASSERT_EQ(std::isnan(widen<float>(given.y.at(0, 0, i, c))), i >= 1) << i;
}

// Packed sequences, whose keys lie one behind the other or in blocks, have the bits of each alone.
TEST(AttentionTensorKernels, TakePackedSequencesAndKeysInBlocks) {
  lab::watch();
  const std::vector<std::int64_t> counts{3, 0, 17, 1}, lengths{20, 5, 140, 9};
  std::vector<std::int64_t> of_queries{0}, of_keys{0};
  for (std::size_t s = 0; s < counts.size(); ++s) {
    of_queries.push_back(of_queries.back() + counts[s]);
    of_keys.push_back(of_keys.back() + lengths[s]);
  }
  for (const bool in_blocks : {false, true}) {
    if (kDetectsRaces && !in_blocks) continue;
    const Asked asked{.options = {.causal = bottom_right, .dropout = 0.2}};
    constexpr std::int64_t kBlock = 16, kPlaces = 9;
    Given<bf16> all({1, 2, 1, 22, of_keys.back(), 32, 24}, asked, 8);
    // Blocks of a pool, dealt out from its end.
    Numbers<bf16> k(40, 1, kBlock, 32, 0, 1), v(40, 1, kBlock, 24, 8, 2);
    std::vector<std::int64_t> table(counts.size() * kPlaces, -1), ends = lengths;
    std::int64_t next = 39;
    for (std::size_t s = 0; s < counts.size(); ++s)
      for (std::int64_t j = 0; j < lengths[s]; ++j) {
        std::int64_t& block = table[s * kPlaces + static_cast<std::size_t>(j / kBlock)];
        if (j % kBlock == 0) block = next--;
        for (std::int64_t d = 0; d < 32; ++d)
          k.at(block, 0, j % kBlock, d) = all.k.at(0, 0, of_keys[s] + j, d);
        for (std::int64_t c = 0; c < 24; ++c)
          v.at(block, 0, j % kBlock, c) = all.v.at(0, 0, of_keys[s] + j, c);
      }
    ForwardArgs args = all.args();
    args.query_starts = Given<bf16>::whole(of_queries);
    if (in_blocks) {
      args.k = k.view();
      args.v = v.view();
      args.blocks = {
          table.data(), std::ssize(table) * 8, DType::i64, 2, {std::ssize(counts), kPlaces},
          {kPlaces, 1}};
      args.key_end = Given<bf16>::whole(ends);
    } else {
      args.key_starts = Given<bf16>::whole(of_keys);
    }
    run(args, 64);
    for (std::size_t s = 0; s < counts.size(); ++s) {
      // The s-th of a batch, as dropout counts.
      const auto batch = static_cast<std::int64_t>(s) + 1;
      Given<bf16> one({batch, 2, 1, counts[s], lengths[s], 32, 24}, asked);
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t i = 0; i < counts[s]; ++i)
          for (std::int64_t d = 0; d < 32; ++d)
            one.q.at(batch - 1, h, i, d) = all.q.at(0, h, of_queries[s] + i, d);
      for (std::int64_t j = 0; j < lengths[s]; ++j) {
        for (std::int64_t d = 0; d < 32; ++d)
          one.k.at(batch - 1, 0, j, d) = all.k.at(0, 0, of_keys[s] + j, d);
        for (std::int64_t c = 0; c < 24; ++c)
          one.v.at(batch - 1, 0, j, c) = all.v.at(0, 0, of_keys[s] + j, c);
      }
      run(one.args(), 64);
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t i = 0; i < counts[s]; ++i)
          for (std::int64_t c = 0; c < 24; ++c)
            ASSERT_EQ(all.y.at(0, h, of_queries[s] + i, c).bits, one.y.at(batch - 1, h, i, c).bits)
                << s << ", " << i << ", " << c << (in_blocks ? " in blocks" : "");
    }
  }
}

// On a device nothing looks at ranges before: what leads out of the arrays is clamped.
TEST(AttentionTensorKernels, ClampRangesThatAreNone) {
  lab::watch();
  Given<f16> wrong({3, 1, 1, 4, 140, 16, 8}, {.range = true}), right = wrong;
  wrong.begin = {-5, std::int64_t{1} << 62, 20};
  wrong.end = {std::int64_t{1} << 62, 3, 10};
  right.begin = {0, 140, 20};
  right.end = {140, 140, 20};
  for (Given<f16>* each : {&wrong, &right}) {
    each->forget();
    run(each->args(), 64);
  }
  for (std::size_t i = 0; i < wrong.y.all.size(); ++i)
    ASSERT_EQ(wrong.y.all[i].bits, right.y.all[i].bits) << i;
  for (std::size_t i = 0; i < wrong.lse.size(); ++i)
    ASSERT_EQ(bits(wrong.lse[i]), bits(right.lse[i])) << i;
  EXPECT_EQ(right.lse.back(), -kInf);
}

TEST(AttentionTensorKernels, AreRight) { expect_right(forward_operation()); }

// The bits of sm_90 by the model, written down.
TEST(AttentionTensorKernels, HaveTheBitsOfTheirGeneration) {
  lab::watch();
  std::uint64_t hash = 14695981039346656037u;
  Given<f16> given({1, 2, 1, 9, 140, 40, 24}, {.options = {.causal = bottom_right}});
  given.forget();
  run(given.args(), 64);
  for (const f16& each : given.y.all) hash = (hash ^ each.bits) * 1099511628211u;
  for (const float each : given.lse)
    hash = (hash ^ std::bit_cast<std::uint32_t>(each)) * 1099511628211u;
  EXPECT_EQ(hash, 12291448176575093127u);
}

TEST(AttentionTensorKernels, AreWantedOnGpusThatHaveTensorCores) {
  lab::attach_devices();
  Given<f16> given({1, 1, 1, 8, 8, 8, 8}, {});  // processors have bf16
  const Operation& operation = forward_operation();
  const Arguments args = operation.make_arguments();
  auto& typed = *static_cast<ForwardArgs*>(args.get());
  typed = given.args();
  Machine machine = lab::execution_for(kDevice).machine;
  EXPECT_EQ(operation.default_variant(args, machine), variant_named("flash_mma"));
  typed.arithmetic = Arithmetic::canonical;
  EXPECT_NE(operation.default_variant(args, machine), variant_named("flash_mma"));
  EXPECT_NE(operation.declines(variant_named("flash_mma"), args, machine), "");
  typed.arithmetic = Arithmetic::tensor;
  const auto refusal = [&](const Machine& on) { return lab::tensor::refusal(operation, args, on); };
  const std::string expected =
      "attention: arithmetic tensor needs bf16 on a processor, or f16 or bf16 on a GPU with tensor "
      "cores (sm_80 and later); use canonical";
  EXPECT_EQ(refusal(Machine::here()), expected);
  EXPECT_THROW(operation.call(args, lab::execution_for(Machine::here().isa, 1)), Unsupported);
  machine.gpu.capability = 75;
  EXPECT_EQ(refusal(machine), expected);
  // Numbers of a head that a block has no memory for.
  Given<bf16> wide({1, 1, 1, 1, 1, 8, 1000}, {});
  typed = wide.args();
  EXPECT_NE(refusal(lab::execution_for(kDevice).machine).find("bytes of shared memory"),
            std::string::npos);
  typed.arithmetic = static_cast<Arithmetic>(2);
  EXPECT_THROW(operation.check(args), InvalidArgument);
}

}  // namespace
}  // namespace isobit::attention::by_tensor_cores
