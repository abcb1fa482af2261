// SPDX-License-Identifier: Apache-2.0
// The parts of an operation that need no types.
#include "isobit/dispatch/operation.h"

#include "isobit/core/error.h"

namespace isobit {

bool VariantInfo::matches(std::string_view selector) const {
  if (selector == "all") return true;
  const std::string full = text('.', place(), '.', name, '.');
  return full.find(text('.', selector, '.')) != std::string::npos;
}

std::vector<std::string> VariantInfo::selectors() const {
  std::string full(place());
  full += '.';
  full += name;
  std::vector<std::string> runs;
  for (std::size_t begin = 0; begin != std::string::npos;) {
    for (std::size_t end = begin; end != std::string::npos;) {
      end = full.find('.', end + 1);
      runs.push_back(full.substr(begin, end - begin));
    }
    begin = full.find('.', begin);
    if (begin != std::string::npos) ++begin;
  }
  return runs;
}

const Argument* Operation::find(std::string_view name) const {
  for (const Argument& argument : arguments)
    if (argument.name == name) return &argument;
  return nullptr;
}

}  // namespace isobit
