// SPDX-License-Identifier: Apache-2.0
// Runs the project's Python: what draws reports, and what computes through Python.
#pragma once

#include <sys/types.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "isobit/lab/case.h"
#include "isobit/lab/temporary_folder.h"

namespace isobit::lab {

struct PythonRun {
  std::vector<Json> said;  // the objects among the lines of its standard output
  std::string trouble;     // how it ended where it did not end well
};

// Runs Python with these arguments and the project's modules on its path, for at most so long.
PythonRun run_python(const std::vector<std::string>& arguments, std::chrono::milliseconds limit);

// Whatever Isobit does in Python takes less; starting PyTorch and its compiler takes ten seconds.
inline constexpr std::chrono::seconds kPythonLimit{120};

// A Python program that is asked again and again: it reads lines of JSON, and answers each with
// one, however long that takes.
class PythonDialogue {
 public:
  // Throws std::runtime_error where there is no Python.
  explicit PythonDialogue(const std::vector<std::string>& arguments);
  ~PythonDialogue();
  PythonDialogue(const PythonDialogue&) = delete;
  PythonDialogue& operator=(const PythonDialogue&) = delete;

  // Throws std::runtime_error where it ends instead of answering, and says how.
  Json ask(const Json& question);

 private:
  [[noreturn]] void ended();

  TemporaryFolder folder_;  // for what it complains of
  pid_t child_ = 0;
  int socket_ = -1;
  std::string heard_;  // and not yet taken for an answer
};

}  // namespace isobit::lab
