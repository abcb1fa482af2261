// SPDX-License-Identifier: Apache-2.0
// The definition of one pass of an operator, with its types, and the one way through it:
// check, choose, take workspace, run.
#pragma once

#include <cstdint>
#include <string>

#include "isobit/core/error.h"
#include "isobit/dispatch/device_library.h"
#include "isobit/dispatch/held.h"
#include "isobit/dispatch/operation.h"
#include "isobit/dispatch/plan_cache.h"
#include "isobit/dispatch/variant.h"

namespace isobit {

template <class Args, class Problem>
struct Definition {
  // The largest C that passes, of an operator that says nothing else (docs/numerics.md).
  static double usual_limit(const Args&) { return 8; }
  static bool computes(const Args&) { return false; }
  static std::string takes_all(const Problem&, const Machine&) { return {}; }
  static void any_contents(const Problem&) {}

  std::string_view op, pass;
  std::string_view summary;  // what it computes, for the generated headers
  int version;               // of what it computes, bit by bit
  std::span<const Dim> dims;
  std::span<const Argument> arguments;
  std::span<const Option> options;
  Problem (*check)(const Args&);
  Extents (*extents)(const Args&);  // in the order of dims, of a call that passed its check
  // What must hold of what arrays contain, before anything is computed from it. Asked where a call
  // runs on the processor, which alone may read them here.
  void (*check_contents)(const Problem&) = any_contents;
  // Why no variant may compute it on this machine, and what to do; empty where one may.
  std::string (*refuses)(const Problem&, const Machine&) = takes_all;
  // On the processor; attached device libraries bring others. The first that suits is the default.
  std::span<const Variant<Args, Problem>> variants;
  Cost (*cost)(const Args&);
  std::vector<CaseGrid> (*cases)(std::string_view grid);
  void (*reference)(const Args& exact, const Args& scale, const Rounding& rounding);
  void (*intermediates)(const Args& exact, const Rounding& rounding, const EmitArray& emit);
  double (*limit)(const Args&) = usual_limit;
  bool (*moves_bytes)(const Args&) = computes;

  // The call, if it keeps the operator's rules and asks for no more work than its arrays hold.
  Problem checked(const Args& args) const {
    const Problem problem = check(args);
    void* const all = const_cast<Args*>(&args);  // of which views are read
    if (repeats_memory(arguments, all)) {
      require_few_elements(op, pass, arguments, all);
      require_few_operations(op, pass, arguments, all, cost(args).flops);
    }
    return problem;
  }
};

namespace detail {

// Memory from the caller's allocator, for the length of one call. It begins at a cache line,
// wherever the caller's does.
class Workspace {
 public:
  Workspace(const Allocator& allocator, std::size_t bytes) : allocator_(allocator) {
    if (bytes == 0) return;
    bytes_ = bytes + kAlignment - 1;
    memory_ = allocator_.allocate(allocator_.self, bytes_);
    if (memory_ == nullptr) throw OutOfMemory(bytes_);
  }
  ~Workspace() {
    if (memory_ != nullptr) allocator_.release(allocator_.self, memory_, bytes_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  std::byte* data() const {
    const auto past = reinterpret_cast<std::uintptr_t>(memory_) % kAlignment;
    return static_cast<std::byte*>(memory_) + (past == 0 ? 0 : kAlignment - past);
  }

 private:
  static constexpr std::size_t kAlignment = 64;

  const Allocator& allocator_;
  std::size_t bytes_ = 0;
  void* memory_ = nullptr;
};

template <class Args, class Problem>
void run(const Variant<Args, Problem>& variant, const Plan& plan, const Args& args,
         const Problem& problem, Execution execution) {
  const Workspace workspace(execution.allocator,
                            variant.workspace(problem, plan, execution.machine));
  execution.workspace = workspace.data();
  variant.run(args, problem, plan, execution);
}

template <class Args, class Problem>
std::span<const Variant<Args, Problem>> variants_on(Device device,
                                                    const Definition<Args, Problem>& definition) {
  if (device == Device::cpu) return definition.variants;
  const DeviceVariants found = isobit::variants_on(device, definition.op, definition.pass);
  return {static_cast<const Variant<Args, Problem>*>(found.first), found.count};
}

// All variants stand in one row, device after device; an index into it names one.
inline constexpr Device kDevices[] = {Device::cpu,  Device::emu,  Device::ptx,
                                      Device::sass, Device::cuda, Device::hip};

template <class Args, class Problem>
int first_index(Device device, const Definition<Args, Problem>& definition) {
  std::size_t index = 0;
  for (Device before : kDevices) {
    if (before == device) break;
    index += variants_on(before, definition).size();
  }
  return static_cast<int>(index);
}

template <class Args, class Problem>
const Variant<Args, Problem>& variant_at(int index, const Definition<Args, Problem>& definition) {
  auto place = static_cast<std::size_t>(index);
  for (Device device : kDevices) {
    const auto variants = variants_on(device, definition);
    if (place < variants.size()) return variants[place];
    place -= variants.size();
  }
  throw Unsupported(text(definition.op, ": no variant has index ", index));
}

template <class Args, class Problem>
int default_variant(const Definition<Args, Problem>& definition, const Problem& problem,
                    const Machine& machine) {
  if (const std::string reason = definition.refuses(problem, machine); !reason.empty())
    throw Unsupported(text(definition.op, ": ", reason));
  const auto variants = variants_on(machine.device, definition);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const auto& variant = variants[i];
    if (variant.bits == Bits::canonical && variant.suits(problem, machine) &&
        variant.declines(problem, machine).empty())
      return first_index(machine.device, definition) + static_cast<int>(i);
  }
  std::string reasons;
  for (const auto& variant : variants)
    reasons += text("\n  ", variant.name, ": ", variant.declines(problem, machine));
  if (variants.empty()) reasons = text("\n  no variants are loaded for ", name_of(machine.device));
  throw Unsupported(text(definition.op, ": no variant supports this call", reasons));
}

// A stored plan may be older than the library: whatever does not fit any more is as if it were not
// there. Out of line: most processes have none.
template <class Args, class Problem>
[[gnu::noinline]] std::optional<Choice> tuned(const Definition<Args, Problem>& definition,
                                              const PlanTable& plans, const Args& args,
                                              const Problem& problem, const Machine& machine) {
  const TunedPlan* found =
      plans.find(plan_key(definition.op, definition.pass, definition.dims, definition.arguments,
                          definition.options, definition.extents(args), &args, machine));
  if (found == nullptr || !definition.refuses(problem, machine).empty()) return std::nullopt;
  const auto variants = variants_on(machine.device, definition);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const auto& variant = variants[i];
    if (variant.name != found->variant || variant.bits != Bits::canonical) continue;
    const std::optional<Plan> plan = allowed_plan(*found, variant.knobs);
    if (!plan || !variant.declines(problem, machine).empty()) return std::nullopt;
    return Choice{first_index(machine.device, definition) + static_cast<int>(i), *plan};
  }
  return std::nullopt;
}

template <class Args, class Problem>
Choice choose(const Definition<Args, Problem>& definition, const Args& args, const Problem& problem,
              const Machine& machine) {
  if (const PlanTable& plans = tuned_plans(); !plans.empty())
    if (const auto found = tuned(definition, plans, args, problem, machine)) return *found;
  const int variant = default_variant(definition, problem, machine);
  return {variant, variant_at(variant, definition).choose(problem, machine)};
}

}  // namespace detail

// What the operators' public functions call.
template <class Args, class Problem>
void run(const Definition<Args, Problem>& definition, const Args& args,
         const Execution& execution) {
  const Problem problem = definition.checked(args);
  if (execution.machine.device == Device::cpu) definition.check_contents(problem);
  const Choice choice = detail::choose(definition, args, problem, execution.machine);
  detail::run(detail::variant_at(choice.variant, definition), choice.plan, args, problem,
              execution);
}

// A definition seen without its types.
template <class Args, class Problem>
class TypedOperation final : public Operation {
 public:
  explicit TypedOperation(const Definition<Args, Problem>& definition)
      : Operation(definition.op, definition.pass, definition.summary, definition.version,
                  definition.dims, definition.arguments, definition.options),
        definition_(definition) {}

