// SPDX-License-Identifier: Apache-2.0
// A case in memory: every argument's array, inputs drawn from the family, outputs poisoned,
// everything guarded.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isobit/core/execution.h"
#include "isobit/lab/array.h"
#include "isobit/lab/case.h"

namespace isobit::lab {

// The form that a case gives an argument, or nothing where the argument shall be absent.
using FormOf = std::function<std::optional<Form>(const Case&, const Argument&)>;

// Every argument.
std::optional<Form> any_argument(const Case& c, const Argument& argument);
// Every argument but the statistics that the case leaves to be computed.
std::optional<Form> case_argument(const Case& c, const Argument& argument);

class Workload {
 public:
  explicit Workload(const Case& c, const FormOf& form_of = case_argument);

  const Case& the_case() const { return case_; }
  const Operation& operation() const { return *case_.operation; }
  const Arguments& args() const { return args_; }
  // Null where the argument is absent.
  const Array* find(std::string_view name) const;
  // The outputs given, in the order of their description.
  std::vector<const Argument*> outputs() const;

  // Draws every input from the case's family, and seals them.
  void draw();
  // Remembers the inputs as they are.
  void seal();
  // Makes every output unwritten again.
  void poison() const;
  // What was damaged: an input since seal(), or memory beside an array since ever; empty where
  // nothing.
  std::string damage() const;

 private:
  void draw(const Argument& argument, const Array& array) const;

  Case case_;
  Arguments args_;
  std::vector<std::optional<Array>> arrays_;  // beside the operation's arguments
  std::vector<std::uint64_t> sealed_;
};

}  // namespace isobit::lab
