// SPDX-License-Identifier: Apache-2.0
// The emulator does what a GPU does, and says so where a kernel does what a GPU punishes.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <regex>

#include "with_array.h"

namespace isobit::simt::host {

// What failures and the names of tests call it.
static void PrintTo(const Schedule& schedule, std::ostream* out) {
  constexpr const char* kOrders[] = {"in_order", "reversed", "random", "starving"};
  *out << kOrders[static_cast<int>(schedule.order)] << "_seed_" << schedule.seed << "_resident_"
       << schedule.resident << (schedule.shuffled_blocks ? "_shuffled" : "");
}

}  // namespace isobit::simt::host

namespace isobit::simt {
namespace {

using host::Order;
using host::Schedule;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif

template <class Body>
struct Without {
  static constexpr int kMostThreads = simt::kMostThreads;
  Body body;
  void operator()() const { body(); }
};

std::string failure_of(const auto& launch) {
  try {
    launch();
  } catch (const DeviceError& error) { return error.what(); }
  return "no complaint";
}

template <class Body>
std::string failure(const LaunchShape& shape, Body body) {
  return failure_of([&] { launch(nullptr, shape, Without<Body>{body}); });
}
template <class Body>
std::string failure_with_array(const LaunchShape& shape, int count, Body body) {
  return failure_of([&] { launch(nullptr, shape, WithArray<Body>{count, body}); });
}

void expect_complaint(const std::string& said, const std::string& pattern) {
  EXPECT_TRUE(std::regex_search(said, std::regex(pattern))) << said;
}

// Every schedule that threads may be run by.
class UnderSchedule : public testing::TestWithParam<Schedule> {
 protected:
  void SetUp() override { host::set_schedule(GetParam()); }
  void TearDown() override { host::set_schedule({}); }
};
INSTANTIATE_TEST_SUITE_P(
    Simt, UnderSchedule,
    testing::Values(Schedule{}, Schedule{.order = Order::reversed},
                    Schedule{.order = Order::random, .seed = 1, .resident = 4},
                    Schedule{.order = Order::random, .seed = 2, .shuffled_blocks = true},
                    Schedule{.order = Order::starving, .seed = 1, .resident = 3},
                    Schedule{.order = Order::starving, .seed = 2, .resident = 1}));

TEST_P(UnderSchedule, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> runs(5 * 70);
  const auto body = [&] {
    EXPECT_EQ(threads(), 70);
    EXPECT_EQ(blocks(), 5);
    EXPECT_EQ(lane(), thread() % 32);
    ++runs[block() * 70 + thread()];
  };
  launch(nullptr, {.blocks = 5, .threads = 70}, Without<decltype(body)>{body});
  EXPECT_EQ(runs, std::vector<int>(5 * 70, 1));
}

TEST_P(UnderSchedule, BarriersOrderSharedMemory) {
  std::vector<float> out(3 * 96);
  const auto body = [&](float* shared) {
    for (int round = 0; round < 3; ++round) {
      shared[thread()] = static_cast<float>(block() * 1000 + thread() + round);
      sync_block();
      out[block() * 96 + thread()] = shared[95 - thread()] - static_cast<float>(round);
      sync_block();
    }
  };
  launch(nullptr, {.blocks = 3, .threads = 96}, WithArray<decltype(body)>{96, body});
  for (int i = 0; i < 3 * 96; ++i) EXPECT_EQ(out[i], i / 96 * 1000 + 95 - i % 96);
}

TEST_P(UnderSchedule, LanesExchangeValues) {
  std::vector<double> crossed(64);
  std::vector<int> first(64), votes(64);
  const auto body = [&] {
    crossed[thread()] = shuffle_xor(0.5 + thread(), 5);
    first[thread()] = shuffle(thread(), 0);
    votes[thread()] = static_cast<int>(ballot(lane() < 3));
  };
  launch(nullptr, {.threads = 64}, Without<decltype(body)>{body});
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(crossed[i], 0.5 + (i ^ 5));
    EXPECT_EQ(first[i], i / 32 * 32);
    EXPECT_EQ(votes[i], 7);
  }
}

TEST_P(UnderSchedule, PartsOfAWarpMayGoTheirOwnWay) {
  std::vector<int> out(32);
  const auto body = [&] {
    if (lane() < 8)
      out[lane()] = shuffle_xor(lane(), 1, 0x000000ff);
    else
      out[lane()] = shuffle_xor(lane(), 2, 0xffffff00);
  };
  launch(nullptr, {.threads = 32}, Without<decltype(body)>{body});
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 8 ? i ^ 1 : i ^ 2);
}

