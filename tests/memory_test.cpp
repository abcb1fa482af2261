// SPDX-License-Identifier: Apache-2.0
// A program with a malloc of its own, which counts and can refuse: what becomes of every entry when
// memory runs out at any moment, and whether a million calls leave any behind.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "calls.h"

namespace {

std::atomic<std::int64_t> refused_at{0};  // counts down to the allocation that gets nothing
std::atomic<std::int64_t> taken{0};       // allocations, ever
std::atomic<std::int64_t> live{0};        // those that were not given back

bool refuses() { return refused_at.load() > 0 && refused_at.fetch_sub(1) == 1; }

void* counted(void* memory) {
  if (memory != nullptr) ++taken, ++live;
  return memory;
}

void* none() {
  errno = ENOMEM;
  return nullptr;
}

}  // namespace

// glibc's own, under the names that it keeps for those who replace the others. What replaces them
// is for the library to find, so it cannot be hidden as all else is.
#pragma GCC visibility push(default)
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* memory);

void* malloc(std::size_t bytes) { return refuses() ? none() : counted(__libc_malloc(bytes)); }
void* calloc(std::size_t count, std::size_t bytes) {
  return refuses() ? none() : counted(__libc_calloc(count, bytes));
}
void* realloc(void* memory, std::size_t bytes) {
  if (refuses()) return none();
  void* moved = __libc_realloc(memory, bytes);
  return memory == nullptr ? counted(moved) : moved;
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  return refuses() ? none() : counted(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  if (memory != nullptr) --live;
  __libc_free(memory);
}
}
#pragma GCC visibility pop

