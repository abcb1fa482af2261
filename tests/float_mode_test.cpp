// SPDX-License-Identifier: Apache-2.0
// A caller's float mode changes no bit, and is the caller's again afterwards.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cfenv>
#include <set>
#include <string>

#include "isobit/lab/configurations.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/workload.h"
#include "isobit/ops/catalog.h"
#include "workloads.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace isobit::lab {
namespace {

// Denormals flushed, as sums and as operands.
void flush_denormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
  unsigned long mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  asm volatile("msr fpcr, %0" ::"r"(mode | 1ul << 24));
#endif
}

// Both are volatile: a compiler may divide after the mode is restored (GCC did, with -O1 and
// AddressSanitizer).
bool denormals_are_flushed() {
  volatile float smallest_normal = 0x1p-126f;
  volatile float half = smallest_normal / 2;
  return half == 0;
}

// Runs `action` in a caller's mode, and says whether that mode is still there afterwards.
bool keeps_mode(int rounding, auto action) {
  std::fenv_t ours;
  std::fegetenv(&ours);
  std::fesetround(rounding);
  flush_denormals();
  action();
  const bool kept = std::fegetround() == rounding && denormals_are_flushed();
  std::fesetenv(&ours);
  return kept;
}

constexpr int kRoundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

class FloatModes : public testing::TestWithParam<const Operation*> {};

// Rounding upward gave eps, and so LayerNorm, other bits.
TEST_P(FloatModes, TheCallersChangesNoBitAndIsRestored) {
  std::set<std::string> seen;
  for (Case c : cases_of(*GetParam(), Flags{}, "quick")) {
    c = resized(c, 9, 130);
    if (!suits_its_options(c) || !c.has_free_batch()) continue;
    c.input = "denormal";
    if (!seen.insert(describe(c).dump()).second) continue;
    Workload workload(c);
    workload.draw();
    Flags flags;
    flags.isa = isas_here();
    flags.threads = {1, 3};
    for (const Configuration& configuration :
         configurations_of(workload, flags, Unnamed::all).able) {
      run(workload, configuration);
      const std::string expected = bits_of(workload);
      for (int rounding : kRoundings) {
        ASSERT_TRUE(keeps_mode(rounding, [&] { run(workload, configuration); }))
            << label(configuration);
        ASSERT_EQ(bits_of(workload), expected)
            << "rounding " << rounding << ": " << command("verify", c, configuration);
      }
    }
  }
}

// Backward of a norm with its linear layer added the sums of its blocks in the caller's mode.
TEST_P(FloatModes, TheCallersChangesNoBitOfSumsOverBlocks) {
  std::set<std::string> seen;
  for (Case c : cases_of(*GetParam(), Flags{}, "quick")) {
    c = resized(c, 40, 20);
    if (!suits_its_options(c) || !c.has_free_batch()) continue;
    c.input = "denormal";
    if (!seen.insert(types_text(c.types)).second) continue;
    Workload workload(c);
    workload.draw();
    Flags flags;
    flags.threads = {1};
    for (const Configuration& own : configurations_of(workload, flags, Unnamed::all).able)
      for (const Configuration& configuration : other_plans(own)) {
        run(workload, configuration);
        const std::string expected = bits_of(workload);
        keeps_mode(FE_UPWARD, [&] { run(workload, configuration); });
        ASSERT_EQ(bits_of(workload), expected) << command("verify", c, configuration);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, FloatModes,
                         testing::ValuesIn(catalog().begin(), catalog().end()),
                         [](const auto& info) {
                           return std::string(info.param->op) + "_" + std::string(info.param->pass);
                         });

}  // namespace
}  // namespace isobit::lab
