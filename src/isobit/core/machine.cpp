// SPDX-License-Identifier: Apache-2.0
// Asks the processor and the system what this machine is.
#include "isobit/core/machine.h"

#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "isobit/core/isas.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace isobit {
namespace {

constexpr std::string_view kDevices[] = {"cpu", "emu", "ptx", "cuda", "sass", "hip"};
static_assert(std::size(kDevices) == kDeviceCount);
constexpr std::string_view kIsaNames[] = {"scalar", "avx2", "avx512", "neon"};
static_assert(std::size(kIsaNames) == std::size(kIsas));

#if defined(__x86_64__)
// clang 14's __builtin_cpu_supports knows no "f16c".
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

bool processor_has([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (isa == Isa::avx2) return avx2;
  if (isa == Isa::avx512) return avx2 && avx512;
#endif
  return true;  // of what is built for others, every processor has all
}

std::vector<Isa> detect_isas() {
  std::vector<Isa> isas;
#define ISOBIT_IF_HAD(isa, ...) \
  if (processor_has(Isa::isa)) isas.push_back(Isa::isa);
  ISOBIT_FOR_ISAS(ISOBIT_IF_HAD)
#undef ISOBIT_IF_HAD
  return isas;
}

int usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

// The data cache of a level as this processor sees it. (sysconf counts the third caches of a whole
// socket.)
std::int64_t cache_size(int level, std::int64_t fallback) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    std::ifstream level_file(folder + "level"), type_file(folder + "type"),
        size_file(folder + "size");
    int file_level = 0;
    std::string type;
    std::int64_t kilobytes = 0;
    if (level_file >> file_level && type_file >> type && size_file >> kilobytes &&
        file_level == level && type != "Instruction" && kilobytes > 0)
      return kilobytes << 10;
  }
  return fallback;
}

Machine detect() {
  Machine machine;
  machine.isa = Machine::isas_here().back();
  machine.threads = usable_processors();
  machine.l1_bytes = cache_size(1, machine.l1_bytes);
  machine.l2_bytes = cache_size(2, machine.l2_bytes);
  machine.l3_bytes = cache_size(3, machine.l3_bytes);
  return machine;
}

template <class Enum, std::size_t N>
std::optional<Enum> find(const std::string_view (&names)[N], std::string_view name) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Device device) { return kDevices[static_cast<int>(device)]; }
std::string_view name_of(Isa isa) { return kIsaNames[static_cast<int>(isa)]; }
std::optional<Device> device_named(std::string_view name) { return find<Device>(kDevices, name); }
std::optional<Isa> isa_named(std::string_view name) { return find<Isa>(kIsaNames, name); }

const Machine& Machine::here() {
  static const Machine machine = detect();
  return machine;
}

std::span<const Isa> Machine::isas_here() {
  static const std::vector<Isa> isas = detect_isas();
  return isas;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  return "unknown";
}

}  // namespace isobit
