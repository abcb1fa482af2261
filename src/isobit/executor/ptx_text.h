// SPDX-License-Identifier: Apache-2.0
// PTX as text: functions of statements, whose operands are taken apart but mean nothing yet.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace isobit::executor {

// Text that is no PTX, or more than the executor knows.
class PtxError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Operand {
  enum class Is { name, number, address, list };
  Is is = Is::name;
  std::string_view name = {};          // of a register, a variable or a label; "_" is a sink
  std::uint64_t bits = 0;              // of a number: an integer, or an 0f or 0d constant's
  std::int64_t offset = 0;             // of an address, from its base: `name` or, without one, 0
  bool negated = false;                // !p
  std::string_view second = {};        // q in p|q
  std::vector<Operand> elements = {};  // of a list; of an address coordinates
};

struct Statement {
  std::uint32_t line = 0;
  std::string_view guard = {};  // the predicate of @p; empty where there is none
  bool unless = false;          // @!p
  std::string opcode = {};
  std::vector<Operand> operands = {};
  int scope = 0;
};

// A register, a range of them (%r<9>), or memory: .param or .local.
struct Declaration {
  std::string_view name;
  std::string_view space;  // ".reg", ".param", ".local", ".shared"
  int bytes = 0;           // of a register or an element; 0 for a predicate
  std::int64_t count = 1;
  std::int64_t alignment = 0;
  int scope = 0;
  bool is_range = false;
};

struct Text {
  std::string_view name;
  bool is_entry = false;
  int most_threads = 1024;
  std::vector<Declaration> results, parameters, declarations;
  std::vector<Statement> statements;
  std::vector<int> parents;  // of each scope the one around it; -1 for the outermost
  std::map<std::pair<int, std::string_view>, std::size_t> labels;  // of a scope: which statement
};

// The functions of a module by name, and where each begins. They are read one by one, because a
// module has hundreds of kernels, of which a process launches few.
struct Span {
  std::string_view text;
  std::uint32_t line;
};
std::map<std::string, Span, std::less<>> functions_of(std::string_view module);
Text read_function(const Span& span);

// "add", ".rn" and ".f32" of an opcode.
std::vector<std::string_view> parts_of(std::string_view opcode);

// The number of bytes of ".f32" and the like; 0 for ".pred".
int bytes_of_type(std::string_view type);

}  // namespace isobit::executor
