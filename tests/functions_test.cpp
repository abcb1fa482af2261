// SPDX-License-Identifier: Apache-2.0
// The functions of src/isobit/functions: their errors on a stride of all floats (`make functions`
// takes every one), special values, and where the obvious formulas fail.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "functions/calls.h"
#include "isobit/core/machine.h"

namespace isobit::function_calls {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One back end: an instruction set, or the kernels' scalars.
struct BackEnd {
  std::string name;
  std::span<const Calls> calls;
};

std::span<const Calls> calls_of(Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, calls()); }

std::vector<BackEnd> back_ends() {
  std::vector<BackEnd> result = {{"kernels", calls_in_kernels()}};
  for (Isa isa : Machine::isas_here()) result.push_back({std::string(name_of(isa)), calls_of(isa)});
  return result;
}

std::size_t index_of(std::string_view name) {
  for (std::size_t i = 0; i < kFunctions.size(); ++i)
    if (name == kFunctions[i].name) return i;
  throw std::invalid_argument(std::string(name));
}

class FunctionsOf : public testing::TestWithParam<BackEnd> {
 protected:
  float at(std::string_view name, float x) const {
    std::vector<float> from(64, x), to(64);
    GetParam().calls[index_of(name)].f32(from.data(), to.data(), 64);
    return to[0];
  }
  double at(std::string_view name, double x) const {
    std::vector<double> from(64, x), to(64);
    GetParam().calls[index_of(name)].f64(from.data(), to.data(), 64);
    return to[0];
  }
  void expect_near(std::string_view name, float x) const {
    const Function& function = kFunctions[index_of(name)];
    EXPECT_LE(error_of(function, x, at(name, x)), function.f32_limit) << name << " of " << x;
  }
  template <class Real>
  void expect_bits(std::string_view name, Real x, Real expected) const {
    const Real found = at(name, x);
    EXPECT_TRUE(std::memcmp(&found, &expected, sizeof found) == 0 ||
                (std::isnan(found) && std::isnan(expected)))
        << name << " of " << x << " is " << found << ", not " << expected;
  }
};

template <class Real>
void expect_errors(const std::vector<Real>& x, const BackEnd& back_end, bool angles) {
  std::vector<Real> y(x.size()), first(x.size());
  for (std::size_t i = 0; i < kFunctions.size(); ++i) {
    const Function& function = kFunctions[i];
    Call<Real> call, reference;
    if constexpr (sizeof(Real) == 4)
      call = back_end.calls[i].f32, reference = calls_in_kernels()[i].f32;
    else
      call = back_end.calls[i].f64, reference = calls_in_kernels()[i].f64;
    if (call == nullptr || (function.f32_limit == 0) != angles) continue;
    const double limit = sizeof(Real) == 4 ? function.f32_limit : function.f64_limit;
    call(x.data(), y.data(), std::ssize(x));
    reference(x.data(), first.data(), std::ssize(x));
    for (std::size_t k = 0; k < x.size(); ++k) {
      ASSERT_LE(error_of(function, x[k], y[k]), limit) << function.name << " of " << x[k];
      ASSERT_TRUE(std::memcmp(&y[k], &first[k], sizeof y[k]) == 0 ||
                  (std::isnan(y[k]) && std::isnan(first[k])))
          << function.name << " of " << x[k] << " has other bits than in kernels";
    }
  }
}

TEST_P(FunctionsOf, EveryErrorIsWithinItsLimit) {
  constexpr std::uint32_t kStride = 20011;  // a prime
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += kStride)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  x.insert(x.end(), {kInfinity, -kInfinity});  // of which the truth about gelu' knew nothing
  x.resize((x.size() + 63) / 64 * 64);
  expect_errors(x, GetParam(), false);
}

TEST_P(FunctionsOf, EveryErrorInF64IsWithinItsLimit) {
  std::mt19937_64 random(1);
  std::vector<double> x, angles;
  for (int i = 0; i < 64 * 1000; ++i) {
    const auto fraction = std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())), -63);
    x.push_back(i % 2 == 0 ? std::bit_cast<double>(random()) : std::ldexp(fraction, i % 24 - 13));
    angles.push_back(std::ldexp(fraction, i % 28));
  }
  expect_errors(x, GetParam(), false);
  expect_errors(angles, GetParam(), true);
}

