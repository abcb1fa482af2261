// SPDX-License-Identifier: Apache-2.0
// What the C interface promises about every call, right or wrong.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "entries.h"

namespace isobit::fuzz {

// Makes a call of one of the entries from `input` and tells which promise it breaks; empty: none.
std::string broken_promise(std::span<const Entry> entries, std::span<const std::uint8_t> input);

}  // namespace isobit::fuzz