TEST_P(UnderSchedule, OneThreadsVoteReachesTheBlock) {
  std::vector<int> any(2 * 64);
  const auto body = [&] {
    any[block() * 64 + thread()] = any_in_block(block() == 1 && thread() == 7);
  };
  launch(nullptr, {.blocks = 2, .threads = 64}, Without<decltype(body)>{body});
  EXPECT_EQ(std::accumulate(any.begin(), any.end(), 0), 64);
  EXPECT_EQ(any[0], 0);
}

TEST_P(UnderSchedule, ABlockWaitsForTheOneBeforeIt) {
  std::vector<unsigned> sums(9), ready(9);
  unsigned ticket = 0;
  const auto body = [&](float* shared) {
    if (thread() == 0) shared[0] = static_cast<float>(add_acquire_release(&ticket, 1));
    sync_block();
    const int mine = static_cast<int>(shared[0]);
    if (thread() > 0) return;
    unsigned before = 0;
    if (mine > 0) {
      while (load_acquire(&ready[mine - 1]) == 0) {}
      before = sums[mine - 1];
    }
    sums[mine] = before + static_cast<unsigned>(mine) + 1;
    store_release(&ready[mine], 1);
  };
  launch(nullptr, {.blocks = 9, .threads = 33}, WithArray<decltype(body)>{1, body});
  EXPECT_EQ(sums[8], 45u);
}

TEST_P(UnderSchedule, ClustersShareTheirMemory) {
  std::vector<float> out(8 * 32);
  const auto body = [&](float* shared) {
    shared[thread()] = static_cast<float>(block() * 100 + thread());
    sync_cluster();
    const int other = (cluster_rank() + 1) % cluster_blocks();
    out[block() * 32 + thread()] = in_cluster(shared, other)[thread()];
    sync_cluster();
  };
  launch(nullptr, {.blocks = 8, .threads = 32, .cluster = 4}, WithArray<decltype(body)>{32, body});
  for (int i = 0; i < 8 * 32; ++i) {
    const int block = i / 32, other = block / 4 * 4 + (block + 1) % 4;
    EXPECT_EQ(out[i], other * 100 + i % 32);
  }
}

struct Ring {
  float* buffer;
  Arrival* arrival;
};

TEST_P(UnderSchedule, CopiesLandBeforeTheWaitEnds) {
  alignas(16) float in[64];
  std::iota(in, in + 64, 0.0f);
  std::vector<float> out(64);
  const auto body = [&](float* shared) {
    copy_async<8>(shared + 2 * thread(), in + 2 * thread());
    commit_copies();
    wait_copies<0>();
    sync_block();
    out[thread()] = shared[63 - thread()];
    out[thread() + 32] = shared[31 - thread()];
  };
  launch(nullptr, {.threads = 32}, WithArray<decltype(body)>{64, body});
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], 63 - i);
}

struct BulkCopies {
  static constexpr int kMostThreads = 64;
  const float* in;
  float* out;
  Ring memory(auto& carver) const {
    return {carver.template take<float>(2 * 64), carver.template take<Arrival>(2)};
  }
  void operator()(const Ring& ring) const {
    if (thread() == 0) {
      arrival_init(&ring.arrival[0], 1);
      arrival_init(&ring.arrival[1], 1);
      publish_arrivals();
    }
    sync_block();
    const auto fetch = [&](int tile) {
      arrival_expect(&ring.arrival[tile % 2], 256);
      copy_bulk(ring.buffer + tile % 2 * 64, in + tile * 64, 256, &ring.arrival[tile % 2]);
    };
    if (thread() == 0) fetch(0);
    for (int tile = 0; tile < 6; ++tile) {
      if (thread() == 0 && tile + 1 < 6) fetch(tile + 1);
      arrival_wait(&ring.arrival[tile % 2], tile / 2 % 2);
      out[tile * 64 + thread()] = ring.buffer[tile % 2 * 64 + 63 - thread()];
      sync_block();
    }
  }
};

TEST_P(UnderSchedule, BulkCopiesGoRound) {
  alignas(16) float in[6 * 64];
  std::iota(std::begin(in), std::end(in), 0.0f);
  std::vector<float> out(6 * 64);
  launch(nullptr, {.threads = 64}, BulkCopies{in, out.data()});
  for (int i = 0; i < 6 * 64; ++i) EXPECT_EQ(out[i], i / 64 * 64 + 63 - i % 64);
}

