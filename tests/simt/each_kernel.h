// SPDX-License-Identifier: Apache-2.0
// A call by every kernel that takes it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isobit/dispatch/operation.h"
#include "simt/where.h"

namespace isobit::lab {

// Every kernel's variant by every value of its knob: visit(its name, name and value) after each
// run.
template <class Visit>
void for_each_kernel(const Operation& operation, const Arguments& args, const Execution& execution,
                     const Visit& visit) {
  const std::vector<VariantInfo> variants = operation.variants();
  for (int i = 0; i < static_cast<int>(variants.size()); ++i) {
    const VariantInfo& info = variants[static_cast<std::size_t>(i)];
    if (info.device != kDevice || !operation.declines(i, args, execution.machine).empty()) continue;
    Plan plan = operation.choose(i, args, execution.machine);
    const std::vector<int> values =
        info.knobs.empty()
            ? std::vector<int>{0}
            : std::vector<int>(info.knobs[0].values.begin(), info.knobs[0].values.end());
    for (const int value : values) {
      plan[0] = value;
      operation.run(i, plan, args, execution);
      visit(std::string(info.name), std::string(info.name) + ' ' + std::to_string(value));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace isobit::lab
