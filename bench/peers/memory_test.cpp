// SPDX-License-Identifier: Apache-2.0
// The memory that a peer says it takes is what its library asks for, and asking changes nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "isobit/lab/peers.h"

namespace isobit::lab {
namespace {

constexpr std::int64_t kRows = 37, kCols = 301;

// A norm into memory that is there needs none; one that PyTorch composes allocates its result too.
TEST(PeersMemory, TorchCountsWhatItAllocates) {
  for (const Peer& peer : load_peers(ISOBIT_PEERS).available) {
    std::vector<float> x(kRows * kCols, 2), y(x.size()), weight(kCols, 1), bias(kCols, 3),
        mean(kRows), rstd(kRows);
    PeerCase c;
    c.op = "layernorm";
    c.pass = "fwd";
    c.dims = {{"rows", kRows}, {"cols", kCols}};
    c.options = {{.name = "eps", .number = 1e-5}};
    c.arrays = {{"x", x.data()}, {"weight", weight.data()}, {"bias", bias.data()},
                {"y", y.data()}, {"mean", mean.data()},     {"rstd", rstd.data()}};
    auto layernorm = peer.prepare(c);
    c.op = "rmsnorm";
    auto rmsnorm = peer.prepare(c);
    if (peer.name() != "torch") {
      if (layernorm) EXPECT_FALSE(layernorm->most_allocated()) << peer.name();
      continue;
    }
    ASSERT_TRUE(layernorm && rmsnorm);
    EXPECT_EQ(layernorm->most_allocated(), 0);
    EXPECT_GE(rmsnorm->most_allocated(), kRows * kCols * 4);
    EXPECT_LT(rmsnorm->most_allocated(), kRows * kCols * 4 * 8);
    layernorm->run();  // PyTorch allocates as before
    for (const float value : y) ASSERT_EQ(value, 3);
  }
}

// oneDNN's memory for weights in another order is PyTorch's, which asks for it without an owner.
TEST(PeersMemory, TorchCountsAConvolution) {
  constexpr std::int64_t kBatch = 4, kChannels = 512, kSide = 7;
  constexpr std::size_t kPixels = kBatch * kChannels * kSide * kSide;
  for (const Peer& peer : load_peers(ISOBIT_PEERS).available) {
    if (peer.name() != "torch") continue;
    std::vector<float> x(kPixels, 1), weight(kChannels * kChannels, 1), y(kPixels);
    PeerCase c;
    c.op = "conv2d";
    c.pass = "fwd";
    c.dims = {{"batch", kBatch},      {"channels", kChannels}, {"group_channels", kChannels},
              {"filters", kChannels}, {"height", kSide},       {"width", kSide},
              {"kernel_h", 1},        {"kernel_w", 1},         {"out_height", kSide},
              {"out_width", kSide}};
    for (const char* side : {"_h", "_w"}) {
      c.options.push_back({.name = std::string("stride") + side, .number = 1});
      c.options.push_back({.name = std::string("padding") + side, .number = 0});
      c.options.push_back({.name = std::string("dilation") + side, .number = 1});
      c.options.push_back({.name = std::string("extra_padding") + side, .number = 0});
    }
    c.options.push_back({.name = "groups", .number = 1});
    c.arrays = {{"x", x.data()}, {"weight", weight.data()}, {"y", y.data()}};
    std::string reason;
    auto convolution = peer.prepare(c, &reason);
    ASSERT_TRUE(convolution) << reason;
    for (int threads : {1, 2}) {
      c.threads = threads;
      convolution = peer.prepare(c);
      EXPECT_GE(convolution->most_allocated(), std::int64_t{kPixels} * 4);
      convolution->run();
    }
  }
}

}  // namespace
}  // namespace isobit::lab
