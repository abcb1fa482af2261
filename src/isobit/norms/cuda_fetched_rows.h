// SPDX-License-Identifier: Apache-2.0
// Rows of a norm that are fetched in bulk while others are worked on, by groups of whole blocks.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "isobit/core/error.h"
#include "isobit/core/machine.h"
#include "isobit/core/order.h"
#include "isobit/dispatch/plan.h"
#include "isobit/norms/cuda_arrays.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/piece.h"
#include "isobit/tile/ring.h"

namespace isobit::norms {

// A block's part of a row, in shared memory.
template <class T>
struct FetchedRow {
  const T* data = nullptr;
  int col = 0;  // of its first element

  ISOBIT_DEVICE explicit operator bool() const { return data != nullptr; }

  using Raw = tile::RawPiece<T>;
  ISOBIT_DEVICE bool in_pieces(int) const { return true; }
  ISOBIT_DEVICE Raw raw(const Place& place) const {
    Raw piece = {};
    if (place.left > 0)
      piece = simt::load_shared(reinterpret_cast<const Raw*>(data + (place.col - col)));
    return piece;
  }
  template <class Real>
  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kPiece<T>]) const {
    tile::load_shared_piece(data + (place.col - col), place.left, piece);
  }
};

// Rows that may come in bulk, of an array that may be absent.
template <class T>
struct RowsInBulk {
  const T* data;
  std::int64_t stride;

  ISOBIT_DEVICE const T* at(std::int64_t row, int col) const {
    return data == nullptr ? nullptr : data + row * stride + col;
  }
};

// The rows of one array or of two, each of which has a turn: tile/ring.h.
template <class T, class Group>
class FetchedRows {
 public:
  using Ring = tile::Ring<T>;
  using Memory = typename Ring::Memory;

  template <class Carver>
  ISOBIT_EITHER static Memory memory(Carver& carver, int threads, int places, int arrays) {
    return Ring::memory(carver, places, threads / simt::kWarpThreads * int{order::kBlock}, arrays);
  }

  ISOBIT_DEVICE FetchedRows(const Memory& memory, const RowsInBulk<T>& first,
                            const RowsInBulk<T>& second, int cols)
      : ring_(memory),
        first_(first),
        second_(second),
        col_(Group::rank() * memory.capacity),
        bytes_(elements(memory.capacity, cols - col_) * static_cast<int>(sizeof(T))) {}

  ISOBIT_DEVICE int ahead() const { return ring_.ahead(); }
  ISOBIT_DEVICE void order(unsigned turn, std::int64_t row) const {
    ring_.order(turn, first_.at(row, col_), second_.at(row, col_), bytes_);
  }
  ISOBIT_DEVICE void wait(unsigned turn) const { ring_.wait(turn); }
  ISOBIT_DEVICE FetchedRow<T> first(unsigned turn) const { return {ring_.array(turn, 0), col_}; }
  ISOBIT_DEVICE FetchedRow<T> second(unsigned turn) const {
    return {second_.data == nullptr ? nullptr : ring_.array(turn, 1), col_};
  }

 private:
  ISOBIT_DEVICE static int elements(int capacity, int left) {
    return left < capacity ? (left < 0 ? 0 : left) : capacity;
  }

  Ring ring_;
  RowsInBulk<T> first_, second_;
  int col_;
  int bytes_;
};

inline constexpr int kPlaces[] = {2, 4, 8};
inline constexpr Knob kPlacesKnob = {"places", kPlaces,
                                     "rows in shared memory at once; lowered to what fits"};

// What a block's shared memory has to hold.
template <class Kernel>
std::int64_t shared_bytes(const Kernel& kernel) {
  simt::Carver counter;
  kernel.memory(counter);
  return counter.bytes();
}

// Why shared memory cannot hold what a kernel needs.
template <class Kernel>
std::string not_held(const Kernel& kernel, const Machine& machine) {
  const std::int64_t bytes = shared_bytes(kernel);
  if (bytes <= machine.gpu.shared_bytes) return {};
  return text(kernel.places, " rows in shared memory take ", bytes, " bytes; a block has ",
              machine.gpu.shared_bytes);
}

// The kernel with as many of kernel.places as shared memory holds.
template <class Kernel>
Kernel with_places_that_fit(Kernel kernel, const Machine& machine) {
  while (kernel.places > kPlaces[0] && shared_bytes(kernel) > machine.gpu.shared_bytes)
    kernel.places /= 2;
  return kernel;
}

// Why rows of these matrices, which are of one type, cannot come in bulk.
inline std::string not_in_bulk(std::initializer_list<Matrix> matrices, DType dtype,
                               std::int64_t cols, const Machine& machine) {
  if (machine.gpu.capability < 90) return "bulk copies need sm_90 or later";
  const std::int64_t size = size_of(dtype);
  if (cols * size % 16 != 0) return "bulk copies need rows whose size is a multiple of 16 bytes";
  for (const Matrix& matrix : matrices)
    if (!on_pieces(matrix, size))
      return "bulk copies need rows that start at multiples of 16 bytes";
  return {};
}

}  // namespace isobit::norms
