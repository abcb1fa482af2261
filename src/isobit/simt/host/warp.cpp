// SPDX-License-Identifier: Apache-2.0
// Lanes of a warp that meet: to exchange values, or to see each other's writes.
#include <algorithm>
#include <bit>

#include "isobit/simt/host/state.h"

namespace isobit::simt::host {
namespace {

std::string hex(unsigned lanes) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%08x", lanes);
  return digits;
}

void complete(const Exchange& exchange, Warp& warp) {
  const unsigned lanes = exchange.lanes;
  if (exchange.meeting == Meeting::gather) {
    std::ranges::copy(warp.words, warp.gathered);
    return;
  }
  unsigned votes = 0;
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    votes |= unsigned{warp.given[lane] != 0} << lane;
  }
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (exchange.meeting == Meeting::shuffle)
      warp.taken[lane] = warp.given[warp.from[lane]];
    else
      warp.taken[lane] = votes;
  }
}

// All of `lanes` come to the same place with the same lanes, or the warp has diverged.
std::uint64_t meet(Meeting meeting, unsigned lanes, std::uint64_t value, int from, Site site) {
  Thread& thread = emulator.current();
  Warp& warp = *thread.warp;
  const unsigned all = warp.count == kWarpThreads ? kAllLanes : (1u << warp.count) - 1;
  if (lanes == kAllLanes) lanes = all;
  if (!(lanes >> thread.lane & 1))
    fail(site, text("lane ", thread.lane, " is not among the lanes ", hex(lanes), " it names"));
  if (lanes & ~all) fail(site, text("the lanes ", hex(lanes & ~all), " do not exist"));
  if (lanes & warp.exited) fail(site, text("the lanes ", hex(lanes & warp.exited), " have exited"));
  if (meeting == Meeting::shuffle && !(lanes >> from & 1))
    fail(site, text("reads from lane ", from, ", which is not among the lanes ", hex(lanes)));

  std::size_t at = 0;
  for (; at < warp.exchanges.size(); ++at) {
    const Exchange& open = warp.exchanges[at];
    if (!(open.lanes & lanes)) continue;
    if (open.lanes == lanes && open.meeting == meeting && same(open.site, site)) break;
    fail(site, text("the warp has diverged: other lanes wait at ", name_of(open.site), " for ",
                    hex(open.lanes), ", this one waits for ", hex(lanes)));
  }
  if (at == warp.exchanges.size())
    warp.exchanges.push_back({meeting, lanes, 0, site, &warp.tags[warp.next_tag++ % 64]});
  const void* tag = warp.exchanges[at].tag;
  if (meeting == Meeting::sync) emulator.release(tag);  // the others order no memory
  warp.exchanges[at].arrived |= 1u << thread.lane;
  warp.given[thread.lane] = value;
  warp.from[thread.lane] = from;
  if (warp.exchanges[at].arrived == lanes) {
    complete(warp.exchanges[at], warp);
    warp.exchanges.erase(warp.exchanges.begin() + static_cast<std::ptrdiff_t>(at));
    for (unsigned others = lanes & ~(1u << thread.lane); others != 0; others &= others - 1)
      emulator.make_ready(warp.threads[std::countr_zero(others)]);
    emulator.progress();
    if (!emulator.in_order()) emulator.step_aside();
  } else {
    emulator.wait("other lanes", site);
  }
  if (meeting == Meeting::sync) emulator.acquire(tag);
  return warp.taken[thread.lane];
}

}  // namespace

void sync_warp(unsigned lanes, Site site) { meet(Meeting::sync, lanes, 0, 0, site); }

std::uint64_t shuffle(unsigned lanes, std::uint64_t value, int from_lane, Site site) {
  return meet(Meeting::shuffle, lanes, value, from_lane, site);
}

unsigned ballot(unsigned lanes, bool predicate, Site site) {
  return static_cast<unsigned>(meet(Meeting::ballot, lanes, predicate, 0, site));
}

const Words* gather(const Words& own, Site site) {
  Thread& thread = emulator.current();
  Warp& warp = *thread.warp;
  if (warp.count != kWarpThreads)
    fail(site, text("a warp of ", warp.count, " threads; matrices take a whole one"));
  warp.words[thread.lane] = own;
  meet(Meeting::gather, kAllLanes, 0, 0, site);
  return warp.gathered;
}

}  // namespace isobit::simt::host
