// SPDX-License-Identifier: Apache-2.0
// The definition of one pass of an operator, with its types, and the one way through it:
// check, choose, take workspace, run.
#pragma once

#include <cstdint>

#include "isobit/core/error.h"
#include "isobit/dispatch/operation.h"
#include "isobit/dispatch/plan_cache.h"
#include "isobit/dispatch/variant.h"

namespace isobit {

template <class Args, class Problem>
struct Definition {
  std::string_view op, pass;
  std::span<const Argument> arguments;
  std::span<const Option> options;
  Problem (*check)(const Args&);
  std::span<const Variant<Args, Problem>> variants;  // the first that suits is the default
  Cost (*cost)(const Args&);
  std::vector<CaseGrid> (*cases)(std::string_view grid);
  void (*reference)(const Args& exact, const Args& scale, const Rounding& rounding);
  void (*intermediates)(const Args& exact, const Rounding& rounding, const EmitArray& emit);
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
int default_variant(const Definition<Args, Problem>& definition, const Problem& problem,
                    const Machine& machine) {
  for (std::size_t i = 0; i < definition.variants.size(); ++i) {
    const auto& variant = definition.variants[i];
    if (variant.suits(problem, machine) && variant.declines(problem, machine).empty())
      return static_cast<int>(i);
  }
  std::string reasons;
  for (const auto& variant : definition.variants)
    reasons += text("\n  ", variant.name, ": ", variant.declines(problem, machine));
  throw Unsupported(text(definition.op, ": no variant can run this call", reasons));
}

// A stored plan may be older than the library: whatever does not fit any more is as if it were not
// there. Out of line: most processes have none.
template <class Args, class Problem>
[[gnu::noinline]] std::optional<Choice> tuned(const Definition<Args, Problem>& definition,
                                              const PlanTable& plans, const Args& args,
                                              const Problem& problem, const Machine& machine) {
  const TunedPlan* found = plans.find(plan_key(definition.op, definition.pass, definition.arguments,
                                               definition.options, &args, machine));
  if (found == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < definition.variants.size(); ++i) {
    const auto& variant = definition.variants[i];
    if (variant.name != found->variant) continue;
    const std::optional<Plan> plan = allowed_plan(*found, variant.knobs);
    if (!plan || !variant.declines(problem, machine).empty()) return std::nullopt;
    return Choice{static_cast<int>(i), *plan};
  }
  return std::nullopt;
}

template <class Args, class Problem>
Choice choose(const Definition<Args, Problem>& definition, const Args& args, const Problem& problem,
              const Machine& machine) {
  if (const PlanTable& plans = tuned_plans(); !plans.empty())
    if (const auto found = tuned(definition, plans, args, problem, machine)) return *found;
  const int variant = default_variant(definition, problem, machine);
  return {variant, definition.variants[variant].choose(problem, machine)};
}

}  // namespace detail

// What the operators' public functions call.
template <class Args, class Problem>
void run(const Definition<Args, Problem>& definition, const Args& args,
         const Execution& execution) {
  const Problem problem = definition.check(args);
  const Choice choice = detail::choose(definition, args, problem, execution.machine);
  detail::run(definition.variants[choice.variant], choice.plan, args, problem, execution);
}

// A definition seen without its types.
template <class Args, class Problem>
class TypedOperation final : public Operation {
 public:
  explicit TypedOperation(const Definition<Args, Problem>& definition)
      : Operation(definition.op, definition.pass, definition.arguments, definition.options),
        definition_(definition) {}

  Arguments make_arguments() const override { return Arguments(std::make_shared<Args>()); }

  std::vector<VariantInfo> variants() const override {
    std::vector<VariantInfo> infos;
    for (const auto& variant : definition_.variants)
      infos.push_back({variant.name, variant.device, variant.knobs});
    return infos;
  }

  void check(const Arguments& args) const override { definition_.check(typed(args)); }
  Cost cost(const Arguments& args) const override { return definition_.cost(typed(args)); }
  std::vector<CaseGrid> cases(std::string_view grid) const override {
    return definition_.cases(grid);
  }

  std::string declines(int variant, const Arguments& args, const Machine& machine) const override {
    return definition_.variants[variant].declines(definition_.check(typed(args)), machine);
  }
  Plan choose(int variant, const Arguments& args, const Machine& machine) const override {
    return definition_.variants[variant].choose(definition_.check(typed(args)), machine);
  }
  int default_variant(const Arguments& args, const Machine& machine) const override {
    return detail::default_variant(definition_, definition_.check(typed(args)), machine);
  }
  std::optional<Choice> tuned(const Arguments& args, const Machine& machine) const override {
    return detail::tuned(definition_, tuned_plans(), typed(args), definition_.check(typed(args)),
                         machine);
  }
  void run(int variant, const Plan& plan, const Arguments& args,
           const Execution& execution) const override {
    detail::run(definition_.variants[variant], plan, typed(args), definition_.check(typed(args)),
                execution);
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
