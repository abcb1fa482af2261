// SPDX-License-Identifier: Apache-2.0
// Cases and configurations in words: as JSON, and as the command line that repeats them.
#include "isobit/lab/case.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <span>

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

// Where all arrays of two dims or more have the same last one: its extent.
std::optional<std::int64_t> row_length(const Case& c) {
  int last = -1;
  for (const Argument& argument : c.operation->arguments) {
    const std::span<const int> dims = c.operation->dims_of(argument);
    if (dims.size() < 2) continue;
    if (last >= 0 && last != dims.back()) return std::nullopt;
    last = dims.back();
  }
  if (last < 0) return std::nullopt;
  return c.extents[static_cast<std::size_t>(last)];
}

}  // namespace

Json plan_json(const VariantInfo& info, const Plan& plan) {
  Json knobs = Json::object();
  for (std::size_t i = 0; i < info.knobs.size(); ++i)
    knobs[std::string(info.knobs[i].name)] = plan[i];
  return knobs;
}

std::int64_t& Case::extent(std::string_view dim) {
  const auto found = std::ranges::find(operation->dims, dim, &Dim::name);
  return extents.at(static_cast<std::size_t>(found - operation->dims.begin()));
}

std::int64_t Case::extent(std::string_view dim) const {
  Case copy = *this;
  return copy.extent(dim);
}

std::int64_t Case::batch() const {
  return operation->batch() < 0 ? 1 : extents[static_cast<std::size_t>(operation->batch())];
}

Extents Case::extents_of(const Operation& other) const {
  if (&other == operation) return extents;
  Extents result{};
  for (std::size_t i = 0; i < other.dims.size(); ++i) result[i] = extent(other.dims[i].name);
  return result;
}

Form Case::form_of(const Argument& argument) const {
  Form form{dtype_of(argument), {}};
  const bool single = !has_batch(argument);
  for (int place : operation->dims_of(argument))
    form.extents.push_back(
        single && place == operation->batch() ? 1 : extents[static_cast<std::size_t>(place)]);
  return form;
}

std::int64_t Case::longest_line() const {
  std::int64_t most = 0;
  for (const Argument& argument : operation->arguments)
    most = std::max(most, form_of(argument).line_length());
  return most;
}

DType Case::dtype_of(const Argument& argument) const {
  switch (argument.elements) {
    case Elements::like_x:      return types.x;
    case Elements::like_weight: return types.weight;
    case Elements::like_y:      return types.y;
    case Elements::index:       return DType::i64;
    case Elements::mask:        return DType::boolean;
    case Elements::statistic:   break;
  }
  return types.x == DType::f64 ? DType::f64 : DType::f32;
}

bool Case::has(const Argument& argument) const {
  return fmt::format("+{}+", with).find(fmt::format("+{}+", argument.name)) != std::string::npos;
}

std::int64_t Case::bound_of(const Argument& argument) const {
  if (argument.below.empty()) return 0;
  const std::int64_t below = extent(argument.below);
  const Argument* each = operation->find(argument.below_each);
  if (each == nullptr || !has(*each)) return below;
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  const std::int64_t count = form_of(*each).extents.back();
  return count == 0 ? 0 : std::min(below, kMost / count) * count;
}

bool Case::has_batch(const Argument& argument) const {
  const auto is_there = [&](std::string_view name) {
    const Argument* found = operation->find(name);
    return found != nullptr && has(*found);
  };
  return operation->has_batch(argument) && !std::ranges::all_of(argument.single_beside, is_there);
}

bool Case::has_free_batch() const {
  return std::ranges::none_of(operation->arguments, [&](const Argument& argument) {
    const bool names_others = operation->batch() >= 0 && argument.drawn == Drawn::index &&
                              argument.below == operation->dims[operation->batch()].name;
    return has(argument) && (argument.drawn == Drawn::starts || names_others);
  });
}

bool takes_statistics(const Operation& operation) {
  return std::any_of(operation.arguments.begin(), operation.arguments.end(), is_given_statistic);
}

