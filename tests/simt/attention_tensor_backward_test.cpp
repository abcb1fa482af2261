// SPDX-License-Identifier: Apache-2.0
// Gradients of attention by tensor cores, as the emulator has them: the bits that the README
// defines, in every schedule, layout and plan; what is not there; packed sequences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "simt/attention_tensor_gradients.h"
#include "simt/tensor.h"
#include "workloads.h"

namespace isobit::attention::by_tensor_cores {
namespace {

using lab::kDetectsRaces;

TEST(AttentionTensorGradientKernels, HaveTheBitsOfTheirDefinitionInEverySchedule) {
  lab::watch();
  lab::in_every_schedule([&](bool in_order) {
    std::int64_t gap = 0;
    for (const Asked& asked : kAsked) {
      Given<bf16> given({2, 2, 1, 5, 150, 24, 16}, asked, 8 * (gap++ % 2));
      Gradients<bf16>(given, 8 * (gap % 2)).expect_defined(in_order ? 64 : 32, 3);
      if (HasFatalFailure()) return;
    }
  });
}

// Parts of a head, tiles and panels that are not whole, rows that lie at any address.
TEST(AttentionTensorGradientKernels, HaveTheBitsOfTheirDefinitionAtEveryEdge) {
  lab::watch();
  std::uint32_t seed = 7;
  for (const Shape& s : {Shape{1, 2, 2, 1, 1, 1, 1},
                         {1, 1, 1, 17, 129, 64, 65},
                         {1, 2, 1, 70, 40, 80, 9},
                         {1, 1, 1, 3, 0, 8, 8},
                         {1, 1, 1, 2, 5, 0, 8},
                         {1, 1, 1, 2, 5, 8, 0},
                         {1, 1, 1, 66, 130, 130, 72}})
    for (const int gap : {0, 3, 8}) {
      if (kDetectsRaces && (s.queries * s.keys > 3000 || gap == 8)) continue;
      Given<f16> given(s, {.options = {.causal = bottom_right}}, gap, ++seed);
      Gradients<f16> gradients(given, gap, seed + 50);
      for (const int rows : {32, 64}) {
        if (kDetectsRaces && rows == 64 && s.queries > 17) continue;
        gradients.expect_defined(rows, 5);
        if (HasFatalFailure()) return;
      }
    }
}

// f16 has no numbers below 2^-24, nor from 2^16 on, and gradients of scores have any size.
TEST(AttentionTensorGradientKernels, ScaleWhatF16HasNoNumbersFor) {
  lab::watch();
  for (const int size : {-20, 9}) {
    Given<f16> given({1, 1, 1, 20, 70, 16, 16}, {});
    Gradients<f16> gradients(given);
    for (f16& each : gradients.grad_y.all)
      each = from_float<f16>(std::ldexp(widen<float>(each), size));
    for (float& each : gradients.grad_lse) each = 0;
    gradients.expect_defined(64);
    if (HasFatalFailure()) return;
    double largest = 0;
    for (std::int64_t i = 0; i < 20; ++i)
      for (std::int64_t d = 0; d < 16; ++d)
        largest = std::max<double>(largest, std::abs(widen<float>(gradients.q.at(0, 0, i, d))));
    EXPECT_TRUE(largest > 0 && largest < kInf) << size;
  }
}

// What is not there has no gradient, and gives none, whatever stands in it.
TEST(AttentionTensorGradientKernels, KeepWhatIsNotThereApart) {
  lab::watch();
  // Query i sees keys up to i; query 3 none, and key 30 is seen by none but later queries.
  const Asked asked{.options = {.causal = top_left}, .mask = true};
  Given<bf16> given({1, 1, 1, 40, 45, 24, 70}, asked, 0, 3);
  for (std::int64_t j = 0; j < 45; ++j) given.mask[static_cast<std::size_t>(3 * 45 + j)] = 0;
  Gradients<bf16> usual(given);
  usual.compute(32);
  Given<bf16> spoilt = given;
  for (std::int64_t d = 0; d < 24; ++d) {
    spoilt.q.at(0, 0, 3, d) = from_float<bf16>(d % 2 == 0 ? kNan : kInf);   // without keys
    spoilt.k.at(0, 0, 42, d) = from_float<bf16>(d % 2 == 0 ? kNan : kInf);  // without queries
  }
  for (std::int64_t c = 0; c < 70; ++c) spoilt.v.at(0, 0, 42, c) = from_float<bf16>(kNan);
  Gradients<bf16> beside(spoilt);
  for (std::int64_t c = 0; c < 70; ++c)
    beside.grad_y.at(0, 0, 3, c) = from_float<bf16>(c % 2 == 0 ? kInf : kNan);
  for (const int rows : {32, 64}) {
    beside.compute(rows);
    for (auto [found, expected] :
         {std::pair(&beside.q, &usual.q), {&beside.k, &usual.k}, {&beside.v, &usual.v}})
      for (std::size_t at = 0; at < found->all.size(); ++at)
        ASSERT_EQ(found->all[at].bits, expected->all[at].bits) << at;
    for (std::int64_t d = 0; d < 24; ++d) {
      ASSERT_EQ(beside.q.at(0, 0, 3, d).bits, 0);
      ASSERT_EQ(beside.k.at(0, 0, 42, d).bits, 0);
      ASSERT_EQ(beside.v.at(0, 0, 42, d).bits, 0);
    }
  }
}

// And what is there reaches those who see it, no others.
TEST(AttentionTensorGradientKernels, ShowWhatIsNotFiniteToThoseWhoSeeIt) {
  lab::watch();
  const Asked asked{.options = {.causal = bottom_right, .dropout = 0.3, .dropout_seed = 2}};
  Given<bf16> given({1, 1, 1, 20, 90, 16, 8}, asked, 0, 3);
  Gradients<bf16> usual(given), spoilt(given);
  const auto dropout = Dropout<float>::of(0.3, 2);
  spoilt.grad_y.at(0, 0, 5, 2) = from_float<bf16>(kNan);
  usual.compute(64);
  spoilt.compute(64);
  for (std::int64_t i = 0; i < 20; ++i)
    for (std::int64_t d = 0; d < 16; ++d) {
      if (i == 5)
        ASSERT_TRUE(std::isnan(widen<float>(spoilt.q.at(0, 0, i, d))));
      else
        ASSERT_EQ(spoilt.q.at(0, 0, i, d).bits, usual.q.at(0, 0, i, d).bits) << i;
    }
  for (std::int64_t j = 0; j < 90; ++j) {
    const bool seen = j <= 5 + 70;
    for (std::int64_t c = 0; c < 8; ++c) {
      if (seen && c == 2 && dropout.keeps(0, 0, 5, j))
        ASSERT_TRUE(std::isnan(widen<float>(spoilt.v.at(0, 0, j, c)))) << j;
      else
        ASSERT_EQ(spoilt.v.at(0, 0, j, c).bits, usual.v.at(0, 0, j, c).bits) << j << ", " << c;
    }
    for (std::int64_t d = 0; d < 16; ++d)
      ASSERT_EQ(std::isnan(widen<float>(spoilt.k.at(0, 0, j, d))), seen) << j;
  }
}

// Packed sequences have the bits of each alone, and rows behind the last have zeros.
TEST(AttentionTensorGradientKernels, TakePackedSequences) {
  lab::watch();
  const std::vector<std::int64_t> counts{3, 0, 37, 1}, lengths{20, 5, 140, 9};
  std::vector<std::int64_t> of_queries{0}, of_keys{0};
  for (std::size_t s = 0; s < counts.size(); ++s) {
    of_queries.push_back(of_queries.back() + counts[s]);
    of_keys.push_back(of_keys.back() + lengths[s]);
  }
  const Asked asked{.options = {.causal = bottom_right, .window = 60, .dropout = 0.2}};
  Given<bf16> all({1, 2, 1, of_queries.back() + 2, of_keys.back() + 3, 32, 24}, asked, 8);
  Gradients<bf16> gradients(all);
  ForwardArgs forward = all.args();
  forward.query_starts = Given<bf16>::whole(of_queries);
  forward.key_starts = Given<bf16>::whole(of_keys);
  run(forward, 64);
  BackwardArgs args = gradients.args();
  args.query_starts = forward.query_starts;
  args.key_starts = forward.key_starts;
  gradients.forget();
  Gradients<bf16>::compute_with(args, 32);
  for (std::size_t s = 0; s < counts.size(); ++s) {
    if (kDetectsRaces && s != 2) continue;
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
    Gradients<bf16> alone(one);
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < counts[s]; ++i) {
        for (std::int64_t c = 0; c < 24; ++c)
          alone.grad_y.at(batch - 1, h, i, c) = gradients.grad_y.at(0, h, of_queries[s] + i, c);
        alone.grad_lse[alone.row_of(batch - 1, h, i)] =
            gradients.grad_lse[gradients.row_of(0, h, of_queries[s] + i)];
      }
    alone.compute(64);
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < counts[s]; ++i)
        for (std::int64_t d = 0; d < 32; ++d)
          ASSERT_EQ(gradients.q.at(0, h, of_queries[s] + i, d).bits,
                    alone.q.at(batch - 1, h, i, d).bits)
              << s << ", " << i << ", " << d;
    for (std::int64_t j = 0; j < lengths[s]; ++j) {
      for (std::int64_t d = 0; d < 32; ++d)
        ASSERT_EQ(gradients.k.at(0, 0, of_keys[s] + j, d).bits, alone.k.at(batch - 1, 0, j, d).bits)
            << s << ", " << j << ", " << d;
      for (std::int64_t c = 0; c < 24; ++c)
        ASSERT_EQ(gradients.v.at(0, 0, of_keys[s] + j, c).bits, alone.v.at(batch - 1, 0, j, c).bits)
            << s << ", " << j << ", " << c;
    }
  }
  for (std::int64_t d = 0; d < 24; ++d) {
    for (std::int64_t i = 0; i < 2; ++i)
      ASSERT_EQ(gradients.q.at(0, 1, of_queries.back() + i, d).bits, 0);
    for (std::int64_t j = 0; j < 3; ++j) {
      ASSERT_EQ(gradients.k.at(0, 0, of_keys.back() + j, d).bits, 0);
      ASSERT_EQ(gradients.v.at(0, 0, of_keys.back() + j, d).bits, 0);
    }
  }
}

