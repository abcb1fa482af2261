// SPDX-License-Identifier: Apache-2.0
// Finds Python and starts it without a shell; `isobit report` is a module of it.
#include "isobit/lab/python.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "isobit/lab/commands.h"
#include "isobit/lab/usage.h"

extern char** environ;

namespace isobit::lab {

std::string python_path() {
  if (const char* chosen = std::getenv("ISOBIT_PYTHON")) return chosen;
  return std::filesystem::exists(ISOBIT_PYTHON) ? ISOBIT_PYTHON : "python3";
}

int python(const std::vector<std::string>& arguments, Output output) {
  setenv("PYTHONPATH", ISOBIT_PYTHON_PATH, 1);
  std::string program = python_path();
  std::vector<std::string> words = arguments;
  std::vector<char*> argv = {program.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::unique_ptr<posix_spawn_file_actions_t, int (*)(posix_spawn_file_actions_t*)> owner(
      &actions, posix_spawn_file_actions_destroy);
  if (output == Output::hidden)
    for (int stream : {1, 2})
      posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_WRONLY, 0);

  pid_t child = 0;
  if (posix_spawnp(&child, program.c_str(), &actions, nullptr, argv.data(), environ) != 0)
    return 127;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int report(const Flags& flags) {
  if (!std::filesystem::is_directory(flags.out))
    throw UsageError("no folder " + flags.out.string());
  const int status = python({"-m", "isobit.report", flags.out.string()}, Output::shown);
  if (status == 127)
    throw std::runtime_error("no Python at " + python_path() +
                             "; `make build` makes .venv, or set ISOBIT_PYTHON");
  if (status != 0)
    throw std::runtime_error("the report failed; `isobit doctor` says what Python lacks");
  return kPassed;
}

}  // namespace isobit::lab
