// SPDX-License-Identifier: Apache-2.0
// The flags that all commands share, and the cases that they stand for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "isobit/lab/case.h"

namespace isobit::lab {

// As they were written; what is empty was not given.
struct Flags {
  std::vector<std::string> ops;
  bool all = false;
  std::vector<std::string> pass, variant, device, isa, dtype, weight_dtype, y_dtype, input, plan;
  std::vector<std::string> with, statistics;
  std::map<std::string, std::vector<std::int64_t>, std::less<>> dims;  // --rows, --cols, ...
  std::vector<std::int64_t> offset, row_stride;
  std::vector<std::string> layout;
  std::vector<std::uint64_t> seed;
  std::vector<int> threads;
  std::map<std::string, std::vector<std::string>, std::less<>> options;  // --eps, --kind, ...
  std::string grid;
  std::vector<std::string> in;       // NAME=FILE
  std::vector<std::string> without;  // arguments that are left out
  std::filesystem::path out;
  bool json = false, quick = false, dump = false, print = false, dry_run = false, clear = false,
       report = false;
};

// Whether the flags mean one operator, which then must know every name in them.
bool one_operator(const Flags& flags);

// Of the name of one side, as kernel_h or stride_w, that of the flag for both; of others none.
std::string_view flag_for_both_sides(std::string_view name);

// The flags with an extent for each dim of an operation that they leave open.
Flags with_extents(const Operation& operation, Flags flags, std::int64_t (*extent_of)(const Dim&));

// The operations that the names and passes select; all where none is named.
std::vector<const Operation*> operations_of(const Flags& flags);

// Every combination of the flags. Where no flag says what to compute, the operation's grid of that
// name.
std::vector<Case> cases_of(const Operation& operation, const Flags& flags, std::string_view grid);

// Reads a number out of a flag: a double, or a whole number of T.
template <class T>
T number(std::string_view flag, std::string_view text);

template <class T>
bool contains(const auto& list, const T& value) {
  return std::find(std::begin(list), std::end(list), value) != std::end(list);
}

}  // namespace isobit::lab
