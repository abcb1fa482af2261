// SPDX-License-Identifier: Apache-2.0
// What all launches of a kernel did.
#pragma once

#include <cstdint>
#include <string>

#include "isobit/executor/counters.h"
#include "isobit/executor/launch.h"

namespace isobit::executor {

struct Total {
  Counters counters;
  std::uint64_t launches = 0, blocks = 0;
  int registers = 0;
  LaunchShape shape;  // of the last launch
};

// A kernel's name without what a linker needs of it.
std::string readable(const std::string& name);
// A line of JSON.
std::string json(const std::string& name, const Total& total);

}  // namespace isobit::executor
