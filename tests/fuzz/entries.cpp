// SPDX-License-Identifier: Apache-2.0
// The table of entries. A test compares it with isobit.h.
#include "entries.h"

#include <algorithm>

#include "isobit/core/error.h"
#include "isobit/ops/catalog.h"

namespace isobit::fuzz {

std::vector<const Argument*> arguments(std::string_view op, std::string_view pass,
                                       std::string_view names) {
  const auto operation = std::ranges::find_if(
      catalog(), [&](const Operation* one) { return one->op == op && one->pass == pass; });
  require(operation != catalog().end(), "the catalog has no ", op, " ", pass);
  std::vector<const Argument*> result;
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = std::min(names.find(' ', begin), names.size());
    result.push_back((*operation)->find(names.substr(begin, end - begin)));
    require(result.back() != nullptr, op, " ", pass, " has no argument ",
            names.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

std::span<const Entry> entries() {
  static const Entry kEntries[] = {
#include "entries.inc"
  };
  return kEntries;
}

const Operation& operation_of(const Entry& entry) {
  return **std::ranges::find_if(catalog(), [&](const Operation* operation) {
    return operation->find(entry.arrays.front()->name) == entry.arrays.front();
  });
}

}  // namespace isobit::fuzz
