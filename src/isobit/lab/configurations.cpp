// SPDX-License-Identifier: Apache-2.0
// Finds the variants, instruction sets, thread counts and plans that the flags select and a
// workload allows.
#include "isobit/lab/configurations.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>

#include "isobit/core/error.h"
#include "isobit/dispatch/device_library.h"
#include "isobit/dispatch/gpu_library.h"
#include "isobit/lab/device_arrays.h"
#include "isobit/lab/devices.h"
#include "isobit/lab/triton.h"
#include "isobit/lab/usage.h"
#include "isobit/ops/catalog.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::lab {
namespace {

constexpr std::string_view kAllPlans = "all", kOwnPlan = "default";

// Whether the flags ask for other plans than the variants' own.
bool names_plans(const Flags& flags) {
  return std::any_of(flags.plan.begin(), flags.plan.end(),
                     [](const std::string& part) { return part != kOwnPlan; });
}

// Every combination of the values that the flags give for each knob; a knob without one keeps the
// variant's own. Nothing where the variant lacks a knob that is named.
std::vector<Plan> with_flags(const Plan& own, const VariantInfo& info, const Flags& flags) {
  std::vector<std::vector<int>> values(info.knobs.size());
  for (const std::string& pair : flags.plan) {
    if (pair == kAllPlans || pair == kOwnPlan) continue;
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos)
      throw UsageError(
          fmt::format("--plan is '{}'; expected KNOB=VALUE, {} or {}", pair, kAllPlans, kOwnPlan));
    const std::string name = pair.substr(0, equals);
    const double value = number<double>("--plan " + name, pair.substr(equals + 1));
    const auto knob = std::find_if(info.knobs.begin(), info.knobs.end(),
                                   [&](const Knob& known) { return known.name == name; });
    if (knob == info.knobs.end()) return {};
    if (!contains(knob->values, value))
      throw UsageError(fmt::format("knob {} of {} is {}; allowed: {}", name, info.name, value,
                                   fmt::join(knob->values, ", ")));
    auto& chosen = values[static_cast<std::size_t>(knob - info.knobs.begin())];
    if (!contains(chosen, value)) chosen.push_back(static_cast<int>(value));
  }
  std::vector<Plan> plans = {own};
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].empty() && contains(flags.plan, kAllPlans))
      values[i].assign(info.knobs[i].values.begin(), info.knobs[i].values.end());
    if (values[i].empty()) continue;
    std::vector<Plan> wider;
    for (Plan plan : plans)
      for (int value : values[i]) {
        plan[i] = value;
        wider.push_back(plan);
      }
    plans = std::move(wider);
  }
  return plans;
}

// A variant with bits of its own is meant only by its name.
bool names(const Flags& flags, const VariantInfo& info) {
  if (flags.variant.empty()) return info.bits == Bits::canonical;
  return std::any_of(flags.variant.begin(), flags.variant.end(), [&](const std::string& selector) {
    return info.matches(selector) && (info.bits == Bits::canonical || selector == info.name);
  });
}

// The devices that the flags mean: unless they say otherwise the processor, where it has what they
// name.
std::vector<Device> devices_of(const Operation& operation, const std::vector<VariantInfo>& infos,
                               const Flags& flags) {
  std::vector<Device> devices;
  for (const std::string& name : flags.device)
    if (const std::optional<Device> device = device_named(name)) devices.push_back(*device);
  const auto any = [&](Device device, bool named) {
    return std::any_of(infos.begin(), infos.end(), [&](const VariantInfo& info) {
      return info.device == device && (!named || names(flags, info));
    });
  };
  if (flags.device.empty()) {
    devices = {Device::cpu};
    if (!any(Device::cpu, true))
      devices = {Device::emu, Device::ptx, Device::sass, Device::cuda, Device::hip};
  } else {
    for (Device device : devices)
      if (!any(device, false))
        throw Unsupported(
            attached(device) == nullptr && device != Device::cpu
                ? fmt::format("device {} is unavailable; run `isobit doctor` for details",
                              name_of(device))
                : fmt::format("{} {} has no variant for {}", operation.op, operation.pass,
                              name_of(device)));
  }
  return devices;
}

