// SPDX-License-Identifier: Apache-2.0
// What is looked up has the bits of the formula: for every number of 16 bits, and in products with
// numbers of every kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <functional>
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

// All numbers, or others that they are multiplied by; three more, so that there are elements beside
// whole steps.
struct Elements {
  std::vector<std::uint16_t> bits = std::vector<std::uint16_t>(kNumbers + 3);

  TensorView view(DType dtype) {
    return matrix_view(bits.data(), 2 * std::ssize(bits), dtype, 1, std::ssize(bits),
                       std::ssize(bits));
  }
};

Elements all_numbers() {
  Elements all;
  for (std::size_t i = 0; i < all.bits.size(); ++i) all.bits[i] = static_cast<std::uint16_t>(i);
  return all;
}

// Numbers around 1, of which some are 0: their products are in range wherever the function is.
Elements usual_numbers(DType dtype) {
  std::mt19937 random(3);
  Elements usual;
  for (std::uint16_t& bits : usual.bits) {
    const auto number = static_cast<float>(random() % 2000) / 500 - 2;
    bits = random() % 9 == 0      ? 0
           : dtype == DType::bf16 ? from_float<bf16>(number).bits
                                  : from_float<f16>(number).bits;
  }
  return usual;
}

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
std::vector<std::uint16_t> results(std::string_view variant, const Operation& operation,
                                   const std::function<void(void*, Elements*)>& bind, Isa isa,
                                   int stream) {
  Elements outputs[2];
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

void expect_the_formula(const Operation& operation,
                        const std::function<void(void*, Elements*)>& bind,
                        const std::string& call) {
  for (const Isa isa : Machine::isas_here())
    for (const int stream : {0, 1})
      EXPECT_EQ(results("lookup", operation, bind, isa, stream),
                results("simd", operation, bind, isa, 0))
          << call << ", " << name_of(isa) << ", stream " << stream;
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
    for (Elements x : {usual_numbers(dtype), any_numbers()})
      for (Elements grad_y : {usual_numbers(dtype), any_numbers()}) {
        std::reverse(grad_y.bits.begin(), grad_y.bits.end());
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

// In a process of its own, where nothing was looked up before. With a gate, since products show
// more of a table's last digits than results do.
TEST(Lookup, MakesTheSameTablesInTheRoundingOfACaller) {
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
