// SPDX-License-Identifier: Apache-2.0
// Places in shared memory, filled in bulk before their turn comes: what a block will work on is
// under way while it works.
#pragma once

#include "isobit/simt/simt.h"

namespace isobit::tile {

// Elements of T, of one array or of two in each place. Turns are counted from 0 and take places
// one after the other, again and again. Each thread of a block has a ring, and calls the same.
template <class T>
class Ring {
 public:
  // `capacity`: elements of an array in a place, whole vectors of 16 bytes. `places`: a power of
  // two.
  struct Memory {
    T* elements;
    simt::Arrival* arrived;
    int capacity, places, arrays;
  };
  template <class Carver>
  ISOBIT_EITHER static Memory memory(Carver& carver, int places, int capacity, int arrays) {
    T* elements = carver.template take<T>(places * arrays * capacity);
    return {elements, carver.template take<simt::Arrival>(places), capacity, places, arrays};
  }

  ISOBIT_DEVICE explicit Ring(const Memory& memory) : memory_(memory) {
    if (fetches()) {
#pragma unroll 1
      for (int place = 0; place < memory_.places; ++place)
        simt::arrival_init(&memory_.arrived[place], 1);
      simt::publish_arrivals();
    }
    simt::sync_block();
  }

  // How many turns can be under way beside the one at hand.
  ISOBIT_DEVICE int ahead() const { return memory_.places - 1; }

  // Orders `bytes` of each array, once for each turn. A barrier must stand behind the last look at
  // the turn that had the place before.
  ISOBIT_DEVICE void order(unsigned turn, const T* first, const T* second, int bytes) const {
    if (!fetches()) return;
    simt::arrival_expect(arrived(turn), memory_.arrays * bytes);
    if (bytes == 0) return;
    simt::copy_bulk(place(turn, 0), first, bytes, arrived(turn));
    if (memory_.arrays > 1) simt::copy_bulk(place(turn, 1), second, bytes, arrived(turn));
  }

  // Waits for what was ordered for a turn.
  ISOBIT_DEVICE void wait(unsigned turn) const {
    const bool odd = (turn & static_cast<unsigned>(memory_.places)) != 0;
    simt::arrival_wait(arrived(turn), odd ? 1 : 0);
  }
  // An array of a turn that has come.
  ISOBIT_DEVICE const T* array(unsigned turn, int which) const { return place(turn, which); }

 private:
  ISOBIT_DEVICE static bool fetches() { return simt::thread() == 0; }
  ISOBIT_DEVICE int at(unsigned turn) const {
    return static_cast<int>(turn & static_cast<unsigned>(memory_.places - 1));
  }
  ISOBIT_DEVICE simt::Arrival* arrived(unsigned turn) const { return &memory_.arrived[at(turn)]; }
  ISOBIT_DEVICE T* place(unsigned turn, int which) const {
    return memory_.elements + (at(turn) * memory_.arrays + which) * memory_.capacity;
  }

  Memory memory_;
};

}  // namespace isobit::tile
