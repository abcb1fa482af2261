// SPDX-License-Identifier: Apache-2.0
// The operators' Triton versions, which a Python process runs: on a GPU, or else by Triton's
// interpreter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "isobit/lab/python.h"
#include "isobit/lab/temporary_folder.h"
#include "isobit/lab/timing.h"
#include "isobit/lab/workload.h"

namespace isobit::lab {

inline constexpr std::string_view kTriton = "triton";  // beside the library's devices

// The extent of a dim unless one is given: Triton's interpreter takes a tenth of a second for a
// row.
inline std::int64_t small_extent(const Dim& dim) {
  return dim.batch ? 3 : std::min<std::int64_t>(dim.in_parity, 600);
}

inline bool in_triton(const VariantInfo& info) { return info.elsewhere == kTriton; }

class Triton {
 public:
  // What a variant makes of a workload.
  struct Support {
    std::string declines;  // why it does; empty where it takes it
    Plan plan{};           // its own
  };

  // For the rest of the process, before the first call of here(): Triton compiles kernels for
  // sm_90, and this library, an executor of PTX, executes them.
  static void execute_by(std::string library);
  // Starts Python at the first call. Unsupported says what is missing, and what to do.
  static Triton& here();
  // Null where something is missing, which is then said in `why`.
  static Triton* find(std::string& why);

  // "interpreter", "ptx", or a GPU's name
  const std::string& executor() const { return executor_; }
  const std::string& version() const { return version_; }
  std::string text() const;  // "3.7.1, in its interpreter"
  bool interprets() const { return executor_ == "interpreter"; }

  // Throws Unsupported where an operator has none.
  std::vector<VariantInfo> variants(const Operation& operation) const;
  bool has_variants(const Operation& operation) const;
  bool knows(std::string_view op) const;  // whether any pass of it has variants
  // Of each variant, in the same order.
  std::vector<Support> support(const Workload& workload);

  // On the workload's arrays as they are, and whatever surrounds them.
  void run(const Workload& workload, const VariantInfo& info, const Plan& plan);
  // What the executor counted since it was asked last: an object for each kernel.
  std::vector<Json> take_counters();
  // On copies of the arrays, each with so many rounds. The last is a copy of as many bytes.
  std::vector<Times> time_interleaved(const Workload& workload,
                                      const std::vector<Configuration>& configurations,
                                      double copied_bytes, int rounds);

 private:
  struct Variant {
    std::string op, pass, name;
    std::deque<std::string> words;
    std::deque<std::vector<int>> values;
    std::vector<Knob> knobs;
  };

  explicit Triton(const std::vector<std::string>& arguments);
  Json ask(const Json& question);
  Json to_files(const Workload& workload) const;
  void from_files(const Workload& workload) const;

  TemporaryFolder folder_;
  PythonDialogue python_;
  std::string version_, executor_;
  std::deque<Variant> variants_;
};

}  // namespace isobit::lab
