// SPDX-License-Identifier: Apache-2.0
// Places in shared memory that one thread of a block fills by bulk copies while warps empty them,
// each at its own pace: nobody waits for the whole block.
#pragma once

#include "isobit/simt/warpgroup.h"

namespace isobit::tile {

// Turns are counted from 0 and take places one after the other, again and again. kTakers warps
// empty a place.
template <int kPlaces, int kTakers>
class Supply {
 public:
  struct Memory {
    simt::Arrival *filled, *emptied;
  };
  template <class Carver>
  ISOBIT_EITHER static Memory memory(Carver& carver) {
    simt::Arrival* const filled = carver.template take<simt::Arrival>(kPlaces);
    return {filled, carver.template take<simt::Arrival>(kPlaces)};
  }

  // All threads of a block make one together.
  ISOBIT_DEVICE explicit Supply(const Memory& memory) : memory_(memory) {
    if (simt::thread() == 0) {
#pragma unroll 1
      for (int place = 0; place < kPlaces; ++place) {
        simt::arrival_init(&memory_.filled[place], 1);
        simt::arrival_init(&memory_.emptied[place], kTakers);
      }
      simt::publish_arrivals();
    }
    simt::sync_block();
  }

  ISOBIT_DEVICE static int place(unsigned turn) { return static_cast<int>(turn % kPlaces); }

  // For the thread that fills: waits until the turn's place is empty.
  ISOBIT_DEVICE void make_room(unsigned turn) const {
    simt::arrival_wait(&memory_.emptied[place(turn)], 1 - parity(turn));
  }
  // The same, and then so many bytes of it will be filled by copies that count on the barrier that
  // this returns. Whoever takes the turn sees what the thread wrote before.
  ISOBIT_DEVICE simt::Arrival* order(unsigned turn, int bytes) const {
    make_room(turn);
    simt::Arrival* const filled = &memory_.filled[place(turn)];
    simt::arrival_expect(filled, bytes);
    return filled;
  }

  // For warps that empty: waits for what was ordered for a turn; and says that the warp has done
  // with it.
  ISOBIT_DEVICE void wait(unsigned turn) const {
    simt::arrival_wait(&memory_.filled[place(turn)], parity(turn));
  }
  ISOBIT_DEVICE void give_back(unsigned turn) const {
    simt::sync_warp();  // all its lanes have
    if (simt::lane() == 0) simt::arrive(&memory_.emptied[place(turn)]);
  }

 private:
  ISOBIT_DEVICE static int parity(unsigned turn) { return static_cast<int>(turn / kPlaces % 2); }

  Memory memory_;
};

}  // namespace isobit::tile
