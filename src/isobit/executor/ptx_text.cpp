// SPDX-License-Identifier: Apache-2.0
// A lexer and a recursive-descent parser of what nvcc writes.
#include "isobit/executor/ptx_text.h"

#include <cctype>
#include <optional>

namespace isobit::executor {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

// Words, numbers with their sign, quoted text, or one character.
class Lexer {
 public:
  Lexer(std::string_view text, std::uint32_t line) : text_(text), line_(line) {}

  std::string_view take() {
    skip();
    const std::size_t begin = at_;
    if (at_ == text_.size()) return {};
    const char first = text_[at_++];
    if (first == '"') {
      while (at_ < text_.size() && text_[at_++] != '"') {}
    } else if (is_word(first) || (first == '-' && at_ < text_.size() && is_digit(text_[at_]))) {
      while (at_ < text_.size()) {
        if (is_word(text_[at_])) {
          ++at_;
        } else if (text_.substr(at_, 2) == "::") {
          at_ += 2;
        } else {
          break;
        }
      }
    }
    return text_.substr(begin, at_ - begin);
  }
  std::string_view peek() {
    Lexer copy = *this;
    return copy.take();
  }
  bool take_if(std::string_view word) {
    if (peek() != word) return false;
    take();
    return true;
  }
  void expect(std::string_view word) {
    const std::string_view found = take();
    if (found != word)
      fail(std::string(1, '\'').append(word).append("' expected, not '").append(found) + "'");
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw PtxError("PTX line " + std::to_string(line_) + ": " + what);
  }
  void skip_line() { at_ = std::min(text_.find('\n', at_), text_.size()); }
  std::size_t position() const { return at_; }
  std::uint32_t line() const { return line_; }

 private:
  void skip() {
    while (at_ < text_.size()) {
      if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_, 2) == "/*") {
        const std::size_t end = std::min(text_.find("*/", at_), text_.size() - 2) + 2;
        for (; at_ < end; ++at_) line_ += text_[at_] == '\n';
      } else if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
        line_ += text_[at_++] == '\n';
      } else {
        break;
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::uint32_t line_;
};

bool is_number(std::string_view word) {
  return is_digit(word[0]) || (word[0] == '-' && word.size() > 1);
}

std::uint64_t bits_of_number(std::string_view word) {
  std::string text(word);
  if (text.size() > 2 && text[0] == '0' &&
      std::string_view("fFdD").find(text[1]) != std::string::npos)
    return std::stoull(text.substr(2), nullptr, 16);
  if (text.back() == 'U') text.pop_back();
  return text[0] == '-' ? static_cast<std::uint64_t>(std::stoll(text, nullptr, 0))
                        : std::stoull(text, nullptr, 0);
}

class Reader {
 public:
  explicit Reader(const Span& span) : lexer_(span.text, span.line) { text_.parents = {-1}; }

  Text read() {
    head();
    body();
    return std::move(text_);
  }

 private:
  void head() {
    text_.is_entry = lexer_.take() == ".entry";
    if (lexer_.peek() == "(") text_.results = parameters();
    text_.name = lexer_.take();
    if (lexer_.peek() == "(") text_.parameters = parameters();
    for (std::string_view word = lexer_.take(); word != "{"; word = lexer_.take()) {
      if (word.empty()) lexer_.fail("a function without a body");
      if (word == ".maxntid" || word == ".reqntid")
        text_.most_threads = static_cast<int>(integer());
    }
  }

  std::int64_t integer() { return static_cast<std::int64_t>(bits_of_number(lexer_.take())); }

  std::vector<Declaration> parameters() {
    std::vector<Declaration> all;
    lexer_.expect("(");
    while (!lexer_.take_if(")")) {
      if (lexer_.take_if(",")) continue;
      all.push_back(declaration(lexer_.take()));
    }
    return all;
  }

  // Behind its space: [.align N] .type name[[N]] or, for registers, name<N>. Behind .ptr stands
  // what a parameter points to.
  Declaration declaration(std::string_view space) {
    Declaration found{.name = {}, .space = space, .scope = scopes_.back()};
    for (;;) {
      const std::string_view word = lexer_.take();
      if (word == ".ptr") {
        if (lexer_.peek().starts_with('.') && lexer_.peek() != ".align") lexer_.take();
        if (lexer_.take_if(".align")) lexer_.take();
      } else if (word == ".align") {
        found.alignment = integer();
      } else if (word[0] == '.') {
        found.bytes = bytes_of_type(word);
      } else {
        found.name = word;
        break;
      }
    }
    if (found.alignment == 0) found.alignment = found.bytes;
    if (lexer_.take_if("[")) {
      found.count = lexer_.peek() == "]" ? 0 : integer();
      lexer_.expect("]");
    } else if (lexer_.take_if("<")) {
      found.is_range = true;
      found.count = integer();
      lexer_.expect(">");
    }
    return found;
  }

