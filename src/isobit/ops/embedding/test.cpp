// SPDX-License-Identifier: Apache-2.0
// What only embedding promises: indices that are no tokens, both their types, sums in the order of
// a token's occurrences whatever stands between them, padding, and divided rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/core/order.h"
#include "isobit/dispatch/operation.h"
#include "isobit/ops/embedding/embedding.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::embedding {
namespace {

using Floats = std::vector<float>;

TensorView matrix(Floats& values, std::int64_t cols) {
  const std::int64_t rows = std::ssize(values) / cols;
  return matrix_view(values.data(), std::ssize(values) * 4, DType::f32, rows, cols, cols);
}
TensorView vector(std::vector<std::int64_t>& index) {
  return vector_view(index.data(), std::ssize(index) * 8, DType::i64, std::ssize(index));
}

// Numbers whose sums depend on their order.
Floats noise(std::int64_t count) {
  Floats values(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = std::ldexp(static_cast<float>(static_cast<std::int32_t>(state)),
                       -31 + static_cast<int>(state % 13));
  }
  return values;
}

struct Backward {
  std::int64_t tokens, cols;
  std::vector<std::int64_t> index;
  Floats grad_y = {};
  std::int64_t padding_idx = -1;
  bool scale_grad_by_freq = false;

  Floats operator()(const Execution& execution) {
    if (grad_y.empty()) grad_y = noise(std::ssize(index) * cols);
    Floats grad_weight(static_cast<std::size_t>(tokens * cols), 7.0f);
    embedding::backward({.grad_y = matrix(grad_y, cols),
                         .index = vector(index),
                         .grad_weight = matrix(grad_weight, cols),
                         .padding_idx = padding_idx,
                         .scale_grad_by_freq = scale_grad_by_freq},
                        execution);
    return grad_weight;
  }

  // By the definition, without any grouping.
  Floats expected() const {
    Floats result;
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::vector<std::int64_t> places;
      for (std::int64_t i = 0; i < std::ssize(index); ++i)
        if (index[i] == token && token != padding_idx) places.push_back(i);
      for (std::int64_t col = 0; col < cols; ++col) {
        const float sum = order::sum_rows<float>(
            std::ssize(places),
            [&](float before, std::int64_t i) { return before + grad_y[places[i] * cols + col]; });
        result.push_back(
            scale_grad_by_freq && !places.empty() ? sum / static_cast<float>(places.size()) : sum);
      }
    }
    return result;
  }
};

// Calls body(execution) on each instruction set, with some numbers of threads.
template <class Body>
void in_every_way(const Body& body) {
  for (const Isa isa : Machine::isas_here())
    for (const int threads : {1, 2, 3, 8}) {
      SCOPED_TRACE(text(name_of(isa), ", threads ", threads));
      Execution execution = simd::here(threads);
      execution.machine.isa = isa;
      execution.machine.elements_a_thread = 1;  // so that little work is shared, too
      body(execution);
    }
}

TEST(Embedding, AnIndexThatIsNoTokenIsNamedBeforeAnythingIsWritten) {
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{5}, std::int64_t{1} << 40}) {
    std::vector<std::int64_t> index(6000, 1);  // more than are looked at at once
    index[5004] = index[5999] = wrong;
    Floats weight(5 * 2, 1), y(6000 * 2, 7), grad_weight(5 * 2, 7);
    TensorView indices = vector(index);
    indices.rank = 3;
    indices.shape = {10, 20, 30};
    indices.strides = {600, 30, 1};
    const std::string expected =
        "embedding: index[8, 6, 24] is " + std::to_string(wrong) + "; there are tokens from 0 to 4";
    for (const bool forward : {true, false}) {
      try {
        if (forward)
          embedding::forward({.weight = matrix(weight, 2), .index = indices, .y = matrix(y, 2)},
                             simd::here(1));
        else
          embedding::backward(
              {.grad_y = matrix(y, 2), .index = indices, .grad_weight = matrix(grad_weight, 2)},
              simd::here(1));
        FAIL();
      } catch (const InvalidArgument& error) { EXPECT_EQ(error.what(), expected); }
    }
    EXPECT_EQ(y, Floats(6000 * 2, 7));
    EXPECT_EQ(grad_weight, Floats(5 * 2, 7));
  }
}

TEST(Embedding, WithoutTokensAnyIndexIsAnError) {
  std::vector<std::int64_t> index = {0};
  Floats weight, y(2);
  const ForwardArgs args{.weight = matrix_view(weight.data(), 0, DType::f32, 0, 2, 2),
                         .index = vector(index),
                         .y = matrix(y, 2)};
  try {
    embedding::forward(args, simd::here(1));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "embedding: index[0] is 0; there are no tokens");
  }
}

TEST(Embedding, NumbersOfIndicesAndRowsMustAgree) {
  std::vector<std::int64_t> index(5);
  Floats weight(4), y(4 * 2);
  try {
    embedding::forward({.weight = matrix(weight, 2), .index = vector(index), .y = matrix(y, 2)},
                       simd::here(1));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "embedding: index has 5 elements; y has 4 rows");
  }
}

