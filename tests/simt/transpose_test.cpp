// SPDX-License-Identifier: Apache-2.0
// transpose's kernels in every schedule of threads: sizes, strides, alignments, types, plans, and
// not a byte beside y. They are launched without the operator, which has no type of one byte yet.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "isobit/ops/transpose/cuda_bulk.h"
#include "isobit/ops/transpose/cuda_elements.h"
#include "isobit/ops/transpose/cuda_vectors.h"
#include "isobit/ops/transpose/formula.h"
#include "isobit/ops/transpose/problem.h"
#include "simt/where.h"

namespace isobit::transpose {
namespace {

// The detector keeps a clock for each pair of threads, so there it is few blocks and schedules.
using lab::in_every_schedule;
using lab::kDetectsRaces;
using lab::watch;

constexpr std::byte kBeside{0xa5};
constexpr DType kReals[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

struct Shape {
  std::int64_t rows, cols;
  std::int64_t x_gap = 0, y_gap = 0;        // elements between rows of x, and between rows of y
  std::int64_t x_offset = 0, y_offset = 0;  // elements before the first
  std::int64_t x_step = 1, y_step = 1;      // elements from one to the next within a row
  std::vector<std::int64_t> outer = {};
  bool turned = true;  // y's rows are columns of x
};

// What a call has of x and y.
struct Types {
  DType x, y;
  bool bytes = false;  // instead of both: elements of one byte
};

// A call with its arrays: x is random bits, and what lies beside y has a pattern.
class Call {
 public:
  Call(const Shape& shape, const Types& types, unsigned seed)
      : x_size_(types.bytes ? 1 : size_of(types.x)), y_size_(types.bytes ? 1 : size_of(types.y)) {
    problem_.x_dtype = types.x;
    problem_.y_dtype = types.y;
    const std::int64_t x_row = shape.cols * shape.x_step + shape.x_gap;
    const std::int64_t in_row = shape.turned ? shape.rows : shape.cols;
    const std::int64_t y_row = in_row * shape.y_step + shape.y_gap;
    problem_.rows = {shape.rows, x_row, shape.turned ? shape.y_step : y_row};
    problem_.cols = {shape.cols, shape.x_step, shape.turned ? y_row : shape.y_step};
    std::int64_t x_all = shape.rows * x_row;
    std::int64_t y_all = (shape.turned ? shape.cols : shape.rows) * y_row;
    // Matrices lie in another order in x than in y.
    problem_.outer_count = static_cast<int>(shape.outer.size());
    for (std::size_t i = 0; i < shape.outer.size(); ++i) {
      problem_.outer[i] = {shape.outer[i], x_all, 0};
      x_all *= shape.outer[i];
    }
    for (std::size_t i = shape.outer.size(); i-- > 0; y_all *= shape.outer[i])
      problem_.outer[i].y_stride = y_all;
    x_.resize(static_cast<std::size_t>((shape.x_offset + x_all) * x_size_ / 16 + 2));
    y_.resize(static_cast<std::size_t>((shape.y_offset + y_all) * y_size_ / 16 + 5));
    std::mt19937 random(seed);
    for (Line& line : x_)
      for (std::byte& byte : line.bytes) byte = static_cast<std::byte>(random());
    forget();
    problem_.x = x_[0].bytes + shape.x_offset * x_size_;
    problem_.y = y_[2].bytes + shape.y_offset * y_size_;
    expect();
  }

  const Problem& problem() const { return problem_; }
  bool done() const { return std::memcmp(y_.data(), expected_.data(), expected_.size()) == 0; }
  void forget() {
    for (Line& line : y_) std::memset(line.bytes, static_cast<int>(kBeside), sizeof line);
  }

 private:
  struct alignas(16) Line {
    std::byte bytes[16];
  };

  void expect() {
    expected_.assign(y_.size() * sizeof(Line), kBeside);
    std::byte* y = expected_.data() + (problem_.y - y_[0].bytes);
    for (std::int64_t matrix = 0; matrix < problem_.matrices(); ++matrix) {
      std::int64_t x_at = 0, y_at = 0, left = matrix;
      for (int i = problem_.outer_count; i-- > 0;) {
        const Axis& axis = problem_.outer[static_cast<std::size_t>(i)];
        x_at += left % axis.extent * axis.x_stride;
        y_at += left % axis.extent * axis.y_stride;
        left /= axis.extent;
      }
      const Axis &rows = problem_.rows, &cols = problem_.cols;
      for (std::int64_t i = 0; i < rows.extent; ++i)
        for (std::int64_t j = 0; j < cols.extent; ++j)
          put(problem_.x + (x_at + i * rows.x_stride + j * cols.x_stride) * x_size_,
              y + (y_at + i * rows.y_stride + j * cols.y_stride) * y_size_);
    }
  }

  void put(const std::byte* from, std::byte* to) const {
    if (!problem_.casts()) {
      std::memcpy(to, from, static_cast<std::size_t>(x_size_));
      return;
    }
    visit(problem_.x_dtype, [&](auto x_type) {
      visit(problem_.y_dtype, [&](auto y_type) {
        using From = typename decltype(x_type)::type;
        using To = typename decltype(y_type)::type;
        constexpr bool kBothReal = !std::is_integral_v<From> && !std::is_integral_v<To>;
        if constexpr (kBothReal && sizeof(From) <= 8 && sizeof(To) <= 8 &&
                      !std::is_same_v<From, To>) {
          From value;
          std::memcpy(&value, from, sizeof value);
          const To result = cast<Conversions, To>(value);
          std::memcpy(to, &result, sizeof result);
        }
      });
    });
  }

  Problem problem_{};
  std::int64_t x_size_, y_size_;
  std::vector<Line> x_, y_;
  std::vector<std::byte> expected_;
};

Execution execution() {
  Execution execution;
  execution.machine.device = simt::kDevice;
  execution.machine.gpu = simt::gpu();
  return execution;
}

std::string text_of(const Shape& s) {
  return text(s.rows, " x ", s.cols, ", gaps ", s.x_gap, " and ", s.y_gap, ", offsets ", s.x_offset,
              " and ", s.y_offset, ", steps ", s.x_step, " and ", s.y_step, ", ", s.outer.size(),
              " outer axes", s.turned ? "" : ", copied");
}

// All plans of a variant, or its own.
std::vector<Plan> plans_of(const TransposeVariant& variant, const Problem& problem, bool all) {
  std::vector<Plan> plans = {variant.choose(problem, execution().machine)};
  if (!all) return plans;
  plans = {Plan{}};
  for (std::size_t knob = 0; knob < variant.knobs.size(); ++knob) {
    std::vector<Plan> more;
    for (Plan plan : plans)
      for (const int value : variant.knobs[knob].values) {
        plan[knob] = value;
        more.push_back(plan);
      }
    plans = more;
  }
  return plans;
}

constexpr std::size_t kBlocksKnob[] = {2, 2, 1, 1};  // of each variant

// Runs the variants that do not decline, and counts their runs. With few blocks each goes on to
// another tile, behind what may race with it.
void expect_right(const Shape& shape, const Types& types, bool all_plans, bool few_blocks,
                  int (&runs)[4]) {
  static unsigned seed = 0;
  Call call(shape, types, ++seed);
  const auto variants = cuda_variants();
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const TransposeVariant& variant = variants[i];
    if (!variant.declines(call.problem(), execution().machine).empty()) continue;
    for (Plan plan : plans_of(variant, call.problem(), all_plans)) {
      if (few_blocks || kDetectsRaces) plan[kBlocksKnob[i]] = 1;
      call.forget();
      variant.run({}, call.problem(), plan, execution());
      ++runs[i];
      ASSERT_TRUE(call.done()) << variant.name << ", " << text_of(shape) << ", " << name_of(types.x)
                               << " to " << name_of(types.y) << ", plan " << plan[0] << " "
                               << plan[1] << " " << plan[2] << " " << plan[3];
    }
  }
}

constexpr std::int64_t kSizes[] = {0,  1,  2,  3,  4,  5,  7,  8,  9,  15, 16,
                                   17, 24, 31, 32, 33, 48, 63, 64, 65, 70};

class Transpose : public testing::Test {
 protected:
  void SetUp() override { watch(); }
};

// The numbers of sizes, gaps, offsets and types have no factor in common with each other's steps.
TEST_F(Transpose, EverySizeIsRight) {
  int runs[4] = {}, index = 0;
  for (const std::int64_t rows : kSizes)
    for (const std::int64_t cols : kSizes) {
      if (++index % 8 != 0 && kDetectsRaces) continue;
      const std::int64_t gaps[] = {0, 0, 3, 8, 16}, offsets[] = {0, 0, 0, 1, 5, 8, 2};
      const DType dtype = kReals[(index / 8 + index) % 4];
      const Shape shape = {.rows = rows,
                           .cols = cols,
                           .x_gap = gaps[index % 5],
                           .y_gap = gaps[(index / 5) % 5],
                           .x_offset = offsets[index % 7],
                           .y_offset = offsets[(index / 7) % 7]};
      expect_right(shape, {dtype, dtype}, false, false, runs);
      if (HasFatalFailure()) return;
    }
  if (kDetectsRaces) return;  // not of all sizes
  for (const int count : runs) EXPECT_GT(count, 0);
}

TEST_F(Transpose, EveryTypeIsRightInEverySchedule) {
  int runs[4] = {};
  in_every_schedule([&](bool) {
    int index = 0;
    for (const DType x : {DType::f32, DType::f16, DType::bf16, DType::f64})
      for (const DType y : kReals) {
        const bool whole = ++index % 3 == 0;
        const Shape shape = whole ? Shape{.rows = 136, .cols = 144}
                                  : Shape{.rows = 67, .cols = 131, .x_gap = index % 5, .y_gap = 3};
        expect_right(shape, {x, y}, false, true, runs);
        if (HasFatalFailure()) return;
      }
    expect_right({.rows = 40, .cols = 70}, {DType::i32, DType::i32}, false, true, runs);
  });
  for (const int count : runs) EXPECT_GT(count, 0);
}

// More tiles than are in flight: places are used again.
TEST_F(Transpose, ManyTilesTakeTurns) {
  int runs[4] = {};
  in_every_schedule([&](bool) {
    for (const Shape& shape : {Shape{.rows = 264, .cols = 200, .x_gap = 8},
                               Shape{.rows = 130, .cols = 201, .y_offset = 1},
                               Shape{.rows = 32, .cols = 48, .outer = {3, 5}}}) {
      expect_right(shape, {DType::bf16, DType::bf16}, false, true, runs);
      expect_right(shape, {DType::f64, DType::f64}, false, true, runs);
    }
  });
  for (const int count : runs) EXPECT_GT(count, 0);
}

TEST_F(Transpose, EveryPlanIsRight) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  int runs[4] = {};
  int index = 0;
  for (const DType x : {DType::f32, DType::bf16, DType::f64})
    for (const DType y : {DType::f32, DType::f16, DType::f64}) {
      const bool odd = ++index % 2 != 0;
      expect_right({.rows = 160, .cols = 144, .y_gap = odd, .x_offset = odd}, {x, y}, true, false,
                   runs);
      expect_right({.rows = 6, .cols = 144, .outer = {3}, .turned = false}, {x, y}, true, false,
                   runs);
      if (HasFatalFailure()) return;
    }
}

TEST_F(Transpose, MatricesLieAnywhere) {
  int runs[4] = {};
  for (const auto& outer : std::vector<std::vector<std::int64_t>>{
           {1}, {3}, {2, 3}, {2, 1, 3}, {2, 2, 2, 2, 2, 2}, {5, 0}})
    for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
      expect_right({.rows = 16, .cols = 24, .outer = outer}, {dtype, dtype}, false, false, runs);
      expect_right({.rows = 5, .cols = 19, .x_gap = 2, .outer = outer}, {dtype, dtype}, false,
                   false, runs);
    }
}

