// SPDX-License-Identifier: Apache-2.0
// Families of input: what x looks like, so that every way in which a sum can go wrong has a name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "isobit/core/dtype.h"
#include "isobit/dispatch/description.h"

namespace isobit::lab {

struct Family;

std::span<const std::string_view> family_names();

// One argument's values: a pure function of (family, seed, argument's name, line, place in it), so
// that any lines can be made on any thread, alone or among others, and are the same. How far the
// family decides is the argument's to say.
class Draw {
 public:
  // An index is drawn below `below`.
  Draw(std::string_view family, std::uint64_t seed, std::string_view argument, Drawn drawn,
       DType dtype, std::int64_t below = 0);

  // The first elements of one line, in double; rounding them to the dtype loses no range.
  void line(std::int64_t line, std::span<double> values) const;

 private:
  const Family* family_;
  Drawn drawn_;
  std::uint64_t key_;
  DType dtype_;
  double scale_;
  std::int64_t below_;
};

}  // namespace isobit::lab
