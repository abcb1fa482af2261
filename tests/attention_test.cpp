// SPDX-License-Identifier: Apache-2.0
// What is peculiar to attention: a query depends on its own keys alone, and what is not allowed is
// not there.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "attention_calls.h"
#include "isobit/core/error.h"

namespace isobit::attention {
namespace {

// A prompt at once, and token by token.
TEST(Attention, PrefillEqualsDecode) {
  constexpr std::int64_t kLength = 150;
  for_each_isa([&](const Execution& execution) {
    Call all(1, 4, 2, kLength, kLength, 20, 12);
    forward(all.args({.causal = Causal::top_left}), execution);
    for (std::int64_t i : {0, 1, 63, 127, 128, 149}) {
      Call one = all;
      ForwardArgs args = one.args({.causal = Causal::bottom_right});
      Floats y(4 * 12, kNan);
      args.lse = args.max = args.sum = {};
      args.q = view(all.q.data() + i * 20, {1, 4, 1, 20}, {0, kLength * 20, 20, 1});
      args.k = view(all.k.data(), {1, 2, i + 1, 20}, {0, kLength * 20, 20, 1});
      args.v = view(all.v.data(), {1, 2, i + 1, 12}, {0, kLength * 12, 12, 1});
      args.y = view(y.data(), {1, 4, 1, 12});
      forward(args, execution);
      for (std::int64_t h = 0; h < 4; ++h)
        EXPECT_TRUE(equal(y.data() + h * 12, all.row(0, h, i), 12)) << i << ' ' << h;
    }
  });
}

// pytorch #127055: elsewhere a query alone differs from itself in its batch.
TEST(Attention, QueryAloneEqualsItselfAmongOthers) {
  for_each_isa([&](const Execution& execution) {
    Call all(3, 2, 2, 70, 300, 33, 9);
    forward(all.args(), execution);
    for (std::int64_t b : {0, 2})
      for (std::int64_t count : {1, 2, 5, 9, 17, 33})
        for (std::int64_t first : {0, 11, 37}) {
          ForwardArgs args = all.args();
          Floats y(static_cast<std::size_t>(count * 9), kNan);
          args.lse = args.max = args.sum = {};
          args.q = view(all.q.data() + ((b * 2 + 1) * 70 + first) * 33, {1, 1, count, 33});
          args.k = view(all.k.data() + (b * 2 + 1) * 300 * 33, {1, 1, 300, 33});
          args.v = view(all.v.data() + (b * 2 + 1) * 300 * 9, {1, 1, 300, 9});
          args.y = view(y.data(), {1, 1, count, 9});
          forward(args, execution);
          EXPECT_TRUE(equal(y.data(), all.row(b, 1, first), count * 9)) << count << ' ' << first;
        }
  });
}

TEST(Attention, MaskedPaddingOnTheRightEqualsAShorterSequence) {
  constexpr std::int64_t kKeys = 130, kPadded = 300;
  for_each_isa([&](const Execution& execution) {
    Call padded(2, 2, 1, 40, kPadded, 16, 24);
    std::vector<unsigned char> mask(2 * kPadded);
    for (std::int64_t j = 0; j < 2 * kPadded; ++j) mask[j] = j % kPadded < kKeys ? 1 : 0;
    for (std::int64_t b = 0; b < 2; ++b)  // pytorch #101967: what padding holds reached results
      for (std::int64_t j = kKeys; j < kPadded; ++j) {
        padded.k[(b * kPadded + j) * 16 + j % 16] = j % 2 == 0 ? kNan : kInf;
        padded.v[(b * kPadded + j) * 24 + j % 24] = j % 2 == 0 ? -kInf : kNan;
      }
    ForwardArgs args = padded.args();
    args.mask = {mask.data(), std::ssize(mask),    DType::boolean,
                 4,           {2, 2, 40, kPadded}, {kPadded, 0, 0, 1}};
    forward(args, execution);
    Call shorter = padded;
    ForwardArgs less = shorter.args();
    less.k = view(shorter.k.data(), {2, 1, kKeys, 16}, {kPadded * 16, 0, 16, 1});
    less.v = view(shorter.v.data(), {2, 1, kKeys, 24}, {kPadded * 24, 0, 24, 1});
    forward(less, execution);
    EXPECT_TRUE(same(padded.y, shorter.y));
    EXPECT_TRUE(same(padded.lse, shorter.lse));

    const Floats grad = numbers(padded.y.size(), 7);
    const Gradients of_padded = gradients(padded, args, execution, grad);
    for (std::size_t i = 0; i < of_padded.q.size(); ++i) ASSERT_TRUE(std::isfinite(of_padded.q[i]));
    for (std::int64_t j = kKeys; j < kPadded; ++j)
      for (std::int64_t d = 0; d < 16; ++d) {
        ASSERT_EQ(of_padded.k[j * 16 + d], 0);
        ASSERT_EQ(of_padded.v[j * 24 + d], 0);
      }
  });
}

TEST(Attention, GroupsOfHeadsEqualRepeatedHeads) {
  for_each_isa([&](const Execution& execution) {
    Call grouped(2, 6, 2, 35, 140, 16, 8);
    Call repeated(2, 6, 6, 35, 140, 16, 8);
    repeated.q = grouped.q;
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t h = 0; h < 6; ++h) {
        std::copy_n(grouped.k.data() + (b * 2 + h / 3) * 140 * 16, 140 * 16,
                    repeated.k.data() + (b * 6 + h) * 140 * 16);
        std::copy_n(grouped.v.data() + (b * 2 + h / 3) * 140 * 8, 140 * 8,
                    repeated.v.data() + (b * 6 + h) * 140 * 8);
      }
    const Options options{.causal = Causal::bottom_right};
    const ForwardArgs one = grouped.args(options), other = repeated.args(options);
    forward(one, execution);
    forward(other, execution);
    EXPECT_TRUE(same(grouped.y, repeated.y));
    const Floats grad = numbers(grouped.y.size(), 7);
    EXPECT_TRUE(same(gradients(grouped, one, execution, grad).q,
                     gradients(repeated, other, execution, grad).q));
  });
}

// A mask says what a band says, and a bias of -infinity what a mask says.
TEST(Attention, MasksOfAllKindsAreOne) {
  constexpr std::int64_t kQueries = 140, kKeys = 200;
  for_each_isa([&](const Execution& execution) {
    Call banded(1, 2, 1, kQueries, kKeys, 8, 8);
    const ForwardArgs by_band = banded.args({.causal = Causal::bottom_right, .window = 33});
    forward(by_band, execution);
    std::vector<unsigned char> mask(kQueries * kKeys);
    Floats bias(kQueries * kKeys);
    for (std::int64_t i = 0; i < kQueries; ++i)
      for (std::int64_t j = 0; j < kKeys; ++j) {
        const std::int64_t position = i + kKeys - kQueries;
        mask[i * kKeys + j] = j <= position && position - j < 33 ? 1 : 0;
        bias[i * kKeys + j] = mask[i * kKeys + j] != 0 ? 0 : -kInf;
      }
    const Floats grad = numbers(banded.y.size(), 7);
    const Gradients expected = gradients(banded, by_band, execution, grad);
    for (bool as_bias : {false, true}) {
      Call masked = banded;
      ForwardArgs args = masked.args();
      const auto spread = [&](void* data, std::int64_t size, DType dtype) {
        return TensorView{data, kQueries * kKeys * size, dtype,
                          4,    {1, 2, kQueries, kKeys}, {0, 0, kKeys, 1}};
      };
      (as_bias ? args.bias : args.mask) =
          as_bias ? spread(bias.data(), 4, DType::f32) : spread(mask.data(), 1, DType::boolean);
      forward(args, execution);
      EXPECT_TRUE(same(masked.y, banded.y));
      EXPECT_TRUE(same(masked.lse, banded.lse));
      const Gradients found = gradients(masked, args, execution, grad);
      EXPECT_TRUE(same(found.q, expected.q));
      EXPECT_TRUE(same(found.k, expected.k));
      EXPECT_TRUE(same(found.v, expected.v));
      for (std::size_t at = 0; at < found.bias.size(); ++at)
        if (mask[at % mask.size()] == 0) { ASSERT_EQ(found.bias[at], 0); }
    }
  });
}

// pytorch #41508, #103963.
TEST(Attention, QueryWithoutKeysIsZeroWithZeroGradients) {
  for_each_isa([&](const Execution& execution) {
    Call call(1, 1, 1, 5, 3, 4, 4);
    const ForwardArgs args = call.args({.causal = Causal::bottom_right});
    std::fill(call.q.begin(), call.q.begin() + 2 * 4, kNan);  // of the queries without keys
    forward(args, execution);
    Floats grad = numbers(call.y.size(), 7);
    std::fill(grad.begin(), grad.begin() + 2 * 4, kInf);
    const Gradients found = gradients(call, args, execution, grad);
    for (std::int64_t i = 0; i < 2; ++i) {
      EXPECT_EQ(call.lse[i], -kInf);
      EXPECT_EQ(call.max[i], -kInf);
      EXPECT_EQ(call.sum[i], 0);
      for (std::int64_t d = 0; d < 4; ++d) {
        EXPECT_EQ(call.row(0, 0, i)[d], 0);
        EXPECT_FALSE(std::signbit(call.row(0, 0, i)[d]));
        EXPECT_EQ(found.q[i * 4 + d], 0);
      }
    }
    for (float value : found.k) EXPECT_TRUE(std::isfinite(value));
    for (float value : found.v) EXPECT_TRUE(std::isfinite(value));
  });
}

// pytorch #141128: NaN became 0.
TEST(Attention, NanOfAnAllowedKeyReachesItsQueriesAndNoOthers) {
  for_each_isa([&](const Execution& execution) {
    for (bool in_k : {true, false}) {
      Call call(1, 1, 1, 150, 150, 4, 4);
      (in_k ? call.k : call.v)[140 * 4 + 1] = kNan;
      const ForwardArgs args = call.args({.causal = Causal::top_left});
      forward(args, execution);
      const Floats grad(call.y.size(), 1);
      const Gradients found = gradients(call, args, execution, grad);
      for (std::int64_t i = 0; i < 150; ++i)
        for (std::int64_t d = 0; d < 4; ++d) {
          const bool reached = i >= 140 && (in_k || d == 1);
          EXPECT_EQ(std::isnan(call.row(0, 0, i)[d]), reached) << i << ' ' << d;
          EXPECT_EQ(std::isnan(found.q[i * 4 + d]), i >= 140) << i << ' ' << d;
        }
    }
  });
}

// Of few queries sums are computed first, and again where they are not finite.
TEST(Attention, InfinityOfAnAllowedKeyReachesFewQueriesAndNoOthers) {
  for_each_isa([&](const Execution& execution) {
    for (const float other : {kInf, -kInf, kNan}) {
      Call call(1, 1, 1, 4, 150, 4, 4);
      call.v[148 * 4 + 1] = other;
      forward(call.args({.causal = Causal::bottom_right}), execution);
      for (std::int64_t i = 0; i < 4; ++i)
        for (std::int64_t d = 0; d < 4; ++d) {
          const float y = call.row(0, 0, i)[d];
          if (i < 2 || d != 1) {
            EXPECT_TRUE(std::isfinite(y)) << i << ' ' << d;
          } else {
            EXPECT_TRUE(std::isnan(other) ? std::isnan(y) : y == other) << i << ' ' << y;
          }
        }
    }
  });
}

TEST(Attention, OneHugeScoreTakesAll) {
  for_each_isa([&](const Execution& execution) {
    Call call(1, 1, 1, 1, 200, 2, 3);
    std::fill(call.q.begin(), call.q.end(), 1.0f);
    std::fill(call.k.begin(), call.k.end(), 0.0f);
    call.k[77 * 2] = 1e30f;
    forward(call.args({.scale = 1}), execution);
    for (std::int64_t d = 0; d < 3; ++d) EXPECT_EQ(call.y[d], call.v[77 * 3 + d]);
    EXPECT_FLOAT_EQ(call.lse[0], 1e30f);
  });
}

TEST(Attention, EqualScoresGiveTheMean) {
  for_each_isa([&](const Execution& execution) {
    Call call(1, 1, 1, 20, 256, 4, 1);
    std::fill(call.k.begin(), call.k.end(), 1e4f);  // a common offset of all keys
    for (std::int64_t j = 0; j < 256; ++j) call.v[j] = static_cast<float>(j);
    forward(call.args(), execution);
    for (float y : call.y) EXPECT_FLOAT_EQ(y, 127.5f);
  });
}

// As a float such a scale is 0, by which what is masked became NaN; and with a cap it was taken for
// none.
TEST(Attention, AScaleNearZeroGivesTheMean) {
  for_each_isa([&](const Execution& execution) {
    for (const double softcap : {0.0, 2.0})
      for (const std::int64_t queries : {1, 20}) {
        Call call(1, 1, 1, queries, 131, 8, 3);
        const Options options{
            .causal = Causal::bottom_right, .scale = 0x1p-1000, .softcap = softcap};
        forward(call.args(options), execution);
        for (std::int64_t i = 0; i < queries; ++i)
          for (std::int64_t d = 0; d < 3; ++d) {
            const std::int64_t keys = 131 - queries + i + 1;
            double mean = 0;
            for (std::int64_t j = 0; j < keys; ++j) mean += call.v[j * 3 + d];
            EXPECT_NEAR(call.row(0, 0, i)[d], mean / static_cast<double>(keys), 1e-5);
          }
      }
  });
}

TEST(Attention, LayoutsDoNotMatter) {
  constexpr std::int64_t kBatch = 2, kHeads = 3, kSeq = 130, kDim = 12;
  for_each_isa([&](const Execution& execution) {
    Call call(kBatch, kHeads, kHeads, kSeq, kSeq, kDim, kDim);
    const ForwardArgs dense = call.args({.causal = Causal::top_left});
    forward(dense, execution);
    const Floats grad = numbers(call.y.size(), 7);
    const Gradients expected = gradients(call, dense, execution, grad);
    // (batch, seq, 3, heads, dim): q, k and v of one product.
    Floats packed(3 * call.q.size()), packed_grad(packed.size(), kNan);
    const auto place = [&](std::int64_t part, std::int64_t at) {
      const std::int64_t d = at % kDim, i = at / kDim % kSeq, h = at / kDim / kSeq % kHeads;
      const std::int64_t b = at / kDim / kSeq / kHeads;
      return (((b * kSeq + i) * 3 + part) * kHeads + h) * kDim + d;
    };
    for (std::int64_t at = 0; at < std::ssize(call.q); ++at) {
      packed[place(0, at)] = call.q[at];
      packed[place(1, at)] = call.k[at];
      packed[place(2, at)] = call.v[at];
    }
    const auto part = [&](Floats& all, std::int64_t which) {
      return view(all.data() + which * kHeads * kDim, {kBatch, kHeads, kSeq, kDim},
                  {kSeq * 3 * kHeads * kDim, kDim, 3 * kHeads * kDim, 1});
    };
    Call other = call;
    ForwardArgs args = other.args({.causal = Causal::top_left});
    args.q = part(packed, 0);
    args.k = part(packed, 1);
    args.v = part(packed, 2);
    Floats y(call.y.size(), kNan);  // (batch, seq, heads, dim)
    args.y = view(y.data(), {kBatch, kHeads, kSeq, kDim},
                  {kSeq * kHeads * kDim, kDim, kHeads * kDim, 1});
    forward(args, execution);
    BackwardArgs back;
    static_cast<Options&>(back) = args;
    back.grad_y = view(grad.data(), {kBatch, kHeads, kSeq, kDim});
    back.q = args.q;
    back.k = args.k;
    back.v = args.v;
    back.y = args.y;
    back.max = args.max;
    back.sum = args.sum;
    back.grad_q = part(packed_grad, 0);
    back.grad_k = part(packed_grad, 1);
    back.grad_v = part(packed_grad, 2);
    backward(back, execution);
    for (std::int64_t at = 0; at < std::ssize(call.q); ++at) {
      const std::int64_t b = at / kDim / kSeq / kHeads, h = at / kDim / kSeq % kHeads;
      const std::int64_t i = at / kDim % kSeq;
      ASSERT_EQ(y[((b * kSeq + i) * kHeads + h) * kDim + at % kDim], call.y[at]);
      ASSERT_EQ(packed_grad[place(0, at)], expected.q[at]);
      ASSERT_EQ(packed_grad[place(1, at)], expected.k[at]);
      ASSERT_EQ(packed_grad[place(2, at)], expected.v[at]);
    }
  });
}

// What is dropped depends on the place of a weight, not on what is computed beside it.
TEST(Attention, DropoutCountsPlacesAndNotTiles) {
  for_each_isa([&](const Execution& execution) {
    Call all(1, 2, 2, 3, 200, 4, 5);
    const Options options{.dropout = 0.5, .dropout_seed = 99};
    forward(all.args(options), execution);  // a few queries
    Call many(1, 2, 2, 40, 200, 4, 5);
    for (std::int64_t h = 0; h < 2; ++h)
      std::copy_n(all.q.data() + h * 3 * 4, 3 * 4, many.q.data() + h * 40 * 4);
    many.k = all.k;
    many.v = all.v;
    forward(many.args(options), execution);
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 3; ++i)
        EXPECT_TRUE(equal(all.row(0, h, i), many.row(0, h, i), 5));
  });
}

