// SPDX-License-Identifier: Apache-2.0
// Isobit as others call it: the same case from C and from Python.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "isobit/lab/workload.h"

namespace isobit::lab {

// XXH3-64 of outputs, by name.
using Hashes = std::map<std::string, std::string, std::less<>>;

// The outputs of a call from one of them, or why there are none.
struct Called {
  std::string configuration;
  Hashes outputs = {};
  std::string declined = {};
};

// On so many threads; 0 is the caller's own number. Both overwrite the workload's outputs.
Called call_from_c(const Workload& workload, int threads);
// NumPy, PyTorch eager and compiled, in one process.
std::vector<Called> call_from_python(const Workload& workload, int threads);

}  // namespace isobit::lab
