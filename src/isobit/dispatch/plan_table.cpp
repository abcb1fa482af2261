// SPDX-License-Identifier: Apache-2.0
// Writes and reads tables of plans; nothing that is read is believed before it is checked.
#include "isobit/dispatch/plan_table.h"

#include <algorithm>
#include <charconv>

namespace isobit {
namespace {

// What stands before the next separator; it and the separator leave `text`.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

template <class Number>
bool read(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// "layernorm fwd avx512 000- 1024x768 2 simd stream=1"
std::string line_of(const PlanKey& key, const TunedPlan& plan) {
  std::string line(key.text());
  for (std::int64_t i = 0; i < key.dims; ++i)
    line.append(i == 0 ? " " : "x").append(std::to_string(key.extents[i]));
  line.append(" ").append(std::to_string(key.threads));
  line.append(" ").append(plan.variant);
  for (const auto& [knob, value] : plan.knobs)
    line.append(" ").append(knob).append("=").append(std::to_string(value));
  return line.append("\n");
}

std::optional<PlanKey> read_key(std::string_view& line) {
  const std::string_view start = line;
  for (int word = 0; word < 4; ++word)
    if (take(line, ' ').empty()) return std::nullopt;
  PlanKey key;
  const std::string_view call =
      start.substr(0, static_cast<std::size_t>(line.data() - start.data()) - 1);
  if (call.size() > key.call.size()) return std::nullopt;
  call.copy(key.call.data(), key.call.size());
  for (std::string_view extents = take(line, ' '); !extents.empty(); ++key.dims)
    if (key.dims == kMaxDims || !read(take(extents, 'x'), key.extents[key.dims]))
      return std::nullopt;
  if (key.dims == 0 || !read(take(line, ' '), key.threads)) return std::nullopt;
  return key;
}

std::optional<TunedPlan> read_plan(std::string_view line) {
  TunedPlan plan{std::string(take(line, ' ')), {}};
  if (plan.variant.empty()) return std::nullopt;
  while (!line.empty()) {
    std::string_view pair = take(line, ' ');
    const std::string_view knob = take(pair, '=');
    int value = 0;
    if (knob.empty() || !read(pair, value)) return std::nullopt;
    plan.knobs.emplace_back(knob, value);
  }
  return plan;
}

std::string last_line(std::string_view text) { return "checksum " + hex(checksum(text)) + "\n"; }

}  // namespace

TunedPlan tuned_plan(const VariantInfo& variant, const Plan& plan) {
  TunedPlan tuned{std::string(variant.name), {}};
  for (std::size_t i = 0; i < variant.knobs.size(); ++i)
    tuned.knobs.emplace_back(variant.knobs[i].name, plan[i]);
  return tuned;
}

std::optional<Plan> allowed_plan(const TunedPlan& tuned, std::span<const Knob> knobs) {
  if (tuned.knobs.size() != knobs.size()) return std::nullopt;
  Plan plan{};
  for (std::size_t i = 0; i < knobs.size(); ++i) {
    const auto named = std::find_if(tuned.knobs.begin(), tuned.knobs.end(),
                                    [&](const auto& knob) { return knob.first == knobs[i].name; });
    if (named == tuned.knobs.end() || std::find(knobs[i].values.begin(), knobs[i].values.end(),
                                                named->second) == knobs[i].values.end())
      return std::nullopt;
    plan[i] = named->second;
  }
  return plan;
}

const TunedPlan* PlanTable::find(const PlanKey& key) const {
  const auto found = plans_.find(key);
  return found == plans_.end() ? nullptr : &found->second;
}

void PlanTable::forget_operator(std::string_view op) {
  std::erase_if(plans_, [&](const auto& entry) {
    std::string_view call = entry.first.text();
    return take(call, ' ') == op;
  });
}

std::string PlanTable::text(std::string_view header) const {
  std::vector<std::string> lines;
  for (const auto& [key, plan] : plans_) lines.push_back(line_of(key, plan));
  std::sort(lines.begin(), lines.end());
  std::string text(header);
  for (const std::string& line : lines) text += line;
  return text + last_line(text);
}

std::optional<PlanTable> PlanTable::parse(std::string_view text, std::string_view header) {
  const std::size_t tail = last_line("").size();
  if (text.size() < header.size() + tail || !text.starts_with(header)) return std::nullopt;
  std::string_view body = text.substr(0, text.size() - tail);
  if (text.substr(body.size()) != last_line(body)) return std::nullopt;
  body.remove_prefix(header.size());
  PlanTable table;
  while (!body.empty()) {
    std::string_view line = take(body, '\n');
    const std::optional<PlanKey> key = read_key(line);
    std::optional<TunedPlan> plan;
    if (key) plan = read_plan(line);
    if (!plan) return std::nullopt;
    table.set(*key, std::move(*plan));
  }
  return table;
}

std::uint64_t checksum(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

std::string hex(std::uint64_t value) {
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, value >>= 4)
    *digit = "0123456789abcdef"[value & 15];
  return digits;
}

}  // namespace isobit
