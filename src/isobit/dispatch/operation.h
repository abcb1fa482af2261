// SPDX-License-Identifier: Apache-2.0
// One pass of an operator, without its types: what the lab, the generic tests and the call by name
// work with.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isobit/core/case.h"
#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"
#include "isobit/dispatch/description.h"
#include "isobit/dispatch/plan.h"
#include "isobit/dispatch/variant.h"

namespace isobit {

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
  Bits bits = Bits::canonical;
  std::string_view elsewhere = {};  // who has it, where that is none of the library's devices
  bool each_isa = false;

  std::string_view place() const { return elsewhere.empty() ? name_of(device) : elsewhere; }
  // Whether `selector` names this variant: "all", the place, or a run of its name's parts.
  bool matches(std::string_view selector) const;
  // Every selector that names it but "all".
  std::vector<std::string> selectors() const;
  // Whether its kernels are compiled for each instruction set: it says so, or has the part "simd".
  bool has_instruction_sets() const { return each_isa || matches("simd"); }
};

// How a call is computed.
struct Choice {
  int variant;
  Plan plan;
};

class Operation {
 public:
  // Throws std::logic_error for a description that contradicts itself.
  Operation(std::string_view op, std::string_view pass, std::string_view summary, int version,
            std::span<const Dim> dims, std::span<const Argument> arguments,
            std::span<const Option> options);
  virtual ~Operation() = default;

  const std::string_view op, pass;
  const std::string_view summary;  // what it computes, for the generated headers
  // Of the definition of its results: with the same number two builds give the same bits.
  const int version;
  const std::span<const Dim> dims;
  const std::span<const Argument> arguments;
  const std::span<const Option> options;

  const Argument* find(std::string_view name) const;
  const Option* find_option(std::string_view name) const;
  // "layernorm backward", as messages name it.
  const std::string& title() const { return title_; }

  // The argument's dims as places in `dims`.
  std::span<const int> dims_of(const Argument& argument) const;
  // The place of the batch dim in `dims`; -1 where there is none.
  int batch() const { return batch_; }
  bool has_batch(const Argument& argument) const;
  // Computes the dims that others determine, with the options of args.
  void derive(Extents& extents, const Arguments& args) const;

  virtual Arguments make_arguments() const = 0;
  virtual std::vector<VariantInfo> variants() const = 0;

  // Throws InvalidArgument for a call that breaks a rule.
  virtual void check(const Arguments&) const = 0;
  // Checks, chooses and runs, as the operator's own function does.
  virtual void call(const Arguments&, const Execution&) const = 0;
  virtual Cost cost(const Arguments&) const = 0;
  virtual double limit(const Arguments&) const = 0;  // the largest C that passes
  // Whether results are the very bytes of inputs, NaNs of any kind too.
  virtual bool moves_bytes(const Arguments&) const = 0;
  virtual std::vector<CaseGrid> cases(std::string_view grid) const = 0;  // "quick", "test", ...
  // Of a call that passed its check.
  virtual Extents extents(const Arguments&) const = 0;

  virtual std::string declines(int variant, const Arguments&, const Machine&) const = 0;
  virtual Plan choose(int variant, const Arguments&, const Machine&) const = 0;
  virtual int default_variant(const Arguments&, const Machine&) const = 0;
  // What this machine's tuned plans say instead, if they know this call.
  virtual std::optional<Choice> tuned(const Arguments&, const Machine&) const = 0;
  virtual void run(int variant, const Plan&, const Arguments&, const Execution&) const = 0;

  // The reference works on arguments in double (quad beside types of 64 bits), whose elements are
  // adjacent: it writes the outputs of `exact` that have the batch dim and adds to the others, and
  // does the same in `scale` with the scale of each element's error.
  virtual void reference(const Arguments& exact, const Arguments& scale,
                         const Rounding& rounding) const = 0;
  // Every intermediate of the reference, for a call whose arguments are in double.
  virtual void intermediates(const Arguments& exact, const Rounding& rounding,
                             const EmitArray& emit) const = 0;

 private:
  std::string title_;
  std::vector<std::vector<int>> dims_of_;  // beside `arguments`
  int batch_ = -1;
};

}  // namespace isobit
