// SPDX-License-Identifier: Apache-2.0
// Whether a run was right: every output near the reference, and nothing else in memory touched.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "isobit/lab/reference.h"

namespace isobit::lab {

struct Verdict {
  struct Output {
    const Argument* argument;
    Deviation deviation;
    std::string bits;
    std::vector<std::int64_t> extents;
  };
  std::vector<Output> outputs;
  double limit = 0;  // the largest C that passes
  std::string damage;

  bool passed() const;
  Json outputs_json() const;  // {NAME: {C, max_abs, max_ulp, bits}}
  // One line for each thing that is wrong.
  std::string complaints() const;
};

// Judges runs over one workload. The reference is computed once for each set of bits that is met,
// so the many configurations that agree cost one reference.
class Judge {
 public:
  explicit Judge(const Workload& workload) : workload_(workload) {}
  Verdict operator()();

 private:
  const Workload& workload_;
  std::map<std::vector<std::string>, std::vector<Comparison>> known_;
};

// A hash of each output.
std::vector<std::string> output_bits(const Workload& workload);
// The same as the library's default variant has them. Overwrites the outputs.
std::vector<std::string> canonical_bits(const Workload& workload);

}  // namespace isobit::lab
