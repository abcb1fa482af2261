// SPDX-License-Identifier: Apache-2.0
// Plans that were tuned on a developer's machine are none of the tests' business: neither this
// process nor those that it starts look there.
#include <cstdlib>

namespace {

[[maybe_unused]] const int kSet = setenv("XDG_CACHE_HOME", ISOBIT_EMPTY_CACHE, 1);

}  // namespace
