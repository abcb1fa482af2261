// SPDX-License-Identifier: Apache-2.0
// Places in shared memory that a block's threads fill by asynchronous copies before their turn
// comes. From sm_80 on; ring.h has the bulk copies of sm_90.
#pragma once

#include <cstdint>

#include "isobit/simt/simt.h"

namespace isobit::tile {

// For each turn use(place), behind a barrier, once all threads have what bring(turn, place) copied
// for it; bring is called kPlaces - 1 turns ahead. All threads of a block call this together, and
// no place holds anything that another still needs.
template <int kPlaces, class Bring, class Use>
ISOBIT_DEVICE void in_turns(std::int64_t turns, const Bring& bring, const Use& use) {
  static_assert(kPlaces >= 2);
  simt::sync_block();  // what the places held has been read
#pragma unroll 1
  for (int turn = 0; turn < kPlaces - 1; ++turn) {
    if (turn < turns) bring(turn, turn);
    simt::commit_copies();
  }
  int place = 0;
#pragma unroll 1
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    simt::wait_copies<kPlaces - 2>();
    simt::sync_block();  // the others' copies are there, and the place before has been read
    const int before = place == 0 ? kPlaces - 1 : place - 1;
    if (turn + kPlaces - 1 < turns) bring(turn + kPlaces - 1, before);
    simt::commit_copies();  // an empty group too: they are counted
    use(place);
    place = place + 1 == kPlaces ? 0 : place + 1;
  }
  simt::wait_copies<0>();  // only empty groups are left
}

}  // namespace isobit::tile
