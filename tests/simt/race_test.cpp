// SPDX-License-Identifier: Apache-2.0
// The race detector finds what two threads do to one place without order, whatever the schedule,
// and says nothing of what is ordered. Compiled with -fsanitize=thread; see simt/host/race.cpp.
#include "isobit/simt/host/race.h"

#include <gtest/gtest.h>

#include <vector>

#include "with_array.h"

namespace isobit::simt {
namespace {

// What the detector says of `body` in every schedule; it must always be the same, but for who came
// first.
template <class Body>
std::string races(const LaunchShape& shape, Body body, void (*before)() = [] {}) {
  host::detect_races();
  using enum host::Order;
  std::string said;
  for (const host::Schedule& schedule :
       {host::Schedule{},
        {.order = reversed},
        {.order = random},
        {.order = starving},
        {.order = random, .seed = 5, .resident = 1, .shuffled_blocks = true}}) {
    host::set_schedule(schedule);
    before();
    std::string found = "none";
    try {
      launch(nullptr, shape, WithArray<Body>{64, body});
    } catch (const DeviceError& error) { found = error.what(); }
    EXPECT_TRUE(said.empty() || (said == "none") == (found == "none")) << said << "\n" << found;
    said = found;
  }
  host::set_schedule({});
  return said;
}

TEST(Races, AReadThatNoBarrierOrdersAfterTheWriteIsOne) {
  const std::string said = races({.threads = 64}, [](float* shared) {
    shared[thread()] = 1;
    shared[thread()] += shared[63 - thread()];
  });
  EXPECT_NE(said.find("data race on shared array 0 of block 0, byte "), std::string::npos) << said;
  EXPECT_NE(said.find("race_test.cpp:"), std::string::npos) << said;
}

TEST(Races, AWriteThatNoBarrierOrdersAfterTheReadIsOne) {
  EXPECT_NE(races({.threads = 64},
                  [](float* shared) {
                    for (int round = 0; round < 2; ++round) {
                      shared[thread()] = 1;
                      sync_block();
                      float value = shared[63 - thread()];
                      asm volatile("" : "+x"(value));
                    }
                  }),
            "none");
}

TEST(Races, BarriersOrder) {
  EXPECT_EQ(races({.blocks = 3, .threads = 64},
                  [](float* shared) {
                    for (int round = 0; round < 3; ++round) {
                      shared[thread()] = 1;
                      sync_block();
                      float value = shared[63 - thread()];
                      asm volatile("" : "+x"(value));
                      sync_block();
                    }
                  }),
            "none");
}

TEST(Races, AShuffleOrdersNoMemoryButAWarpsBarrierDoes) {
  const auto body = [](bool sync) {
    return [sync](float* shared) {
      shared[thread()] = 1;
      if (sync)
        sync_warp();
      else
        shuffle_xor(1, 1);
      float value = shared[thread() ^ 1];
      asm volatile("" : "+x"(value));
    };
  };
  EXPECT_NE(races({.threads = 64}, body(false)), "none");
  EXPECT_EQ(races({.threads = 64}, body(true)), "none");
}

TEST(Races, BlocksThatWriteOnePlaceRaceThoughTheyNeverMeet) {
  std::vector<float> out(64);
  const std::string said =
      races({.blocks = 4, .threads = 1}, [&](float*) { out[block() / 2] = 1; });
  EXPECT_NE(said.find("data race on global memory: write at "), std::string::npos) << said;
}

TEST(Races, HalvesOfAWordAreTwoPlaces) {
  std::vector<short> out(64);
  EXPECT_EQ(races({.blocks = 2, .threads = 32}, [&](float*) { out[block() * 32 + thread()] = 1; }),
            "none");
}

TEST(Races, ReleaseAndAcquireOrder) {
  static unsigned flag;
  const auto body = [](bool releases) {
    return [releases](float* shared) {
      if (thread() == 0) {
        shared[0] = 1;
        if (releases)
          store_release(&flag, 1);
        else
          __atomic_store_n(&flag, 1, __ATOMIC_RELAXED);
      } else if (thread() == 32) {
        while (load_acquire(&flag) == 0) {}
        float value = shared[0];
        asm volatile("" : "+x"(value));
      }
    };
  };
  EXPECT_EQ(races({.threads = 64}, body(true), [] { flag = 0; }), "none");
  EXPECT_NE(races({.threads = 64}, body(false), [] { flag = 0; }), "none");
}

TEST(Races, ABufferThatIsFetchedAnewWhileItIsReadIsOne) {
  alignas(16) float in[64] = {};
  for (const bool waits : {true, false}) {
    const std::string said = races({.threads = 32}, [&](float* shared) {
      for (int round = 0; round < 2; ++round) {
        copy_async<8>(shared + 2 * thread(), in + 2 * thread());
        commit_copies();
        wait_copies<0>();
        sync_block();
        float value = shared[63 - thread()];
        asm volatile("" : "+x"(value));
        if (waits) sync_block();
      }
    });
    EXPECT_EQ(said == "none", waits) << said;
  }
}

struct Fetched {
  float* buffer;
  Arrival* arrival;
};
struct BulkCopy {
  static constexpr int kMostThreads = 64;
  const float* in;
  bool waits;
  Fetched memory(auto& carver) const {
    return {carver.template take<float>(64), carver.template take<Arrival>(1)};
  }
  void operator()(const Fetched& fetched) const {
    if (thread() == 0) {
      arrival_init(fetched.arrival, 1);
      publish_arrivals();
    }
    sync_block();
    if (thread() == 0) {
      arrival_expect(fetched.arrival, 256);
      copy_bulk(fetched.buffer, in, 256, fetched.arrival);
    }
    if (waits) arrival_wait(fetched.arrival, 0);
    float value = fetched.buffer[thread()];
    asm volatile("" : "+x"(value));
    if (!waits) arrival_wait(fetched.arrival, 0);
  }
};

// Found by elementwise's bulk variant: the wait did not order the copy.
TEST(Races, ABulkCopyIsSeenAfterItsWaitOnly) {
  alignas(16) float in[64] = {};
  host::detect_races();
  launch(nullptr, {.blocks = 3, .threads = 64}, BulkCopy{in, true});
  EXPECT_THROW(launch(nullptr, {.threads = 64}, BulkCopy{in, false}), DeviceError);
}

}  // namespace
}  // namespace isobit::simt
