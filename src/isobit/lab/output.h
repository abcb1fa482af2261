// SPDX-License-Identifier: Apache-2.0
// How commands speak: JSON Lines for scripts, aligned tables for people, a progress bar on a
// terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "isobit/lab/settings.h"

namespace isobit::lab {

// Takes a command's JSON objects: to stdout with --json, and to NAME.jsonl in the folder of --out.
class JsonLines {
 public:
  JsonLines(const Flags& flags, std::string_view name);
  void add(const Json& object);

 private:
  bool print_;
  std::filesystem::path path_;
  std::ofstream file_;
};

// Columns as wide as their widest cell; those whose head starts with '>' are set flush right.
class Table {
 public:
  explicit Table(std::vector<std::string> heads);
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void print() const;

 private:
  std::vector<std::string> heads_;
  std::vector<std::vector<std::string>> rows_;
};

// A bar on stderr where that is a terminal, nothing in a pipe.
class Progress {
 public:
  explicit Progress(std::size_t steps);
  ~Progress() { clear(); }
  void step(std::string_view what);
  void clear() const;  // before anything else is printed

 private:
  bool shown_;
  std::size_t steps_, done_ = 0;
  std::chrono::steady_clock::time_point drawn_{};
};

// "bf16", or "bf16/f32" where weights have another type.
std::string types_text(const Types& types);

// Three significant digits, without an exponent where that is short.
std::string short_number(double value);

}  // namespace isobit::lab
