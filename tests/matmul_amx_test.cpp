// SPDX-License-Identifier: Apache-2.0
// Arithmetic tensor on processors: every variant against the order that core/amx.h writes down, on
// numbers that round, cancel, leave the range and are not finite; and the state that AMX leaves.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "float_arrays.h"
#include "isobit/core/amx.h"
#include "isobit/core/error.h"
#include "isobit/dispatch/operation.h"
#include "isobit/lab/configurations.h"
#include "isobit/ops/matmul/matmul.h"

namespace isobit::matmul::amx_test {
namespace {

using lab::execution_for;

// How elements are drawn: biased exponents from `least` on, and in how many of 256 there is a NaN,
// an infinity or a zero instead.
struct Family {
  const char* name;
  std::uint32_t least, span, nans = 0, infinities = 0, zeros = 0;
};
constexpr Family kFamilies[] = {{"of one size", 126, 2},
                                {"that round and cancel", 118, 14},
                                {"whose products are subnormal", 56, 14},
                                {"whose sums are subnormal", 62, 4},
                                {"subnormal ones among others", 0, 70},
                                {"of all sizes", 0, 255},
                                {"that exceed the range", 186, 10},
                                {"with zeros", 100, 40, 0, 0, 90},
                                {"with infinities", 110, 30, 0, 1, 4},
                                {"with NaN", 110, 30, 1, 0, 0}};

// Elements of bf16, (rows, cols), of any layout; all beside them is NaN.
struct Matrix {
  std::vector<bf16> elements;
  std::int64_t rows, cols, row, col;

  Matrix(std::int64_t rows, std::int64_t cols, int layout, const Family& family,
         std::uint32_t state)
      : rows(rows), cols(cols) {
    row = layout == 0 ? cols + 3 : layout == 1 ? 1 : 2 * cols + 1;
    col = layout == 0 ? 1 : layout == 1 ? rows + 5 : 2;
    elements.resize(static_cast<std::size_t>((rows - 1) * row + (cols - 1) * col + 40),
                    bf16{0x7fc0});
    const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 12; };
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) {
        const std::uint32_t sign = next() & 0x8000, kind = next() % 256;
        std::uint32_t size = (family.least + next() % family.span) << 7 | (next() & 0x7f);
        if (kind < family.nans)
          size = 0x7fc0 | (next() & 0x3f);
        else if (kind < family.nans + family.infinities)
          size = 0x7f80;
        else if (kind < family.nans + family.infinities + family.zeros)
          size = 0;
        at(i, j).bits = static_cast<std::uint16_t>(sign | size);
      }
  }
  bf16& at(std::int64_t i, std::int64_t j) {
    return elements[static_cast<std::size_t>(i * row + j * col)];
  }
  TensorView view() {
    TensorView view{elements.data(), 2 * static_cast<std::int64_t>(elements.size()), DType::bf16,
                    2};
    view.shape = {rows, cols};
    view.strides = {row, col};
    return view;
  }
};

// Bits, of which all NaNs have the same.
std::uint32_t bits_of(float value) {
  return std::isnan(value) ? 0x7fc0'0000U : std::bit_cast<std::uint32_t>(value);
}

// As core/amx.h defines it.
std::vector<std::uint32_t> defined(Matrix& a, Matrix& b) {
  std::vector<std::uint32_t> bits;
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.cols; ++j)
      bits.push_back(bits_of(amx::product(
                                 a.cols, [&](std::int64_t k) { return to_float(a.at(i, k)); },
                                 [&](std::int64_t k) { return to_float(b.at(k, j)); }) +
                             0.0F));
  return bits;
}

class Call {
 public:
  Call(Matrix& a, Matrix& b)
      : y_(static_cast<std::size_t>(a.rows * b.cols), kNan),
        arguments_(forward_operation().make_arguments()) {
    auto& args = *static_cast<ForwardArgs*>(arguments_.get());
    args.a = a.view();
    args.b = b.view();
    args.y = view(y_.data(), {a.rows, b.cols});
    args.arithmetic = Arithmetic::tensor;
  }
  ForwardArgs& args() { return *static_cast<ForwardArgs*>(arguments_.get()); }
  const Arguments& arguments() const { return arguments_; }

