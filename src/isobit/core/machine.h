// SPDX-License-Identifier: Apache-2.0
// What a plan may depend on: the processor's instruction sets and caches, the threads to be used,
// the device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace isobit {

// Where variants compute: on processors; on NVIDIA's GPUs (cuda) or AMD's (hip); or on the kernels
// of GPUs, whose sources an emulator executes (emu), and what nvcc made of them an executor: its
// PTX (ptx), or the machine code that ptxas made of that (sass).
enum class Device : std::uint8_t { cpu, emu, ptx, cuda, sass, hip };
inline constexpr int kDeviceCount = 6;
enum class Isa : std::uint8_t { scalar, avx2, avx512, neon };
inline constexpr Isa kIsas[] = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::neon};

std::string_view name_of(Device device);
std::string_view name_of(Isa isa);
std::optional<Device> device_named(std::string_view name);
std::optional<Isa> isa_named(std::string_view name);

// A GPU, as far as plans depend on it.
struct Gpu {
  int capability = 0;  // 90 for sm_90; 0 on AMD's, which have nothing of what it promises
  int multiprocessors = 0;
  std::int64_t shared_bytes = 0;  // the most that a block may have
  std::int64_t l2_bytes = 0;
  int gfx = 0;  // 94 for gfx942; 0 on NVIDIA's
};

struct Machine {
  Device device = Device::cpu;  // where variants compute
  Gpu gpu;                      // on all devices but cpu
  Isa isa = Isa::scalar;        // the widest that may be used
  int threads = 1;
  std::int64_t elements_a_thread = 16 << 10;  // for fewer it costs more to wake than it brings
  std::int64_t l1_bytes = 32 << 10;
  std::int64_t l2_bytes = 1 << 20;
  std::int64_t l3_bytes = 32 << 20;

  // Whether a call that touches so many bytes should store past the caches and fetch ahead: what is
  // more than each thread's second cache and its share of the third (compare
  // `isobit bench layernorm --plan all`).
  bool leaves_caches(std::int64_t touched_bytes) const {
    return touched_bytes > std::min(4 * l2_bytes * threads, l3_bytes);
  }

  // Whether a call that touches so many bytes leaves the second caches but not a third one that is
  // more than a hundred times as large, as some servers have, of which a process has a share.
  // Stores into the caches are then the faster ones, if what is written is fetched before.
  bool stays_in_vast_cache(std::int64_t touched_bytes) const {
    return l3_bytes / 100 > l2_bytes && touched_bytes > l2_bytes * threads &&
           touched_bytes <= l3_bytes / 16;
  }

  // Whether so many bytes, which are read from one end to the other, are more than stays in the
  // second caches: then fetching ahead is worth its instructions.
  bool leaves_second_caches(std::int64_t bytes) const { return bytes > l2_bytes / 2 * threads; }

  // The machine that this process runs on, with all its processors.
  static const Machine& here();
  // What this processor knows of kIsas, the widest last.
  static std::span<const Isa> isas_here();
};

std::string processor_name();

}  // namespace isobit
