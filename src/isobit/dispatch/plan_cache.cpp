// SPDX-License-Identifier: Apache-2.0
// Reads the tuned plans at the first call.
#include "isobit/dispatch/plan_cache.h"

#include <atomic>

#include "isobit/dispatch/plan_file.h"

namespace isobit {
namespace {

const PlanTable kNone;

std::atomic<const PlanTable*> plans{nullptr};

// Callers that come first together all read; one table stays, for as long as the process. So a
// forked child never meets a lock that its parent held.
[[gnu::cold]] const PlanTable& load() noexcept {
  const PlanTable* read = &kNone;
  try {
    std::error_code absent;
    if (std::filesystem::exists(plan_folder(), absent)) {
      PlanTable table = read_plans(plan_file()).table;
      if (!table.empty()) read = new PlanTable(std::move(table));
    }
  } catch (...) {}  // no memory for plans: they change speed only
  const PlanTable* expected = nullptr;
  if (plans.compare_exchange_strong(expected, read, std::memory_order_acq_rel)) return *read;
  if (read != &kNone) delete read;
  return *expected;
}

}  // namespace

const PlanTable& tuned_plans() noexcept {
  const PlanTable* read = plans.load(std::memory_order_acquire);
  return read != nullptr ? *read : load();
}

}  // namespace isobit
