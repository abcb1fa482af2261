// SPDX-License-Identifier: Apache-2.0
// Asks isobit.lab.triton, which sees the workloads' memory in files: elements, gaps and guards.
#include "isobit/lab/triton.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <set>

#include "isobit/core/error.h"

namespace isobit::lab {
namespace {

constexpr const char* kModule = "isobit.lab.triton";

// Of the Python program.
std::vector<std::string>& arguments() {
  static std::vector<std::string> words;
  return words;
}

std::vector<std::string> command(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"-m", kModule};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

Json options_of(const Case& c) {
  Json options = Json::object();
  for (const Option& option : c.operation->options)
    if (option.in_lab)
      options[std::string(option.name)] = value_of(option, c.options.at(option.name));
  return options;
}

Json form_of(const Array& array) {
  const TensorView view = array.view();
  return {{"dtype", name_of(view.dtype)},
          {"shape", std::vector(view.shape.begin(), view.shape.begin() + view.rank)},
          {"strides", std::vector(view.strides.begin(), view.strides.begin() + view.rank)}};
}

void write(const std::filesystem::path& file, std::span<const std::byte> bytes) {
  std::ofstream stream(file, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  if (!stream.flush()) throw std::runtime_error(file.string() + ": cannot be written");
}

void read(const std::filesystem::path& file, std::span<std::byte> bytes) {
  std::ifstream stream(file, std::ios::binary);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!stream) throw std::runtime_error(file.string() + ": cannot be read");
}

}  // namespace

void Triton::execute_by(std::string library) { arguments() = {std::move(library)}; }

Triton& Triton::here() {
  try {
    static Triton triton(arguments());
    return triton;
  } catch (const std::runtime_error& error) {
    throw Unsupported(
        fmt::format("Triton is unavailable: {}; run `isobit doctor` for details", error.what()));
  }
}

Triton* Triton::find(std::string& why) {
  try {
    return &here();
  } catch (const Unsupported& error) {
    why = error.what();
    return nullptr;
  }
}

std::string Triton::text() const {
  return fmt::format(
      "{}, {}", version_,
      interprets() ? "in its interpreter, because PyTorch finds no GPU" : "on " + executor_);
}

Triton::Triton(const std::vector<std::string>& arguments) : python_(command(arguments)) {
  const Json known = ask({{"do", "list"}});
  version_ = known.at("version");
  executor_ = known.at("executor");
  for (const Json& each : known.at("variants")) {
    Variant& variant = variants_.emplace_back(
        Variant{each.at("op"), each.at("pass"), each.at("name"), {}, {}, {}});
    for (const Json& knob : each.at("knobs")) {
      const std::string& name = variant.words.emplace_back(knob.at("name"));
      const std::string& meaning = variant.words.emplace_back(knob.at("meaning"));
      variant.knobs.push_back({name, variant.values.emplace_back(knob.at("values")), meaning});
    }
    if (variant.knobs.size() > kMaxKnobs)
      throw std::runtime_error(fmt::format("{} has {} knobs; a plan holds at most {}", variant.name,
                                           variant.knobs.size(), kMaxKnobs));
  }
}

bool Triton::knows(std::string_view op) const {
  return std::any_of(variants_.begin(), variants_.end(),
                     [&](const Variant& variant) { return variant.op == op; });
}

bool Triton::has_variants(const Operation& operation) const {
  return std::any_of(variants_.begin(), variants_.end(), [&](const Variant& variant) {
    return variant.op == operation.op && variant.pass == operation.pass;
  });
}

std::vector<VariantInfo> Triton::variants(const Operation& operation) const {
  std::vector<VariantInfo> infos;
  std::set<std::string> operators;
  for (const Variant& variant : variants_) {
    operators.insert(variant.op);
    if (variant.op == operation.op && variant.pass == operation.pass)
      infos.push_back({variant.name, Device::cpu, variant.knobs, Bits::canonical, kTriton});
  }
  if (infos.empty())
    throw Unsupported(fmt::format("{} {} has no Triton variants; operators that do: {}",
                                  operation.op, operation.pass, fmt::join(operators, ", ")));
  return infos;
}

std::vector<Triton::Support> Triton::support(const Workload& workload) {
  Json arrays = Json::object();
  for (const Argument& argument : workload.operation().arguments)
    if (const Array* array = workload.find(argument.name))
      arrays[std::string(argument.name)] = form_of(*array);
  const Case& c = workload.the_case();
  const Json answer = ask({{"do", "support"},
                           {"case", describe(c)},
                           {"options", options_of(c)},
                           {"arrays", std::move(arrays)}});
  std::vector<Support> all;
  for (const VariantInfo& info : variants(workload.operation())) {
    const Json& told = answer.at(std::string(info.name));
    Support& support = all.emplace_back(Support{told.value("unavailable", "")});
    if (!support.declines.empty()) continue;
    for (std::size_t i = 0; i < info.knobs.size(); ++i)
      support.plan[i] = told.at("plan").at(std::string(info.knobs[i].name));
  }
  return all;
}

void Triton::run(const Workload& workload, const VariantInfo& info, const Plan& plan) {
  const Case& c = workload.the_case();
  ask({{"do", "run"},
       {"op", c.operation->op},
       {"variant", info.name},
       {"plan", plan_json(info, plan)},
       {"options", options_of(c)},
       {"arrays", to_files(workload)}});
  from_files(workload);
}

std::vector<Json> Triton::take_counters() {
  return ask({{"do", "counters"}}).at("kernels").get<std::vector<Json>>();
}

std::vector<Times> Triton::time_interleaved(const Workload& workload,
                                            const std::vector<Configuration>& configurations,
                                            double copied_bytes, int rounds) {
  const Case& c = workload.the_case();
  Json told = Json::array();
  for (const Configuration& configuration : configurations)
    told.push_back({{"variant", configuration.info.name},
                    {"plan", plan_json(configuration.info, configuration.plan)}});
  const Json answer = ask({{"do", "bench"},
                           {"op", c.operation->op},
                           {"configurations", std::move(told)},
                           {"options", options_of(c)},
                           {"arrays", to_files(workload)},
                           {"copied_bytes", copied_bytes},
                           {"rounds", rounds}});
  std::vector<Times> times;
  for (const Json& each : answer.at("times"))
    times.push_back({each.at("median"), each.at("p20"), each.at("p80")});
  return times;
}

Json Triton::ask(const Json& question) {
  Json answer = python_.ask(question);
  if (answer.contains("error")) throw std::runtime_error(answer.at("error").get<std::string>());
  return answer;
}

Json Triton::to_files(const Workload& workload) const {
  Json arrays = Json::object();
  for (const Argument& argument : workload.operation().arguments) {
    const Array* array = workload.find(argument.name);
    if (array == nullptr) continue;
    const std::string name(argument.name);
    const std::filesystem::path file = folder_.path() / name;
    const std::span<std::byte> storage = array->storage();
    write(file, storage);
    arrays[name] = form_of(*array);
    arrays[name]["file"] = file.string();
    arrays[name]["bytes"] = storage.size();
    arrays[name]["first"] = array->line(0) - storage.data();
  }
  return arrays;
}

void Triton::from_files(const Workload& workload) const {
  for (const Argument& argument : workload.operation().arguments)
    if (const Array* array = workload.find(argument.name))
      read(folder_.path() / argument.name, array->storage());
}

}  // namespace isobit::lab
