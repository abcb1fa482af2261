// SPDX-License-Identifier: Apache-2.0
// Where a user's tuned plans are kept, and how they come and go. Whoever may write this file may
// make calls slower; nothing in it can make them wrong.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "isobit/dispatch/plan_table.h"

namespace isobit {

// $XDG_CACHE_HOME/isobit, else ~/.cache/isobit; empty where neither variable names an absolute
// path.
std::filesystem::path plan_folder();

// In that folder, a file of this version for this machine.
std::filesystem::path plan_file();

// The first lines of that file: a file with others is not for this library or machine.
std::string plan_header();

struct StoredPlans {
  PlanTable table;
  std::string missing;  // why there are none; empty where they were read
};

// Never throws for what it finds: a file that is absent, damaged, too large, someone else's, or
// open to others' writing holds no plans.
StoredPlans read_plans(const std::filesystem::path& file);

// Applies `change` to the stored plans while no other process can. Readers find the old file or the
// new one, whole, whatever happens meanwhile. Throws Error where that is not possible, or where
// another process holds the plans for longer than `patience`.
void update_plans(const std::filesystem::path& file, const std::function<void(PlanTable&)>& change,
                  std::chrono::milliseconds patience = std::chrono::seconds(10));

}  // namespace isobit
