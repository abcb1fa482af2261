// SPDX-License-Identifier: Apache-2.0
// Finds Python, starts it without a shell, and waits for it no longer than it is worth;
// `isobit report` is a module of it.
#include "isobit/lab/python.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "isobit/lab/commands.h"
#include "isobit/lab/program_folder.h"
#include "isobit/lab/usage.h"

extern char** environ;

namespace isobit::lab {
namespace {

// How long a program may take that has no more to do.
constexpr std::chrono::seconds kFarewell{5};

std::string program() {
  if (const char* chosen = std::getenv("ISOBIT_PYTHON")) return chosen;
  if (const auto root = checkout(); root && std::filesystem::exists(*root / ".venv/bin/python"))
    return *root / ".venv/bin/python";
  return "python3";
}

std::string no_python() {
  return fmt::format("no Python at {}; {}set ISOBIT_PYTHON to one", program(),
                     checkout() ? "run `make build` to create .venv, or " : "");
}

// The checkout's modules, before those that the user has put there. Without a checkout, the user's.
const std::string& module_path() {
  static const std::string path = [] {
    const char* variable = std::getenv("PYTHONPATH");
    const std::string given = variable != nullptr ? variable : "";
    if (!checkout()) return given;
    const std::string own = *checkout() / "python";
    return given.empty() ? own : fmt::format("{}:{}", own, given);
  }();
  return path;
}

// What Python reads and says goes where `redirect` lets it go, else to the lab's own streams.
// Nothing where there is no Python.
using Redirect = std::function<void(posix_spawn_file_actions_t*)>;

std::optional<pid_t> start(std::vector<std::string> words, const Redirect& redirect) {
  setenv("PYTHONPATH", module_path().c_str(), 1);
  words.insert(words.begin(), program());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::unique_ptr<posix_spawn_file_actions_t, int (*)(posix_spawn_file_actions_t*)> owner(
      &actions, posix_spawn_file_actions_destroy);
  redirect(&actions);

  pid_t child = 0;
  if (posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ) != 0)
    return std::nullopt;
  return child;
}

void to_file(posix_spawn_file_actions_t* actions, int stream, const std::filesystem::path& file) {
  posix_spawn_file_actions_addopen(actions, stream, file.c_str(), O_WRONLY | O_CREAT, 0600);
}

// How it ended, as waitpid tells it; nothing where its time ran out.
std::optional<int> wait(pid_t child, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return std::nullopt;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return status;
}

std::vector<Json> objects_in(const std::filesystem::path& file) {
  std::vector<Json> objects;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (Json json = Json::parse(line, nullptr, false); json.is_object())
      objects.push_back(std::move(json));
  return objects;
}

std::string last_line(const std::filesystem::path& file) {
  std::string last;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) last = line;
  return last;
}

// What a child's status is where its program could not be started after all.
bool not_started(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 127; }

std::string trouble_of(int status, const std::filesystem::path& complaints) {
  if (WIFSIGNALED(status))
    return fmt::format("Python was killed by signal {} ({})", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  if (not_started(status)) return no_python();
  if (WEXITSTATUS(status) == 0) return "";
  const std::string last = last_line(complaints);
  return fmt::format("Python exited with status {}{}{}", WEXITSTATUS(status),
                     last.empty() ? "" : ": ", last);
}

}  // namespace

PythonRun run_python(const std::vector<std::string>& arguments, std::chrono::milliseconds limit) {
  const TemporaryFolder folder;
  const auto output = folder.path() / "output", complaints = folder.path() / "complaints";
  const std::optional<pid_t> child = start(arguments, [&](posix_spawn_file_actions_t* actions) {
    to_file(actions, STDOUT_FILENO, output);
    to_file(actions, STDERR_FILENO, complaints);
  });
  if (!child) return {{}, no_python()};
  const std::optional<int> status = wait(*child, limit);
  return {objects_in(output),
          status ? trouble_of(*status, complaints)
                 : fmt::format("Python timed out after {} s", limit.count() / 1000.0)};
}

PythonDialogue::PythonDialogue(const std::vector<std::string>& arguments) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  socket_ = ends[0];
  const std::optional<pid_t> child = start(arguments, [&](posix_spawn_file_actions_t* actions) {
    posix_spawn_file_actions_adddup2(actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(actions, ends[1], STDOUT_FILENO);
    to_file(actions, STDERR_FILENO, folder_.path() / "complaints");
  });
  close(ends[1]);
  child_ = child.value_or(0);
  if (child_ != 0) return;
  close(socket_);
  throw std::runtime_error(no_python());
}

PythonDialogue::~PythonDialogue() {
  close(socket_);  // which ends it
  if (child_ != 0) wait(child_, kFarewell);
}

Json PythonDialogue::ask(const Json& question) {
  const std::string line = question.dump() + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t count = send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0) ended();
    sent += static_cast<std::size_t>(count);
  }
  std::size_t end = heard_.find('\n');
  while (end == std::string::npos) {
    char buffer[4096];
    const ssize_t count = recv(socket_, buffer, sizeof buffer, 0);
    if (count <= 0) ended();
    heard_.append(buffer, static_cast<std::size_t>(count));
    end = heard_.find('\n');
  }
  Json answer = Json::parse(heard_.substr(0, end), nullptr, false);
  if (!answer.is_object())
    throw std::runtime_error("Python's answer is not a JSON object: " + heard_.substr(0, end));
  heard_.erase(0, end + 1);
  return answer;
}

void PythonDialogue::ended() {
  const std::optional<int> status = child_ != 0 ? wait(child_, kFarewell) : std::nullopt;
  child_ = 0;
  const std::string how = status ? trouble_of(*status, folder_.path() / "complaints") : "";
  throw std::runtime_error(how.empty() ? "Python exited without an answer" : how);
}

int report(const Flags& flags) {
  if (!std::filesystem::is_directory(flags.out))
    throw UsageError("no folder " + flags.out.string());
  const std::optional<pid_t> child =
      start({"-m", "isobit.lab.report", flags.out.string()}, [](auto) {});
  int status = 0;
  if (child) waitpid(*child, &status, 0);
  if (!child || not_started(status)) throw std::runtime_error(no_python());
  if (status != 0)
    throw std::runtime_error("the report failed; run `isobit doctor` to see what is missing");
  return kPassed;
}

}  // namespace isobit::lab
