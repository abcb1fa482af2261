// SPDX-License-Identifier: Apache-2.0
// Division by a number that a launch knows: a GPU has no instruction for it, and kernels take
// indices apart for each element.
#pragma once

#include <cstdint>

#include "isobit/simt/simt.h"

namespace isobit::convolution {

// What is divided stays below it.
inline constexpr std::int64_t kDividedBelow = std::int64_t{1} << 31;

// n / divisor for a divisor from 1 and an n below 2^31: with 2^(b-1) < divisor <= 2^b and factor =
// ceil(2^(31+b) / divisor), n * factor / 2^(31+b) is too large by less than 1 / divisor.
class Divider {
 public:
  explicit Divider(std::int64_t divisor) : divisor_(static_cast<unsigned>(divisor)) {
    int bits = 0;
    while (std::int64_t{1} << bits < divisor) ++bits;
    shift_ = 31 + bits;
    const std::uint64_t one = std::uint64_t{1} << shift_, by = static_cast<std::uint64_t>(divisor);
    factor_ = static_cast<unsigned>((one + by - 1) / by);
  }

  ISOBIT_DEVICE unsigned quotient(unsigned n) const {
    return static_cast<unsigned>(std::uint64_t{n} * factor_ >> shift_);
  }
  ISOBIT_DEVICE unsigned remainder(unsigned n, unsigned quotient) const {
    return n - quotient * divisor_;
  }

 private:
  unsigned divisor_, factor_;
  int shift_;
};

}  // namespace isobit::convolution