namespace isobit {
namespace {

using namespace calls;

constexpr std::int64_t kManyRows = 1 << 13;  // enough that the library's threads are started

// Runs `child` in a process of its own, where the library was never called; its exit status.
template <class Child>
int in_child(Child child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    _exit(child());
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  return WEXITSTATUS(status);
}

enum Outcome { kRight, kRefused, kWrong };

// Of NaNs, too: an average of squares that is negative has no root.
bool same_bits(const std::vector<float>& one, const std::vector<float>& other) {
  return one.size() == other.size() &&
         std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

// What a call whose memory nobody refuses makes of a world, and how often it allocates: of a
// process of its own, so that the library is as little known to this one as before.
struct Right {
  std::vector<float> memory;
  std::int64_t allocations;
};

Right right_call(const Entry& entry, std::int64_t rows) {
  World world(rows);
  const std::size_t floats = world.memory().size(), bytes = floats * sizeof(float);
  void* const shared = mmap(nullptr, sizeof(std::int64_t) + bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(shared, MAP_FAILED);
  auto* const allocations = static_cast<std::int64_t*>(shared);
  auto* const memory = reinterpret_cast<float*>(allocations + 1);
  EXPECT_EQ(in_child([&] {
              const std::int64_t before = taken;
              const bool right = entry.call(world) == ISOBIT_OK;
              *allocations = taken - before;
              std::memcpy(memory, world.memory().data(), bytes);
              return right ? kRight : kWrong;
            }),
            kRight);
  const Right result{{memory, memory + floats}, *allocations};
  munmap(shared, sizeof(std::int64_t) + bytes);
  return result;
}

// In how many entries' calls an allocation is refused, one in so many: ISOBIT_ONE_IN in the
// environment thins what repeats.
std::int64_t one_in() {
  const char* const text = std::getenv("ISOBIT_ONE_IN");
  return text == nullptr || std::atoi(text) < 2 ? 1 : 4 * std::atoi(text);
}

// The first call of its process, whose k-th allocation is refused, and what follows it.
Outcome starved_call(const Entry& entry, std::int64_t k, World& world,
                     const std::vector<float>& before, const std::vector<float>& right) {
  refused_at = k;
  const isobit_status status = entry.call(world);
  const bool refused = refused_at.exchange(0) <= 0, succeeded = status == ISOBIT_OK;
  const std::string says = isobit_last_error();
  const auto require = [&](bool condition, const char* what) {
    if (!condition)
      std::fprintf(stderr, "%s, allocation %ld refused: %s; it says '%s'\n", entry.name,
                   static_cast<long>(k), what, says.c_str());
    return condition;
  };
  if (!succeeded) {
    const std::string expected = std::string(entry.name) + ": out of memory";
    if (!require(status == ISOBIT_OUT_OF_MEMORY, "not the status of missing memory") ||
        !require(says.starts_with(expected), "not the message of missing memory") ||
        !require(same_bits(world.memory(), before), "something was written") ||
        !require(entry.call(world) == ISOBIT_OK, "the same call fails again"))
      return kWrong;
  }
  if (!require(same_bits(world.memory(), right), "the result is wrong")) return kWrong;
  if (succeeded && !require(entry.call(world) == ISOBIT_OK, "the next call fails")) return kWrong;
  return refused ? kRefused : kRight;
}

// The first call of a process asks for the most: it looks at the machine and starts threads. Most
// of that is alike for all entries, which share these allocations out among them; the last ones are
// an entry's own.
TEST(Memory, MayRunOutAtEveryAllocationOfTheFirstCall) {
  constexpr std::int64_t kOwn = 16;
  std::int64_t refusals = 0, turn = 0;
  for (const Entry& entry : kEntries)
    for (std::int64_t rows : {kRows, kManyRows}) {
      ++turn;
      World world(rows);
      const std::vector<float> before = world.memory();
      const Right right = right_call(entry, rows);
      EXPECT_GT(right.allocations, 0) << entry.name << ": a first call allocates";
      int outcome = kRefused;
      for (std::int64_t k = 1; outcome == kRefused; ++k) {
        if (k + kOwn <= right.allocations && (k + turn) % one_in() != 0) continue;
        outcome = in_child([&] { return starved_call(entry, k, world, before, right.memory); });
        refusals += outcome == kRefused;
      }
      EXPECT_EQ(outcome, kRight);
    }
  RecordProperty("refusals", std::to_string(refusals));
}

// With a caller's memory there is nothing left to allocate.
TEST(Memory, IsTakenForWorkspaceAlone) {
  std::vector<std::byte> workspace(1 << 24);
  const isobit_allocator allocator = {[](void* self, std::size_t bytes) -> void* {
                                        auto& memory = *static_cast<std::vector<std::byte>*>(self);
                                        return bytes <= memory.size() ? memory.data() : nullptr;
                                      },
                                      [](void*, void*, std::size_t) {}, &workspace};
  for (const Entry& entry : kEntries)
    for (std::int64_t rows : {kRows, kManyRows}) {
      World world(rows);
      world.context.allocator = allocator;
      ASSERT_EQ(entry.call(world), ISOBIT_OK) << isobit_last_error();  // it may start threads
      const std::int64_t before = taken;
      for (int call = 0; call < 10; ++call) entry.call(world);
      EXPECT_EQ(taken, before) << entry.name << " of " << rows << " rows";
    }
}

// Packing keeps memory, but none that it does not hand over.
TEST(Memory, MayRunOutWhileAMatrixIsPacked) {
  World world;
  isobit_packed_matrix* packed = nullptr;
  ASSERT_EQ(isobit_matmul_pack(&world.right, nullptr, &packed), ISOBIT_OK) << isobit_last_error();
  isobit_packed_matrix_free(packed);
  packed = nullptr;
  const std::int64_t live_before = live;
  std::int64_t k = 0;
  for (isobit_status status = ISOBIT_OUT_OF_MEMORY; status != ISOBIT_OK;) {
    refused_at = ++k;
    status = isobit_matmul_pack(&world.right, nullptr, &packed);
    const bool refused = refused_at.exchange(0) <= 0;
    ASSERT_EQ(status, refused ? ISOBIT_OUT_OF_MEMORY : ISOBIT_OK) << isobit_last_error();
    if (!refused) continue;
    EXPECT_EQ(std::string(isobit_last_error()).find("matmul pack: out of memory"), 0u);
    EXPECT_EQ(packed, nullptr);
    EXPECT_EQ(live, live_before);
  }
  EXPECT_GT(k, 3) << "an object, what it hides, and the panels are allocated";
  isobit_packed_matrix_free(packed);
  EXPECT_EQ(live, live_before);
}

TEST(Memory, MayBeTooLittleForAMatrixOfRepeatedElements) {
  const std::int64_t many = std::int64_t{1} << 24;
  float one = 1;
  const isobit_tensor b = {&one, sizeof one, ISOBIT_F32, 2, {many, many}, {0, 0}};
  isobit_packed_matrix* packed = nullptr;
  isobit_matmul_pack(&b, nullptr, &packed);  // makes room for the message
  const std::int64_t live_before = live;
  EXPECT_EQ(isobit_matmul_pack(&b, nullptr, &packed), ISOBIT_OUT_OF_MEMORY);
  EXPECT_EQ(packed, nullptr);
  EXPECT_EQ(live, live_before);
}

TEST(Memory, OfAMatrixIsGivenBackWhereThreadsThrow) {
  World world;
  world.context.parallel_for.run = [](void*, std::int64_t, isobit_task, void*) { throw 42; };
  world.context.threads = 4;
  std::vector<float> elements(600 * 300, 1);
  const isobit_tensor b = {elements.data(), 600 * 300 * 4, ISOBIT_F32, 2, {600, 300}, {300, 1}};
  isobit_packed_matrix* packed = nullptr;
  isobit_matmul_pack(&b, &world.context, &packed);  // makes room for the message
  const std::int64_t live_before = live;
  EXPECT_EQ(isobit_matmul_pack(&b, &world.context, &packed), ISOBIT_INTERNAL);
  EXPECT_EQ(packed, nullptr);
  EXPECT_EQ(live, live_before);
}

// With a caller's memory a call by a packed matrix has nothing left to allocate.
TEST(Memory, IsNotTakenByCallsWithAPackedMatrix) {
  std::vector<std::byte> workspace(1 << 20);
  World world;
  world.context.allocator = {[](void* self, std::size_t bytes) -> void* {
                               auto& memory = *static_cast<std::vector<std::byte>*>(self);
                               return bytes <= memory.size() ? memory.data() : nullptr;
                             },
                             [](void*, void*, std::size_t) {}, &workspace};
  isobit_packed_matrix* packed = nullptr;
  ASSERT_EQ(isobit_matmul_pack(&world.right, nullptr, &packed), ISOBIT_OK);
  world.matmul.b = nullptr;
  const std::int64_t before = taken;
  for (int call = 0; call < 10; ++call)
    ASSERT_EQ(isobit_matmul_packed(&world.matmul, packed, &world.context), ISOBIT_OK)
        << isobit_last_error();
  EXPECT_EQ(taken, before);
  isobit_packed_matrix_free(packed);
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Right calls and, one in sixteen, a wrong one.
void call_often(std::int64_t calls) {
  World world, wrong;
  wrong.context.threads = -1;
  for (std::int64_t i = 0; i < calls; ++i) {
    const bool right = i % 16 != 0;
    const isobit_status status = kEntries[i % std::size(kEntries)].call(right ? world : wrong);
    ASSERT_EQ(status, right ? ISOBIT_OK : ISOBIT_INVALID_ARGUMENT);
  }
}

TEST(Memory, DoesNotGrowInAMillionCalls) {
  call_often(1000);
  const std::int64_t live_before = live, resident_before = resident_bytes();
  call_often(1'000'000);
  EXPECT_EQ(live, live_before);
  const std::int64_t growth = resident_bytes() - resident_before;
  EXPECT_LT(growth, 1 << 20);
  RecordProperty("resident_growth", std::to_string(growth));
}

}  // namespace
}  // namespace isobit
