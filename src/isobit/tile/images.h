// SPDX-License-Identifier: Apache-2.0
// Which element of an array of images a thread takes.
#pragma once

#include <cstdint>

#include "isobit/simt/simt.h"

namespace isobit::tile {

struct Position {
  std::int64_t image, channel, row, col;

  // Neighbours in memory are those of threads: columns, or with channels last channels.
  ISOBIT_DEVICE static Position of(std::int64_t at, std::int64_t channels, std::int64_t rows,
                                   std::int64_t cols, bool channels_last) {
    Position found{};
    if (channels_last) {
      found.channel = at % channels;
      at /= channels;
    }
    found.col = at % cols;
    at /= cols;
    found.row = at % rows;
    at /= rows;
    if (channels_last) {
      found.image = at;
    } else {
      found.channel = at % channels;
      found.image = at / channels;
    }
    return found;
  }
};

}  // namespace isobit::tile
