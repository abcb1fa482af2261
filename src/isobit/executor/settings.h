// SPDX-License-Identifier: Apache-2.0
// The environment's ISOBIT_EXECUTOR says how, as "order=random,seed=7,resident=4":
//   order            in_order, reversed, random, starving: which warp runs next
//   seed             of the random orders
//   resident         blocks in flight
//   early            1: copies beside the threads land as they begin; 0: as late as they may
//   sm               the GPU that plans are made for, such as 80 or 90
//   multiprocessors  that it has
//   instructions     of warps, after which a launch counts as endless
//   approximation    of machine code: added to the last bits of what MUFU gives, such as 1 or -1
//   long_divisions   1: of machine code: no division goes the short way
//   counters         a file, which gets a line of JSON for each kernel as the process ends
#pragma once

#include <string>

#include "isobit/executor/launch.h"

namespace isobit::executor {

struct Settings {
  Schedule schedule;
  Limits limits;
  int multiprocessors = 2;
  std::string counters;
  std::string wrong;  // what is no setting; then there is no device
};

// Read once.
const Settings& settings();

}  // namespace isobit::executor
