// SPDX-License-Identifier: Apache-2.0
// A part of a matrix of 16-bit elements in shared memory, from which warps take operands for tensor
// cores without conflicts between banks.
#pragma once

#include <cstdint>

#include "isobit/simt/simt.h"
#include "isobit/tile/piece.h"

namespace isobit::tile {

// kLines lines of kLength adjacent elements, in pieces of 16 bytes. The pieces of a line are mixed
// by its number: eight lines below each other have the same piece in different banks, and so have
// the neighbours in a line.
template <class T, int kLines, int kLength>
class MatrixTile {
 public:
  static_assert(sizeof(T) == 2 && kLength % 8 == 0 && (kLength & (kLength - 1)) == 0);
  static constexpr int kElements = kLines * kLength;

  // Where it lies, at 128 bytes.
  ISOBIT_DEVICE explicit MatrixTile(T* elements) : elements_(elements) {}

  // The address of eight elements of a line, which is one of eight from a multiple of 8 on.
  ISOBIT_DEVICE T* piece(int from, int line, int piece) const {
    constexpr int kIn128 = kPieces < 8 ? 8 / kPieces : 1;  // lines in all banks
    constexpr int kMixed = kPieces < 8 ? kPieces : 8;
    return elements_ + (from + line) * kLength + (piece ^ (line / kIn128 % kMixed)) * kPiece<T>;
  }

  // Begins to copy a matrix of `lines` lines of `length` elements here, with zeros beyond them. In
  // pieces where all its lines are adjacent elements that begin at 16 bytes; else one by one.
  template <int kThreads>
  ISOBIT_DEVICE void bring(const T* from, std::int64_t line_stride, std::int64_t stride, int lines,
                           int length, bool in_pieces) const {
    // A thread takes the same piece of lines that are so far apart.
    constexpr int kApart = kThreads / kPieces;
    static_assert(kThreads % kPieces == 0 && kApart % 8 == 0 && kLines % kApart == 0);
    const int line = simt::thread() / kPieces, first = simt::thread() % kPieces * kPiece<T>;
    const int rest = length - first, left = rest < 0 ? 0 : rest < kPiece<T> ? rest : kPiece<T>;
    T* const to = piece(line / 8 * 8, line % 8, first / kPiece<T>);
    const T* at = from + line * line_stride + first * stride;
    if (in_pieces) {
#pragma unroll
      for (int i = 0; i < kLines; i += kApart, at += kApart * line_stride) {
        const int given = line + i < lines ? left : 0;
        simt::copy_async<kPieceBytes>(to + i * kLength, given > 0 ? at : from,
                                      given * static_cast<int>(sizeof(T)));
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < kLines; i += kApart, at += kApart * line_stride)
        bring_each(at, stride, line + i < lines ? left : 0, to + i * kLength);
    }
  }

  // The same of lines that lie anywhere, each where line(i) says; `any` is an address like theirs.
  template <int kThreads, class Line>
  ISOBIT_DEVICE void bring_each_line(const Line& line_at, const T* any, std::int64_t stride,
                                     int lines, int length, bool in_pieces) const {
    constexpr int kApart = kThreads / kPieces;
    static_assert(kThreads % kPieces == 0 && kApart % 8 == 0 && kLines % kApart == 0);
    const int line = simt::thread() / kPieces, first = simt::thread() % kPieces * kPiece<T>;
    const int rest = length - first, left = rest < 0 ? 0 : rest < kPiece<T> ? rest : kPiece<T>;
    T* const to = piece(line / 8 * 8, line % 8, first / kPiece<T>);
#pragma unroll 1
    for (int i = 0; i < kLines; i += kApart) {
      const int given = line + i < lines ? left : 0;
      const T* const at = given > 0 ? line_at(line + i) + first * stride : any;
      if (in_pieces)
        simt::copy_async<kPieceBytes>(to + i * kLength, at, given * static_cast<int>(sizeof(T)));
      else
        bring_each(at, stride, given, to + i * kLength);
    }
  }

 private:
  static constexpr int kPieces = kLength / kPiece<T>;

  ISOBIT_DEVICE static void bring_each(const T* from, std::int64_t stride, int left, T* to) {
    RawPiece<T> piece = {};
#pragma unroll
    for (int e = 0; e < kPiece<T>; ++e)
      if (e < left) piece.elements[e] = simt::load(from + e * stride);
    simt::store_shared(reinterpret_cast<RawPiece<T>*>(to), piece);
  }

  T* elements_;
};

// kLanes rows or columns by kDepth of k: lines are lanes where k is adjacent, else they are k's.
template <class T, int kLanes, int kDepth, bool kAlongK>
class OperandTile {
  using Tile = MatrixTile<T, kAlongK ? kLanes : kDepth, kAlongK ? kDepth : kLanes>;

 public:
  static constexpr int kElements = Tile::kElements;

  ISOBIT_DEVICE explicit OperandTile(T* elements) : tile_(elements) {}

  // The same with lanes and k by their strides, of which `lanes` and `depth` are there.
  template <int kThreads>
  ISOBIT_DEVICE void bring(const T* from, std::int64_t lane_stride, std::int64_t k_stride,
                           int lanes, int depth, bool in_pieces) const {
    if constexpr (kAlongK)
      tile_.template bring<kThreads>(from, lane_stride, k_stride, lanes, depth, in_pieces);
    else
      tile_.template bring<kThreads>(from, k_stride, lane_stride, depth, lanes, in_pieces);
  }

  // 16 lanes by 16 of k, from multiples of 8 on, as simt::multiply_add takes them of a: the upper
  // and lower eight lanes at eight of k, then at the next. Of b, 0 and 2 are eight columns, 1 and 3
  // the next eight.
  ISOBIT_DEVICE void take(int lane, int k, unsigned (&words)[4]) const {
    const int line = simt::lane() % 8, matrix = simt::lane() / 8;
    const int lanes = lane + matrix % 2 * 8, depth = k + matrix / 2 * 8;
    if constexpr (kAlongK)
      simt::load_matrices<false>(words, tile_.piece(lanes, line, depth / kPiece<T>));
    else
      simt::load_matrices<true>(words, tile_.piece(depth, line, lanes / kPiece<T>));
  }

 private:
  Tile tile_;
};

}  // namespace isobit::tile