bool takes_any_strides(const Operation& operation) {
  return std::ranges::any_of(operation.arguments, [](const Argument& argument) {
    return argument.strides == Strides::any;
  });
}

std::string flag_of(std::string_view name) {
  std::string flag = fmt::format("--{}", name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

Json value_of(const Option& option, double value) {
  if (option.type == OptionType::whole) return static_cast<std::uint64_t>(value);
  if (option.type == OptionType::integer) return static_cast<std::int64_t>(value);
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
  for (std::size_t i = 0; i < c.operation->dims.size(); ++i)
    json[std::string(c.operation->dims[i].name)] = c.extents[i];
  json["dtype"] = name_of(c.types.x);
  json["weight_dtype"] = name_of(c.types.weight);
  json["y_dtype"] = name_of(c.types.y);
  for (const Option& option : c.operation->options)
    if (option.in_lab) json[std::string(option.name)] = value_of(option, c.options.at(option.name));
  if (takes_statistics(*c.operation)) json["statistics"] = kStatistics[c.given_statistics ? 1 : 0];
  json["input"] = c.input;
  json["seed"] = c.seed;
  json["offset"] = c.offset;
  if (c.row_gap != 0)
    json["row_stride"] = c.longest_line() + c.row_gap;
  else if (c.row_stride != 0)
    json["row_stride"] = c.row_stride;
  else if (const auto length = row_length(c))
    json["row_stride"] = *length;
  if (takes_any_strides(*c.operation)) json["layout"] = kLayouts[static_cast<int>(c.layout)];
  if (!c.with.empty()) json["with"] = c.with;
  return json;
}

Json describe(const Case& c, const Configuration& configuration) {
  Json json = describe(c);
  json["variant"] = configuration.info.name;
  json["device"] = configuration.info.place();
  if (in_triton(configuration.info)) {
    json["executor"] = Triton::here().executor();
  } else {
    json["isa"] = name_of(configuration.isa);
    json["threads"] = configuration.threads;
  }
  json["plan"] = plan_json(configuration.info, configuration.plan);
  return json;
}

std::string plan_text(const Configuration& configuration) {
  return flag_value(plan_json(configuration.info, configuration.plan));
}

std::string_view name_of(PlanFrom from) {
  static constexpr std::string_view kNames[] = {"default", "cache", "flag"};
  return kNames[static_cast<int>(from)];
}

std::string extents_text(const Case& c) {
  std::vector<std::int64_t> free;  // the others follow from them
  for (std::size_t i = 0; i < c.operation->dims.size(); ++i)
    if (c.operation->dims[i].derived == nullptr) free.push_back(c.extents[i]);
  return fmt::format("{}", fmt::join(free, " x "));
}

std::string choices_text(const Case& c) {
  std::vector<std::string> choices;
  for (const Option& option : c.operation->options) {
    if (option.choices.empty() || !option.in_lab) continue;
    const auto chosen = value_of(option, c.options.at(option.name)).get<std::string>();
    if (chosen != "no") choices.emplace_back(chosen == "yes" ? option.name : chosen);
  }
  if (!c.with.empty()) choices.push_back(c.with);
  return fmt::format("{}", fmt::join(choices, " "));
}

std::string command(std::string_view verb, const Case& c, const Configuration& configuration) {
  std::string line = fmt::format("isobit {} {}", verb, c.operation->op);
  const Json described = describe(c, configuration);
  const auto is_derived = [&](std::string_view name) {
    return std::ranges::any_of(c.operation->dims, [&](const Dim& dim) {
      return dim.name == name && dim.derived != nullptr;
    });
  };
  for (const auto& [key, value] : described.items()) {
    if (key == "op" || key == "executor" || is_derived(key) || (value.is_object() && value.empty()))
      continue;
    line += fmt::format(" {} {}", flag_of(key), flag_value(value));
  }
  return line;
}

}  // namespace isobit::lab
