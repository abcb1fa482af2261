// SPDX-License-Identifier: Apache-2.0
// The parts of an operation that need no types.
#include "isobit/dispatch/operation.h"

namespace isobit {

bool VariantInfo::matches(std::string_view selector) const {
  if (selector == "all") return true;
  const std::string full = "." + std::string(name_of(device)) + "." + std::string(name) + ".";
  return full.find("." + std::string(selector) + ".") != std::string::npos;
}

const Argument* Operation::find(std::string_view name) const {
  for (const Argument& argument : arguments)
    if (argument.name == name) return &argument;
  return nullptr;
}

}  // namespace isobit
