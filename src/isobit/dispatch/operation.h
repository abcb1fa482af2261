// SPDX-License-Identifier: Apache-2.0
// One pass of an operator, without its types: what the lab, the generic tests and the C ABI work
// with.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "isobit/core/case.h"
#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"
#include "isobit/dispatch/plan.h"

namespace isobit {

enum class Role { input, output };
enum class Extent { matrix, row_vector, row_statistic };  // rows x cols, cols, rows
enum class Elements {
  like_x,
  like_weight,
  like_y,
  statistic
};  // statistic: f32, or f64 beside f64
enum class Presence { required, optional, extra };  // extra: optional, and unusual

// One array argument. `view` finds it in the operator's own argument struct.
struct Argument {
  std::string_view name;
  Role role;
  Extent extent;
  Elements elements;
  Presence presence;
  TensorView& (*view)(void* args);
  bool (*applies)(const void* args) = nullptr;  // whether these options use it; null: always
};

// One number or choice beside the arrays.
struct Option {
  std::string_view name;
  double fallback;
  std::span<const std::string_view> choices;  // the value is an index into them; empty: a number
  double (*get)(const void* args);
  void (*set)(void* args, double value);
  bool adds_work = false;  // a number: whether there is more to do where it is not 0
  bool whole = false;      // a number: whether it is an integer, which is below 2^53 then
};

namespace detail {

template <class Class, class Member>
Class class_of(Member Class::*);
template <class Class, class Member>
Member member_of(Member Class::*);

}  // namespace detail

template <auto Member>
constexpr Argument argument(std::string_view name, Role role, Extent extent, Elements elements,
                            Presence presence, bool (*applies)(const void* args) = nullptr) {
  using Args = decltype(detail::class_of(Member));
  return {name,     role,
          extent,   elements,
          presence, [](void* args) -> TensorView& { return static_cast<Args*>(args)->*Member; },
          applies};
}

template <auto Member>
constexpr Option option(std::string_view name, double fallback,
                        std::span<const std::string_view> choices = {}, bool adds_work = false) {
  using Args = decltype(detail::class_of(Member));
  using Value = decltype(detail::member_of(Member));
  return {
      name,
      fallback,
      choices,
      [](const void* args) { return static_cast<double>(static_cast<const Args*>(args)->*Member); },
      [](void* args, double value) {
        static_cast<Args*>(args)->*Member = static_cast<Value>(value);
      },
      adds_work,
      std::is_integral_v<Value> && choices.empty()};
}

// The argument struct of an operator, owned without knowing its type.
class Arguments {
 public:
  explicit Arguments(std::shared_ptr<void> args) : args_(std::move(args)) {}
  void* get() const { return args_.get(); }
  TensorView& operator[](const Argument& argument) const { return argument.view(args_.get()); }
  bool applies(const Argument& argument) const {
    return argument.applies == nullptr || argument.applies(args_.get());
  }

 private:
  std::shared_ptr<void> args_;
};

struct VariantInfo {
  std::string_view name;
  Device device;
  std::span<const Knob> knobs;
  std::string_view elsewhere = {};  // who has it, where that is none of the library's devices

  std::string_view place() const { return elsewhere.empty() ? name_of(device) : elsewhere; }
  // Whether `selector` names this variant: "all", the place, or a run of its name's parts.
  bool matches(std::string_view selector) const;
  // Every selector that names it but "all".
  std::vector<std::string> selectors() const;
  // Whether its kernels are compiled for each instruction set: what is, has the part "simd".
  bool has_instruction_sets() const { return matches("simd"); }
};

// How a call is computed.
struct Choice {
  int variant;
  Plan plan;
};

class Operation {
 public:
  Operation(std::string_view op, std::string_view pass, std::span<const Argument> arguments,
            std::span<const Option> options)
      : op(op), pass(pass), arguments(arguments), options(options) {}
  virtual ~Operation() = default;

  const std::string_view op, pass;
  const std::span<const Argument> arguments;
  const std::span<const Option> options;

  const Argument* find(std::string_view name) const;

  virtual Arguments make_arguments() const = 0;
  virtual std::vector<VariantInfo> variants() const = 0;

  // Throws InvalidArgument for a call that breaks a rule.
  virtual void check(const Arguments&) const = 0;
  virtual Cost cost(const Arguments&) const = 0;
  virtual std::vector<CaseGrid> cases(std::string_view grid) const = 0;  // "quick", "test", ...

  virtual std::string declines(int variant, const Arguments&, const Machine&) const = 0;
  virtual Plan choose(int variant, const Arguments&, const Machine&) const = 0;
  virtual int default_variant(const Arguments&, const Machine&) const = 0;
  // What this machine's tuned plans say instead, if they know this call.
  virtual std::optional<Choice> tuned(const Arguments&, const Machine&) const = 0;
  virtual void run(int variant, const Plan&, const Arguments&, const Execution&) const = 0;

  // The reference works on arguments in double (quad for f64): it writes the row outputs of `exact`
  // and adds to its column outputs, and does the same in `scale` with the scale of each element's
  // error.
  virtual void reference(const Arguments& exact, const Arguments& scale,
                         const Rounding& rounding) const = 0;
  // Every intermediate of the reference, for a call whose arguments are in double.
  virtual void intermediates(const Arguments& exact, const Rounding& rounding,
                             const EmitArray& emit) const = 0;
};

}  // namespace isobit