// What the flags select among the variants of a device.
std::vector<int> selected(const std::vector<VariantInfo>& infos, Device device,
                          const Flags& flags) {
  std::vector<int> result;
  for (int i = 0; i < static_cast<int>(infos.size()); ++i)
    if (infos[i].device == device && names(flags, infos[i])) result.push_back(i);
  return result;
}

// Where the variants of a device run: each instruction set with each number of threads, or a GPU.
std::vector<Machine> machines_of(Device device, const Flags& flags) {
  if (device != Device::cpu) return {execution_for(device).machine};
  std::vector<Isa> isas;
  for (const std::string& name : flags.isa) isas.push_back(isa_of(name));
  if (isas.empty()) isas = {Machine::here().isa};
  std::vector<int> threads = flags.threads;
  if (threads.empty()) threads = {Machine::here().threads};
  std::vector<Machine> machines;
  for (Isa isa : isas)
    for (int count : threads) {
      if (count < 1) throw UsageError(fmt::format("--threads is {}; must be at least 1", count));
      machines.push_back(execution_for(isa, count).machine);
    }
  return machines;
}

std::vector<std::string_view> list(const std::set<std::string, std::less<>>& names) {
  return {names.begin(), names.end()};
}

// The operation's variants, and those of Triton where the flags ask for it.
std::vector<VariantInfo> infos_of(const Operation& operation, const Flags& flags) {
  std::vector<VariantInfo> infos = operation.variants();
  if (contains(flags.device, kTriton) && Triton::here().has_variants(operation))
    std::ranges::copy(Triton::here().variants(operation), std::back_inserter(infos));
  return infos;
}

// Refuses a selector or knob that fits no variant of any pass of the operator.
void check_names(const Operation& operation, const Flags& flags) {
  std::set<std::string, std::less<>> variants = {"all"}, knobs;
  std::vector<VariantInfo> infos;
  for (const Operation* pass : catalog())
    if (pass->op == operation.op)
      for (const VariantInfo& info : infos_of(*pass, flags)) infos.push_back(info);
  for (const VariantInfo& info : infos) {
    for (std::string& selector : info.selectors()) variants.insert(std::move(selector));
    for (const Knob& knob : info.knobs) knobs.emplace(knob.name);
  }
  for (const std::string& selector : flags.variant)
    if (std::none_of(infos.begin(), infos.end(),
                     [&](auto& info) { return info.matches(selector); }))
      index_of(fmt::format("{} variant", operation.op), selector, list(variants));
  for (const std::string& pair : flags.plan)
    if (pair.find('=') != std::string::npos)
      index_of(fmt::format("{} knob", operation.op), pair.substr(0, pair.find('=')), list(knobs));
}

// A configuration for each plan that the flags select.
void add_plans(Configurations& configurations, Configuration configuration, const Plan& chosen,
               const Flags& flags) {
  configuration.plan_from = names_plans(flags) ? PlanFrom::flag : PlanFrom::variant;
  for (const Plan& plan : with_flags(chosen, configuration.info, flags)) {
    configuration.plan = plan;
    configurations.able.push_back(configuration);
  }
}

void add_triton(Configurations& configurations, const Workload& workload, const Flags& flags,
                Unnamed unnamed) {
  Triton& triton = Triton::here();
  const Operation& operation = workload.operation();
  const bool every_operator = flags.all || flags.ops.empty();
  const bool of_another_pass = flags.pass.empty() && triton.knows(operation.op);
  if ((every_operator || of_another_pass) && !triton.has_variants(operation)) return;
  const std::vector<VariantInfo> infos = triton.variants(operation);
  const std::vector<Triton::Support> support = triton.support(workload);
  const auto first = static_cast<int>(operation.variants().size());
  for (int i = 0; i < static_cast<int>(infos.size()); ++i) {
    if (!names(flags, infos[i])) continue;
    const Configuration configuration{first + i, infos[i]};
    if (!support[i].declines.empty()) {
      configurations.declined.push_back({configuration, support[i].declines});
      continue;
    }
    add_plans(configurations, configuration, support[i].plan, flags);
    if (flags.variant.empty() && unnamed == Unnamed::best) return;
  }
}

}  // namespace

