// SPDX-License-Identifier: Apache-2.0
// libFuzzer's way to the promises; `make fuzz` runs it.
#include <cstdio>
#include <cstdlib>

#include "promises.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string why = isobit::fuzz::broken_promise(isobit::fuzz::entries(), {data, size});
  if (why.empty()) return 0;
  std::fprintf(stderr, "%s\n", why.c_str());
  std::abort();
}