  // The variant's index on the processor.
  static int index_of(std::string_view name) {
    const auto infos = forward_operation().variants();
    for (std::size_t i = 0; i < infos.size(); ++i)
      if (infos[i].device == Device::cpu && infos[i].name == name) return static_cast<int>(i);
    throw std::logic_error("no such variant");
  }
  std::string declines(std::string_view name, const Execution& execution) const {
    return forward_operation().declines(index_of(name), arguments_, execution.machine);
  }
  std::vector<std::uint32_t> by(std::string_view name, const Execution& execution) {
    const Operation& operation = forward_operation();
    const int variant = index_of(name);
    return by(name, execution, operation.choose(variant, arguments_, execution.machine));
  }
  std::vector<std::uint32_t> by(std::string_view name, const Execution& execution,
                                const Plan& plan) {
    std::fill(y_.begin(), y_.end(), kNan);
    forward_operation().run(index_of(name), plan, arguments_, execution);
    return bits();
  }
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (const float value : y_) all.push_back(std::bit_cast<std::uint32_t>(value));
    return all;
  }

 private:
  Floats y_;
  Arguments arguments_;
};

struct Shape {
  std::int64_t m, n, k;
};

// Parts of tiles, of steps and of what is packed at a time; one run of steps and more.
constexpr Shape kShapes[] = {{1, 1, 1},     {3, 5, 2},      {16, 16, 32},  {17, 33, 31},
                             {33, 16, 33},  {31, 48, 95},   {64, 32, 512}, {5, 40, 513},
                             {50, 7, 600},  {40, 35, 1100}, {3, 18, 8192}, {18, 3, 8233},
                             {2, 2, 20'000}};

TEST(AmxOrder, RoundsBeforeItTakesWhatIsSubnormalForZero) {
  const float least = 0x1p-126F, below = std::nextafter(least, 0.0F);
  EXPECT_EQ(bits_of(amx::flushed(below)), 0U);
  EXPECT_EQ(bits_of(amx::flushed(-below)), 0x8000'0000U);
  EXPECT_EQ(amx::flushed(least), least);
  // Halfway between the two largest numbers below the least normal one, if there were as many
  // digits, and the neighbours of that.
  EXPECT_EQ(amx::sum_of(0x1p-126, -0x1p-151), least);
  EXPECT_EQ(amx::sum_of(0x1p-126, -0x1.fffp-152), least);
  EXPECT_EQ(bits_of(amx::sum_of(0x1p-126, -0x1.001p-151)), 0U);
  EXPECT_EQ(bits_of(amx::sum_of(0x1p-126, -0x1p-150)), 0U);
  EXPECT_EQ(bits_of(amx::sum_of(-0x1p-126, 0x1p-150)), 0x8000'0000U);
  EXPECT_EQ(bits_of(amx::multiply_add(0x1p-60F, -0x1p-70F, 0)), 0x8000'0000U);
  EXPECT_EQ(bits_of(amx::multiply_add(0x1p-130F, 0x1p100F, 0)), 0U);
  // What a double would round away decides a tie.
  EXPECT_EQ(amx::sum_of(1 + 0x1p-24, 0x1p-90), 1 + 0x1p-23F);
  EXPECT_EQ(amx::sum_of(1 + 0x1p-24, -0x1p-90), 1.0F);
  EXPECT_EQ(amx::sum_of(1 + 0x1p-24, 0), 1.0F);
}

TEST(AmxOrder, IsThatOfStepsAndOfTheirEvenAndOddK) {
  // One chain would lose each 1 beside 2^24, and so would a sum of neighbours.
  const auto sum = [](std::vector<float> terms) {
    return amx::product(
        static_cast<std::int64_t>(terms.size()), [&](std::int64_t k) { return terms[k]; },
        [](std::int64_t) { return 1.0F; });
  };
  EXPECT_EQ(sum({0x1p24F, 1, 0, 1, -0x1p24F, 1}), 3.0F);
  EXPECT_EQ(sum({0x1p24F, 0, 1, 0, 1, 0, -0x1p24F}), 0.0F);
  std::vector<float> two_steps(33, 0);
  two_steps[0] = 0x1p24F;
  two_steps[2] = 1;
  two_steps[32] = -0x1p24F;
  EXPECT_EQ(sum(two_steps), 0.0F);
  std::vector<float> two_runs(8192 + 1, 0);
  two_runs[0] = 0x1p24F;
  two_runs[32] = two_runs[64] = 1;
  two_runs[8192] = -0x1p24F;
  EXPECT_EQ(sum(two_runs), 0.0F);
}

// What every variant gives, on every instruction set, and those that decline.
TEST(AmxOrder, IsWhatEveryVariantAddsIn) {
  std::uint32_t seed = 0;
  for (const Family& family : kFamilies)
    for (const Shape& s : kShapes) {
      ++seed;
      Matrix a(s.m, s.k, static_cast<int>(seed % 3), family, 2 * seed);
      Matrix b(s.k, s.n, static_cast<int>(seed / 3 % 3), family, 2 * seed + 1);
      const std::vector<std::uint32_t> expected = defined(a, b);
      Call call(a, b);
      const auto where = [&] {
        return std::string("elements ") + family.name + ", " + std::to_string(s.m) + " x " +
               std::to_string(s.n) + " x " + std::to_string(s.k);
      };
      for (Isa isa : Machine::isas_here())
        EXPECT_EQ(call.by("packed", execution_for(isa, 1 + static_cast<int>(seed % 2))), expected)
            << where() << " by packed " << name_of(isa);
      EXPECT_EQ(call.by("naive", execution_for(Isa::scalar, 1)), expected) << where();
      const Execution widest = execution_for(Machine::here().isa, 1 + static_cast<int>(seed % 3));
      if (call.declines("amx", widest).empty()) {
        EXPECT_EQ(call.by("amx", widest), expected) << where() << " by amx";
      }
      for (const char* other : {"vector", "direct", "blocked"})
        EXPECT_NE(call.declines(other, widest), "") << other;
      if (HasFailure()) return;
    }
}

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    if (!amx::why_not().empty()) GTEST_SKIP() << amx::why_not();
    if (Machine::here().isa != Isa::avx512) GTEST_SKIP() << "needs avx512 beside";
  }
  const Execution here_ = execution_for(Machine::here().isa, 1);
};

// Every plan, and as many threads as there may be.
TEST_F(Amx, PlansThreadsAndLayoutsChangeNoBit) {
  const Family& family = kFamilies[1];
  const VariantInfo info =
      forward_operation().variants()[static_cast<std::size_t>(Call::index_of("amx"))];
  for (const Shape& s : {Shape{70, 150, 1100}, {300, 40, 2100}, {33, 90, 8300}})
    for (int layout = 0; layout < 9; ++layout) {
      Matrix a(s.m, s.k, layout % 3, family, 7), b(s.k, s.n, layout / 3, family, 8);
      Call call(a, b);
      const std::vector<std::uint32_t> expected = call.by("naive", execution_for(Isa::scalar, 2));
      for (int threads : {1, 2, 5})
        ASSERT_EQ(call.by("amx", execution_for(Machine::here().isa, threads)), expected)
            << "layout " << layout << ", " << threads << " threads";
      if (layout % 4 != 0) continue;
      for (int rows : info.knobs[0].values)
        for (int cols : info.knobs[1].values)
          for (int depth : info.knobs[2].values)
            ASSERT_EQ(call.by("amx", here_, {rows, cols, depth}), expected)
                << rows << " rows, " << cols << " columns, " << depth << " k";
    }
}

// What a NaN or an infinity does not belong to has no part of it, in whatever lies beside.
TEST_F(Amx, WhatIsNotFiniteStaysInItsRowAndColumn) {
  const Family ones = {"of one size", 127, 1};
  for (const std::int64_t k : {1, 31, 33, 600})
    for (int layout = 0; layout < 3; ++layout) {
      Matrix a(37, k, layout, ones, 1), b(k, 50, 2 - layout, ones, 2);
      a.at(20, k - 1) = from_float<bf16>(std::numeric_limits<float>::infinity());
      b.at(k / 2, 33) = from_float<bf16>(kNan);
      Call call(a, b);
      const std::vector<std::uint32_t> y = call.by("amx", here_);
      for (std::int64_t i = 0; i < 37; ++i)
        for (std::int64_t j = 0; j < 50; ++j) {
          const std::uint32_t bits = y[static_cast<std::size_t>(i * 50 + j)] & 0x7fff'ffffU;
          if (j == 33)
            ASSERT_EQ(bits, 0x7fc0'0000U) << i << ", " << j;
          else if (i == 20)
            ASSERT_EQ(bits, 0x7f80'0000U) << i << ", " << j;
          else
            ASSERT_LT(bits, 0x7f80'0000U) << i << ", " << j;
        }
    }
}

TEST_F(Amx, IsChosenWhereItIsAskedForAndNowhereElse) {
  Matrix a(4, 8, 0, kFamilies[0], 1), b(8, 4, 0, kFamilies[0], 2);
  Call call(a, b);
  const Operation& operation = forward_operation();
  EXPECT_EQ(operation.default_variant(call.arguments(), here_.machine), Call::index_of("amx"));
  Machine narrow = here_.machine;
  narrow.isa = Isa::avx2;
  EXPECT_EQ(operation.default_variant(call.arguments(), narrow), Call::index_of("packed"));
  EXPECT_NE(operation.declines(Call::index_of("amx"), call.arguments(), narrow), "");
  call.args().arithmetic = Arithmetic::canonical;
  EXPECT_NE(operation.default_variant(call.arguments(), here_.machine), Call::index_of("amx"));
  EXPECT_EQ(operation.declines(Call::index_of("amx"), call.arguments(), here_.machine),
            "has no arithmetic but tensor");
}

#if defined(__x86_64__)
// State components in use: a thread that leaves tiles in its registers has them saved and restored
// at every switch from then on.
TEST_F(Amx, LeavesNoTilesInRegisters) {
  Matrix a(40, 70, 0, kFamilies[0], 1), b(70, 40, 0, kFamilies[0], 2);
  Call call(a, b);
  call.by("amx", here_);
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  EXPECT_EQ(low & 3u << 17, 0U);
}
#endif

TEST_F(Amx, TakesAtMost16MiBBesideTheArrays) {
  for (const Shape& s : {Shape{3000, 3000, 40}, {700, 900, 9000}, {2000, 40, 3000}})
    for (int threads : {1, 2, 16, 64}) {
      Matrix a(s.m, s.k, 0, kFamilies[0], 1), b(s.k, s.n, 0, kFamilies[0], 2);
      Call call(a, b);
      Counted counted;
      Execution execution = execution_for(Machine::here().isa, threads);
      execution.allocator = {Counted::take, Counted::give_back, &counted};
      call.by("amx", execution);
      EXPECT_GT(counted.most, 0);
      EXPECT_LE(counted.most, (16 << 20) + 64)
          << s.m << " x " << s.n << " x " << s.k << ", " << threads;
    }
}

// On any processor, the same numbers.
TEST(AmxOrder, HasTheBitsThatAreWrittenDown) {
  Matrix a(37, 1100, 0, kFamilies[1], 7), b(1100, 50, 1, kFamilies[1], 8);
  Call call(a, b);
  forward(call.args(), execution_for(Machine::here().isa, 2));
  std::uint64_t hash = 14695981039346656037u;
  for (const std::uint32_t bits : call.bits()) hash = (hash ^ bits) * 1099511628211u;
  EXPECT_EQ(hash, 17075619608963986900u);
}

// Panels that were packed for canonical products serve these too.
TEST(AmxOrder, APackedMatrixHasTheSameBits) {
  for (Isa isa : Machine::isas_here())
    for (const Family& family : kFamilies) {
      Matrix a(19, 1100, 0, family, 7), b(1100, 70, 1, family, 8);
      const Execution execution = execution_for(isa, 2);
      const PackedMatrix packed(b.view(), execution);
      Call call(a, b);
      const std::vector<std::uint32_t> expected = call.by("packed", execution);
      call.args().b = {};
      std::fill_n(static_cast<float*>(call.args().y.data), 19 * 70, kNan);
      forward(call.args(), packed, execution);
      EXPECT_EQ(call.bits(), expected) << name_of(isa) << ", elements " << family.name;
    }
}

TEST(AmxOrder, IsRefusedOfOtherTypes) {
  const Floats numbers(64, 1);
  for (DType dtype : {DType::f32, DType::f16, DType::f64}) {
    TensorView a = view(numbers.data(), {4, 4});
    a.dtype = dtype;
    a.bytes = 128;
    Floats y(32);
    TensorView of_y = view(y.data(), {4, 4});
    of_y.dtype = dtype;
    of_y.bytes = 128;
    const auto call = [&] {
      forward({.a = a, .b = a, .y = of_y, .arithmetic = Arithmetic::tensor},
              execution_for(Machine::here().isa, 1));
    };
    try {
      call();
      ADD_FAILURE() << name_of(dtype) << " was not refused";
    } catch (const Unsupported& error) {
      EXPECT_STREQ(error.what(),
                   "matmul: arithmetic tensor needs bf16 on a processor, or f16 or bf16 on a GPU "
                   "with tensor cores (sm_80 and later); use canonical");
    }
  }
}

}  // namespace
}  // namespace isobit::matmul::amx_test
