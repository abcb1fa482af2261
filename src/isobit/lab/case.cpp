// SPDX-License-Identifier: Apache-2.0
// Cases and ways in words: as JSON, and as the command line that repeats them.
#include "isobit/lab/case.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "isobit/lab/triton.h"

namespace isobit::lab {
namespace {

std::string flag_value(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return value.dump();
  std::string pairs;
  for (const auto& [knob, number] : value.items())
    pairs += fmt::format("{}{}={}", pairs.empty() ? "" : ",", knob, number.dump());
  return pairs;
}

}  // namespace

Json plan_json(const VariantInfo& info, const Plan& plan) {
  Json knobs = Json::object();
  for (std::size_t i = 0; i < info.knobs.size(); ++i)
    knobs[std::string(info.knobs[i].name)] = plan[i];
  return knobs;
}

DType Case::dtype_of(const Argument& argument) const {
  switch (argument.elements) {
    case Elements::like_x:      return types.x;
    case Elements::like_weight: return types.weight;
    case Elements::like_y:      return types.y;
    case Elements::statistic:   break;
  }
  return types.x == DType::f64 ? DType::f64 : DType::f32;
}

bool Case::has(const Argument& argument) const {
  return fmt::format("+{}+", with).find(fmt::format("+{}+", argument.name)) != std::string::npos;
}

bool is_given_statistic(const Argument& argument) {
  return argument.role == Role::input && argument.elements == Elements::statistic;
}

bool takes_statistics(const Operation& operation) {
  return std::any_of(operation.arguments.begin(), operation.arguments.end(), is_given_statistic);
}

std::string flag_of(std::string_view name) {
  std::string flag = fmt::format("--{}", name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

Json value_of(const Option& option, double value) {
  if (option.whole) return static_cast<std::uint64_t>(value);
  if (option.choices.empty()) return value;
  return option.choices[static_cast<std::size_t>(value)];
}

void set_options(const Operation& operation, const Case& c, const Arguments& args) {
  for (const Option& option : operation.options)
    if (const auto found = c.options.find(option.name); found != c.options.end())
      option.set(args.get(), found->second);
}

Json describe(const Case& c) {
  Json json;
  json["op"] = c.operation->op;
  json["pass"] = c.operation->pass;
  json["rows"] = c.rows;
  json["cols"] = c.cols;
  json["dtype"] = name_of(c.types.x);
  json["weight_dtype"] = name_of(c.types.weight);
  json["y_dtype"] = name_of(c.types.y);
  for (const Option& option : c.operation->options)
    json[std::string(option.name)] = value_of(option, c.options.at(option.name));
  if (takes_statistics(*c.operation)) json["statistics"] = kStatistics[c.given_statistics ? 1 : 0];
  json["input"] = c.input;
  json["seed"] = c.seed;
  json["offset"] = c.offset;
  json["row_stride"] = c.stride();
  if (!c.with.empty()) json["with"] = c.with;
  return json;
}

Json describe(const Case& c, const Way& way) {
  Json json = describe(c);
  json["variant"] = way.info.name;
  json["device"] = way.info.place();
  if (in_triton(way.info)) {
    json["executor"] = Triton::here().executor();
  } else {
    json["isa"] = name_of(way.isa);
    json["threads"] = way.threads;
  }
  json["plan"] = plan_json(way.info, way.plan);
  return json;
}

std::string plan_text(const Way& way) { return flag_value(plan_json(way.info, way.plan)); }

std::string_view name_of(PlanFrom from) {
  static constexpr std::string_view kNames[] = {"default", "cache", "flag"};
  return kNames[static_cast<int>(from)];
}

std::string choices_text(const Case& c) {
  std::vector<std::string> choices;
  for (const Option& option : c.operation->options) {
    if (option.choices.empty()) continue;
    const auto chosen = value_of(option, c.options.at(option.name)).get<std::string>();
    if (chosen != "no") choices.emplace_back(chosen == "yes" ? option.name : chosen);
  }
  if (!c.with.empty()) choices.push_back(c.with);
  return fmt::format("{}", fmt::join(choices, " "));
}

std::string command(std::string_view verb, const Case& c, const Way& way) {
  std::string line = fmt::format("isobit {} {}", verb, c.operation->op);
  const Json described = describe(c, way);
  for (const auto& [key, value] : described.items()) {
    if (key == "op" || key == "executor" || (value.is_object() && value.empty())) continue;
    line += fmt::format(" {} {}", flag_of(key), flag_value(value));
  }
  return line;
}

}  // namespace isobit::lab