  void body() {
    for (;;) {
      const std::string_view word = lexer_.take();
      if (word.empty()) lexer_.fail("the text ends within a function");
      if (word == "{") {
        text_.parents.push_back(scopes_.back());
        scopes_.push_back(static_cast<int>(text_.parents.size()) - 1);
      } else if (word == "}") {
        scopes_.pop_back();
        if (scopes_.empty()) return;
      } else if (word == ".reg" || word == ".local" || word == ".param" || word == ".shared") {
        text_.declarations.push_back(declaration(word));
        while (lexer_.take_if(",")) {  // of the same type
          text_.declarations.push_back(text_.declarations.back());
          text_.declarations.back().name = lexer_.take();
        }
        lexer_.expect(";");
      } else if (word == ".loc") {
        lexer_.skip_line();
      } else if (word == ".pragma") {
        while (!lexer_.take_if(";")) lexer_.take();
      } else if (word[0] == '.') {
        lexer_.fail("an unknown directive, " + std::string(word));
      } else if (lexer_.take_if(":")) {
        text_.labels[{scopes_.back(), word}] = text_.statements.size();
      } else {
        text_.statements.push_back(statement(word));
      }
    }
  }

  Statement statement(std::string_view word) {
    Statement found;
    found.line = lexer_.line();
    found.scope = scopes_.back();
    if (word == "@") {
      found.unless = lexer_.take_if("!");
      found.guard = lexer_.take();
      word = lexer_.take();
    }
    found.opcode = word;
    while (!lexer_.take_if(";")) {
      if (lexer_.take_if(",")) continue;
      found.operands.push_back(operand());
    }
    return found;
  }

  Operand operand() {
    Operand found;
    const std::string_view word = lexer_.take();
    if (word.empty()) lexer_.fail("the text ends within a statement");
    if (word == "{" || word == "(") {
      found.is = Operand::Is::list;
      while (!lexer_.take_if(word == "{" ? "}" : ")")) {
        if (lexer_.take_if(",")) continue;
        found.elements.push_back(operand());
      }
      return found;
    }
    if (word == "[") return address();
    if (is_number(word)) {
      found.is = Operand::Is::number;
      found.bits = bits_of_number(word);
      return found;
    }
    found.negated = word == "!";
    found.name = found.negated ? lexer_.take() : word;
    if (lexer_.take_if("|")) found.second = lexer_.take();
    return found;
  }

  Operand address() {
    Operand found;
    found.is = Operand::Is::address;
    while (!lexer_.take_if("]")) {
      const std::string_view word = lexer_.take();
      if (word.empty()) lexer_.fail("the text ends within an address");
      if (word == "+" || word == ",") continue;
      if (word == "{") {  // coordinates
        while (!lexer_.take_if("}"))
          if (!lexer_.take_if(",")) found.elements.push_back(operand());
        continue;
      }
      if (is_number(word))
        found.offset += static_cast<std::int64_t>(bits_of_number(word));
      else if (found.name.empty())
        found.name = word;
      else
        lexer_.fail("an address of two names");
    }
    return found;
  }

  Lexer lexer_;
  Text text_;
  std::vector<int> scopes_ = {0};
};

}  // namespace

std::vector<std::string_view> parts_of(std::string_view opcode) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= opcode.size(); ++i)
    if (i == opcode.size() || opcode[i] == '.') {
      parts.push_back(opcode.substr(begin, i - begin));
      begin = i;
    }
  return parts;
}

int bytes_of_type(std::string_view type) {
  if (type == ".pred") return 0;
  if (type == ".b128") return 16;
  if (type == ".f16x2" || type == ".bf16x2") return 4;
  std::size_t digits = type.size();
  while (digits > 0 && is_digit(type[digits - 1])) --digits;
  if (digits == type.size()) throw PtxError("no type: " + std::string(type));
  return std::stoi(std::string(type.substr(digits))) / 8;
}

std::map<std::string, Span, std::less<>> functions_of(std::string_view module) {
  std::map<std::string, Span, std::less<>> functions;
  Lexer lexer(module, 1);
  for (;;) {
    const std::string_view word = lexer.take();
    if (word.empty()) return functions;
    if (word != ".entry" && word != ".func") continue;
    const std::size_t begin = lexer.position() - word.size();
    const std::uint32_t line = lexer.line();
    if (lexer.take_if("("))
      while (!lexer.take_if(")")) lexer.take();
    const std::string name(lexer.take());
    std::string_view next = lexer.take();
    while (next != "{" && next != ";" && !next.empty()) next = lexer.take();
    if (next != "{") continue;  // declared only
    for (int depth = 1; depth > 0;) {
      next = lexer.take();
      if (next.empty()) lexer.fail("the text ends within " + name);
      depth += next == "{" ? 1 : next == "}" ? -1 : 0;
    }
    functions[name] = {module.substr(begin, lexer.position() - begin), line};
  }
}

Text read_function(const Span& span) { return Reader(span).read(); }

}  // namespace isobit::executor
