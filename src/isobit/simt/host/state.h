// SPDX-License-Identifier: Apache-2.0
// What the emulator keeps of a launch while it runs: shared by its own files, seen by no other.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/simt/host/emulator.h"
#include "isobit/simt/host/fiber.h"
#include "isobit/simt/host/warpgroup.h"
#include "isobit/simt/launch_shape.h"

namespace isobit::simt::host {

struct Block;
struct Warp;

// Unwinds the fiber of a thread that did something wrong.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Copy {
  void* to;
  const void* from;
  int bytes, given;  // `given` are read, the others become zero
};

// Products by a warpgroup that are under way, as one thread has them.
struct Product {
  Boxes a, b;
  bool of_bf16;
  std::uint16_t rows[2][16] = {};  // of a that is nowhere in memory
};
struct Products {
  bool begun = false;   // a fence stands behind the last wait
  Sums sums;            // where they go; none are under way where there are none
  float made[64] = {};  // by those that are done
  std::vector<Product> open;
  std::deque<std::vector<Product>> committed;
};

struct Thread {
  Self self;
  Fiber fiber;
  Block* home = nullptr;
  Warp* warp = nullptr;
  int lane = 0;
  bool finished = false;
  std::uint64_t priority = 0;  // its warp's when it became ready
  const char* waits_for = "";
  Site site;
  void* identity = nullptr;  // for the observer
  std::vector<Copy> open;    // copies that are not committed yet
  std::deque<std::vector<Copy>> committed;
  Products products;
};

enum class Meeting { sync, shuffle, ballot, gather };

// Lanes that wait for each other.
struct Exchange {
  Meeting meeting;
  unsigned lanes, arrived;
  Site site;
  const void* tag;  // what orders before with after
};

struct Warp {
  Thread* threads[kWarpThreads] = {};
  int count = 0;
  unsigned exited = 0;
  std::uint64_t priority = 0;
  std::vector<Exchange> exchanges;
  std::uint64_t given[kWarpThreads] = {}, taken[kWarpThreads] = {};
  int from[kWarpThreads] = {};
  Words words[kWarpThreads] = {}, gathered[kWarpThreads] = {};
  char tags[64] = {};  // taken in turn: the next exchange may begin before the last one is left
  int next_tag = 0;
};

struct Barrier {
  Site site;
  bool any = false, result = false;
  int round = 0;
  std::vector<Thread*> waiting;

  // What orders before with after: another one in each round, as the next may begin early.
  const void* tag() const { return &tags_[round & 1]; }

 private:
  char tags_[2] = {};
};

struct ArrivalState {
  int count = 0, missing = 0, phase = 0;
  std::int64_t bytes = 0;  // still to land
  std::vector<Thread*> waiting;
};

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  int unfinished = 0;  // threads
  Barrier barrier;
};

struct Block {
  std::int64_t index = 0;
  int rank = 0, unfinished = 0;
  Cluster* cluster = nullptr;
  std::byte* shared = nullptr;
  std::vector<Thread*> threads;
  std::vector<Warp> warps;
  Barrier barrier;
  std::map<const Arrival*, ArrivalState> arrivals;
};

struct BulkCopy {
  Block* block;
  std::vector<Copy> pieces;
  std::int64_t bytes;
  Arrival* arrival;
};

class Emulator {
 public:
  void run(const Launch& launch, const std::function<void(std::byte*)>& body);

  Thread& current() { return *current_; }
  Block& block() { return *current_->home; }
  bool in_thread() const { return current_ != nullptr; }
  bool in_order() const { return schedule.order == Order::in_order; }
  std::uint64_t random() { return random_(); }

  void make_ready(Thread* thread);
  void make_ready(std::vector<Thread*>& threads);
  // Runs others until somebody makes this thread ready.
  void wait(const char* for_what, Site site);
  void step_aside();     // lets others run, if the schedule likes
  void spin(Site site);  // the same, in vain so far
  void progress() { idle_ = 0; }
  void acquire(const void* tag) {
    if (observer) observer->acquire(tag);
  }
  void release(const void* tag) {
    if (observer) observer->release(tag);
  }
  void observe(const void* address, std::int64_t bytes, bool writes) {
    if (observer && bytes > 0) observer->access(address, static_cast<std::size_t>(bytes), writes);
  }

  Schedule schedule;
  Observer* observer = nullptr;
  const void* only_stream = nullptr;  // null: launches on all are taken
  Launch launch;
  std::deque<BulkCopy> bulk_copies;
  std::vector<std::unique_ptr<Cluster>> clusters;

 private:
  friend void thread_main();

  void start_cluster(std::int64_t first_block);
  void start_block(Block& block);
  void retire_finished();
  void exit_thread();
  Thread* pick();
  void leave(bool done);
  void switch_from(Fiber& from, Thread* to, bool done);
  std::string stuck(const std::string& why) const;

  const std::function<void(std::byte*)>* body_ = nullptr;
  Thread* current_ = nullptr;
  Fiber* main_ = nullptr;
  Fiber* last_ = nullptr;      // who switched last
  std::deque<Thread*> ready_;  // a heap in the starving order
  std::vector<Thread*> spinning_;
  std::vector<std::unique_ptr<Thread>>
      threads_;  // all there ever were: their stacks are used again
  std::vector<Thread*> unused_;
  bool finished_block_ = false;
  std::int64_t idle_ = 0;
  std::string error_;
  std::mt19937_64 random_;
};
extern Emulator emulator;

std::string name_of(const Thread& thread);
std::string name_of(Site site);
bool same(Site a, Site b);

// Fails where the bytes are not of one shared array of the block that runs.
void require_shared(const void* address, std::int64_t bytes, Site site);
// Begins a bulk copy of pieces that make up `bytes` from an address on.
void copy_pieces(void* to, std::int64_t bytes, std::vector<Copy> pieces, Arrival* arrival,
                 Site site);
// Lands the copy that comes first, or any where the schedule is random.
void land_a_bulk_copy();

}  // namespace isobit::simt::host
