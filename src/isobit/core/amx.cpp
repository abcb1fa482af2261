// SPDX-License-Identifier: Apache-2.0
// Asks the processor and the system for AMX.
#include "isobit/core/amx.h"

#include <unistd.h>

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

#include <cerrno>
#endif

namespace isobit::amx {
namespace {

#if defined(__x86_64__)
// The state components that the system saves and restores.
std::uint64_t saved_state() {
  std::uint32_t low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

std::string obstacle() {
  constexpr unsigned kOsSaves = 1u << 27;                       // of leaf 1, ecx
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // of leaf 7, edx
  constexpr std::uint64_t kTileState = std::uint64_t{3} << 17;  // configuration and data
  constexpr long kRequestPermission = 0x1023, kTileData = 18;   // of Linux
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kAmxTile) == 0 ||
      (edx & kAmxBf16) == 0)
    return "the processor has no AMX for bf16";
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsSaves) == 0 ||
      (saved_state() & kTileState) != kTileState)
    return "the system does not save AMX's registers (Linux does from 5.16 on)";
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return {};
  const int error = errno;
  return std::string("the system does not let this process use AMX's registers (") +
         (error == ENOSPC   ? "a signal handler's stack is too small for them"
          : error == EINVAL ? "Linux knows the request from 5.16 on"
                            : std::strerror(error)) +
         ")";
}
#else
std::string obstacle() { return "AMX is of x86-64 processors"; }
#endif

}  // namespace

const std::string& why_not() {
  static const std::string reason = obstacle();
  return reason;
}

}  // namespace isobit::amx