// What becomes of 32 bits in the place of 64 is a row far away.
TEST(Embedding, IndicesOf32BitsAreThoseOf64) {
  in_every_way([](const Execution& execution) {
    constexpr std::int64_t kRows = 530, kCols = 33, kTokens = 9;
    Backward call{kTokens, kCols, {}};
    std::vector<std::int32_t> narrow;
    for (std::int64_t i = 0; i < kRows; ++i) {
      call.index.push_back(i * i % kTokens);
      narrow.push_back(static_cast<std::int32_t>(call.index.back()));
    }
    const TensorView index = vector_view(narrow.data(), kRows * 4, DType::i32, kRows);
    const Floats expected = call(execution);
    Floats grad_weight(kTokens * kCols), weight = noise(kTokens * kCols);
    embedding::backward({.grad_y = matrix(call.grad_y, kCols),
                         .index = index,
                         .grad_weight = matrix(grad_weight, kCols)},
                        execution);
    EXPECT_EQ(grad_weight, expected);
    Floats y(kRows * kCols), wide(kRows * kCols);
    embedding::forward({.weight = matrix(weight, kCols), .index = index, .y = matrix(y, kCols)},
                       execution);
    embedding::forward(
        {.weight = matrix(weight, kCols), .index = vector(call.index), .y = matrix(wide, kCols)},
        execution);
    EXPECT_EQ(y, wide);
    for (std::int64_t i = 0; i < kRows; ++i)
      EXPECT_EQ(y[i * kCols + 32], weight[narrow[i] * kCols + 32]) << i;
  });
}

// Counts on both sides of a run's and a chunk's length, and of several chunks.
TEST(Embedding, OccurrencesAreAddedInTheOrderOfSumsOverRows) {
  in_every_way([](const Execution& execution) {
    for (const std::int64_t count :
         {1, 15, 16, 17, 33, 255, 256, 257, 272, 511, 512, 513, 1025, 2500}) {
      Backward call{3, 19, {}};
      for (std::int64_t i = 0; i < count; ++i) {
        call.index.push_back(1);
        if (i % 3 == 0) call.index.push_back(2);
      }
      const Floats found = call(execution);
      EXPECT_EQ(found, call.expected()) << count;
    }
  });
}

// As of padding, or a table of one row: all threads take part, whatever else there is.
TEST(Embedding, OneTokenBetweenManyRareOnesHasTheBitsItHasAlone) {
  in_every_way([](const Execution& execution) {
    constexpr std::int64_t kFrequent = 1300, kCols = 70, kTokens = 2000;
    Backward alone{1, kCols, std::vector<std::int64_t>(kFrequent, 0)};
    const Floats expected = alone(execution);
    Backward among{kTokens, kCols, {}};
    among.grad_y = {};
    for (std::int64_t i = 0; i < kFrequent; ++i) {
      for (std::int64_t rare = 0; rare < i % 3; ++rare) {
        among.index.push_back((i * 7 + rare) % 900);
        among.grad_y.insert(among.grad_y.end(), kCols, 3.0f);
      }
      among.index.push_back(1000);
      among.grad_y.insert(among.grad_y.end(), alone.grad_y.begin() + i * kCols,
                          alone.grad_y.begin() + (i + 1) * kCols);
    }
    const Floats found = among(execution);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), found.begin() + 1000 * kCols));
    EXPECT_EQ(found, among.expected());
  });
}

// Two tokens with several chunks each, whose sums are kept side by side.
TEST(Embedding, ChunksOfSeveralFrequentTokensAreKeptApart) {
  in_every_way([](const Execution& execution) {
    Backward call{7, 5, {}};
    for (std::int64_t i = 0; i < 7 * 257; ++i) call.index.push_back(i % 7);
    for (std::int64_t i = 0; i < 40; ++i) call.index.push_back(3);
    const Floats found = call(execution);
    EXPECT_EQ(found, call.expected());
  });
}

TEST(Embedding, TheRowOfPaddingIsZeroHoweverOftenItOccurs) {
  in_every_way([](const Execution& execution) {
    for (const std::int64_t count : {3, 700}) {
      Backward call{3, 70, std::vector<std::int64_t>(count, 2)};
      call.index.push_back(1);
      call.padding_idx = 2;
      const float nan = std::numeric_limits<float>::quiet_NaN();
      call.grad_y = Floats(static_cast<std::size_t>(count * 70), nan);  // whatever stands there
      call.grad_y.insert(call.grad_y.end(), 70, 4.0f);
      const Floats found = call(execution);
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(found[i], i / 70 == 1 ? 4.0f : 0.0f) << i;
    }
  });
}

// The sum is divided, not its terms, and 0 / 0 is no row's.
TEST(Embedding, RowsAreDividedByTheirOwnCounts) {
  in_every_way([](const Execution& execution) {
    Backward call{5, 37, {}};
    call.scale_grad_by_freq = true;
    for (std::int64_t i = 0; i < 900; ++i) call.index.push_back(i % 10 < 3 ? i % 10 : 0);
    const Floats found = call(execution);
    EXPECT_EQ(found, call.expected());
    EXPECT_EQ(found[4 * 37], 0);
  });
}

TEST(Embedding, ASumOfNegativeZerosIsZero) {
  Backward call{1, 3, {0}};
  call.grad_y = Floats(3, -0.0f);
  for (const float value : call(simd::here(1))) EXPECT_FALSE(std::signbit(value));
}

// A row is what stands in the table, to the last bit of a NaN.
TEST(Embedding, RowsAreTheVeryBytes) {
  in_every_way([](const Execution& execution) {
    std::vector<std::uint16_t> weight(3 * 70), y(2 * 70);
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] = static_cast<std::uint16_t>(0x7c01 + 97 * i);
    std::vector<std::int64_t> index = {2, 0};
    embedding::forward({.weight = matrix_view(weight.data(), 3 * 70 * 2, DType::f16, 3, 70, 70),
                        .index = vector(index),
                        .y = matrix_view(y.data(), 2 * 70 * 2, DType::f16, 2, 70, 70)},
                       execution);
    EXPECT_EQ(std::memcmp(y.data(), &weight[2 * 70], 140), 0);
    EXPECT_EQ(std::memcmp(&y[70], weight.data(), 140), 0);
  });
}

}  // namespace
}  // namespace isobit::embedding