  Arguments make_arguments() const override { return Arguments(std::make_shared<Args>()); }

  std::vector<VariantInfo> variants() const override {
    std::vector<VariantInfo> infos;
    for (Device device : detail::kDevices)
      for (const auto& variant : detail::variants_on(device, definition_))
        infos.push_back({variant.name, device, variant.knobs, variant.bits, {}, variant.each_isa});
    return infos;
  }

  void check(const Arguments& args) const override { definition_.checked(typed(args)); }
  void call(const Arguments& args, const Execution& execution) const override {
    isobit::run(definition_, typed(args), execution);
  }
  Cost cost(const Arguments& args) const override { return definition_.cost(typed(args)); }
  double limit(const Arguments& args) const override { return definition_.limit(typed(args)); }
  bool moves_bytes(const Arguments& args) const override {
    return definition_.moves_bytes(typed(args));
  }
  Extents extents(const Arguments& args) const override { return definition_.extents(typed(args)); }
  std::vector<CaseGrid> cases(std::string_view grid) const override {
    return definition_.cases(grid);
  }

  std::string declines(int variant, const Arguments& args, const Machine& machine) const override {
    const Problem problem = definition_.checked(typed(args));
    std::string reason = definition_.refuses(problem, machine);
    return reason.empty() ? detail::variant_at(variant, definition_).declines(problem, machine)
                          : reason;
  }
  Plan choose(int variant, const Arguments& args, const Machine& machine) const override {
    return detail::variant_at(variant, definition_)
        .choose(definition_.checked(typed(args)), machine);
  }
  int default_variant(const Arguments& args, const Machine& machine) const override {
    return detail::default_variant(definition_, definition_.checked(typed(args)), machine);
  }
  std::optional<Choice> tuned(const Arguments& args, const Machine& machine) const override {
    return detail::tuned(definition_, tuned_plans(), typed(args), definition_.checked(typed(args)),
                         machine);
  }
  void run(int variant, const Plan& plan, const Arguments& args,
           const Execution& execution) const override {
    const Problem problem = definition_.checked(typed(args));
    if (execution.machine.device == Device::cpu) definition_.check_contents(problem);
    detail::run(detail::variant_at(variant, definition_), plan, typed(args), problem, execution);
  }
  void reference(const Arguments& exact, const Arguments& scale,
                 const Rounding& rounding) const override {
    definition_.reference(typed(exact), typed(scale), rounding);
  }
  void intermediates(const Arguments& exact, const Rounding& rounding,
                     const EmitArray& emit) const override {
    definition_.intermediates(typed(exact), rounding, emit);
  }

 private:
  static const Args& typed(const Arguments& args) { return *static_cast<const Args*>(args.get()); }

  const Definition<Args, Problem>& definition_;
};

}  // namespace isobit
