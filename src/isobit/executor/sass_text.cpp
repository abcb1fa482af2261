// SPDX-License-Identifier: Apache-2.0
// Reads what tools/machine_code.py writes.
#include "isobit/executor/sass_text.h"

#include <algorithm>
#include <charconv>

namespace isobit::executor {
namespace {

[[noreturn]] void fail(std::string_view what, std::string_view text) {
  throw SassError("machine code: " + std::string(what) + ": " + std::string(text));
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The line that begins the text, which then begins with the next one.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

template <class Number>
Number number(std::string_view text, int base = 10) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) fail("no number", text);
  return value;
}

std::int64_t hexadecimal(std::string_view text) {
  const bool negative = take(text, "-");
  if (!take(text, "0x")) fail("no number", text);
  const auto size = number<std::int64_t>(text, 16);
  return negative ? -size : size;
}

// R4, UR4, P0 and so on: the number behind the letters, or that of the one without a number.
bool take_name(std::string_view text, std::string_view letters, std::string_view zero, int& index) {
  if (text == zero) {
    index = SassOperand::kZero;
    return true;
  }
  if (!take(text, letters) || text.empty() || text.find_first_not_of("0123456789") != text.npos)
    return false;
  index = number<int>(text);
  return true;
}

// What is within brackets: terms that are added.
void read_place(SassOperand& operand, std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('+'), text.size());
    std::string_view term = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    int index = SassOperand::kZero;
    const bool is_wide = term.ends_with(".64");
    if (is_wide) term.remove_suffix(3);
    if (take_name(term, "UR", "URZ", index)) {
      if (operand.uniform != SassOperand::kZero || is_wide) fail("an unknown address", text);
      operand.uniform = index;
    } else if (take_name(term, "R", "RZ", index)) {
      if (operand.reg != SassOperand::kZero) fail("an address of two registers", text);
      operand.reg = index;
      operand.is_wide = is_wide;
    } else {
      operand.offset = static_cast<std::int32_t>(hexadecimal(term));
    }
  }
}

// The text within the brackets that begin it, which then begins behind them.
std::string_view take_brackets(std::string_view& text) {
  const std::size_t end = text.find(']');
  if (!text.starts_with('[') || end == text.npos) fail("brackets expected", text);
  const std::string_view inside = text.substr(1, end - 1);
  text.remove_prefix(end + 1);
  return inside;
}

std::vector<std::byte> bytes_of(std::string_view digits) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(number<unsigned>(digits.substr(i, 2), 16)));
  return bytes;
}

SassLine read_line(std::string_view line) {
  SassLine found{.text = line};
  std::string_view rest = line;
  if (take(rest, "@")) {
    found.unless = take(rest, "!");
    const std::size_t end = std::min(rest.find(' '), rest.size());
    found.guard = rest.substr(0, end);
    rest = trimmed(rest.substr(end));
  }
  const std::size_t end = std::min(rest.find(' '), rest.size());
  found.opcode = rest.substr(0, end);
  rest = trimmed(rest.substr(end));
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view operand = trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    rest = trimmed(rest);
    if (operand.starts_with("R") && operand.find(' ') != operand.npos) {  // RET R8 0x0, BRX R4 -0x8
      const std::size_t space = operand.find(' ');
      found.operands.push_back(read_operand(operand.substr(0, space)));
      operand = trimmed(operand.substr(space));
    }
    found.operands.push_back(read_operand(operand));
  }
  return found;
}

}  // namespace

SassOperand read_operand(std::string_view text) {
  using Is = SassOperand::Is;
  SassOperand found{.text = text};
  std::string_view rest = text;
  if (rest.starts_with("-0x") || rest.starts_with("0x")) {
    found.bits = static_cast<std::uint32_t>(hexadecimal(rest));
    return found;
  }
  if (take(rest, "0f")) {
    found.bits = number<std::uint32_t>(rest, 16);
    found.is_real = true;
    return found;
  }
  found.negated = take(rest, "-");
  found.inverted = take(rest, "~") || take(rest, "!");
  if (take(rest, "|")) {
    if (!rest.ends_with('|')) fail("an unknown operand", text);
    found.absolute = true;
    rest.remove_suffix(1);
  }
  if (take(rest, "c[0x")) {
    found.is = Is::constant;
    const std::size_t end = rest.find(']');
    if (end == rest.npos) fail("brackets expected", text);
    found.bank = number<int>(rest.substr(0, end), 16);
    rest.remove_prefix(end + 1);
    read_place(found, take_brackets(rest));
    if (!rest.empty()) fail("an unknown operand", text);
    return found;
  }
  if (take(rest, "desc")) take_brackets(rest);  // it says how to cache
  if (rest.starts_with('[')) {
    found.is = Is::address;
    read_place(found, take_brackets(rest));
    if (!rest.empty()) fail("an unknown operand", text);
    return found;
  }
  for (const int half : {0, 1})
    if (rest.ends_with(half == 0 ? ".H0_H0" : ".H1_H1")) {
      found.half = half;
      rest.remove_suffix(6);
    }
  if (take_name(rest, "UR", "URZ", found.index))
    found.is = Is::uniform;
  else if (take_name(rest, "R", "RZ", found.index))
    found.is = Is::reg;
  else if (take_name(rest, "UP", "UPT", found.index))
    found.is = Is::uniform_predicate;
  else if (take_name(rest, "P", "PT", found.index))
    found.is = Is::predicate;
  else if (take_name(rest, "B", "", found.index))
    found.is = Is::barrier;
  else
    found.is = Is::word;
  return found;
}

std::map<std::string_view, std::string_view> machine_functions_of(std::string_view text) {
  constexpr std::string_view kBegin = ".function ";
  std::map<std::string_view, std::string_view> functions;
  std::size_t at = text.starts_with(kBegin) ? 0 : text.npos;
  while (at != text.npos) {
    std::size_t next = text.find("\n.function ", at);
    if (next != text.npos) ++next;
    const std::string_view function = text.substr(at, next - at);
    const std::size_t begin = kBegin.size();
    functions[function.substr(begin, function.find('\n') - begin)] = function;
    at = next;
  }
  return functions;
}

SassText read_machine_function(std::string_view text) {
  SassText found;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (take(line, ".function "))
      found.name = line;
    else if (take(line, ".threads "))
      found.most_threads = number<int>(line);
    else if (take(line, ".parameters "))
      found.parameter_bytes = number<std::uint32_t>(line);
    else if (take(line, ".bank "))
      found.banks[number<int>(line.substr(0, line.find(' ')))] =
          bytes_of(line.substr(line.find(' ') + 1));
    else if (!line.empty())
      found.lines.push_back(read_line(line));
  }
  return found;
}

}  // namespace isobit::executor