struct SeveralCopies {
  static constexpr int kMostThreads = 64;
  const float* in;
  float* out;
  Ring memory(auto& carver) const {
    return {carver.template take<float>(64), carver.template take<Arrival>(1)};
  }
  void operator()(const Ring& ring) const {
    if (thread() == 0) {
      arrival_init(ring.arrival, 1);
      arrival_expect(ring.arrival, 256);
      for (int part = 0; part < 4; ++part)
        copy_bulk(ring.buffer + part * 16, in + part * 16, 64, ring.arrival);
    }
    sync_block();
    arrival_wait(ring.arrival, 0);
    out[block() * 64 + thread()] = ring.buffer[thread()];
  }
};

// Found by elementwise's bulk variant: the emulator called it a deadlock, though copies were under
// way.
TEST_P(UnderSchedule, AWaitMayNeedSeveralCopies) {
  alignas(16) float in[64];
  std::iota(std::begin(in), std::end(in), 0.0f);
  std::vector<float> out(3 * 64);
  launch(nullptr, {.blocks = 3, .threads = 64}, SeveralCopies{in, out.data()});
  for (int i = 0; i < 3 * 64; ++i) EXPECT_EQ(out[i], i % 64);
}

TEST(Simt, SharedMemoryIsNotANumberUntilItIsWritten) {
  bool nan = true;
  const auto body = [&](float* shared) { nan &= std::isnan(shared[thread()]); };
  const WithArray<decltype(body)> kernel{32, body};
  launch(nullptr, {.blocks = 3, .threads = 32}, kernel);
  EXPECT_TRUE(nan);
}

TEST(Simt, WriteBehindASharedArrayIsFound) {
  if (kAddressSanitizer) GTEST_SKIP() << "it ends the process, with a report of its own";
  expect_complaint(failure_with_array({.blocks = 2, .threads = 33}, 32,
                                      [](float* shared) { shared[thread()] = 1; }),
                   "block 0 wrote 0 bytes behind the end of shared array 0");
}

TEST(Simt, BarrierThatSomeThreadsExitedBeforeFails) {
  expect_complaint(failure({.threads = 64},
                           [] {
                             if (thread() < 40) sync_block();
                           }),
                   R"(block 0, thread 40 exits while 40 threads.*wait at emulator_test.cpp:\d+)");
}

TEST(Simt, DivergentBarriersFail) {
  expect_complaint(
      failure({.threads = 64},
              [] {
                if (thread() < 32)
                  sync_block();
                else
                  sync_block();
              }),
      R"(emulator_test.cpp:\d+: block 0, thread 32: a barrier, while.*emulator_test.cpp:\d+)");
}

TEST(Simt, ShuffleThatSomeLanesMissFails) {
  expect_complaint(failure({.threads = 32},
                           [] {
                             if (thread() < 16) shuffle_xor(1, 1);
                           }),
                   "block 0, thread 16 exits while other lanes wait for it");
}

TEST(Simt, ShuffleFromALaneOutsideTheMaskFails) {
  expect_complaint(failure({.threads = 32},
                           [] {
                             if (thread() < 16) shuffle_xor(1, 16, 0x0000ffff);
                           }),
                   "reads from lane 16, which is not among the lanes 0000ffff");
}

TEST(Simt, LaneThatDoesNotNameItselfFails) {
  expect_complaint(failure({.threads = 32}, [] { shuffle_xor(1, 1, 0x0000ffff); }),
                   "lane 16 is not among the lanes 0000ffff it names");
}

TEST(Simt, ShuffleWithExitedLanesFails) {
  expect_complaint(failure({.threads = 32},
                           [] {
                             if (thread() < 31) shuffle(1, 0, thread() < 30 ? kAllLanes : 1u << 30);
                           }),
                   "lanes 80000000|other lanes wait|reads from lane");
}

TEST(Simt, MisalignedVectorAccessFails) {
  struct alignas(16) Four {
    float values[4];
  };
  alignas(16) float data[12] = {};
  expect_complaint(
      failure({.threads = 2}, [&] { load(reinterpret_cast<const Four*>(data + 4 + thread())); }),
      R"(emulator_test.cpp:\d+: block 0, thread 1: .*aligned to the 16 bytes)");
}

TEST(Simt, CopiesThatNobodyWaitsForFail) {
  alignas(16) float in[4] = {};
  expect_complaint(failure_with_array({.threads = 1}, 4,
                                      [&](float* shared) {
                                        copy_async<16>(shared, in);
                                        commit_copies();
                                      }),
                   "exits with copies that it never waited for");
}

