// SPDX-License-Identifier: Apache-2.0
// Calls out of a file that the C interface recorded (docs/recordings.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "isobit/core/dtype.h"
#include "isobit/dispatch/operation.h"
#include "isobit/dispatch/recording.h"

namespace isobit::lab {

struct RecordedOption {
  const Option* option;
  recording::Value kind;
  std::uint64_t bits;  // of a double or a whole number
};

struct RecordedArray {
  const Argument* argument;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;  // of an input, in row-major order
  std::uint64_t hash = 0;       // of an output
};

struct RecordedCall {
  const Operation* operation;
  std::vector<RecordedOption> options;
  std::vector<RecordedArray> arrays;
};

// Reads one call after the other. Throws InvalidArgument for a file that is none, that was cut off
// or damaged, or that holds what this library does not know.
class Recorded {
 public:
  explicit Recorded(std::filesystem::path path);
  // Nothing behind the last call.
  std::optional<RecordedCall> next();
  // Calls on a GPU that the recorder left out; known once there is nothing more.
  std::uint64_t left_out() const { return left_out_; }

 private:
  struct Part {
    recording::Part kind;
    std::vector<std::byte> bytes;
  };

  [[noreturn]] void refuse(const std::string& what) const;
  Part next_part();
  template <class Number>
  Number number();
  std::vector<std::byte> bytes(std::uint64_t count);

  std::filesystem::path path_;
  std::ifstream file_;
  std::uint64_t size_ = 0, at_ = 0, calls_ = 0, left_out_ = 0;
};

}  // namespace isobit::lab
