// SPDX-License-Identifier: Apache-2.0
// The lab's commands; each returns the exit status.
#pragma once

#include "isobit/lab/settings.h"

namespace isobit::lab {

inline constexpr int kPassed = 0;
inline constexpr int kFailed = 1;
inline constexpr int kMisused = 2;

int list(const Flags& flags);
int info(const Flags& flags);
int doctor(const Flags& flags);
int verify(const Flags& flags);
int parity(const Flags& flags);
int bench(const Flags& flags);
int profile(const Flags& flags);
int tune(const Flags& flags);
int run_files(const Flags& flags);
int replay(const Flags& flags);
int report(const Flags& flags);

const char* version();

}  // namespace isobit::lab