// Each gradient has its bits where the others are not wanted.
TEST(AttentionTensorGradientKernels, AreComputedAlone) {
  lab::watch();
  Given<f16> given({1, 2, 1, 9, 70, 16, 24}, {.bias = true});
  Gradients<f16> all(given), one(given);
  all.compute(64);
  for (TensorView BackwardArgs::* wanted : {&BackwardArgs::grad_q, &BackwardArgs::grad_k,
                                            &BackwardArgs::grad_v, &BackwardArgs::grad_bias}) {
    one.forget();
    BackwardArgs args = one.args();
    const TensorView kept = args.*wanted;
    args.grad_q = args.grad_k = args.grad_v = args.grad_bias = {};
    args.*wanted = kept;
    Gradients<f16>::compute_with(args, 32);
    for (auto [found, expected] :
         {std::pair(&one.q, &all.q), {&one.k, &all.k}, {&one.v, &all.v}, {&one.bias, &all.bias}})
      for (std::size_t at = 0; kept.data == found->all.data() && at < found->all.size(); ++at)
        ASSERT_EQ(found->all[at].bits, expected->all[at].bits) << at;
  }
}

TEST(AttentionTensorGradientKernels, AreRight) { expect_right(backward_operation()); }

// The bits of sm_90 by the model, written down.
TEST(AttentionTensorGradientKernels, HaveTheBitsOfTheirGeneration) {
  lab::watch();
  std::uint64_t hash = 14695981039346656037u;
  Given<f16> given({1, 2, 1, 9, 140, 40, 24}, {.options = {.causal = bottom_right}});
  Gradients<f16> gradients(given);
  gradients.compute(64);
  for (const Numbers<f16>* each : {&gradients.q, &gradients.k, &gradients.v})
    for (const f16& element : each->all) hash = (hash ^ element.bits) * 1099511628211u;
  EXPECT_EQ(hash, 16466947895220180407u);
}

