// SPDX-License-Identifier: Apache-2.0
// Families of input: what x looks like, so that every way in which a sum can go wrong has a name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "isobit/core/dtype.h"

namespace isobit::lab {

struct Family;

std::span<const std::string_view> family_names();

// One argument's values: a pure function of (family, seed, argument's name, row, column), so that
// any rows can be made on any thread, alone or among others, and are the same.
class Draw {
 public:
  Draw(std::string_view family, std::uint64_t seed, std::string_view argument, DType dtype);

  // Columns 0, 1, ... of one row, in double; rounding them to the dtype loses no range.
  void row(std::int64_t row, std::span<double> values) const;

 private:
  const Family* family_;
  std::uint64_t key_;
  DType dtype_;
  double scale_;
};

}  // namespace isobit::lab