TEST_P(FunctionsOf, SpecialValuesAreThoseOfMathematics) {
  for (const Function& function : kFunctions)
    if (function.f32_limit != 0) {
      expect_bits(function.name, kNan, kNan);
      expect_bits(function.name, std::numeric_limits<double>::quiet_NaN(),
                  std::numeric_limits<double>::quiet_NaN());
    }
  struct Row {
    const char* name;
    float x, y;
  };
  constexpr Row kRows[] = {
      {"exp", -kInfinity, 0.0f},
      {"exp", kInfinity, kInfinity},
      {"exp", -0.0f, 1.0f},
      {"exp2", -kInfinity, 0.0f},
      {"exp2", kInfinity, kInfinity},
      {"exp2", -149.0f, 0x1p-149f},
      {"log", 0.0f, -kInfinity},
      {"log", -0.0f, -kInfinity},
      {"log", -1.0f, kNan},
      {"log", -kInfinity, kNan},
      {"log", kInfinity, kInfinity},
      {"log", 1.0f, 0.0f},
      {"log2", 0.0f, -kInfinity},
      {"log2", -0x1p-149f, kNan},
      {"log2", 0x1p-149f, -149.0f},
      {"log2", kInfinity, kInfinity},
      {"sigmoid", -kInfinity, 0.0f},
      {"sigmoid", kInfinity, 1.0f},
      {"sigmoid", 0.0f, 0.5f},
      {"tanh", -kInfinity, -1.0f},
      {"tanh", kInfinity, 1.0f},
      {"tanh", -0.0f, -0.0f},
      {"erf", -kInfinity, -1.0f},
      {"erf", kInfinity, 1.0f},
      {"erf", -0.0f, -0.0f},
      {"erfc", -kInfinity, 2.0f},
      {"erfc", kInfinity, 0.0f},
      {"gelu", -kInfinity, -0.0f},
      {"gelu", kInfinity, kInfinity},
      {"gelu", -0.0f, -0.0f},
      {"gelu_tanh", -kInfinity, -0.0f},
      {"gelu_tanh", kInfinity, kInfinity},
      {"gelu_tanh", -0.0f, -0.0f},
      {"silu", -kInfinity, -0.0f},
      {"silu", kInfinity, kInfinity},
      {"silu", -0.0f, -0.0f},
      {"silu", 0.0f, 0.0f},
      {"gelu", 0.0f, 0.0f},
  };
  for (const Row& row : kRows) {
    expect_bits(row.name, row.x, row.y);
    if (std::fabs(row.x) != 149 && std::fabs(row.x) != 0x1p-149f)
      expect_bits<double>(row.name, row.x, row.y);
  }
}

TEST_P(FunctionsOf, ExpOverflowsAtTheRightFloat) {
  EXPECT_EQ(at("exp", 0x1.62e42ep6f), 0x1.ffff08p127f);
  EXPECT_EQ(at("exp", 0x1.62e43p6f), kInfinity);
  EXPECT_EQ(at("exp", -0x1.9fe368p6f), 0x1p-149f);
  EXPECT_EQ(at("exp", -0x1.9fe36ap6f), 0.0f);
}

// As 1 / (1 + e^-x), it was two million units off: e^88.7 has no reciprocal that is normal.
TEST_P(FunctionsOf, SigmoidIsAccurateAtMinus88Point7) {
  for (float x : {-88.7f, -88.0f, -90.0f, -100.0f, -103.0f}) expect_near("sigmoid", x);
}
TEST_P(FunctionsOf, SiluIsAccurateWhereItIsSubnormal) {
  for (float x : {-88.7f, -92.0f, -100.0f, -107.0f, -108.5f}) expect_near("silu", x);
}
// x erfc(-x / sqrt 2) / 2 is 196 units off even with a perfect erfc: the argument's rounding
// counts.
TEST_P(FunctionsOf, GelusTailIsAccurate) {
  for (float x = -14.4f; x < -3; x += 0.01f) {
    expect_near("gelu", x);
    expect_near("gelu_tanh", x);
  }
}
// As (1 - z) / (1 + z), or 1 - 2 / (e^2x + 1), nothing is left of it.
TEST_P(FunctionsOf, TanhIsAccurateNearZero) {
  for (float x = 0x1p-140f; x < 1; x *= 1.7f) {
    expect_near("tanh", x);
    expect_near("erf", -x);
    expect_near("gelu_tanh", x);
  }
  expect_bits("tanh", 0x1p-149f, 0x1p-149f);
}

INSTANTIATE_TEST_SUITE_P(BackEnds, FunctionsOf, testing::ValuesIn(back_ends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace isobit::function_calls