TEST_F(Transpose, StepsWithinARowAreTakenByElements) {
  for (const auto& [x_step, y_step] : {std::pair<std::int64_t, std::int64_t>{2, 1}, {1, 3}, {5, 2}})
    for (const DType dtype : kReals) {
      int runs[4] = {};
      expect_right({.rows = 35, .cols = 50, .x_step = x_step, .y_step = y_step}, {dtype, dtype},
                   false, false, runs);
      EXPECT_EQ(runs[0] + runs[1], 0);
      EXPECT_EQ(runs[2] + runs[3], 2);
    }
}

TEST_F(Transpose, RowsThatKeepTheirDirectionAreCopied) {
  int runs[4] = {}, index = 0;
  for (const std::int64_t rows : {1, 3, 70})
    for (const std::int64_t cols : {1, 2, 7, 8, 64, 129, 1000, 5000})
      for (const DType x : {DType::f32, DType::bf16, DType::f64}) {
        if (cols > 129 && kDetectsRaces) continue;
        const DType y = ++index % 2 != 0 ? x : kReals[index % 4];
        expect_right({.rows = rows,
                      .cols = cols,
                      .x_gap = index % 3 == 0 ? 8 : 0,
                      .x_offset = index % 5 == 0,
                      .y_offset = index % 7 == 0,
                      .outer = {2},
                      .turned = false},
                     {x, y}, false, false, runs);
      }
  EXPECT_GT(runs[0], 0);
}

