// SPDX-License-Identifier: Apache-2.0
// Groups of 16 elements, a lane's each, on their way through shared memory: lanes beside each other
// move what lies beside each other in memory, so that a warp touches no sector twice.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/ops/scan/formula_order.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/piece.h"

namespace isobit::scan {

// The groups of a warp are a block of one row.
template <class T>
struct GroupsOfRow {
  T* first;
  std::int64_t stride, left;  // elements of the row from there on

  ISOBIT_DEVICE T* group(int lane) const { return first + lane * kGroup * stride; }
  ISOBIT_DEVICE bool has(int lane, int i) const { return lane * kGroup + i < left; }
  ISOBIT_DEVICE bool in_pieces() const {
    return stride == 1 && left >= kBlock && tile::on_pieces(first);
  }
};

// The groups of a warp are of a row each. All lanes come here.
template <class T>
struct GroupsOfRows {
  T* own;
  std::int64_t stride, left;  // of each row
  int rows;                   // of the first lanes
  bool on_pieces;             // all of them

  ISOBIT_DEVICE T* group(int lane) const {
    return reinterpret_cast<T*>(simt::shuffle(reinterpret_cast<std::int64_t>(own), lane));
  }
  ISOBIT_DEVICE bool has(int lane, int i) const { return lane < rows && i < left; }
  ISOBIT_DEVICE bool in_pieces() const { return on_pieces && left >= kGroup; }
};

namespace detail {

template <class T>
struct alignas(tile::kPieceBytes) StagedPiece {
  static constexpr int kSize = tile::kPieceBytes / static_cast<int>(sizeof(T));
  static constexpr int kInGroup = kGroup / kSize;
  T elements[kSize];
};

// Where a piece is kept. Eight lanes that write pieces in the order of memory, or read theirs of
// eight groups, find them in different banks.
ISOBIT_DEVICE int place_of_piece(int piece) { return piece ^ (piece >> 3 & 7); }

template <class T>
ISOBIT_DEVICE T* staged_element(std::byte* staged, int element) {
  constexpr int kSize = StagedPiece<T>::kSize;
  return reinterpret_cast<T*>(staged) + place_of_piece(element / kSize) * kSize + element % kSize;
}

}  // namespace detail

// `staged`: shared memory of this warp, of a block of Ts.
template <class T, class Groups>
ISOBIT_DEVICE void load_groups(const Groups& groups, std::byte* staged, T (&to)[kGroup]) {
  using Piece = detail::StagedPiece<T>;
  Piece* const pieces = reinterpret_cast<Piece*>(staged);
  simt::sync_warp();  // what was there has been read
  if (groups.in_pieces()) {
    Piece loaded[Piece::kInGroup];
#pragma unroll
    for (int k = 0; k < Piece::kInGroup; ++k) {
      const int piece = k * simt::kWarpThreads + simt::lane();
      const T* const group = groups.group(piece / Piece::kInGroup);
      loaded[k] = simt::load(
          reinterpret_cast<const Piece*>(group + piece % Piece::kInGroup * Piece::kSize));
    }
#pragma unroll
    for (int k = 0; k < Piece::kInGroup; ++k)
      simt::store_shared(pieces + detail::place_of_piece(k * simt::kWarpThreads + simt::lane()),
                         loaded[k]);
  } else {
#pragma unroll 4
    for (int k = 0; k < kGroup; ++k) {
      const int element = k * simt::kWarpThreads + simt::lane();
      const int lane = element / kGroup, i = element % kGroup;
      const T* const group = groups.group(lane);
      if (groups.has(lane, i))
        *detail::staged_element<T>(staged, element) = group[i * groups.stride];
    }
  }
  simt::sync_warp();
#pragma unroll
  for (int k = 0; k < Piece::kInGroup; ++k) {
    const Piece piece =
        simt::load_shared(pieces + detail::place_of_piece(simt::lane() * Piece::kInGroup + k));
#pragma unroll
    for (int i = 0; i < Piece::kSize; ++i) to[k * Piece::kSize + i] = piece.elements[i];
  }
}

template <class T, class Groups>
ISOBIT_DEVICE void store_groups(const Groups& groups, std::byte* staged, const T (&from)[kGroup]) {
  using Piece = detail::StagedPiece<T>;
  Piece* const pieces = reinterpret_cast<Piece*>(staged);
  simt::sync_warp();  // what was there has been read
#pragma unroll
  for (int k = 0; k < Piece::kInGroup; ++k) {
    Piece piece;
#pragma unroll
    for (int i = 0; i < Piece::kSize; ++i) piece.elements[i] = from[k * Piece::kSize + i];
    simt::store_shared(pieces + detail::place_of_piece(simt::lane() * Piece::kInGroup + k), piece);
  }
  simt::sync_warp();
  if (groups.in_pieces()) {
#pragma unroll
    for (int k = 0; k < Piece::kInGroup; ++k) {
      const int piece = k * simt::kWarpThreads + simt::lane();
      T* const group = groups.group(piece / Piece::kInGroup);
      simt::store(reinterpret_cast<Piece*>(group + piece % Piece::kInGroup * Piece::kSize),
                  simt::load_shared(pieces + detail::place_of_piece(piece)));
    }
  } else {
#pragma unroll 4
    for (int k = 0; k < kGroup; ++k) {
      const int element = k * simt::kWarpThreads + simt::lane();
      const int lane = element / kGroup, i = element % kGroup;
      T* const group = groups.group(lane);
      if (groups.has(lane, i))
        group[i * groups.stride] = *detail::staged_element<T>(staged, element);
    }
  }
}

}  // namespace isobit::scan
