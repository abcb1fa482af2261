// SPDX-License-Identifier: Apache-2.0
// What is looked up, and what is computed for usual arguments, has the bits of the formula: for
// every number of 16 bits, for floats of every size, and in products with numbers of every kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "isobit/dispatch/operation.h"
#include "isobit/ops/activation/activation.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::activation {
namespace {

constexpr std::int64_t kNumbers = 65536;
constexpr DType kTypes[] = {DType::f16, DType::bf16};
constexpr Function kFunctions[] = {Function::exp,  Function::log,  Function::sigmoid,
                                   Function::tanh, Function::gelu, Function::gelu_tanh,
                                   Function::silu};

// All numbers of 16 bits, or others that they are multiplied by, or as many floats as have steps of
// every kind; three more, so that there are elements beside whole steps.
template <class Word>
struct Array {
  std::vector<Word> bits = std::vector<Word>((sizeof(Word) == 2 ? kNumbers : kNumbers / 4) + 3);

  TensorView view(DType dtype) {
    const std::int64_t count = std::ssize(bits);
    return matrix_view(bits.data(), count * static_cast<std::int64_t>(sizeof(Word)), dtype, 1,
                       count, count);
  }
};
using Elements = Array<std::uint16_t>;
using Floats = Array<std::uint32_t>;

Elements all_numbers() {
  Elements all;
  for (std::size_t i = 0; i < all.bits.size(); ++i) all.bits[i] = static_cast<std::uint16_t>(i);
  return all;
}

// Numbers around `scale`, of which some are 0: around 1 their products are in range wherever the
// function is.
Elements numbers_around(float scale, DType dtype) {
  std::mt19937 random(3);
  Elements numbers;
  for (std::uint16_t& bits : numbers.bits) {
    const float number = (static_cast<float>(random() % 2000) / 500 - 2) * scale;
    bits = random() % 9 == 0      ? 0
           : dtype == DType::bf16 ? from_float<bf16>(number).bits
                                  : from_float<f16>(number).bits;
  }
  return numbers;
}
Elements usual_numbers(DType dtype) { return numbers_around(1, dtype); }

// Every pattern of bits as likely as any other: NaN, infinities and subnormal numbers among them.
Elements any_numbers() {
  std::mt19937 random(4);
  Elements any;
  for (std::uint16_t& bits : any.bits) bits = static_cast<std::uint16_t>(random());
  return any;
}

int variant_named(const Operation& operation, std::string_view name) {
  const std::vector<VariantInfo> variants = operation.variants();
  for (std::size_t i = 0; i < variants.size(); ++i)
    if (variants[i].device == Device::cpu && variants[i].name == name) return static_cast<int>(i);
  throw std::logic_error("no such variant");
}

// What the variant makes of the call: its outputs, one after the other.
template <class Word = std::uint16_t, class Bind>
std::vector<Word> results(std::string_view variant, const Operation& operation, const Bind& bind,
                          Isa isa, int stream) {
  Array<Word> outputs[2];
  const Arguments args = operation.make_arguments();
  bind(args.get(), outputs);
  operation.check(args);
  Execution execution = simd::here(1);
  execution.machine.isa = isa;
  Plan plan{};
  plan[0] = stream;
  operation.run(variant_named(operation, variant), plan, args, execution);
  outputs[0].bits.insert(outputs[0].bits.end(), outputs[1].bits.begin(), outputs[1].bits.end());
  return outputs[0].bits;
}

template <class Bind>
void expect_the_formula(const Operation& operation, const Bind& bind, const std::string& call) {
  for (const Isa isa : Machine::isas_here()) {
    const auto expected = results("simd", operation, bind, isa, 0);
    for (int stream = 0; stream <= (isa == Isa::scalar ? 0 : 1); ++stream)
      EXPECT_EQ(results("lookup", operation, bind, isa, stream), expected)
          << call << ", " << name_of(isa) << ", stream " << stream;
  }
}

TEST(Lookup, GivesTheFormulasResultsOfEveryNumber) {
  Elements all = all_numbers();
  for (const Function function : kFunctions)
    for (const DType dtype : kTypes)
      expect_the_formula(
          forward_operation(),
          [&](void* args, Elements* outputs) {
            *static_cast<ForwardArgs*>(args) = {
                .x = all.view(dtype), .y = outputs[0].view(dtype), .function = function};
          },
          std::to_string(static_cast<int>(function)));
}

TEST(Lookup, GivesTheFormulasProducts) {
  Elements all = all_numbers();
  for (const DType dtype : kTypes)
    for (Elements factors : {usual_numbers(dtype), any_numbers()})
      for (const Function function : kFunctions) {
        const std::string call = std::to_string(static_cast<int>(function));
        expect_the_formula(
            forward_operation(),
            [&](void* args, Elements* outputs) {
              *static_cast<ForwardArgs*>(args) = {.x = factors.view(dtype),
                                                  .gate = all.view(dtype),
                                                  .y = outputs[0].view(dtype),
                                                  .function = function};
            },
            call + " with a gate");
        if (function == Function::log) continue;  // its gradient is a quotient
        expect_the_formula(
            backward_operation(),
            [&](void* args, Elements* outputs) {
              *static_cast<BackwardArgs*>(args) = {.x = all.view(dtype),
                                                   .grad_y = factors.view(dtype),
                                                   .grad_x = outputs[0].view(dtype),
                                                   .function = function};
            },
            call + " backward");
      }
}

TEST(Lookup, GivesTheFormulasGradientsOfGates) {
  Elements all = all_numbers();
  for (const DType dtype : kTypes)
    // The product of two large ones is infinite where the slope would bring it back.
    for (Elements x : {usual_numbers(dtype), any_numbers(), numbers_around(0x1p70f, dtype)}) {
      Elements grad_y = x;
      std::reverse(grad_y.bits.begin(), grad_y.bits.end());
      // An x of 0 sends its step to the formula.
      const std::uint16_t one = dtype == DType::bf16 ? 0x3f80 : 0x3c00;
      std::replace(x.bits.begin(), x.bits.end(), std::uint16_t{0}, one);
      for (const Function function : kFunctions)
        if (function != Function::log)
          expect_the_formula(
              backward_operation(),
              [&](void* args, Elements* outputs) {
                *static_cast<BackwardArgs*>(args) = {.x = x.view(dtype),
                                                     .grad_y = grad_y.view(dtype),
                                                     .gate = all.view(dtype),
                                                     .grad_x = outputs[0].view(dtype),
                                                     .grad_gate = outputs[1].view(dtype),
                                                     .function = function};
              },
              std::to_string(static_cast<int>(function)));
    }
}

// Steps of 64 floats: usual ones, ones at the bounds of what is usual, and ones where a single
// float is of any size. Signs alternate.
Floats floats_for(Function function) {
  std::mt19937 random(5);
  const auto uniform = [&] { return static_cast<float>(random()) / 0x1p32f; };
  const auto bits = [&](float value) {
    return std::bit_cast<std::uint32_t>(random() % 2 == 0 ? value : -value);
  };
  constexpr float kBounds[] = {0, 0x1p-149f, 0x1p-60f, 9, 11, 32, 64, 1e30f};
  const float most = function == Function::gelu ? 11 : function == Function::gelu_tanh ? 9 : 64;
  Floats floats;
  for (std::size_t i = 0; i < floats.bits.size(); ++i) {
    const std::size_t step = i / 64, kind = step % 4;
    const float bound = kBounds[step / 4 % std::size(kBounds)];
    float value = kind == 0 ? uniform() * 4 : uniform() * most;
    if (kind == 1) value = std::exp2(-59 * uniform()) * std::min(most, 8.0f);
    if (kind == 2 && i % 64 == step % 61) value = std::nextafter(bound, bound + 1);
    if (kind == 2 && i % 64 == step % 53) value = bound;
    floats.bits[i] = bits(value);
    if (kind == 3 && i % 64 == step % 61) floats.bits[i] = static_cast<std::uint32_t>(random());
  }
  return floats;
}

// Factors around `scale`, some of them 0; in every second step of any bits where `any` says so.
Floats factors_around(float scale, bool any) {
  std::mt19937 random(6);
  Floats factors;
  for (std::size_t i = 0; i < factors.bits.size(); ++i) {
    const float number = (static_cast<float>(random()) / 0x1p31f - 1) * scale;
    factors.bits[i] = any && i / 64 % 2 == 0 ? static_cast<std::uint32_t>(random())
                      : random() % 99 == 0   ? 0
                                             : std::bit_cast<std::uint32_t>(number);
  }
  return factors;
}

TEST(UsualArguments, HaveTheFormulasBits) {
  constexpr DType kF32 = DType::f32;
  for (const Function function : kFunctions)
    for (Floats factor :
         {factors_around(1, false), factors_around(1, true), factors_around(0x1p70f, false)}) {
      Floats x = floats_for(function), grad_y = factor;
      std::reverse(factor.bits.begin(), factor.bits.end());
      const auto forward = [&](void* args, Floats* outputs) {
        *static_cast<ForwardArgs*>(args) = {
            .x = x.view(kF32), .y = outputs[0].view(kF32), .function = function};
      };
      const auto gated = [&](void* args, Floats* outputs) {
        *static_cast<ForwardArgs*>(args) = {.x = factor.view(kF32),
                                            .gate = x.view(kF32),
                                            .y = outputs[0].view(kF32),
                                            .function = function};
      };
      const auto backward = [&](void* args, Floats* outputs) {
        *static_cast<BackwardArgs*>(args) = {.x = x.view(kF32),
                                             .grad_y = grad_y.view(kF32),
                                             .grad_x = outputs[0].view(kF32),
                                             .function = function};
      };
      const auto gates_backward = [&](void* args, Floats* outputs) {
        *static_cast<BackwardArgs*>(args) = {.x = factor.view(kF32),
                                             .grad_y = grad_y.view(kF32),
                                             .gate = x.view(kF32),
                                             .grad_x = outputs[0].view(kF32),
                                             .grad_gate = outputs[1].view(kF32),
                                             .function = function};
      };
      const auto expect_the_formula = [&](const Operation& operation, const auto& bind,
                                          std::string_view call) {
        const auto expected = results<std::uint32_t>("scalar", operation, bind, Isa::scalar, 0);
        for (const Isa isa : Machine::isas_here())
          EXPECT_EQ(results<std::uint32_t>("simd", operation, bind, isa, 0), expected)
              << call << " of " << static_cast<int>(function) << ", " << name_of(isa);
      };
      expect_the_formula(forward_operation(), forward, "forward");
      expect_the_formula(forward_operation(), gated, "with a gate");
      expect_the_formula(backward_operation(), backward, "backward");
      expect_the_formula(backward_operation(), gates_backward, "backward with a gate");
    }
}

// In a process of its own, where nothing was looked up before. With a gate, since products show
// more of a table's last digits than results do.
TEST(LookupDeathTest, MakesTheSameTablesInTheRoundingOfACaller) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto differ = [] {
    Elements all = all_numbers(), x = usual_numbers(DType::f16);
    const Isa isa = Machine::isas_here().back();
    const auto gated = [&](std::string_view variant, Function function) {
      const auto bind = [&](void* args, Elements* outputs) {
        *static_cast<ForwardArgs*>(args) = {.x = x.view(DType::f16),
                                            .gate = all.view(DType::f16),
                                            .y = outputs[0].view(DType::f16),
                                            .function = function};
      };
      return results(variant, forward_operation(), bind, isa, 0);
    };
    int differ = 0;
    for (const Function function : kFunctions) {
      std::fesetround(FE_UPWARD);
      const auto looked_up = gated("lookup", function);
      std::fesetround(FE_TONEAREST);
      differ += looked_up != gated("simd", function);
    }
    return differ;
  };
  EXPECT_EXIT(std::_Exit(differ()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace isobit::activation
