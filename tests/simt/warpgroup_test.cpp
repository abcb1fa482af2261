// SPDX-License-Identifier: Apache-2.0
// Products by a warpgroup and copies of boxes, as the emulator has them: what a GPU does, and what
// it would leave undefined.
#include "isobit/simt/warpgroup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>
#include <vector>

#include "with_array.h"

namespace isobit::simt {
namespace {

// A kernel with two boxes, of which `body` gets the first, and an arrival barrier.
template <class Body>
struct WithBoxes {
  static constexpr int kMostThreads = simt::kMostThreads;
  Body body;

  struct Memory {
    bf16* boxes;
    Arrival* arrival;
  };
  template <class Carver>
  Memory memory(Carver& carver) const {
    bf16* const boxes = carver.template take<bf16>(2 * kBoxElements, kBoxAlignment);
    return {boxes, carver.template take<Arrival>(1)};
  }
  void operator()(const Memory& shared) const { body(shared.boxes, shared.arrival); }
};

template <class Body>
void run(int threads, Body body) {
  launch(nullptr, {.threads = threads}, WithBoxes<Body>{body});
}
template <class Body>
std::string failure(int threads, Body body) {
  try {
    run(threads, body);
  } catch (const DeviceError& error) { return error.what(); }
  return "no complaint";
}
void expect_complaint(const std::string& said, const std::string& pattern) {
  EXPECT_TRUE(std::regex_search(said, std::regex(pattern))) << said;
}

void fill(bf16* boxes, float value) {
  for (int i = thread(); i < 2 * kBoxElements; i += threads()) boxes[i] = from_float<bf16>(value);
  sync_block();
}

TEST(Warpgroups, MultiplyWhatLiesInBoxes) {
  run(128, [](bf16* boxes, Arrival*) {
    fill(boxes, 2);
    float sums[64] = {};
    sums[thread() % 64] = 1;
    begin_products(sums);
    multiply_add<bf16, true, false>(sums, boxes, boxes);
    multiply_add<bf16, false, true>(sums, boxes, boxes);
    commit_products();
    wait_products<0>(sums);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(sums[i], i == thread() % 64 ? 129 : 128);
  });
}

// a is 2 in one row of each warp alone, and there 3 at one k, so that every word has its place.
TEST(Warpgroups, MultiplyWhatLiesInRegisters) {
  for (const int row : {0, 5, 8, 15})
    for (const int at : {0, 3, 8, 15})
      run(128, [=](bf16* boxes, Arrival*) {
        for (int i = thread(); i < kBoxElements; i += threads())
          boxes[i] = from_float<bf16>(i / kBoxSide == at ? 5.0F : 1.0F);
        sync_block();
        unsigned a[1][4] = {};
        for (int i = 0; i < 4; ++i)
          for (int e = 0; e < 2; ++e) {
            const int line = lane() / 4 + i % 2 * 8, k = lane() % 4 * 2 + e + i / 2 * 8;
            const float value = line != row ? 0.0F : k == at ? 3.0F : 2.0F;
            a[0][i] |= unsigned{from_float<bf16>(value).bits} << 16 * e;
          }
        float sums[32] = {};
        begin_products(sums, a);
        multiply_add<bf16, false>(sums, a[0], boxes);
        commit_products();
        for (unsigned& word : a[0]) word = 0;  // a value, which the product has
        wait_products<0>(sums);
        for (int i = 0; i < 32; ++i) {
          const int line = lane() / 4 + i / 2 % 2 * 8;
          EXPECT_EQ(sums[i], line == row ? 15 * 2 + 3 * 5 : 0) << row << ", " << at << ": " << i;
        }
      });
}

TEST(Warpgroups, SumsAreNotANumberBeforeTheWait) {
  run(128, [](bf16* boxes, Arrival*) {
    fill(boxes, 2);
    float sums[64] = {};
    begin_products(sums);
    multiply_add<bf16, true, true>(sums, boxes, boxes);
    commit_products();
    wait_products<1>(sums);
    EXPECT_TRUE(std::isnan(sums[5]));
    wait_products<0>(sums);
    EXPECT_EQ(sums[5], 64);
  });
}

TEST(Warpgroups, OperandsThatAreWrittenUnderProductsAreSeen) {
  run(128, [](bf16* boxes, Arrival*) {
    fill(boxes, 2);
    float sums[64] = {};
    begin_products(sums);
    multiply_add<bf16, true, true>(sums, boxes, boxes);
    commit_products();
    fill(boxes, 3);
    wait_products<0>(sums);
    EXPECT_EQ(sums[5], 144);
  });
}

TEST(Warpgroups, WhatADeviceLeavesUndefinedFails) {
  const auto multiply = [](float(&sums)[64], const bf16* a) {
    multiply_add<bf16, true, true>(sums, a, a);
  };
  expect_complaint(failure(128,
                           [=](bf16* boxes, Arrival*) {
                             float sums[64] = {};
                             multiply(sums, boxes);
                           }),
                   "a product without a fence since the last wait");
  expect_complaint(failure(128,
                           [=](bf16* boxes, Arrival*) {
                             float sums[64] = {};
                             begin_products(sums);
                             multiply(sums, boxes);
                             commit_products();
                             wait_products<0>(sums);
                             multiply(sums, boxes);
                           }),
                   "a product without a fence since the last wait");
  expect_complaint(failure(128,
                           [=](bf16* boxes, Arrival*) {
                             float sums[64] = {};
                             begin_products(sums);
                             multiply(sums, boxes);
                             commit_products();
                           }),
                   "exits with products that it never waited for");
  expect_complaint(failure(128,
                           [=](bf16* boxes, Arrival*) {
                             float sums[64] = {};
                             begin_products(sums);
                             multiply(sums, boxes);
                             sums[3] = 0;
                             commit_products();
                             wait_products<0>(sums);
                           }),
                   "sums were written while products were under way");
  expect_complaint(failure(128,
                           [=](bf16* boxes, Arrival*) {
                             float sums[64] = {}, others[64] = {};
                             begin_products(sums);
                             multiply(sums, boxes);
                             multiply(others, boxes);
                           }),
                   "sums of two arrays under way");
  expect_complaint(failure(96,
                           [=](bf16* boxes, Arrival*) {
                             float sums[64] = {};
                             begin_products(sums);
                             multiply(sums, boxes);
                           }),
                   "a warp that is none of four whole ones");
  expect_complaint(failure(128,
                           [=](bf16* boxes, Arrival*) {
                             float sums[64] = {};
                             begin_products(sums);
                             multiply(sums, boxes + 64);
                           }),
                   "not in the first line");
  expect_complaint(failure(128,
                           [=](bf16* boxes, Arrival*) {
                             float sums[64] = {};
                             begin_products(sums);
                             multiply(sums, boxes + kBoxElements);
                           }),
                   "do not lie in one shared array");
  expect_complaint(failure(128,
                           [=](bf16*, Arrival*) {
                             float sums[64] = {};
                             if (lane() > 0) begin_products(sums);
                           }),
                   "exits|exited|diverged|deadlock");
}

TEST(Boxes, HaveZerosBeyondTheMatrix) {
  std::vector<std::uint16_t> elements(72 * 3);
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<std::uint16_t>(i + 1);
  const BoxMap map = box_map<bf16>({elements.data(), 70, 3, 1, 72, 72 * 3});
  run(32, [&](bf16* boxes, Arrival* arrival) {
    if (thread() == 0) {
      arrival_init(arrival, 2);
      publish_arrivals();
      arrive(arrival);
      arrival_expect(arrival, kBoxBytes);
      copy_box(boxes, map, 8, 1, 0, arrival);
    }
    sync_block();
    arrival_wait(arrival, 0);
    if (thread() != 0) return;
    for (int l = 0; l < kBoxSide; ++l)
      for (int e = 0; e < kBoxSide; ++e) {
        const int expected = l < 2 && e + 8 < 70 ? (l + 1) * 72 + e + 8 + 1 : 0;
        EXPECT_EQ(boxes[l * kBoxSide + (e / 8 ^ l % 8) * 8 + e % 8].bits, expected);
      }
  });
}

// Of three matrices of 70 lines, which have 8 elements each of a line.
TEST(Boxes, OfWovenMatricesAreLinesOfOne) {
  std::vector<std::uint16_t> elements(24 * 70);
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<std::uint16_t>(i + 1);
  const BoxMap map = box_map<bf16>({elements.data(), 8, 70, 3, 24, 8, true});
  run(32, [&](bf16* boxes, Arrival* arrival) {
    if (thread() == 0) {
      arrival_init(arrival, 1);
      arrival_expect(arrival, kBoxBytes);
      copy_box(boxes, map, 0, 2, 10, arrival);
    }
    sync_block();
    arrival_wait(arrival, 0);
    if (thread() != 0) return;
    for (int l = 0; l < kBoxSide; ++l)
      for (int e = 0; e < kBoxSide; ++e) {
        const int expected = l + 10 < 70 && e < 8 ? (l + 10) * 24 + 2 * 8 + e + 1 : 0;
        EXPECT_EQ(boxes[l * kBoxSide + (e / 8 ^ l % 8) * 8 + e % 8].bits, expected);
      }
  });
}

TEST(Boxes, AreAligned) {
  std::vector<std::uint16_t> elements(64 * 64);
  const auto copied = [&](std::int64_t offset, std::int64_t apart) {
    const BoxMap map = box_map<bf16>({elements.data(), 8, 8, 1, apart, 8 * apart});
    return failure(32, [=](bf16* boxes, Arrival* arrival) {
      if (thread() == 0) {
        arrival_init(arrival, 1);
        arrival_expect(arrival, kBoxBytes);
        copy_box(boxes + offset, map, 0, 0, 0, arrival);
      }
      sync_block();
      arrival_wait(arrival, 0);
    });
  };
  EXPECT_EQ(copied(0, 64), "no complaint");
  expect_complaint(copied(64, 64), "not aligned to 1024 bytes");
  expect_complaint(copied(0, 60), "lines do not begin at 16 bytes");
}

}  // namespace
}  // namespace isobit::simt
