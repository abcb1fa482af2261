// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies to shared memory. They land as late as they may, and what they will replace
// is lost at once: who reads too early or too late sees it.
#include <cstring>

#include "isobit/simt/host/shared_memory.h"
#include "isobit/simt/host/state.h"

namespace isobit::simt::host {
namespace {

void require_aligned(const void* address, std::int64_t alignment, const char* what, Site site) {
  if (reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(alignment) != 0)
    fail(site, text(what, " ", address, " is not aligned to ", alignment, " bytes"));
}

// Not through the observer: the memory belongs to the copy from now on.
void spoil(void* memory, std::int64_t bytes) { std::memset(memory, 0xff, bytes); }

ArrivalState& state_of(Block& block, const Arrival* arrival, Site site) {
  const auto found = block.arrivals.find(arrival);
  if (found == block.arrivals.end()) fail(site, "an arrival barrier that was never initialised");
  return found->second;
}

void step(ArrivalState& state) {
  if (state.missing > 0 || state.bytes > 0) return;
  ++state.phase;
  state.missing = state.count;
  emulator.make_ready(state.waiting);
}

const void* tag_of(const Arrival* arrival, int phase) {
  return reinterpret_cast<const char*>(arrival) + (phase & 1);
}

void land(const Copy& copy) {
  std::memset(copy.to, 0, copy.bytes);
  std::memcpy(copy.to, copy.from, copy.given);
}

}  // namespace

void require_shared(const void* address, std::int64_t bytes, Site site) {
  const auto offset = static_cast<const std::byte*>(address) - emulator.block().shared;
  for (const Region& array : emulator.launch.shared)
    if (offset >= array.offset && offset + bytes <= array.offset + array.bytes) return;
  fail(site, text(bytes, " bytes at ", address, " do not lie in one shared array of this block"));
}

void copy_async(void* to, const void* from, int bytes, int given, Site site) {
  require_aligned(to, bytes, "the target", site);
  if (given > 0) require_aligned(from, bytes, "the source", site);
  require_shared(to, bytes, site);
  emulator.observe(to, bytes, true);
  spoil(to, bytes);
  emulator.current().open.push_back({to, from, bytes, given});
}

void commit_copies() {
  Thread& thread = emulator.current();
  thread.committed.push_back(std::move(thread.open));
  thread.open.clear();
}

void wait_copies(int still_open) {
  Thread& thread = emulator.current();
  for (; static_cast<int>(thread.committed.size()) > still_open; thread.committed.pop_front())
    for (const Copy& copy : thread.committed.front()) {
      emulator.observe(copy.from, copy.given, false);
      emulator.observe(copy.to, copy.bytes, true);
      land(copy);
    }
}

void arrival_init(Arrival* arrival, int count, Site site) {
  require_shared(arrival, sizeof *arrival, site);
  ArrivalState state;
  state.count = state.missing = count;
  emulator.observe(arrival, sizeof *arrival, true);
  emulator.block().arrivals[arrival] = state;
}

void arrival_expect(Arrival* arrival, std::int64_t bytes, Site site) {
  ArrivalState& state = state_of(emulator.block(), arrival, site);
  if (state.missing == 0) fail(site, text("more arrivals than the ", state.count, " expected"));
  emulator.observe(arrival, sizeof *arrival, false);
  emulator.release(tag_of(arrival, state.phase));
  --state.missing;
  state.bytes += bytes;
  step(state);
}

void arrive(Arrival* arrival, Site site) {
  arrival_expect(arrival, 0, site);
  emulator.progress();
}

void arrival_wait(Arrival* arrival, int parity, Site site) {
  ArrivalState& state = state_of(emulator.block(), arrival, site);
  emulator.observe(arrival, sizeof *arrival, false);
  if ((state.phase & 1) == parity) {
    state.waiting.push_back(&emulator.current());
    emulator.wait("copies or arrivals", site);
  } else if (!emulator.in_order()) {
    emulator.step_aside();
  }
  emulator.acquire(tag_of(arrival, parity));
}

void copy_bulk(void* to, const void* from, std::int64_t bytes, Arrival* arrival, Site site) {
  require_aligned(to, 16, "the target", site);
  require_aligned(from, 16, "the source", site);
  if (bytes % 16 != 0) fail(site, text("a bulk copy of ", bytes, " bytes: not a multiple of 16"));
  emulator.observe(from, bytes, false);
  copy_pieces(to, bytes, {{to, from, static_cast<int>(bytes), static_cast<int>(bytes)}}, arrival,
              site);
}

void copy_pieces(void* to, std::int64_t bytes, std::vector<Copy> pieces, Arrival* arrival,
                 Site site) {
  require_shared(to, bytes, site);
  const ArrivalState& state = state_of(emulator.block(), arrival, site);
  emulator.observe(to, bytes, true);
  spoil(to, bytes);
  emulator.release(tag_of(arrival, state.phase));  // whoever waits sees what is copied
  emulator.bulk_copies.push_back({&emulator.block(), std::move(pieces), bytes, arrival});
}

void land_a_bulk_copy() {
  auto& copies = emulator.bulk_copies;
  const std::size_t place = emulator.in_order() ? 0 : emulator.random() % copies.size();
  const BulkCopy copy = std::move(copies[place]);
  copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(place));
  for (const Copy& piece : copy.pieces) land(piece);
  ArrivalState& state = copy.block->arrivals.at(copy.arrival);
  state.bytes -= copy.bytes;
  step(state);
}

}  // namespace isobit::simt::host
