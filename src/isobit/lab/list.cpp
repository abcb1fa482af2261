// SPDX-License-Identifier: Apache-2.0
// `isobit list`: what there is, from the operators' own descriptions.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "isobit/core/error.h"
#include "isobit/dispatch/device_library.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/devices.h"
#include "isobit/lab/output.h"
#include "isobit/lab/triton.h"

namespace isobit::lab {
namespace {

constexpr const char* kRoles[] = {"input", "output"};

std::vector<std::string> dtypes_of(const Operation& operation) {
  std::vector<std::string> names;
  for (const CaseGrid& grid : operation.cases("full"))
    for (const Types& types : grid.types)
      if (!contains(names, types_text(types))) names.push_back(types_text(types));
  return names;
}

// "(rows, cols)"
std::string shape_of(const Operation& operation, const Argument& argument) {
  std::vector<std::string_view> names;
  for (int place : operation.dims_of(argument)) names.push_back(operation.dims[place].name);
  return fmt::format("({})", fmt::join(names, ", "));
}

std::string elements_of(const Operation& operation, const Argument& argument) {
  if (argument.elements == Elements::like_x) return "as x";
  if (argument.elements == Elements::like_weight) return "as weight";
  if (argument.elements == Elements::like_y) return "as y";
  if (argument.elements == Elements::index) return "i64";
  if (argument.elements == Elements::mask) return "bool";
  const std::vector<std::string> types = dtypes_of(operation);
  return contains(types, name_of(DType::f64)) ? "f32; f64 if x is f64" : "f32";
}

// Why a variant cannot run here, from a small call of each type and each choice that keeps the
// operator's rules; empty where it can.
std::set<std::string> reasons(const Operation& operation, int variant, Device device) {
  std::set<std::string> found;
  const Machine machine = device == Device::cpu ? Machine::here() : execution_for(device).machine;
  for (Case c : cases_of(operation, Flags{}, "quick")) {
    for (std::size_t i = 0; i < operation.dims.size(); ++i) c.extents[i] = 1;
    const Arguments options = operation.make_arguments();
    set_options(operation, c, options);
    operation.derive(c.extents, options);
    const Workload workload(c);
    try {
      const std::string reason = operation.declines(variant, workload.args(), machine);
      if (reason.empty()) return {};
      found.insert(reason);
    } catch (const InvalidArgument&) { continue; }
  }
  return found;
}

Json describe(const Operation& operation) {
  Json json;
  json["op"] = operation.op;
  json["pass"] = operation.pass;
  json["version"] = operation.version;
  json["dtypes"] = dtypes_of(operation);
  for (const Argument& argument : operation.arguments)
    json["arguments"].push_back({{"name", argument.name},
                                 {"role", kRoles[static_cast<int>(argument.role)]},
                                 {"shape", shape_of(operation, argument)},
                                 {"dtype", elements_of(operation, argument)},
                                 {"optional", argument.presence != Presence::required}});
  json["options"] = Json::array();
  for (const Option& option : operation.options) {
    if (!option.in_lab) continue;
    Json entry = {{"name", option.name}};
    entry["default"] = value_of(option, option.fallback);
    if (!option.choices.empty())
      entry["choices"] = std::vector<std::string>(option.choices.begin(), option.choices.end());
    json["options"].push_back(std::move(entry));
  }
  json["variants"] = Json::array();
  return json;
}

Json describe(const VariantInfo& info, const std::set<std::string>& declines) {
  Json knobs = Json::array();
  for (const Knob& knob : info.knobs)
    knobs.push_back({{"name", knob.name},
                     {"values", std::vector<int>(knob.values.begin(), knob.values.end())},
                     {"meaning", knob.meaning}});
  static constexpr const char* kBits[] = {"canonical", "own", "unordered"};
  return {{"name", info.name},
          {"device", info.place()},
          {"bits", kBits[static_cast<int>(info.bits)]},
          {"knobs", std::move(knobs)},
          {"unavailable", declines}};
}

void print(const Json& json) {
  const auto text = [](const Json& value) { return value.get<std::string>(); };
  fmt::print("{} {}    {}\n", text(json["op"]), text(json["pass"]),
             fmt::join(json["dtypes"].get<std::vector<std::string>>(), ", "));
  for (const Json& argument : json["arguments"])
    fmt::print("  {:<6}  {:<17} {:<15} {}{}\n", text(argument["role"]), text(argument["name"]),
               text(argument["shape"]), text(argument["dtype"]),
               argument["optional"].get<bool>() ? ", optional" : "");
  for (const Json& option : json["options"]) {
    const std::string choices =
        option.contains("choices")
            ? fmt::format(" ({})",
                          fmt::join(option["choices"].get<std::vector<std::string>>(), ", "))
            : "";
    const Json& fallback = option["default"];
    fmt::print("  option  {} {}{}\n", flag_of(text(option["name"])),
               fallback.is_string() ? text(fallback) : fmt::format("{}", fallback.get<double>()),
               choices);
  }
  for (const Json& variant : json["variants"]) {
    const std::string bits = text(variant["bits"]);
    fmt::print("  {:<6}  {}{}\n", text(variant["device"]), text(variant["name"]),
               bits == "canonical" ? "" : fmt::format(", bits: {}", bits));
    for (const Json& knob : variant["knobs"])
      fmt::print("            --plan {}={}    {}\n", text(knob["name"]),
                 fmt::join(knob["values"].get<std::vector<int>>(), "|"), text(knob["meaning"]));
    for (const Json& reason : variant["unavailable"])
      fmt::print("            unavailable here: {}\n", text(reason));
  }
  fmt::print("\n");
}

void print_devices(const Triton* triton, const std::string& no_triton) {
  const auto state = [](Device device) {
    return attached(device) != nullptr ? "" : ": " + missing_device(device);
  };
  fmt::print(
      "devices\n"
      "  cpu\n"
      "  emu, which executes the GPU kernels without a GPU{}\n"
      "{}{}"
      "  cuda{}\n"
      "  hip{}\n"
      "  triton{}\n",
      state(Device::emu),
      attached(Device::ptx) != nullptr ? "  ptx, which executes what nvcc made of them\n" : "",
      attached(Device::sass) != nullptr ? "  sass, which executes what ptxas made of that\n" : "",
      state(Device::cuda), state(Device::hip),
      triton != nullptr ? " " + triton->text() : ": " + no_triton);
}

}  // namespace

int list(const Flags& flags) {
  attach_devices();
  require_devices(flags);
  const bool named = !flags.device.empty();
  std::string no_triton;
  const Triton* triton = nullptr;
  if (!named) triton = Triton::find(no_triton);
  if (contains(flags.device, kTriton)) triton = &Triton::here();
  JsonLines lines(flags, "list");
  bool found = false;
  for (const Operation* operation : operations_of(flags)) {
    Json description = describe(*operation);
    const std::vector<VariantInfo> infos = operation->variants();
    for (int i = 0; i < static_cast<int>(infos.size()); ++i)
      if (!named || contains(flags.device, infos[i].place()))
        description["variants"].push_back(
            describe(infos[i], reasons(*operation, i, infos[i].device)));
    if (triton != nullptr && triton->has_variants(*operation))
      for (const VariantInfo& info : triton->variants(*operation))
        description["variants"].push_back(describe(info, {}));
    if (description["variants"].empty()) continue;
    found = true;
    lines.add(description);
    if (!flags.json) print(description);
  }
  if (!found)
    throw Unsupported(fmt::format(
        "no variant of {} runs on {}; run `isobit doctor` to see which devices are available",
        fmt::join(flags.ops, ", "), fmt::join(flags.device, ", ")));
  if (!flags.json && !named) print_devices(triton, no_triton);
  return kPassed;
}

}  // namespace isobit::lab