// A sum of weights that are kept or not: their mean is kept, and about half are dropped.
TEST(Attention, DropoutKeepsTheMean) {
  constexpr std::int64_t kQueries = 64, kKeys = 500;
  Call call(1, 1, 1, kQueries, kKeys, 1, 1);
  std::fill(call.q.begin(), call.q.end(), 0.0f);
  std::fill(call.v.begin(), call.v.end(), 1.0f);
  forward(call.args({.dropout = 0.25, .dropout_seed = 5}), lab::execution_for(Isa::scalar, 1));
  double mean = 0;
  for (float y : call.y) {
    EXPECT_NE(y, 1.0f);
    mean += y / kQueries;
  }
  EXPECT_NEAR(mean, 1, 0.02);
}

// flash-attention #1745: the first weights may be so small that a later panel takes all.
TEST(Attention, PanelsFarApartAreFolded) {
  for_each_isa([&](const Execution& execution) {
    for (bool rising : {true, false}) {
      Call call(1, 1, 1, 3, 5000, 1, 1);
      std::fill(call.q.begin(), call.q.end(), 1.0f);
      for (std::int64_t j = 0; j < 5000; ++j) {
        call.k[j] = static_cast<float>(rising ? j : 5000 - j);
        call.v[j] = static_cast<float>(j % 7);
      }
      forward(call.args({.scale = 1}), execution);
      double sum = 0, total = 0;
      for (std::int64_t j = 0; j < 60; ++j) {
        const std::int64_t key = rising ? 4999 - j : j;
        sum += std::exp(-static_cast<double>(j)) * static_cast<double>(key % 7);
        total += std::exp(-static_cast<double>(j));
      }
      for (float y : call.y) EXPECT_NEAR(y, sum / total, 1e-3);
    }
  });
}