template <class Kernel>
void expect_bytes(Call& call, const Kernel& kernel, std::int64_t blocks) {
  call.forget();
  simt::launch(nullptr, {.blocks = blocks, .threads = kernel.threads}, kernel);
  ASSERT_TRUE(call.done());
}

TEST_F(Transpose, BytesAreRightInEverySchedule) {
  using B = std::uint8_t;
  in_every_schedule([&](bool) {
    unsigned seed = 0;
    for (const Shape& shape :
         {Shape{.rows = 160, .cols = 144}, Shape{.rows = 144, .cols = 272, .x_gap = 16},
          Shape{.rows = 40, .cols = 70}, Shape{.rows = 33, .cols = 64, .x_offset = 4},
          Shape{.rows = 66, .cols = 130, .outer = {2}}, Shape{.rows = 1, .cols = 1}}) {
      Call call(shape, {DType::i32, DType::i32, true}, ++seed);
      const Problem& problem = call.problem();
      const bool whole = shape.rows % 16 == 0 && shape.cols % 16 == 0;
      for (const int side : {3, 4}) {
        expect_bytes(call, Vectors<B, B, false>(problem, side, 3), 2);
        if (whole) expect_bytes(call, Vectors<B, B, true>(problem, 3, side), 2);
        if (whole) expect_bytes(call, Bulk<B, B>(problem, side, 3, 2), 2);
      }
      expect_bytes(call, Elements<B, B>(problem, 256), 2);
      expect_bytes(call, Naive<B, B>(problem, 64), 2);
    }
    Call call({.rows = 9, .cols = 300, .turned = false}, {DType::i32, DType::i32, true}, ++seed);
    expect_bytes(call, Rows<B, B>(call.problem(), 64), 2);
  });
}

