// SPDX-License-Identifier: Apache-2.0
// Products of matrices by four warps together, a warpgroup, whose operands lie in shared memory as
// copies of boxes put them there. From sm_90 on, and not after it.
#pragma once

#include "isobit/simt/boxes.h"
#include "isobit/simt/host/device.h"

namespace isobit::simt {

namespace host {

void copy_box(void* to, const Matrices& from, int element, int line, int matrix, Arrival* arrival,
              Site site);
void arrive(Arrival* arrival, Site site);

// An operand: boxes one behind the other, of lines along k or across it.
struct Boxes {
  const void* from;
  bool along_k;
};
void begin_products(Site site);
void multiply_add(float (&sums)[64], Boxes a, Boxes b, bool of_bf16, Site site);
void commit_products(Site site);
void wait_products(int still_open, Site site);

}  // namespace host

// What copies need to know of the matrices, made by the host. They begin at 16 bytes, and so do
// their lines.
using BoxMap = Matrices;
template <class T>
BoxMap box_map(const Matrices& matrices) {
  static_assert(sizeof(T) == 2);
  return matrices;
}

// Begins to copy a box, with zeros beyond the matrix, to an address at kBoxAlignment. All its bytes
// count on the arrival barrier. Lines stand below each other, 128 bytes each; of a line l piece p,
// of 16 bytes, is the one at p ^ l % 8.
inline void copy_box(void* to, const BoxMap& map, int element, int line, int matrix,
                     Arrival* arrival, Site site = Site::current()) {
  host::copy_box(to, map, element, line, matrix, arrival, site);
}

// Arrives, and expects no bytes.
inline void arrive(Arrival* arrival, Site site = Site::current()) { host::arrive(arrival, site); }

// Before the first product, and before the next one after a wait: what the thread did to its sums
// is done.
inline void begin_products(float (&)[64], Site site = Site::current()) {
  host::begin_products(site);
}
// Begins sums += a * b, 64 x 128 += 64 x 16 * 16 x 128, for f16 or bf16. a is in one box, b in two,
// of which each has 64 rows of a or columns of b: as lines of 64 k where k is adjacent, else in
// each line, of which there are 64 k. They point to the first k of 16. Of warp w of four, sums 4j
// to 4j + 3 of lane l are those of row 16w + l/4 and columns 8j + l%4*2 and the next, then of the
// row 8 below. Until a wait says so, nobody may touch sums, nor write where a and b are.
template <class T, bool kAAlongK, bool kBAlongK>
void multiply_add(float (&sums)[64], const T* a, const T* b, Site site = Site::current()) {
  host::multiply_add(sums, {a, kAAlongK}, {b, kBAlongK}, std::is_same_v<T, bf16>, site);
}
// The products since the last call are a group; waits until so many groups at most are under way.
inline void commit_products(Site site = Site::current()) { host::commit_products(site); }
template <int kStillOpen>
void wait_products(float (&)[64], Site site = Site::current()) {
  host::wait_products(kStillOpen, site);
}

}  // namespace isobit::simt
