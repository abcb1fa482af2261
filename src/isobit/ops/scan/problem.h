// SPDX-License-Identifier: Apache-2.0
// A call of scan after its check: rows to be scanned, and loops around them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "isobit/dispatch/variant.h"
#include "isobit/ops/scan/scan.h"

namespace isobit::scan {

// One loop: how many turns it has, and how many elements each array moves on in a turn.
struct Axis {
  std::int64_t extent = 1, x = 0, y = 0, init = 0, reset = 0, index = 0;
};

// What lies at one place of every array; null where there is none.
struct Place {
  const std::byte *x, *init, *reset;
  std::byte* y;
  std::int64_t* index;
};

struct Problem {
  Kind kind;
  bool exclusive, reverse;
  DType x_dtype, y_dtype;
  Place first;
  Axis along;                          // what is scanned
  Axis inner;                          // that along which elements of y are nearest, of the others
  std::array<Axis, kMaxRank> outer{};  // the outermost first
  int outer_count = 0;

  std::int64_t outer_rows() const {
    std::int64_t count = 1;
    for (int i = 0; i < outer_count; ++i) count *= outer[i].extent;
    return count;
  }
  std::int64_t rows() const { return outer_rows() * inner.extent; }
  std::int64_t elements() const { return rows() * along.extent; }
  bool in_place() const { return first.x == first.y; }
  // Rows of vectors lie side by side.
  bool beside() const {
    return inner.extent > 1 && inner.x == 1 && inner.y == 1 && first.reset == nullptr;
  }

  Place moved(Place place, const Axis& axis, std::int64_t turns) const {
    place.x += turns * axis.x * size_of(x_dtype);
    place.y += turns * axis.y * size_of(y_dtype);
    if (place.init != nullptr) place.init += turns * axis.init * size_of(y_dtype);
    if (place.reset != nullptr) place.reset += turns * axis.reset;
    if (place.index != nullptr) place.index += turns * axis.index;
    return place;
  }
  // Where the rows of an index of the outer loops begin.
  Place outer_place(std::int64_t row) const {
    Place place = first;
    for (int i = outer_count - 1; i >= 0; --i) {
      place = moved(place, outer[i], row % outer[i].extent);
      row /= outer[i].extent;
    }
    return place;
  }
  Place place(std::int64_t row) const {
    return moved(outer_place(row / inner.extent), inner, row % inner.extent);
  }
};

using ScanVariant = Variant<Args, Problem>;

std::span<const ScanVariant> cpu_variants();
std::span<const ScanVariant> cuda_variants();  // in device libraries

}  // namespace isobit::scan