TEST(Attention, WrongCallsSaySo) {
  const auto message = [](const std::function<void(ForwardArgs&)>& spoil) -> std::string {
    Call call(1, 4, 2, 3, 5, 8, 6);
    ForwardArgs args = call.args();
    spoil(args);
    try {
      forward(args, lab::execution_for(Isa::scalar, 1));
    } catch (const InvalidArgument& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(message([](ForwardArgs&) {}), "");
  EXPECT_EQ(message([](ForwardArgs& a) {
              a.q.shape[1] = 3;
              a.y.shape[1] = a.lse.shape[1] = a.max.shape[1] = a.sum.shape[1] = 3;
            }),
            "attention: q has 3 heads; must be a multiple of the 2 of k");
  EXPECT_EQ(message([](ForwardArgs& a) { a.v.shape[2] = 4; }),
            "attention: v has shape (1, 2, 4, 6); v beside q and k has (1, 2, 5, 6)");
  EXPECT_EQ(message([](ForwardArgs& a) { a.window = -1; }),
            "attention: window is -1; must not be negative");
  EXPECT_EQ(message([](ForwardArgs& a) { a.softcap = -1; }),
            "attention: softcap is -1; must not be negative");
  EXPECT_EQ(message([](ForwardArgs& a) { a.dropout = 1; }),
            "attention: dropout is 1; must be at least 0 and less than 1");
  EXPECT_EQ(message([](ForwardArgs& a) { a.causal = static_cast<Causal>(3); }),
            "attention: causal is 3; allowed: 0 to 2");
  EXPECT_EQ(message([](ForwardArgs& a) { a.lse.shape[2] = 2; }),
            "attention: lse has shape (1, 4, 2); a row of numbers of q has (1, 4, 3)");
  EXPECT_NE(message([](ForwardArgs& a) { a.y.data = a.q.data; }).find("y overlaps q"),
            std::string::npos);
}

// The bytes that a call asks for, and does not get.
std::size_t workspace_of(const std::function<void(const Execution&)>& call) {
  std::size_t asked = 0;
  Execution execution = lab::execution_for(Machine::here().isa, 2);
  execution.allocator = {[](void* self, std::size_t bytes) -> void* {
                           *static_cast<std::size_t*>(self) = bytes;
                           return nullptr;
                         },
                         [](void*, void*, std::size_t) {}, &asked};
  EXPECT_THROW(call(execution), std::bad_alloc);
  return asked;
}

// A score for each query and key would be 4 GiB.
TEST(Attention, WorkspaceGrowsWithTheLengthAndNotWithItsSquare) {
  struct Bytes {
    std::size_t forward, backward;
  };
  const auto bytes_at = [](std::int64_t length) {
    Call call(1, 1, 1, length, length, 64, 64);
    const ForwardArgs args = call.args();
    Bytes bytes{};
    bytes.forward = workspace_of([&](const Execution& execution) { forward(args, execution); });
    bytes.backward = workspace_of([&](const Execution& execution) {
      gradients(call, args, call.y, [&](const BackwardArgs& given) { backward(given, execution); });
    });
    return bytes;
  };
  const Bytes brief = bytes_at(8192), lasting = bytes_at(32768);
  const auto record = [](const char* key, std::size_t bytes) {
    RecordProperty(key, std::to_string(bytes));
  };
  record("forward of 8192", brief.forward);
  record("backward of 8192", brief.backward);
  record("forward of 32768", lasting.forward);
  record("backward of 32768", lasting.backward);
  EXPECT_LE(lasting.forward, 4 * brief.forward);
  EXPECT_LE(lasting.backward, 4 * brief.backward);
  EXPECT_LE(lasting.forward, std::size_t{1} << 26);
  EXPECT_LE(lasting.backward, std::size_t{1} << 26);
}

}  // namespace
}  // namespace isobit::attention
