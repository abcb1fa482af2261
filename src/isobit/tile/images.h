// SPDX-License-Identifier: Apache-2.0
// Which element of an array of images a thread takes, and where it stands.
#pragma once

#include <cstdint>

#include "isobit/core/images.h"
#include "isobit/simt/simt.h"

namespace isobit::tile {

struct Position {
  std::int64_t image, channel, row, col;

  // Neighbours in memory are those of threads: columns, or channels where these are last in it.
  ISOBIT_DEVICE static Position of(std::int64_t at, std::int64_t channels, std::int64_t rows,
                                   std::int64_t cols, const Images& images) {
    const bool channels_last = images.c == 1 && images.w != 1;
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

template <class T>
ISOBIT_DEVICE T& element(const Images& images, const Position& at) {
  return *images.at<T>(at.image, at.channel, at.row, at.col);
}
// The first element of the position's channel.
template <class T>
ISOBIT_DEVICE T* plane(const Images& images, const Position& at) {
  return images.at<T>(at.image, at.channel, 0, 0);
}

}  // namespace isobit::tile
