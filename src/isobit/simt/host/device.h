// SPDX-License-Identifier: Apache-2.0
// What a kernel may call, executed by the emulator. cuda/device.h and hip/device.h have the same
// names for GPUs.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "isobit/core/dtype.h"
#include "isobit/core/error.h"
#include "isobit/simt/host/emulator.h"
#include "isobit/simt/launch_shape.h"

#define ISOBIT_DEVICE inline
#define ISOBIT_DEVICE_NOINLINE [[gnu::noinline]] inline
#define ISOBIT_EITHER inline  // called by host and device code

namespace isobit::simt {

using host::Arrival;
using host::Site;
using isobit::Conversions;

namespace detail {

template <class T>
T shuffled(T value, int from, unsigned lanes, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = host::shuffle(lanes, bits, from, site);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
void require_aligned(const T* address, Site site) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignof(T) != 0)
    host::fail(site, text("an address that is not aligned to the ", alignof(T),
                          " bytes that it is accessed by"));
}

}  // namespace detail

// Where this thread stands.
inline int thread() { return host::self->thread; }
inline int threads() { return host::self->threads; }
inline int lane() { return host::self->thread % kWarpThreads; }
inline std::int64_t block() { return host::self->block; }
inline std::int64_t blocks() { return host::self->blocks; }
inline int cluster_rank() { return host::self->rank; }
inline int cluster_blocks() { return host::self->cluster; }

// Barriers: all threads of a block, of a cluster, or the named lanes of a warp.
inline void sync_block(Site site = Site::current()) { host::sync_block(false, site); }
inline bool any_in_block(bool predicate, Site site = Site::current()) {
  return host::sync_block(predicate, site);
}
inline void sync_cluster(Site site = Site::current()) { host::sync_cluster(site); }
inline void sync_warp(unsigned lanes = kAllLanes, Site site = Site::current()) {
  host::sync_warp(lanes, site);
}

// Values of other lanes. They order no memory.
template <class T>
T shuffle(T value, int from, unsigned lanes = kAllLanes, Site site = Site::current()) {
  return detail::shuffled(value, from, lanes, site);
}
template <class T>
T shuffle_xor(T value, int distance, unsigned lanes = kAllLanes, Site site = Site::current()) {
  return detail::shuffled(value, lane() ^ distance, lanes, site);
}
inline unsigned ballot(bool predicate, unsigned lanes = kAllLanes, Site site = Site::current()) {
  return host::ballot(lanes, predicate, site);
}

// Global memory, in one piece. `once` marks what nobody reads again soon.
template <class T>
T load(const T* from, Site site = Site::current()) {
  detail::require_aligned(from, site);
  return *from;
}
template <class T>
T load_shared(const T* from, Site site = Site::current()) {
  return load(from, site);
}
template <class T>
void store_shared(T* to, const T& value, Site site = Site::current()) {
  detail::require_aligned(to, site);
  *to = value;
}
template <class T>
T load_once(const T* from, Site site = Site::current()) {
  return load(from, site);
}
template <class T>
void store(T* to, std::type_identity_t<T> value, Site site = Site::current()) {
  detail::require_aligned(to, site);
  *to = value;
}
template <class T>
void store_once(T* to, std::type_identity_t<T> value, Site site = Site::current()) {
  store(to, value, site);
}

// Adjacent elements to another type, in as few instructions as the device has for them.
template <class Real, class T, std::size_t kCount>
void widen_all(const T (&from)[kCount], Real* to) {
  for (std::size_t i = 0; i < kCount; ++i) to[i] = Conversions::widen<Real>(from[i]);
}
template <class T, class Real, std::size_t kCount>
void narrow_all(const Real* from, T (&to)[kCount]) {
  for (std::size_t i = 0; i < kCount; ++i) to[i] = Conversions::narrow<T>(from[i]);
}

// Between blocks: what was written before a release is seen after the acquire that reads its value.
inline unsigned load_acquire(const unsigned* from, Site site = Site::current()) {
  host::before_load(site);
  const unsigned value = __atomic_load_n(from, __ATOMIC_RELAXED);
  host::after_acquire(from);
  return value;
}
inline void store_release(unsigned* to, unsigned value) {
  host::before_release(to);
  __atomic_store_n(to, value, __ATOMIC_RELAXED);
}
// Both a release and an acquire; gives the value before.
inline unsigned add_acquire_release(unsigned* to, unsigned value) {
  host::before_release(to);
  const unsigned before = __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
  host::after_acquire(to);
  return before;
}

// Atomically, in whatever order threads come: a sum of several has other bits each time.
inline void add_unordered(float* to, float value) { host::add_unordered(to, value); }

// Four of eight bytes: the lowest four bits of `which` tell the lowest byte of the result, and so
// on. Those of a are 0 to 3, those of b 4 to 7.
inline unsigned pick_bytes(unsigned a, unsigned b, unsigned which) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  unsigned picked = 0;
  for (unsigned i = 0; i < 4; ++i)
    picked |= static_cast<unsigned>(bytes >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return picked;
}

template <class T>
T* in_cluster(T* shared, int rank, Site site = Site::current()) {
  return static_cast<T*>(host::in_cluster(shared, rank, site));
}

// Copies of kBytes (4, 8 or 16) to shared memory, of which `given` are read and the others zero.
template <int kBytes>
void copy_async(void* to, const void* from, int given = kBytes, Site site = Site::current()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  host::copy_async(to, from, kBytes, given, site);
}
inline void commit_copies() { host::commit_copies(); }
template <int kStillOpen>
void wait_copies() {
  host::wait_copies(kStillOpen);
}

// Bulk copies, counted by an arrival barrier in shared memory. One thread initialises it, then
// calls publish_arrivals(); a barrier of the block must follow.
inline void arrival_init(Arrival* arrival, int count, Site site = Site::current()) {
  host::arrival_init(arrival, count, site);
}
inline void publish_arrivals() {}
inline void arrival_expect(Arrival* arrival, int bytes, Site site = Site::current()) {
  host::arrival_expect(arrival, bytes, site);
}
inline void arrival_wait(Arrival* arrival, int parity, Site site = Site::current()) {
  host::arrival_wait(arrival, parity, site);
}
inline void copy_bulk(void* to, const void* from, int bytes, Arrival* arrival,
                      Site site = Site::current()) {
  host::copy_bulk(to, from, bytes, arrival, site);
}

}  // namespace isobit::simt