void require_devices(const Flags& flags) {
  static constexpr std::string_view kDevices[] = {"cpu",  "emu", "ptx",  "sass",
                                                  "cuda", "hip", kTriton};
  for (const std::string& name : flags.device) index_of("device", name, kDevices);
}

Configurations configurations_of(const Workload& workload, const Flags& flags, Unnamed unnamed) {
  attach_devices();
  require_devices(flags);
  const Operation& operation = workload.operation();
  if (one_operator(flags)) check_names(operation, flags);
  const std::vector<VariantInfo> infos = operation.variants();
  Configurations configurations;
  for (Device device : devices_of(operation, infos, flags))
    for (const Machine& machine : machines_of(device, flags)) {
      std::vector<int> variants = selected(infos, device, flags);
      if (flags.variant.empty() && unnamed == Unnamed::best) {
        if (const auto tuned = operation.tuned(workload.args(), machine);
            tuned && flags.plan.empty()) {
          configurations.able.push_back({tuned->variant, infos[tuned->variant], machine.isa,
                                         machine.threads, tuned->plan, PlanFrom::cache});
          continue;
        }
        variants = {operation.default_variant(workload.args(), machine)};
      }
      for (int variant : variants) {
        const Configuration configuration{variant, infos[variant], machine.isa, machine.threads};
        const std::string reason = operation.declines(variant, workload.args(), machine);
        if (!reason.empty()) {
          configurations.declined.push_back({configuration, reason});
          continue;
        }
        add_plans(configurations, configuration,
                  operation.choose(variant, workload.args(), machine), flags);
      }
    }
  if (contains(flags.device, kTriton)) add_triton(configurations, workload, flags, unnamed);
  return configurations;
}

std::string Configurations::reasons() const {
  std::string text;
  for (const auto& [configuration, reason] : declined)
    text += fmt::format("\n  {}: {}", label(configuration), reason);
  return text;
}

Isa isa_of(std::string_view name) {
  std::vector<std::string_view> names = {"auto"};
  for (Isa isa : kIsas) names.push_back(name_of(isa));
  if (index_of("isa", name, names) == 0) return Machine::here().isa;
  const Isa isa = *isa_named(name);
  if (!contains(Machine::isas_here(), isa))
    throw Unsupported(
        fmt::format("this processor does not support {}; its widest instruction set is {}", name,
                    name_of(Machine::here().isa)));
  return isa;
}

std::vector<std::string> isas_here() {
  std::vector<std::string> names;
  for (Isa isa : Machine::isas_here()) names.emplace_back(name_of(isa));
  return names;
}

std::vector<Configuration> other_plans(const Configuration& configuration) {
  std::vector<Configuration> others;
  for (std::size_t i = 0; i < configuration.info.knobs.size(); ++i)
    for (int value : configuration.info.knobs[i].values) {
      if (value == configuration.plan[i]) continue;
      others.push_back(configuration);
      others.back().plan[i] = value;
    }
  return others;
}

std::string name_and_place(const VariantInfo& info) {
  const std::string_view place = info.place();
  return place == name_of(Device::cpu) ? std::string(info.name)
                                       : fmt::format("{} on {}", info.name, place);
}

std::string label(const Configuration& configuration) {
  std::string text = name_and_place(configuration.info);
  if (configuration.info.has_instruction_sets())
    text += fmt::format(" {}", name_of(configuration.isa));
  if (configuration.info.place() == name_of(Device::cpu))
    text +=
        fmt::format(" {} thread{}", configuration.threads, configuration.threads == 1 ? "" : "s");
  const bool told = configuration.plan_from == PlanFrom::flag && !configuration.info.knobs.empty();
  return told ? fmt::format("{} {}", text, plan_text(configuration)) : text;
}

std::string declines(const Workload& workload, const Configuration& configuration) {
  const Operation& operation = workload.operation();
  if (in_triton(configuration.info)) {
    const std::size_t first = operation.variants().size();
    return Triton::here().support(workload).at(configuration.variant - first).declines;
  }
  return operation.declines(configuration.variant, workload.args(),
                            execution_for(configuration).machine);
}

