// SPDX-License-Identifier: Apache-2.0
// What the device functions of the host back end ask of the emulator: every CUDA thread is a fiber,
// and one processor runs one of them at a time, in an order that a schedule chooses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace isobit::simt::host {

// The GPU that the emulator passes for: sm_90.
inline constexpr int kCapability = 90;

// Where a kernel calls. (clang 14 knows no std::source_location.)
class Site {
 public:
  static constexpr Site current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    Site site;
    site.file_ = file;
    site.line_ = line;
    return site;
  }
  constexpr const char* file_name() const { return file_; }
  constexpr int line() const { return line_; }

 private:
  const char* file_ = "";
  int line_ = 0;
};

// What the thread that runs may know of itself.
struct Self {
  int thread = 0, threads = 0;
  std::int64_t block = 0, blocks = 0;
  int rank = 0, cluster = 1;  // of the block in its cluster, and how many blocks that has
};
extern const Self* self;

// Which thread runs next, and how many blocks are in flight. All are right; each finds other
// faults.
enum class Order {
  in_order,
  reversed,
  random,
  starving  // a few warps run whenever they can, and who they are changes rarely
};
struct Schedule {
  Order order = Order::in_order;
  std::uint64_t seed = 1;
  int resident = 2;              // blocks, or one cluster where that is more
  bool shuffled_blocks = false;  // blocks start in a random order
};
void set_schedule(const Schedule& schedule);

// An array in shared memory, from the start of a block's.
struct Region {
  std::int64_t offset, bytes;
};

struct Launch {
  std::int64_t blocks = 1;
  int threads = 1, cluster = 1;
  std::span<const Region> shared;
  const void* stream = nullptr;
};
// From now on, launches on other streams fail. Without one, all are taken.
void set_only_stream(const void* stream);

// Runs body(shared memory) in every thread. Throws DeviceError, which names file, line, block and
// thread, for whatever a device would punish or leave undefined.
void run(const Launch& launch, const std::function<void(std::byte*)>& body);

[[noreturn]] void fail(Site site, const std::string& what);

// Barriers. The block's also tells whether any of its threads came with `predicate`.
bool sync_block(bool predicate, Site site);
void sync_cluster(Site site);
void sync_warp(unsigned lanes, Site site);
std::uint64_t shuffle(unsigned lanes, std::uint64_t value, int from_lane, Site site);
unsigned ballot(unsigned lanes, bool predicate, Site site);

// The words of all lanes of a whole warp, lane by lane, until this lane next meets others.
using Words = std::array<std::uint32_t, 6>;
const Words* gather(const Words& own, Site site);
// What tensor cores do with words of a (0 to 3) and of b (4 and 5) and a lane's sums.
void multiply_add(float (&sums)[4], const Words& own, bool of_bf16, Site site);

// Another block's copy of an address in this block's shared memory.
void* in_cluster(const void* address, int rank, Site site);

// Before a load that may be repeated until another thread has written; others run meanwhile.
void before_load(Site site);
// Around an access that orders others: what was done before a release is seen after an acquire.
void before_release(const void* address);
void after_acquire(const void* address);
void add_unordered(float* to, float value);

// Copies to shared memory that the thread goes on beside. They land as late as they may.
void copy_async(void* to, const void* from, int bytes, int given, Site site);
void commit_copies();
void wait_copies(int still_open);

// An arrival barrier (mbarrier) in shared memory, and copies that count on one.
using Arrival = std::uint64_t;
void arrival_init(Arrival* arrival, int count, Site site);
void arrival_expect(Arrival* arrival, std::int64_t bytes, Site site);
void arrival_wait(Arrival* arrival, int parity, Site site);
void copy_bulk(void* to, const void* from, std::int64_t bytes, Arrival* arrival, Site site);

// What a race detector is told (race.h).
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void* started(const Self& self) = 0;  // an identity for a thread that begins
  virtual void finished(void* identity) = 0;
  virtual void runs(void* identity) = 0;  // from now on; null: the emulator itself
  virtual void acquire(const void* tag) = 0;
  virtual void release(const void* tag) = 0;
  virtual void access(const void* address, std::size_t bytes, bool writes) = 0;
  virtual void forget(const void* address, std::size_t bytes) = 0;  // memory that is used anew
  virtual std::string findings() = 0;                               // since last asked
};
void set_observer(Observer* observer);
// Whether it lies on the stack of the thread that runs.
bool on_own_stack(const void* address);
// "shared array 2 of block 5, byte 16", or nothing for other memory.
std::string describe(const void* address);

}  // namespace isobit::simt::host
