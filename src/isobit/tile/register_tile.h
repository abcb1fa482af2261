// SPDX-License-Identifier: Apache-2.0
// Products of parts of matrices by 16 x 16 threads: operands lie in shared memory, k after k, from
// where each thread takes pieces of 16 bytes; sums are in its registers.
#pragma once

#include <cstdint>

#include "isobit/simt/simt.h"
#include "isobit/tile/scalar.h"

namespace isobit::tile {

inline constexpr int kAcross = 16;  // threads along either side

template <class Real>
struct alignas(16) Chunk {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(Real));
  Real elements[kCount];
};

// The lane of a thread's i-th row or column: neighbours in a chunk, whose threads are side by side.
template <class Real>
ISOBIT_DEVICE int lane_of(int thread, int i) {
  constexpr int kCount = Chunk<Real>::kCount;
  return (i / kCount * kAcross + thread) * kCount + i % kCount;
}

// A thread's lanes at one k. `mixed` is what the numbers of chunks there are mixed by.
template <int kEach, class Real>
ISOBIT_DEVICE void take(const Real* from, int thread, Real (&to)[kEach], int mixed = 0) {
  constexpr int kCount = Chunk<Real>::kCount;
#pragma unroll
  for (int i = 0; i < kEach; i += kCount) {
    const int at = (i / kCount * kAcross + thread) ^ mixed;
    const auto chunk = simt::load_shared(reinterpret_cast<const Chunk<Real>*>(from + at * kCount));
#pragma unroll
    for (int e = 0; e < kCount; ++e) to[i + e] = chunk.elements[e];
  }
}

// What a thread has of its lanes, where take() would find it.
template <int kEach, class Real>
ISOBIT_DEVICE void leave(const Real (&from)[kEach], int thread, Real* to) {
  constexpr int kCount = Chunk<Real>::kCount;
#pragma unroll
  for (int i = 0; i < kEach; i += kCount) {
    Chunk<Real> chunk;
#pragma unroll
    for (int e = 0; e < kCount; ++e) chunk.elements[e] = from[i + e];
    simt::store_shared(reinterpret_cast<Chunk<Real>*>(to) + (i / kCount * kAcross + thread), chunk);
  }
}

template <int kRows, int kCols, class Real>
ISOBIT_DEVICE void multiply_add(const Real (&rows)[kRows], const Real (&cols)[kCols],
                                Real (&sums)[kRows][kCols]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int j = 0; j < kCols; ++j) sums[i][j] = Scalar<Real>::fma(rows[i], cols[j], sums[i][j]);
}

// Brings kSide lanes of a matrix by kDepth of k to shared memory, with zeros beyond its edges.
// Threads read side by side along k, or along lanes. read(lane, k) gives an element. Gives 0, or
// NaN where an element is not a finite number.
template <int kSide, int kDepth, int kPitch, class Real, class Read>
ISOBIT_DEVICE Real bring(bool along_k, std::int64_t lanes, std::int64_t k, const Read& read,
                         Real* to) {
  Real spoilt = 0;
#pragma unroll 4
  for (int i = simt::thread(); i < kSide * kDepth; i += simt::threads()) {
    const int lane = along_k ? i / kDepth : i % kSide, at = along_k ? i % kDepth : i / kSide;
    Real value = 0;
    if (lane < lanes && at < k) value = read(lane, at);
    to[at * kPitch + lane] = value;
    spoilt = Scalar<Real>::fma(value, Real(0), spoilt);
  }
  return spoilt;
}

// The same of a matrix whose lanes and k are evenly spaced.
template <int kSide, int kDepth, int kPitch, class T, class Real>
ISOBIT_DEVICE Real bring(const T* from, std::int64_t lane_stride, std::int64_t k_stride,
                         std::int64_t lanes, std::int64_t k, Real* to) {
  return bring<kSide, kDepth, kPitch>(
      k_stride == 1 && lane_stride != 1, lanes, k,
      [&](int lane, int at) {
        return simt::Conversions::template widen<Real>(from[lane * lane_stride + at * k_stride]);
      },
      to);
}

}  // namespace isobit::tile
