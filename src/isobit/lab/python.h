// SPDX-License-Identifier: Apache-2.0
// Runs the project's Python: what draws reports, and what computes in Python's ways.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "isobit/lab/case.h"

namespace isobit::lab {

struct PythonRun {
  std::vector<Json> said;  // the objects among the lines of its standard output
  std::string trouble;     // how it ended where it did not end well
};

// Runs Python with these arguments and the project's modules on its path, for at most so long.
PythonRun run_python(const std::vector<std::string>& arguments, std::chrono::milliseconds limit);

// Whatever Isobit does in Python takes less; starting PyTorch and its compiler takes ten seconds.
inline constexpr std::chrono::seconds kPythonLimit{120};

}  // namespace isobit::lab
