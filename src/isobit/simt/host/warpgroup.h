// SPDX-License-Identifier: Apache-2.0
// Products of matrices by four warps together, a warpgroup, whose operands lie in shared memory as
// copies of boxes put them there. From sm_90 on, and not after it.
#pragma once

#include "isobit/simt/boxes.h"
#include "isobit/simt/host/device.h"

namespace isobit::simt {

namespace host {

void copy_box(void* to, const Matrices& from, int element, int second, int third, Arrival* arrival,
              Site site);
void arrive(Arrival* arrival, Site site);

// An operand: boxes one behind the other, of lines along k or across it.
struct Boxes {
  const void* from;
  bool along_k;
};
// What a thread has of them.
struct Sums {
  float* first = nullptr;
  int count = 0;
};
void begin_products(Site site);
void multiply_add(Sums sums, Boxes a, Boxes b, bool of_bf16, Site site);
void multiply_add(Sums sums, const unsigned (&a)[4], Boxes b, bool of_bf16, Site site);
void commit_products(Site site);
void wait_products(int still_open, Site site);
void meet(Site site);  // the warp is here as a whole

}  // namespace host

// What copies need to know of the matrices, made by the host. They begin at 16 bytes, and so do
// their lines.
using BoxMap = Matrices;
template <class T>
BoxMap box_map(const Matrices& matrices) {
  static_assert(sizeof(T) == 2);
  return matrices;
}

// Begins to copy a box, with zeros beyond the matrix, to an address at kBoxAlignment. It begins
// with an element of a line (`second`) of a matrix (`third`), or where they are woven of a line
// `third` of matrix `second`. All its bytes count on the arrival barrier. Lines stand below each
// other, 128 bytes each; of a line l piece p, of 16 bytes, is the one at p ^ l % 8.
inline void copy_box(void* to, const BoxMap& map, int element, int second, int third,
                     Arrival* arrival, Site site = Site::current()) {
  host::copy_box(to, map, element, second, third, arrival, site);
}

// Arrives, and expects no bytes.
inline void arrive(Arrival* arrival, Site site = Site::current()) { host::arrive(arrival, site); }

// Before the first product, and before the next one after a wait: what the thread did to its sums
// is done.
template <int kSums>
void begin_products(float (&)[kSums], Site site = Site::current()) {
  host::begin_products(site);
}
// The same where words of a are in registers, too.
template <int kSums, int kSteps>
void begin_products(float (&)[kSums], unsigned (&)[kSteps][4], Site site = Site::current()) {
  host::begin_products(site);
}
// Begins sums += a * b, 64 x 128 += 64 x 16 * 16 x 128, for f16 or bf16. a is in one box, b in two,
// of which each has 64 rows of a or columns of b: as lines of 64 k where k is adjacent, else in
// each line, of which there are 64 k. They point to the first k of 16. Of warp w of four, sums 4j
// to 4j + 3 of lane l are those of row 16w + l/4 and columns 8j + l%4*2 and the next, then of the
// row 8 below. Until a wait says so, nobody may touch sums, nor write where a and b are.
template <class T, bool kAAlongK, bool kBAlongK>
void multiply_add(float (&sums)[64], const T* a, const T* b, Site site = Site::current()) {
  host::multiply_add({sums, 64}, {a, kAAlongK}, {b, kBAlongK}, std::is_same_v<T, bf16>, site);
}
// The same of 64 columns of b, in one box, where each warp has its 16 rows of a in registers, as
// multiply_add of matrix.h takes them.
template <class T, bool kBAlongK>
void multiply_add(float (&sums)[32], const unsigned (&a)[4], const T* b,
                  Site site = Site::current()) {
  host::multiply_add({sums, 32}, a, {b, kBAlongK}, std::is_same_v<T, bf16>, site);
}
// The products since the last call are a group; waits until so many groups at most are under way.
inline void commit_products(Site site = Site::current()) { host::commit_products(site); }
template <int kStillOpen, int kSums>
void wait_products(float (&)[kSums], Site site = Site::current()) {
  host::wait_products(kStillOpen, site);
}

// From here on the threads of a warpgroup, which comes as a whole, have so many registers each, a
// multiple of 8: fewer or more than they began with. More wait until others have fewer.
template <int kCount>
void have_fewer_registers(Site site = Site::current()) {
  static_assert(kCount % 8 == 0 && kCount >= 24 && kCount <= 256);
  host::meet(site);
}
template <int kCount>
void have_more_registers(Site site = Site::current()) {
  have_fewer_registers<kCount>(site);
}

}  // namespace isobit::simt
