// SPDX-License-Identifier: Apache-2.0
// A case says what is computed, a configuration how: in every one a case gives the same bits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "isobit/core/machine.h"
#include "isobit/dispatch/operation.h"
#include "isobit/lab/array.h"

namespace isobit::lab {

using Json = nlohmann::ordered_json;

struct Case {
  const Operation* operation = nullptr;
  Extents extents{};  // in the order of the operation's dims
  Types types{DType::f32, DType::f32};
  std::map<std::string_view, double> options;  // by the names that the operation describes
  std::string input;                           // a family, or "files"
  std::uint64_t seed = 0;
  std::int64_t offset = 0;        // elements by which every array is misaligned
  std::int64_t row_stride = 0;    // elements; 0: rows are adjacent
  std::int64_t row_gap = 0;       // elements behind each row, however long; in place of a stride
  Layout layout = Layout::dense;  // of arguments with any strides
  std::string with = {};          // extra arguments, joined by '+'
  bool given_statistics = false;  // mean and rstd are inputs, where the operation takes them
  std::int64_t first = 0;         // which index of the batch dim comes first in the family

  // Of a dim that the operation has.
  std::int64_t& extent(std::string_view dim);
  std::int64_t extent(std::string_view dim) const;
  // Of the batch dim; 1 where there is none.
  std::int64_t batch() const;
  // Of this operation's dims, which may be another pass's than the case's.
  Extents extents_of(const Operation& other) const;
  Form form_of(const Argument& argument) const;
  std::int64_t longest_line() const;
  DType dtype_of(const Argument& argument) const;
  // Whether an extra argument is asked for.
  bool has(const Argument& argument) const;
  // What an index that is drawn is below, or a place at most; 0 for other arguments.
  std::int64_t bound_of(const Argument& argument) const;
  // Whether an argument has a part for each index of the batch dim. Where packed sequences have
  // keys in blocks, queries are in a batch of 1, and the batch is that of the sequences and the
  // blocks.
  bool has_batch(const Argument& argument) const;
  // Whether some indices of the batch dim are a case, too: not where what is packed lies one behind
  // the other, or an index of the batch names others.
  bool has_free_batch() const;
  friend auto operator<=>(const Case&, const Case&) = default;
};

// Who chose a configuration's plan: the variant itself, the stored plans of this machine, or the
// caller.
enum class PlanFrom { variant, cache, flag };
// Whether statistics are computed or given, by name.
inline constexpr std::string_view kStatistics[] = {"computed", "given"};

struct Configuration {
  int variant = 0;  // the operation's by number, and after them what others have
  VariantInfo info;
  Isa isa = Isa::scalar;
  int threads = 1;
  Plan plan{};
  PlanFrom plan_from = PlanFrom::variant;
};

// Whether it takes what another pass produces, or computes that itself.
bool takes_statistics(const Operation& operation);
inline bool is_given_statistic(const Argument& argument) {
  return argument.drawn == Drawn::produced && argument.presence != Presence::required;
}

// Whether an argument may have strides of any kind.
bool takes_any_strides(const Operation& operation);

// Sets the options of an operation's arguments, which may be another pass's than the case's, by
// name.
void set_options(const Operation& operation, const Case& c, const Arguments& args);

// The command line's flag for a name: "--zero-centered".
std::string flag_of(std::string_view name);

// An option's value as JSON: numbers as numbers, choices by name.
Json value_of(const Option& option, double value);

// Every flag's resolved value, by the flags' names.
Json describe(const Case& c);
Json describe(const Case& c, const Configuration& configuration);

// A plan's values by the names of the variant's knobs.
Json plan_json(const VariantInfo& info, const Plan& plan);

// "stream=1,rows=4"
std::string plan_text(const Configuration& configuration);

// "default", "cache" or "flag"
std::string_view name_of(PlanFrom from);

// "37 x 1000"
std::string extents_text(const Case& c);

// The choices among the options of a case, and its extra arguments: "add", "zero_centered
// residual".
std::string choices_text(const Case& c);

// The command that runs a case in one configuration again.
std::string command(std::string_view verb, const Case& c, const Configuration& configuration);

}  // namespace isobit::lab
