// SPDX-License-Identifier: Apache-2.0
// Machine code as text, which tools/machine_code.py writes: functions of instructions, whose
// operands are taken apart but mean nothing yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace isobit::executor {

// Machine code that is none, or more than the executor knows.
class SassError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct SassOperand {
  enum class Is : std::uint8_t {
    reg,        // R4; the one that reads as 0 and keeps nothing: kZero
    uniform,    // UR4
    predicate,  // P0; kZero: PT, which is always true
    uniform_predicate,
    barrier,  // B0, of warps
    number,
    constant,  // c[bank][...], whose place is as an address's
    address,   // [...], of registers and a number
    word       // SR_TID.X and the like
  };
  static constexpr int kZero = 255;

  Is is = Is::number;
  int index = 0;
  bool negated = false, absolute = false, inverted = false;  // -x, |x|, ~x or !p
  int half = -1;                                             // of a register: .H0_H0 or .H1_H1
  std::uint32_t bits = 0;
  bool is_real = false;  // the bits of a number, or of the upper half of one
  std::string_view text = {};

  // Of constants and addresses: the sum of what is there.
  int bank = 0;
  int reg = kZero, uniform = kZero;
  bool is_wide = false;  // the register is the first of two
  std::int32_t offset = 0;
};

struct SassLine {
  std::string_view text;
  std::string_view guard = {};  // the predicate of @P0; empty where there is none
  bool unless = false;          // @!P0
  std::string_view opcode = {};
  std::vector<SassOperand> operands = {};
};

struct SassText {
  std::string_view name;
  int most_threads = 1024;
  std::uint32_t parameter_bytes = 0;
  std::map<int, std::vector<std::byte>> banks;
  std::vector<SassLine> lines;
};

// The functions by name. They are read one by one, because there are hundreds.
std::map<std::string_view, std::string_view> machine_functions_of(std::string_view text);
SassText read_machine_function(std::string_view text);

SassOperand read_operand(std::string_view text);

}  // namespace isobit::executor
