// SPDX-License-Identifier: Apache-2.0
// One call through the C interface, made by bytes: a right one, of which up to three things are
// then changed. Its arrays lie in heap blocks of exactly the promised size, so that a sanitizer
// sees what reaches beyond.
#pragma once

#include <string>
#include <vector>

#include "array.h"
#include "bytes.h"
#include "entries.h"

namespace isobit::fuzz {

struct Outcome {
  isobit_status status;
  std::string message;
  bool denied_memory;  // an allocation was made to fail
  bool kept_memory;    // workspace was not given back
};

class Call {
 public:
  using Block = std::vector<std::byte>;

  Call(const Entry& entry, Bytes& bytes);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const std::vector<Array>& arrays() const { return arrays_; }
  std::vector<Block>& blocks() { return blocks_; }
  // Whether the results are bytes of the inputs, NaNs of any kind too.
  bool moves_bytes() const;
  // Why the call must be refused whatever its arrays are; empty: nothing.
  std::string fault_beside_arrays() const;

  enum class Lent { chosen, other };  // threads and memory: as the bytes chose, or differently
  Outcome run(Lent lent);

 private:
  void make_right(Bytes& bytes);
  void change(Bytes& bytes);
  void place(Bytes& bytes);
  void fill(Bytes& bytes);
  std::int64_t numbers_at_the_end() const;
  std::int64_t left_out() const;
  void write_args(Bytes& bytes);

  const Entry& entry_;
  std::vector<Array> arrays_;
  std::vector<Block> blocks_;
  std::vector<std::byte> args_;

  // What is changed beside the arrays.
  bool no_args_ = false;
  bool strange_numbers_ = false;
  std::int64_t struct_size_error_ = 0;

  // What is lent.
  bool has_context_ = false;
  bool own_threads_ = false, own_memory_ = false;
  int allocations_ = 0;  // that succeed
  isobit_context context_ = {sizeof(isobit_context), 0, {}, {}, ISOBIT_CPU, nullptr};
};

}  // namespace isobit::fuzz
