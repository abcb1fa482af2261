// SPDX-License-Identifier: Apache-2.0
// The ways to compute a workload that flags select, and running one.
#pragma once

#include <string>
#include <vector>

#include "isobit/core/execution.h"
#include "isobit/lab/race.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/workload.h"

namespace isobit::lab {

// Which variants run where none is named.
enum class Unnamed { all, best };

struct Declined {
  Way way;
  std::string reason;
};

struct Ways {
  std::vector<Way> able;
  std::vector<Declined> declined;  // selected, yet they cannot run

  std::string reasons() const;  // a line for each that declined
};

// Refuses the name of a device that is none.
void require_devices(const Flags& flags);

// Tuned plans are for calls that name neither variant nor plan; where all variants run, none is
// used.
Ways ways_of(const Workload& workload, const Flags& flags, Unnamed unnamed);

// The instruction sets of this machine, by name.
std::vector<std::string> isas_here();

// The same way with every other plan that differs in one knob.
std::vector<Way> other_plans(const Way& way);

// "simd", "one_pass on emu"
std::string name_and_place(const VariantInfo& info);

// "simd avx2 1 thread"; the instruction set only where it matters, the plan where a flag chose it
std::string label(const Way& way);

// Why it cannot compute the workload; empty where it can.
std::string declines(const Workload& workload, const Way& way);

Execution execution_for(Isa isa, int threads);
Execution execution_for(Device device);  // a GPU, or what passes for one
Execution execution_for(const Way& way);

// Refuses what an emulator or interpreter executes: its times say nothing of a GPU's.
void require_real_time(const std::vector<Way>& ways);

// What is timed. The workload outlives it.
Runner runner(const Workload& workload, const Way& way);

// Poisons the outputs and runs.
void run(const Workload& workload, const Way& way);

}  // namespace isobit::lab
