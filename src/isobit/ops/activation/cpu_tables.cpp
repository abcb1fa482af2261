// SPDX-License-Identifier: Apache-2.0
#include "isobit/ops/activation/cpu_tables.h"

#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <new>

#include "isobit/ops/activation/cpu_kernels.h"
#include "isobit/simd/float_mode.h"

namespace isobit::activation {
namespace {

constexpr int kNumbers = 65536;
constexpr int kPiece = 256;  // so many are computed at once

Kernel forward_formula(Function function, DType dtype, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, forward_kernel(function, dtype, false));
}
Kernel backward_formula(Function function, DType dtype, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, backward_kernel(function, dtype, false));
}

// What `formula` gives of every number of 16 bits, which `number` makes of its bits; times a
// gradient of 1 in backward.
template <class From, class To, class Number>
void fill(To* table, Kernel formula, bool backward, const Number& number) {
  const simd::FloatMode mode;
  std::array<From, kPiece> x, ones;
  ones.fill(From{1});
  const auto* grad_y = backward ? reinterpret_cast<const std::byte*>(ones.data()) : nullptr;
  for (int first = 0; first < kNumbers; first += kPiece) {
    for (int i = 0; i < kPiece; ++i) x[i] = number(static_cast<std::uint16_t>(first + i));
    formula({reinterpret_cast<const std::byte*>(x.data()), nullptr, grad_y,
             reinterpret_cast<std::byte*>(table + first), nullptr},
            kPiece, false);
  }
}

void fill_results(std::uint16_t* table, Function function, DType dtype, Isa isa) {
  fill<std::uint16_t>(table, forward_formula(function, dtype, isa), false,
                      [](std::uint16_t bits) { return bits; });
}

void fill_floats(float* table, Kernel formula, bool backward, DType dtype) {
  fill<float>(table, formula, backward, [&](std::uint16_t bits) {
    return dtype == DType::bf16 ? to_float(bf16{bits}) : to_float(f16{bits});
  });
  for (int i = 0; i < kNumbers; ++i)
    if (!std::isnormal(table[i])) table[i] = std::numeric_limits<float>::quiet_NaN();
}

// A table that is made for whoever asks first. Who asks meanwhile does without: nobody waits, not
// even in a process that was forked meanwhile.
template <class Element>
class MadeOnce {
 public:
  template <class Fill>
  const Element* get(const Fill& fill) {
    const Element* table = table_.load(std::memory_order_acquire);
    if (table != nullptr || claimed_.test_and_set()) return table;
    auto* made = new (std::nothrow) Element[kNumbers];
    if (made == nullptr) {
      claimed_.clear();
      return nullptr;
    }
    fill(made);
    table_.store(made, std::memory_order_release);
    return made;
  }

 private:
  std::atomic<const Element*> table_ = nullptr;
  std::atomic_flag claimed_;
};

struct OfFunction {
  MadeOnce<std::uint16_t> results;
  MadeOnce<float> values, slopes;
};

}  // namespace

std::optional<Tables> tables(Function function, DType dtype, Isa isa, const WantedTables& wanted) {
  constexpr int kFunctions = static_cast<int>(Function::silu) + 1, kTypes = 2;
  static OfFunction kept[std::size(kIsas)][kFunctions][kTypes];
  OfFunction& of = kept[static_cast<int>(isa)][static_cast<int>(function)][dtype == DType::bf16];

  Tables found;
  if (wanted.results)
    found.results =
        of.results.get([&](std::uint16_t* table) { fill_results(table, function, dtype, isa); });
  if (wanted.values)
    found.values = of.values.get([&](float* table) {
      fill_floats(table, forward_formula(function, DType::f32, isa), false, dtype);
    });
  if (wanted.slopes)
    found.slopes = of.slopes.get([&](float* table) {
      fill_floats(table, backward_formula(function, DType::f32, isa), true, dtype);
    });
  if ((wanted.results && found.results == nullptr) || (wanted.values && found.values == nullptr) ||
      (wanted.slopes && found.slopes == nullptr))
    return std::nullopt;
  return found;
}

}  // namespace isobit::activation
