// SPDX-License-Identifier: Apache-2.0
// Prints what commands find.
#include "isobit/lab/output.h"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <system_error>

namespace isobit::lab {

JsonLines::JsonLines(const Flags& flags, std::string_view name) : print_(flags.json) {
  if (flags.out.empty()) return;
  std::filesystem::create_directories(flags.out);
  path_ = flags.out / fmt::format("{}.jsonl", name);
  file_.open(path_);
  if (!file_) throw std::runtime_error(fmt::format("{}: cannot be written", path_.string()));
}

void JsonLines::add(const Json& object) {
  const std::string line = object.dump() + "\n";
  if (file_.is_open() && !(file_ << line << std::flush))
    throw std::runtime_error(fmt::format("{}: cannot be written", path_.string()));
  if (!print_) return;
  fmt::print("{}", line);
  if (std::fflush(stdout) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot write the output");
}

Table::Table(std::vector<std::string> heads) : heads_(std::move(heads)) {}

void Table::print() const {
  std::vector<std::size_t> widths;
  for (const std::string& head : heads_) widths.push_back(head.size() - head.starts_with('>'));
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());

  const auto print_row = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i)
      line += heads_[i].starts_with('>') ? fmt::format("{:>{}}  ", cells[i], widths[i])
                                         : fmt::format("{:<{}}  ", cells[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  };
  std::vector<std::string> heads;
  for (const std::string& head : heads_) heads.push_back(head.substr(head.starts_with('>')));
  print_row(heads);
  for (const auto& row : rows_) print_row(row);
}

Progress::Progress(std::size_t steps) : shown_(isatty(STDERR_FILENO) == 1), steps_(steps) {}

void Progress::step(std::string_view what) {
  ++done_;
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || now - drawn_ < std::chrono::milliseconds(50)) return;
  drawn_ = now;
  constexpr std::size_t kWidth = 30;
  const std::size_t filled = std::min(done_, steps_) * kWidth / std::max<std::size_t>(steps_, 1);
  fmt::print(stderr, "\r\033[K[{:#<{}}{:.<{}}] {}/{}  {:.40}", "", filled, "", kWidth - filled,
             done_, steps_, what);
  std::fflush(stderr);
}

void Progress::clear() const {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

std::string types_text(const Types& types) {
  std::string text(name_of(types.x));
  if (types.weight != types.x) text += fmt::format("/{}", name_of(types.weight));
  if (types.y != types.x) text += fmt::format("->{}", name_of(types.y));
  return text;
}

std::string short_number(double value) {
  if (value != 0 && (std::fabs(value) < 1e-3 || std::fabs(value) >= 1e6))
    return fmt::format("{:.1e}", value);
  if (std::fabs(value) >= 100) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

}  // namespace isobit::lab