TEST_F(Transpose, DeclinesSayWhy) {
  Machine machine = execution().machine;
  const auto said = [&](const Shape& shape, std::size_t variant) {
    return cuda_variants()[variant].declines(Call(shape, {DType::f32, DType::f32}, 1).problem(),
                                             machine);
  };
  EXPECT_EQ(said({.rows = 8, .cols = 8}, 1), "");
  EXPECT_NE(said({.rows = 8, .cols = 9}, 1).find("rows of x"), std::string::npos);
  EXPECT_NE(said({.rows = 9, .cols = 8}, 1).find("rows of y"), std::string::npos);
  EXPECT_NE(said({.rows = 8, .cols = 8, .x_step = 2}, 0), "");
  EXPECT_NE(said({.rows = 8, .cols = 8, .turned = false}, 1), "");
  machine.gpu.capability = 80;
  EXPECT_EQ(said({.rows = 8, .cols = 8}, 1), "bulk copies need sm_90 or later");
  EXPECT_EQ(said({.rows = 8, .cols = 8}, 0), "");
}

template <class T>
std::uint16_t cast_bits(double value) {
  return cast<Conversions, T>(value).bits;
}

// Between two neighbours of the narrow type: their middle, and what is as near to it as a double.
template <class T>
void expect_one_rounding() {
  const unsigned first_infinite = std::is_same_v<T, f16> ? 0x7c00 : 0x7f80;
  for (unsigned bits = 0; bits + 1 < first_infinite; ++bits) {
    const T low{static_cast<std::uint16_t>(bits)}, high{static_cast<std::uint16_t>(bits + 1)};
    const double middle = (double{to_float(low)} + double{to_float(high)}) / 2;
    ASSERT_EQ(cast_bits<T>(middle), bits + (bits & 1));
    ASSERT_EQ(cast_bits<T>(std::nextafter(middle, 0.0)), bits);
    ASSERT_EQ(cast_bits<T>(std::nextafter(middle, HUGE_VAL)), bits + 1);
    ASSERT_EQ(cast_bits<T>(-std::nextafter(middle, HUGE_VAL)), (bits + 1) | 0x8000u);
    ASSERT_EQ(cast_bits<T>(double{to_float(high)}), bits + 1);
  }
  EXPECT_EQ(cast_bits<T>(std::numeric_limits<double>::max()), first_infinite);
  EXPECT_EQ(cast_bits<T>(-HUGE_VAL), first_infinite | 0x8000u);
  EXPECT_EQ(cast_bits<T>(-0.0), 0x8000u);
  EXPECT_EQ(cast_bits<T>(-5e-324), 0x8000u);
  EXPECT_EQ(cast_bits<T>(std::nan("")), from_float<T>(std::nanf("")).bits);
}
TEST_F(Transpose, DoublesAreRoundedOnceToBf16) { expect_one_rounding<bf16>(); }
TEST_F(Transpose, DoublesAreRoundedOnceToF16) { expect_one_rounding<f16>(); }

}  // namespace
}  // namespace isobit::transpose