TEST(Simt, CopyReadBeforeItsWaitIsNotANumber) {
  alignas(16) float in[4] = {};
  float early = 0;
  EXPECT_EQ(failure_with_array({.threads = 1}, 4,
                               [&](float* shared) {
                                 copy_async<16>(shared, in);
                                 commit_copies();
                                 early = shared[1];
                                 wait_copies<0>();
                               }),
            "no complaint");
  EXPECT_TRUE(std::isnan(early));
}

TEST(Simt, CopyOutsideSharedMemoryFails) {
  alignas(16) float in[8] = {};
  expect_complaint(
      failure_with_array({.threads = 1}, 6, [&](float* shared) { copy_async<16>(shared + 4, in); }),
      "16 bytes at .* do not lie in one shared array");
}

TEST(Simt, BulkCopiesOfOddSizesFail) {
  alignas(16) float in[8] = {};
  const auto size = [&](int bytes, int offset) {
    return failure_with_array({.threads = 1}, 64, [&, bytes, offset](float* shared) {
      auto* arrival = reinterpret_cast<Arrival*>(shared + 32);
      arrival_init(arrival, 1);
      copy_bulk(shared, in + offset, bytes, arrival);
    });
  };
  expect_complaint(size(12, 0), "a bulk copy of 12 bytes");
  expect_complaint(size(16, 1), "the source .* is not aligned to 16 bytes");
}

TEST(Simt, WaitForACopyThatNobodyStartedIsADeadlock) {
  expect_complaint(
      failure_with_array({.threads = 1}, 4,
                         [&](float* shared) {
                           auto* arrival = reinterpret_cast<Arrival*>(shared);
                           arrival_init(arrival, 1);
                           arrival_wait(arrival, 0);
                         }),
      R"(deadlock[\s\S]*1 threads wait for copies or arrivals at emulator_test.cpp:\d+)");
}

TEST(Simt, SpinningForWhatNobodyWritesFails) {
  unsigned flag = 0;
  expect_complaint(failure({.threads = 2},
                           [&] {
                             while (load_acquire(&flag) == 0) {}
                           }),
                   "no thread gets further[\\s\\S]*2 threads wait for a loop");
}

// A cluster's blocks run at the same time; that they have begun only a barrier tells.
TEST(Simt, SharedMemoryOfABlockThatMayNotHaveBegunFails) {
  expect_complaint(failure_with_array({.blocks = 2, .threads = 1, .cluster = 2}, 1,
                                      [&](float* shared) {
                                        in_cluster(shared, 1 - cluster_rank());
                                        sync_cluster();
                                      }),
                   "shared memory of block 1, before a barrier of the cluster has shown");
}

TEST(Simt, SharedMemoryOfAnExitedBlockFails) {
  expect_complaint(failure_with_array({.blocks = 2, .threads = 1, .cluster = 2}, 1,
                                      [&](float* shared) {
                                        sync_cluster();
                                        if (cluster_rank() == 0) return;
                                        in_cluster(shared, 0);
                                      }),
                   "shared memory of block 0, whose threads exit already");
}

TEST(Simt, LaunchesThatNoDeviceTakesAreRefused) {
  const auto refused = [](const LaunchShape& shape, int count) {
    return failure_with_array(shape, count, [](float*) {});
  };
  EXPECT_EQ(refused({.blocks = 1, .threads = 1024}, 1), "no complaint");
  for (const LaunchShape& shape :
       {LaunchShape{.blocks = 0}, LaunchShape{.threads = 0}, LaunchShape{.threads = 1025},
        LaunchShape{.blocks = 3, .cluster = 2}, LaunchShape{.blocks = std::int64_t{1} << 31}})
    expect_complaint(refused(shape, 1), "a launch that no device takes");
  EXPECT_EQ(refused({}, kMostShared / 4), "no complaint");
  expect_complaint(refused({}, kMostShared / 4 + 1), "232452 bytes of shared memory");
}

TEST(Simt, AFaultLeavesTheEmulatorReady) {
  expect_complaint(failure({.threads = 64},
                           [] {
                             if (thread() == 3) sync_block();
                           }),
                   "exits while|have exited");
  int runs = 0;
  const auto body = [&] { ++runs; };
  launch(nullptr, {.threads = 64}, Without<decltype(body)>{body});
  EXPECT_EQ(runs, 64);
}

}  // namespace
}  // namespace isobit::simt