// Whoever computes y by them has the gradients by them too, whatever memory a block has.
TEST(AttentionTensorGradientKernels, AreWantedWhereForwardIs) {
  lab::attach_devices();
  const Operation &forward = forward_operation(), &backward = backward_operation();
  const Arguments of_forward = forward.make_arguments(), of_backward = backward.make_arguments();
  const auto refusal = [](const Operation& operation, const Arguments& args, const Machine& on) {
    return lab::tensor::refusal(operation, args, on);
  };
  Machine machine = lab::execution_for(kDevice).machine;
  for (const std::int64_t dim : {8, 64, 128, 192, 256})
    for (const bool mask : {false, true}) {
      Given<bf16> given({1, 1, 1, 8, 8, dim, dim}, {.mask = mask});
      Gradients<bf16> gradients(given);
      *static_cast<ForwardArgs*>(of_forward.get()) = given.args();
      *static_cast<BackwardArgs*>(of_backward.get()) = gradients.args();
      EXPECT_EQ(backward.default_variant(of_backward, machine),
                variant_named("flash_mma", backward))
          << dim;
      for (const int kilobytes : {99, 163, 227}) {
        Machine smaller = machine;
        smaller.gpu.shared_bytes = kilobytes * 1024;
        if (!refusal(forward, of_forward, smaller).empty()) continue;
        EXPECT_EQ(refusal(backward, of_backward, smaller), "") << dim << ", " << kilobytes;
      }
    }
  auto& typed = *static_cast<BackwardArgs*>(of_backward.get());
  typed.arithmetic = Arithmetic::canonical;
  EXPECT_NE(backward.default_variant(of_backward, machine), variant_named("flash_mma", backward));
  EXPECT_NE(backward.declines(variant_named("flash_mma", backward), of_backward, machine), "");
  typed.arithmetic = Arithmetic::tensor;
  const std::string expected =
      "attention: arithmetic tensor needs f16 or bf16 on a GPU with tensor cores (sm_80 and "
      "later); use canonical";
  EXPECT_EQ(refusal(backward, of_backward, Machine::here()), expected);
  machine.gpu.shared_bytes = 64 * 1024;  // less than the last heads' sums take
  EXPECT_NE(refusal(backward, of_backward, machine).find("bytes of shared memory"),
            std::string::npos);
  machine.gpu.capability = 75;
  EXPECT_EQ(refusal(backward, of_backward, machine), expected);
  typed.arithmetic = static_cast<Arithmetic>(2);
  EXPECT_THROW(backward.check(of_backward), InvalidArgument);
}

}  // namespace
}  // namespace isobit::attention::by_tensor_cores