Execution execution_for(Isa isa, int threads) {
  Execution execution = simd::here(threads);
  execution.machine.isa = isa;
  return execution;
}

Execution execution_for(Device device) {
  const DeviceLibrary* library = attached(device);
  if (library == nullptr) throw Unsupported(missing_device(device));
  return execution_on(*library, nullptr);
}

Execution execution_for(const Configuration& configuration) {
  return configuration.info.device == Device::cpu
             ? execution_for(configuration.isa, configuration.threads)
             : execution_for(configuration.info.device);
}

void require_real_time(const std::vector<Configuration>& configurations) {
  for (const Configuration& configuration : configurations) {
    if (in_triton(configuration.info) && Triton::here().interprets())
      throw Unsupported(
          fmt::format("{} cannot be timed: PyTorch finds no GPU, and times of Triton's interpreter "
                      "say nothing about a GPU; use --device {} with verify, run or parity",
                      configuration.info.name, kTriton));
    const Device device = configuration.info.device;
    if (is_executor(device) || (device == Device::cuda && cuda_library().executor))
      throw UsageError(
          fmt::format("{} cannot be timed: an executor runs it, whose times say nothing "
                      "about a GPU; use --device {} with verify, run or parity",
                      configuration.info.name, name_of(device)));
    if (device == Device::emu)
      throw UsageError(
          fmt::format("{} cannot be timed: it runs in the emulator, whose times say nothing "
                      "about a GPU; use --device emu with verify, run or parity",
                      configuration.info.name));
  }
}

TimedCall timed_call(const Workload& workload, const Configuration& configuration) {
  if (configuration.info.device != Device::cpu) {
    const auto arrays =
        std::make_shared<DeviceArrays>(workload, *attached(configuration.info.device));
    return {[=] { arrays->run(configuration.variant, configuration.plan); },
            [=] { arrays->wait(); }};
  }
  return {[&workload, configuration, execution = execution_for(configuration)] {
    workload.operation().run(configuration.variant, configuration.plan, workload.args(), execution);
  }};
}

std::int64_t most_workspace(const Workload& workload, const Configuration& configuration) {
  struct Counts {
    Allocator inner;
    std::mutex mutex = {};
    std::int64_t now = 0, most = 0;

    void add(std::size_t bytes, int sign) {
      const std::lock_guard lock(mutex);
      now += sign * static_cast<std::int64_t>(bytes);
      most = std::max(most, now);
    }
  };
  Execution execution = execution_for(configuration);
  Counts counts{execution.allocator};
  execution.allocator = {[](void* self, std::size_t bytes) {
                           auto& seen = *static_cast<Counts*>(self);
                           void* const memory = seen.inner.allocate(seen.inner.self, bytes);
                           if (memory != nullptr) seen.add(bytes, 1);
                           return memory;
                         },
                         [](void* self, void* memory, std::size_t bytes) {
                           auto& seen = *static_cast<Counts*>(self);
                           seen.add(bytes, -1);
                           seen.inner.release(seen.inner.self, memory, bytes);
                         },
                         &counts};
  workload.operation().run(configuration.variant, configuration.plan, workload.args(), execution);
  return counts.most;
}

TimedCall timed_end_to_end(const Workload& workload, const Configuration& configuration) {
  const auto arrays =
      std::make_shared<DeviceArrays>(workload, *attached(configuration.info.device));
  return {[=] {
    arrays->upload();
    arrays->run(configuration.variant, configuration.plan);
    arrays->download_results();
  }};
}

TimedCall timed_transfer(const Workload& workload, Device device) {
  const auto arrays = std::make_shared<DeviceArrays>(workload, *attached(device));
  return {[=] {
    arrays->upload();
    arrays->download_results();
  }};
}

void run(const Workload& workload, const Configuration& configuration) {
  workload.poison();
  if (in_triton(configuration.info))
    return Triton::here().run(workload, configuration.info, configuration.plan);
  if (configuration.info.device == Device::cpu) return timed_call(workload, configuration).call();
  DeviceArrays arrays(workload, *attached(configuration.info.device));
  arrays.run(configuration.variant, configuration.plan);
  arrays.download();
}

}  // namespace isobit::lab
