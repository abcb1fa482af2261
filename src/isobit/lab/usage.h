// SPDX-License-Identifier: Apache-2.0
// What the lab says when it is called wrongly: which name is unknown, which are known, and which
// was meant.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace isobit::lab {

// The command was called wrongly: exit status 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// "; did you mean 'x'?", or nothing where no known name is near.
std::string suggestion(std::string_view name, std::span<const std::string_view> known);

// The index of `name` among `known`; a UsageError says what is known and what was probably meant.
std::size_t index_of(std::string_view what, std::string_view name,
                     std::span<const std::string_view> known);

}  // namespace isobit::lab
