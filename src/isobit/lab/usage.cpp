// SPDX-License-Identifier: Apache-2.0
// Finds the known name that is nearest to a misspelt one.
#include "isobit/lab/usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace isobit::lab {
namespace {

// Letters to insert, remove or replace (Levenshtein).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string suggestion(std::string_view name, std::span<const std::string_view> known) {
  const auto nearest = std::min_element(known.begin(), known.end(), [&](auto a, auto b) {
    return distance(name, a) < distance(name, b);
  });
  if (nearest == known.end() || distance(name, *nearest) > 1 + nearest->size() / 3) return "";
  return fmt::format("; did you mean '{}'?", *nearest);
}

std::size_t index_of(std::string_view what, std::string_view name,
                     std::span<const std::string_view> known) {
  const auto found = std::find(known.begin(), known.end(), name);
  if (found == known.end())
    throw UsageError(fmt::format("no {} '{}'{}\n  known: {}", what, name, suggestion(name, known),
                                 fmt::join(known, ", ")));
  return static_cast<std::size_t>(found - known.begin());
}

}  // namespace isobit::lab
