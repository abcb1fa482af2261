// SPDX-License-Identifier: Apache-2.0
// The configurations that flags select to compute a workload, and running one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "isobit/core/execution.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/timing.h"
#include "isobit/lab/workload.h"

namespace isobit::lab {

// Which variants run where none is named.
enum class Unnamed { all, best };

struct Declined {
  Configuration configuration;
  std::string reason;
};

struct Configurations {
  std::vector<Configuration> able;
  std::vector<Declined> declined;  // selected, yet they cannot run

  std::string reasons() const;  // a line for each that declined
};

// Refuses the name of a device that is none.
void require_devices(const Flags& flags);

// Tuned plans are for calls that name neither variant nor plan; where all variants run, none is
// used.
Configurations configurations_of(const Workload& workload, const Flags& flags, Unnamed unnamed);

// Of a flag: "auto" or a name. Refuses what this processor does not support.
Isa isa_of(std::string_view name);

// The instruction sets of this machine, by name.
std::vector<std::string> isas_here();

// The same configuration with every other plan that differs in one knob.
std::vector<Configuration> other_plans(const Configuration& configuration);

// "simd", "one_pass on emu"
std::string name_and_place(const VariantInfo& info);

// "simd avx2 1 thread"; the instruction set only where it matters, the plan where a flag chose it
std::string label(const Configuration& configuration);

// Why it cannot compute the workload; empty where it can.
std::string declines(const Workload& workload, const Configuration& configuration);

Execution execution_for(Isa isa, int threads);
Execution execution_for(Device device);  // a GPU, or what passes for one
Execution execution_for(const Configuration& configuration);

// Refuses what an emulator or interpreter executes: its times say nothing of a GPU's.
void require_real_time(const std::vector<Configuration>& configurations);

// What is timed. The workload outlives it.
TimedCall timed_call(const Workload& workload, const Configuration& configuration);
// On a GPU, with what a caller pays whose arrays are the processor's: inputs there, results back.
TimedCall timed_end_to_end(const Workload& workload, const Configuration& configuration);
// The same copies without the call.
TimedCall timed_transfer(const Workload& workload, Device device);

// The most bytes that a call has allocated at once beside its arrays; it runs once, on the CPU.
std::int64_t most_workspace(const Workload& workload, const Configuration& configuration);

// Poisons the outputs and runs.
void run(const Workload& workload, const Configuration& configuration);

}  // namespace isobit::lab
