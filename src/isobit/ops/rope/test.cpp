// SPDX-License-Identifier: Apache-2.0
// What is peculiar to rope: its places in memory, its positions, and tables of both origins.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/dispatch/device_library.h"
#include "isobit/dispatch/operation.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/devices.h"
#include "isobit/ops/rope/rope.h"
#include "isobit/ops/rope_tables/rope_tables.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::rope {
namespace {

constexpr std::int64_t kBatch = 2, kSeq = 5, kHeads = 3, kDim = 36, kPositions = 16;

// Any numbers near 1.
std::vector<float> numbers(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (float& value : values)
    value = static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1;
  return values;
}

template <class T>
TensorView view(T* data, DType dtype, std::vector<std::int64_t> shape,
                std::vector<std::int64_t> strides = {}) {
  TensorView result{const_cast<std::remove_const_t<T>*>(data), 0, dtype,
                    static_cast<int>(shape.size())};
  std::int64_t step = 1, last = 0;
  for (std::size_t i = shape.size(); i-- > 0;) {
    result.shape[i] = shape[i];
    result.strides[i] = strides.empty() ? step : strides[i];
    last += (shape[i] - 1) * result.strides[i];
    step *= shape[i];
  }
  result.bytes = (last + 1) * size_of(dtype);
  return result;
}

TensorView heads(std::vector<float>& data, std::int64_t first = 0,
                 std::vector<std::int64_t> strides = {}) {
  return view(data.data() + first, DType::f32, {kBatch, kSeq, kHeads, kDim}, std::move(strides));
}

Execution here() { return lab::execution_for(Machine::here().isa, 2); }

class Rope : public testing::TestWithParam<Style> {
 protected:
  std::vector<float> q = numbers(kBatch * kSeq * kHeads * kDim), y = q;
  ForwardArgs args{.q = heads(q), .y_q = heads(y), .style = GetParam()};
};

TEST_P(Rope, InPlaceGivesTheSameBits) {
  forward(args, here());
  args.y_q = args.q;
  forward(args, here());
  EXPECT_EQ(q, y);
}

TEST_P(Rope, PackedQueriesKeysAndValuesAreTurnedWhereTheyLie) {
  constexpr std::int64_t kEach = kHeads * kDim, kToken = 3 * kEach;
  std::vector<float> packed = numbers(kBatch * kSeq * kToken);
  const std::vector<float> before = packed;
  const std::vector<std::int64_t> strides = {kSeq * kToken, kToken, kDim, 1};
  std::vector<float> expected[2] = {y, y};
  for (int i = 0; i < 2; ++i) {
    args.q = heads(packed, i * kEach, strides);
    args.y_q = heads(expected[i]);
    forward(args, here());
  }
  args.q = args.y_q = heads(packed, 0, strides);
  args.k = args.y_k = heads(packed, kEach, strides);
  forward(args, here());
  for (std::int64_t token = 0; token < kBatch * kSeq; ++token)
    for (std::int64_t i = 0; i < kEach; ++i) {
      EXPECT_EQ(packed[token * kToken + i], expected[0][token * kEach + i]);
      EXPECT_EQ(packed[token * kToken + kEach + i], expected[1][token * kEach + i]);
      EXPECT_EQ(packed[token * kToken + 2 * kEach + i], before[token * kToken + 2 * kEach + i]);
    }
}

TEST_P(Rope, AnOutputThatIsTheInputInAnotherOrderIsRefused) {
  args.y_q = args.q;
  std::swap(args.y_q.strides[0], args.y_q.strides[1]);
  args.y_q.strides[0] = kDim, args.y_q.strides[2] = kBatch * kDim;
  EXPECT_THROW(forward(args, here()), InvalidArgument);
}

TEST_P(Rope, GivenTablesOfOursAreTheComputedOnes) {
  args.offset_positions = 7;
  forward(args, here());
  const std::vector<float> computed = y;
  std::vector<float> cos(kPositions * kDim / 2), sin = cos;
  args.cos = view(cos.data(), DType::f32, {kPositions, kDim / 2});
  args.sin = view(sin.data(), DType::f32, {kPositions, kDim / 2});
  rope_tables::run({.cos = args.cos, .sin = args.sin}, here());
  forward(args, here());
  EXPECT_EQ(y, computed);
}

TEST_P(Rope, BackwardTurnsBack) {
  forward(args, here());
  std::vector<float> back = y;
  backward({.grad_y_q = heads(y), .grad_q = heads(back), .style = GetParam()}, here());
  for (std::size_t i = 0; i < back.size(); ++i) EXPECT_NEAR(back[i], q[i], 1e-6);
}

TEST_P(Rope, APositionOfASequenceIsThatOfEachBatch) {
  forward(args, here());
  const std::vector<float> counted = y;
  const std::vector<std::int64_t> positions = {0, 1, 2, 3, 4};
  args.positions = view(positions.data(), DType::i64, {kSeq});
  forward(args, here());
  EXPECT_EQ(y, counted);
}

// Angles in f32 were off by 1e-2 there.
TEST_P(Rope, IsRightAtAFarPosition) {
  args.offset_positions = 131071;
  forward(args, here());
  for (std::int64_t i = 0; i < kDim / 2; ++i) {
    const bool half = GetParam() == Style::half;
    const std::int64_t first = half ? i : 2 * i, second = half ? i + kDim / 2 : 2 * i + 1;
    const double angle = 131071 * std::pow(10000, -2.0 * static_cast<double>(i) / kDim);
    EXPECT_NEAR(y[first], q[first] * std::cos(angle) - q[second] * std::sin(angle), 1e-6) << i;
  }
}

// On the processor; a GPU cannot refuse it, and reads no table.
TEST_P(Rope, APositionWithoutATableIsRefusedBeforeAnythingIsWritten) {
  const std::vector<float> cos = numbers(kPositions * kDim / 2);
  args.cos = args.sin = view(cos.data(), DType::f32, {kPositions, kDim / 2});
  const std::vector<float> before = y;
  for (const std::int64_t wrong : {std::int64_t{-1}, kPositions - 2, std::int64_t{1} << 62}) {
    std::vector<std::int64_t> positions(kBatch * kSeq, 3);
    positions.back() = wrong;
    args.positions = view(positions.data(), DType::i64, {kBatch, kSeq});
    args.offset_positions = 2;
    try {
      forward(args, here());
      ADD_FAILURE() << "accepted " << wrong;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("positions[1, 4] is " + std::to_string(wrong)),
                std::string::npos)
          << error.what();
    }
    EXPECT_EQ(y, before);
    lab::attach_devices();
    if (attached(Device::emu) == nullptr) continue;
    forward(args, lab::execution_for(Device::emu));
    for (std::size_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(std::isnan(y[i]), i >= y.size() - kHeads * kDim) << i;
    y = before;
  }
}

TEST_P(Rope, WrongShapesAndOptionsAreRefusedInWords) {
  const auto says = [&](const ForwardArgs& wrong) -> std::string {
    try {
      forward(wrong, here());
    } catch (const InvalidArgument& error) { return error.what(); }
    return "accepted";
  };
  ForwardArgs wrong = args;
  wrong.rotary_dim = 7;
  EXPECT_EQ(says(wrong),
            "rope: rotary_dim is 7; allowed: even numbers from 0 to 36, the elements of a head");
  wrong = args;
  wrong.base = 0.5;
  EXPECT_EQ(says(wrong), "rope: base is 0.5; allowed: 1 to 2^100");
  wrong = args;
  wrong.k = args.q;
  EXPECT_EQ(says(wrong), "rope: y_k is missing");
  wrong = args;
  wrong.cos = view(q.data(), DType::f32, {4, kDim / 2});
  EXPECT_EQ(says(wrong), "rope: cos and sin are given together or not at all");
  wrong.sin = wrong.cos;
  EXPECT_EQ(says(wrong), "rope: there are 5 positions from 0 on; cos has 4 rows");
}

INSTANTIATE_TEST_SUITE_P(Styles, Rope, testing::Values(Style::half, Style::interleaved),
                         [](const auto& info) {
                           return info.param == Style::half ? "half" : "interleaved";
                         });

}  // namespace
}  // namespace isobit::rope
