// SPDX-License-Identifier: Apache-2.0
// The built command line for tests: what it prints, its exit status, and a folder for its files.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "isobit/lab/case.h"
#include "isobit/lab/npy.h"

namespace isobit::lab {

struct Outcome {
  int status;
  std::string text;

  std::vector<Json> lines() const {
    std::vector<Json> objects;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) objects.push_back(Json::parse(line));
    return objects;
  }
};

inline Outcome shell(const std::string& command) {
  Outcome outcome{};
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.text.append(buffer, n);
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

inline Outcome isobit(const std::string& arguments) {
  return shell(std::string(ISOBIT_BINARY) + " " + arguments + " 2>/dev/null");
}

// What it says on stderr when it is called wrongly.
inline std::string complaint(const std::string& arguments, int status = 2) {
  const Outcome outcome = shell(std::string(ISOBIT_BINARY) + " " + arguments + " 2>&1 >/dev/null");
  EXPECT_EQ(outcome.status, status) << arguments;
  return outcome.text;
}

class Lab : public testing::Test {
 protected:
  Lab() {
    std::filesystem::create_directories(folder_);
    setenv("ISOBIT_PYTHON", "true", 1);  // quick, and says nothing
  }
  ~Lab() override {
    unsetenv("ISOBIT_PYTHON");
    std::filesystem::remove_all(folder_);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void write(const std::string& name, std::vector<std::int64_t> shape, float first) const {
    NpyArray array{DType::f32, std::move(shape), {}};
    array.data.resize(static_cast<std::size_t>(array.elements()) * sizeof(float));
    auto* values = reinterpret_cast<float*>(array.data.data());
    for (std::int64_t i = 0; i < array.elements(); ++i)
      values[i] = first + std::sin(static_cast<float>(i));
    write_npy(folder_ / (name + ".npy"), array);
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("isobit_lab_test_" + std::to_string(getpid()));
};

}  // namespace isobit::lab
