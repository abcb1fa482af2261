// SPDX-License-Identifier: Apache-2.0
#include "isobit/lab/gpu_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

namespace isobit::lab {
namespace {

// Of the SXM boards.
constexpr GpuSpec kGpus[] = {
    {"A100", 108, 1.41e9, 2.04e12, 164 << 10},
    {"H100", 132, 1.755e9, 3.35e12, 228 << 10},
    {"H200", 132, 1.755e9, 4.8e12, 228 << 10},
    {"B200", 148, 1.85e9, 8.0e12, 228 << 10},
};

// A multiprocessor from sm_80 on.
constexpr double kWarpThreads = 32;
constexpr int kMostWarps = 64, kMostBlocks = 32, kQuarters = 4, kRegistersOfQuarter = 16 << 10;
constexpr int kRegisterUnit = 256;     // what a warp gets registers in
constexpr int kReservedShared = 1024;  // of each block
constexpr double kSector = 32;
// Warps a clock: instructions; those of integers and logic; shuffles; wavefronts of shared memory.
constexpr double kIssue = 4, kIntegers = 2, kShuffles = 1, kWavefronts = 1;

// Assumed, as nothing here was measured: what of the bandwidth a copy reaches, and how long bytes
// are on their way under load. With these an H100 needs 31 KiB in flight in each multiprocessor.
constexpr double kReached = 0.92;
constexpr double kLatency = 1.35e-6;

// The name of a kernel's template in "void ...enter<isobit::norms::ForwardKernel<...> >(...)".
std::string short_name(std::string text) {
  if (const std::size_t enter = text.find("enter<"); enter != std::string::npos)
    text = text.substr(enter + 6);
  text = text.substr(0, text.find_first_of("<>("));
  // An unnamed namespace ends the text before its kernel's name.
  return text.substr(text.rfind(':') + 1);
}

double share(const GpuSpec& gpu, int multiprocessors) {
  return kReached * gpu.bandwidth * multiprocessors / gpu.multiprocessors;
}

}  // namespace

std::span<const GpuSpec> gpu_specs() { return kGpus; }

KernelCounters::KernelCounters(const Json& line, bool machine_code) {
  const auto at = [](const Json& object, const char* key) { return object.at(key).get<double>(); };
  const Json &kinds = line.at("by_kind"), &loads = line.at("loads"), &stores = line.at("stores");
  std::string plain = line.at("kernel");
  for (const std::string_view unnamed : {"(anonymous namespace)::"})
    for (std::size_t i; (i = plain.find(unnamed)) != std::string::npos;)
      plain.erase(i, unnamed.size());
  name = short_name(plain);
  launches = at(line, "launches");
  blocks = at(line, "blocks");
  threads = at(line, "threads");
  shared_bytes = at(line, "shared_bytes");
  registers = at(line, "registers");
  instructions = at(line, "instructions") - (machine_code ? 0 : at(kinds, "move"));
  integers = at(kinds, "integer");
  shuffles = at(line, "shuffles");
  load_sectors = at(loads, "sectors");
  least_load_sectors = at(loads, "least");
  store_sectors = at(stores, "sectors");
  least_store_sectors = at(stores, "least");
  distinct_loads = at(loads, "distinct");
  distinct_stores = at(stores, "distinct");
  wide_requests = at(loads, "wide") + at(stores, "wide");
  requests = at(loads, "requests") + at(stores, "requests");
  wavefronts = at(line, "shared_wavefronts");
  least_wavefronts = at(line, "shared_least");
  local_requests = at(line, "local_requests");
  barriers = at(line, "barriers");
  divergent_branches = at(line, "divergent_branches");
  awaited_by_warp = at(line, "awaited_bytes") / std::max(1.0, at(line, "waits"));
  awaited_by_block = at(line, "awaited_bulk_bytes") / std::max(1.0, at(line, "bulk_waits"));
}

int KernelCounters::resident(const GpuSpec& gpu, int multiprocessors) const {
  const double warps = std::ceil(threads / kWarpThreads);
  const double of_warp = std::ceil(registers * kWarpThreads / kRegisterUnit) * kRegisterUnit;
  const double by_registers = std::floor(kRegistersOfQuarter / of_warp) * kQuarters / warps;
  const double by_shared = gpu.shared_bytes / (shared_bytes + kReservedShared);
  const double holds =
      std::floor(std::min({by_registers, by_shared, kMostWarps / warps, double{kMostBlocks}}));
  const double gets = std::ceil(blocks / launches / multiprocessors);
  return static_cast<int>(std::clamp(gets, 1.0, std::max(1.0, holds)));
}

double KernelCounters::in_flight(const GpuSpec& gpu, int multiprocessors) const {
  const int blocks_held = resident(gpu, multiprocessors);
  const double warps = blocks_held * std::ceil(threads / kWarpThreads);
  return std::max(awaited_by_warp * warps, awaited_by_block * blocks_held);
}

ModelTime model_time(const KernelCounters& kernel, const GpuSpec& gpu, int multiprocessors) {
  const double bytes = kSector * (kernel.distinct_loads + kernel.distinct_stores);
  const double in_flight = std::max(1.0, kernel.in_flight(gpu, multiprocessors));
  const double slots = gpu.clock * multiprocessors;
  ModelTime time = {bytes / share(gpu, multiprocessors), "memory"};
  const auto bound = [&](double seconds, std::string_view name) {
    if (seconds > time.seconds) time = {seconds, name};
  };
  bound(bytes * kLatency / (in_flight * multiprocessors), "latency");
  bound(kernel.instructions / (kIssue * slots), "issue");
  bound(kernel.integers / (kIntegers * slots), "integers");
  bound(kernel.shuffles / (kShuffles * slots), "shuffles");
  bound(kernel.wavefronts / (kWavefronts * slots), "shared memory");
  // The last wave of blocks may be a small one.
  const double waves =
      kernel.blocks / kernel.launches / multiprocessors / kernel.resident(gpu, multiprocessors);
  if (waves > 1) time.seconds *= std::ceil(waves) / waves;
  return time;
}

double model_copy_time(double bytes, const GpuSpec& gpu, int multiprocessors) {
  return bytes / share(gpu, multiprocessors);
}

}  // namespace isobit::lab
