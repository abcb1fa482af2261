// SPDX-License-Identifier: Apache-2.0
// Runs a launch: starts blocks, picks the thread that goes on, and tells when none can.
#include "isobit/simt/host/emulator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>

#include "isobit/simt/host/shared_memory.h"
#include "isobit/simt/host/state.h"

namespace isobit::simt::host {

const Self* self = nullptr;
Emulator emulator;

namespace {

constexpr std::int64_t kMostIdleSpins = 1'000'000;
std::mutex one_launch_at_a_time;

// In the starving order. Among equals, which are a warp's, it does not matter.
bool runs_later(const Thread* a, const Thread* b) { return a->priority < b->priority; }

}  // namespace

std::string name_of(Site site) {
  const char* file = std::strrchr(site.file_name(), '/');
  return text(file != nullptr ? file + 1 : site.file_name(), ":", site.line());
}

std::string name_of(const Thread& thread) {
  return text("block ", thread.self.block, ", thread ", thread.self.thread);
}

bool same(Site a, Site b) {
  return a.line() == b.line() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

void fail(Site site, const std::string& what) {
  const std::string place = name_of(site);
  if (!emulator.in_thread()) throw DeviceError(text(place, ": ", what));
  throw Fault(text(place, ": ", name_of(emulator.current()), ": ", what));
}

void thread_main() {
  Fiber::begin(*emulator.last_);
  try {
    (*emulator.body_)(emulator.block().shared);
    emulator.exit_thread();
  } catch (const Fault& fault) { emulator.error_ = fault.what(); }
  emulator.leave(true);
}

void Emulator::exit_thread() {
  Thread& thread = *current_;
  Block& block = *thread.home;
  if (!thread.open.empty() || !thread.committed.empty())
    throw Fault(text(name_of(thread), " exits with copies that it never waited for"));
  if (thread.products.sums.first != nullptr)
    throw Fault(text(name_of(thread), " exits with products that it never waited for"));
  if (!block.barrier.waiting.empty())
    throw Fault(text(name_of(thread), " exits while ", block.barrier.waiting.size(),
                     " threads of its block wait at ", name_of(block.barrier.site)));
  if (!block.cluster->barrier.waiting.empty())
    throw Fault(text(name_of(thread), " exits while threads of its cluster wait at ",
                     name_of(block.cluster->barrier.site)));
  for (const Exchange& exchange : thread.warp->exchanges)
    if (exchange.lanes >> thread.lane & 1)
      throw Fault(text(name_of(thread), " exits while other lanes wait for it at ",
                       name_of(exchange.site)));
  thread.finished = true;
  thread.warp->exited |= 1u << thread.lane;
  --block.cluster->unfinished;
  finished_block_ |= --block.unfinished == 0;
  if (observer) observer->finished(thread.identity);
  progress();
}

void Emulator::make_ready(std::vector<Thread*>& threads) {
  for (Thread* thread : threads) make_ready(thread);
  threads.clear();
  progress();
}

void Emulator::switch_from(Fiber& from, Thread* to, bool done) {
  last_ = &from;
  current_ = to;
  self = to != nullptr ? &to->self : nullptr;
  if (observer) observer->runs(to != nullptr ? to->identity : nullptr);
  from.switch_to(to != nullptr ? to->fiber : *main_, done);
}

void Emulator::leave(bool done) {
  Thread* from = current_;
  Thread* next = error_.empty() && !finished_block_ ? pick() : nullptr;
  if (next == from && !done) return;
  switch_from(from->fiber, next, done);
}

void Emulator::wait(const char* for_what, Site site) {
  current_->waits_for = for_what;
  current_->site = site;
  leave(false);
}

void Emulator::step_aside() {
  make_ready(current_);
  leave(false);
}

void Emulator::spin(Site site) {
  current_->waits_for = "a loop that waits for a value";
  current_->site = site;
  if (++idle_ > kMostIdleSpins)
    throw Fault(stuck("no thread gets further: those that spin wait for what nobody will write"));
  if (schedule.order == Order::in_order || schedule.order == Order::reversed)
    spinning_.push_back(current_);  // they would never let the others run
  else
    make_ready(current_);
  leave(false);
}

void Emulator::make_ready(Thread* thread) {
  ready_.push_back(thread);
  if (schedule.order != Order::starving) return;
  thread->priority = thread->warp->priority;
  std::push_heap(ready_.begin(), ready_.end(), runs_later);
}

Thread* Emulator::pick() {
  const Order order = schedule.order;
  if (!bulk_copies.empty() && order != Order::in_order && random() % 64 == 0) land_a_bulk_copy();
  while (ready_.empty() && !bulk_copies.empty()) land_a_bulk_copy();
  if (ready_.empty()) {
    for (Thread* thread : spinning_) make_ready(thread);
    spinning_.clear();
  }
  if (ready_.empty()) return nullptr;
  if (order == Order::in_order) {
    Thread* first = ready_.front();
    ready_.pop_front();
    return first;
  }
  if (order == Order::random) std::swap(ready_[random() % ready_.size()], ready_.back());
  if (order == Order::starving) std::pop_heap(ready_.begin(), ready_.end(), runs_later);
  Thread* thread = ready_.back();
  ready_.pop_back();
  if (order == Order::starving && random() % 64 == 0) thread->warp->priority = random();
  return thread;
}

// Where everybody waits, many threads to a line.
std::string Emulator::stuck(const std::string& why) const {
  std::string report = why;
  for (const auto& cluster : clusters)
    for (const auto& block : cluster->blocks) {
      std::map<std::string, std::pair<int, std::string>> groups;
      for (const Thread* thread : block->threads) {
        auto& [count, first] = groups[thread->finished ? "have exited"
                                                       : text("wait for ", thread->waits_for,
                                                              " at ", name_of(thread->site))];
        if (count++ == 0) first = text("thread ", thread->self.thread);
      }
      for (const auto& [what, group] : groups)
        report += text("\n  block ", block->index, ": ", group.first, " threads ", what,
                       ", the first is ", group.second);
    }
  return report;
}

void Emulator::start_block(Block& block) {
  block.shared = take_shared_memory(launch.shared);
  block.unfinished = launch.threads;
  block.cluster->unfinished += launch.threads;
  block.warps.resize((launch.threads + kWarpThreads - 1) / kWarpThreads);
  for (Warp& warp : block.warps) warp.priority = random();
  for (int i = 0; i < launch.threads; ++i) {
    if (unused_.empty()) {
      threads_.push_back(std::make_unique<Thread>());
      unused_.push_back(threads_.back().get());
    }
    Thread* thread = unused_.back();
    unused_.pop_back();
    thread->self = {i, launch.threads, block.index, launch.blocks, block.rank, launch.cluster};
    thread->home = &block;
    thread->warp = &block.warps[i / kWarpThreads];
    thread->lane = i % kWarpThreads;
    thread->warp->threads[thread->lane] = thread;
    ++thread->warp->count;
    thread->finished = false;
    thread->waits_for = "its turn";
    thread->open.clear();
    thread->committed.clear();
    thread->products = {};
    thread->fiber.prepare(thread_main);
    if (observer) thread->identity = observer->started(thread->self);
    block.threads.push_back(thread);
    make_ready(thread);
  }
}

void Emulator::start_cluster(std::int64_t first_block) {
  auto& cluster = clusters.emplace_back(std::make_unique<Cluster>());
  for (int rank = 0; rank < launch.cluster; ++rank) {
    auto& block = cluster->blocks.emplace_back(std::make_unique<Block>());
    block->index = first_block + rank;
    block->rank = rank;
    block->cluster = cluster.get();
  }
  for (auto& block : cluster->blocks) start_block(*block);
}

void Emulator::retire_finished() {
  finished_block_ = false;
  std::erase_if(clusters, [&](auto& cluster) {
    if (cluster->unfinished > 0) return false;
    for (auto& block : cluster->blocks) {
      unused_.insert(unused_.end(), block->threads.rbegin(), block->threads.rend());
      if (error_.empty()) error_ = written_outside(block->shared, launch.shared, block->index);
      if (observer) observer->forget(block->shared, kSharedArena);
      give_back_shared_memory(block->shared);
    }
    return true;
  });
}

void Emulator::run(const Launch& wanted, const std::function<void(std::byte*)>& body) {
  const std::lock_guard lock(one_launch_at_a_time);
  launch = wanted;
  body_ = &body;
  random_.seed(schedule.seed);
  error_.clear();
  idle_ = 0;
  Fiber main;
  main_ = &main;
  std::vector<std::int64_t> order(launch.blocks / launch.cluster);
  std::iota(order.begin(), order.end(), 0);
  if (schedule.shuffled_blocks) std::shuffle(order.begin(), order.end(), random_);
  const std::size_t resident = std::max(1, schedule.resident / launch.cluster);
  for (std::size_t next = 0; error_.empty();) {
    retire_finished();
    while (next < order.size() && clusters.size() < resident)
      start_cluster(order[next++] * launch.cluster);
    if (clusters.empty() || !error_.empty()) break;
    if (Thread* thread = pick())
      switch_from(main, thread, false);
    else
      error_ = stuck("deadlock: every thread waits");
  }
  // After a fault threads are left where they are.
  for (auto& cluster : clusters)
    for (auto& block : cluster->blocks) {
      unused_.insert(unused_.end(), block->threads.begin(), block->threads.end());
      give_back_shared_memory(block->shared);
    }
  clusters.clear();
  ready_.clear();
  spinning_.clear();
  bulk_copies.clear();
  finished_block_ = false;
  const std::string races = observer ? observer->findings() : "";
  if (error_.empty()) error_ = races;
  if (!error_.empty()) throw DeviceError(error_);
}

void run(const Launch& launch, const std::function<void(std::byte*)>& body) {
  if (emulator.only_stream != nullptr && launch.stream != emulator.only_stream)
    throw DeviceError("a launch on another stream than the caller's");
  emulator.run(launch, body);
}
void set_only_stream(const void* stream) { emulator.only_stream = stream; }
void set_schedule(const Schedule& schedule) { emulator.schedule = schedule; }
void set_observer(Observer* observer) { emulator.observer = observer; }

bool sync_block(bool predicate, Site site) {
  Block& block = emulator.block();
  Barrier& barrier = block.barrier;
  if (block.unfinished < emulator.launch.threads)
    fail(site, text("a barrier of the block, of which ", emulator.launch.threads - block.unfinished,
                    " threads have exited"));
  if (!barrier.waiting.empty() && !same(barrier.site, site))
    fail(site, text("a barrier, while other threads of the block wait at ", name_of(barrier.site)));
  if (barrier.waiting.empty()) barrier.any = false;
  barrier.site = site;
  barrier.any |= predicate;
  const void* tag = barrier.tag();
  emulator.release(tag);
  barrier.waiting.push_back(&emulator.current());
  if (static_cast<int>(barrier.waiting.size()) == emulator.launch.threads) {
    barrier.result = barrier.any;
    ++barrier.round;
    emulator.make_ready(barrier.waiting);
  }
  emulator.wait("a barrier of the block", site);
  emulator.acquire(tag);
  return barrier.result;
}

void sync_cluster(Site site) {
  Cluster& cluster = *emulator.block().cluster;
  Barrier& barrier = cluster.barrier;
  const int threads = emulator.launch.threads * emulator.launch.cluster;
  if (cluster.unfinished < threads)
    fail(site, "a barrier of the cluster, of which threads have exited");
  barrier.site = site;
  const void* tag = barrier.tag();
  emulator.release(tag);
  barrier.waiting.push_back(&emulator.current());
  if (static_cast<int>(barrier.waiting.size()) == threads) {
    ++barrier.round;
    emulator.make_ready(barrier.waiting);
  }
  emulator.wait("a barrier of the cluster", site);
  emulator.acquire(tag);
}

void* in_cluster(const void* address, int rank, Site site) {
  const Block& block = emulator.block();
  if (rank < 0 || rank >= emulator.launch.cluster)
    fail(site, text("block ", rank, " of a cluster of ", emulator.launch.cluster));
  Block& other = *block.cluster->blocks[rank];
  if (&other != &block && block.cluster->barrier.round == 0)
    fail(site, text("shared memory of block ", other.index,
                    ", before a barrier of the cluster has shown that it runs"));
  if (other.unfinished < emulator.launch.threads)
    fail(site, text("shared memory of block ", other.index, ", whose threads exit already"));
  const auto offset = static_cast<const std::byte*>(address) - block.shared;
  if (offset < 0 || offset >= kSharedArena)
    fail(site, "not an address in the shared memory of this block");
  return other.shared + offset;
}

void before_load(Site site) { emulator.spin(site); }

void before_release(const void* address) {
  if (!emulator.in_order()) emulator.step_aside();
  emulator.release(address);
  emulator.progress();
}
void after_acquire(const void* address) { emulator.acquire(address); }
void add_unordered(float* to, float value) { *to += value; }

bool on_own_stack(const void* address) {
  return emulator.in_thread() && emulator.current().fiber.has_on_stack(address);
}

std::string describe(const void* address) {
  for (const auto& cluster : emulator.clusters)
    for (const auto& block : cluster->blocks) {
      const auto offset = static_cast<const std::byte*>(address) - block->shared;
      if (offset < 0 || offset >= kSharedArena) continue;
      const auto& regions = emulator.launch.shared;
      for (std::size_t i = 0; i < regions.size(); ++i)
        if (offset >= regions[i].offset && offset < regions[i].offset + regions[i].bytes)
          return text("shared array ", i, " of block ", block->index, ", byte ",
                      offset - regions[i].offset);
      return text("shared memory of block ", block->index, ", outside every array");
    }
  return {};
}

}  // namespace isobit::simt::host
