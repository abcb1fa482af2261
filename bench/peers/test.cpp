// SPDX-License-Identifier: Apache-2.0
// A peer's time means something only if the peer computes what we compute.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "isobit/core/dtype.h"
#include "isobit/lab/peers.h"

namespace isobit::lab {
namespace {

constexpr std::int64_t kRows = 37, kCols = 301;
constexpr double kEps = 1e-5;

// LayerNorm and its gradients in double precision, on values that `dtype` represents.
struct Reference {
  explicit Reference(DType dtype)
      : x(kRows * kCols),
        grad_y(x),
        y(x),
        grad_x(x),
        weight(kCols),
        bias(kCols),
        grad_weight(kCols),
        grad_bias(kCols),
        mean(kRows),
        rstd(kRows) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.5F, 1.5F);
    const auto draw = [&](std::vector<double>& values, DType type) {
      for (double& value : values)
        value = type == DType::bf16 ? to_float(from_float<bf16>(normal(random))) : normal(random);
    };
    draw(x, dtype);
    draw(grad_y, dtype);
    draw(weight, DType::bf16);
    draw(bias, DType::bf16);
    for (std::int64_t row = 0; row < kRows; ++row) compute(row);
  }

  void compute(std::int64_t row) {
    const double* in = &x[row * kCols];
    const double* grad = &grad_y[row * kCols];
    double sum = 0, squares = 0;
    for (int i = 0; i < kCols; ++i) sum += in[i];
    mean[row] = sum / kCols;
    for (int i = 0; i < kCols; ++i) squares += (in[i] - mean[row]) * (in[i] - mean[row]);
    rstd[row] = 1 / std::sqrt(squares / kCols + kEps);

    double grads = 0, projected = 0;
    for (int i = 0; i < kCols; ++i) {
      const double normalized = (in[i] - mean[row]) * rstd[row];
      y[row * kCols + i] = normalized * weight[i] + bias[i];
      grad_weight[i] += grad[i] * normalized;
      grad_bias[i] += grad[i];
      grads += grad[i] * weight[i];
      projected += grad[i] * weight[i] * normalized;
    }
    for (int i = 0; i < kCols; ++i) {
      const double normalized = (in[i] - mean[row]) * rstd[row];
      grad_x[row * kCols + i] =
          rstd[row] * (grad[i] * weight[i] - (grads + normalized * projected) / kCols);
    }
  }

  std::vector<double> x, grad_y, y, grad_x, weight, bias, grad_weight, grad_bias, mean, rstd;
};

// Values as a peer wants to see them.
class Array {
 public:
  Array(DType dtype, const std::vector<double>& values)
      : dtype_(dtype), bytes_(values.size() * size_of(dtype)) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::bf16)
        at<bf16>(i) = from_float<bf16>(static_cast<float>(values[i]));
      else
        at<float>(i) = static_cast<float>(values[i]);
    }
  }
  static Array poisoned(DType dtype, std::size_t size) {
    return Array(dtype, std::vector<double>(size, std::nan("")));
  }

  double operator[](std::size_t i) {
    return dtype_ == DType::bf16 ? to_float(at<bf16>(i)) : at<float>(i);
  }
  void* data() { return bytes_.data(); }

 private:
  template <class T>
  T& at(std::size_t i) {
    return reinterpret_cast<T*>(bytes_.data())[i];
  }

  DType dtype_;
  std::vector<std::byte> bytes_;
};

// Sums over rows grow with them; all else is about one.
void expect_near(Array& actual, const std::vector<double>& expected, double tolerance) {
  double scale = 1;
  for (double value : expected) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance * scale) << "at element " << i;
}

struct Types {
  DType x, weight;
  double tolerance;
};
constexpr Types kTypes[] = {{DType::f32, DType::f32, 1e-5},
                            {DType::bf16, DType::f32, 2e-2},
                            {DType::bf16, DType::bf16, 2e-2}};

PeerCase layernorm_case(const Types& types, std::string pass, int threads) {
  PeerCase c;
  c.op = "layernorm";
  c.pass = std::move(pass);
  c.dtype = types.x;
  c.weight_dtype = types.weight;
  c.rows = kRows;
  c.cols = kCols;
  c.eps = kEps;
  c.threads = threads;
  return c;
}

// Every peer has f32; what else it has is its own choice.
std::optional<PreparedPeer> prepare(const Peer& peer, const PeerCase& c) {
  std::string reason;
  auto prepared = peer.prepare(c, &reason);
  EXPECT_TRUE(prepared || c.dtype != DType::f32) << reason;
  return prepared;
}

void check_forward(const Peer& peer, const Types& types, int threads) {
  const Reference reference(types.x);
  Array x(types.x, reference.x);
  Array weight(types.weight, reference.weight);
  Array bias(types.weight, reference.bias);
  Array y = Array::poisoned(types.x, kRows * kCols);
  Array mean = Array::poisoned(DType::f32, kRows);
  Array rstd = Array::poisoned(DType::f32, kRows);
  PeerCase c = layernorm_case(types, "fwd", threads);
  c.arrays = {{"x", x.data()}, {"weight", weight.data()}, {"bias", bias.data()},
              {"y", y.data()}, {"mean", mean.data()},     {"rstd", rstd.data()}};
  auto prepared = prepare(peer, c);
  if (!prepared) return;
  prepared->run();
  expect_near(y, reference.y, types.tolerance);
}

void check_backward(const Peer& peer, const Types& types, int threads) {
  const Reference reference(types.x);
  Array x(types.x, reference.x);
  Array grad_y(types.x, reference.grad_y);
  Array weight(types.weight, reference.weight);
  Array mean(DType::f32, reference.mean);
  Array rstd(DType::f32, reference.rstd);
  Array grad_x = Array::poisoned(types.x, kRows * kCols);
  Array grad_weight = Array::poisoned(types.weight, kCols);
  Array grad_bias = Array::poisoned(types.weight, kCols);
  PeerCase c = layernorm_case(types, "bwd", threads);
  c.arrays = {{"x", x.data()},
              {"grad_y", grad_y.data()},
              {"weight", weight.data()},
              {"mean", mean.data()},
              {"rstd", rstd.data()},
              {"grad_x", grad_x.data()},
              {"grad_weight", grad_weight.data()},
              {"grad_bias", grad_bias.data()}};
  auto prepared = prepare(peer, c);
  if (!prepared) return;
  prepared->run();
  expect_near(grad_x, reference.grad_x, types.tolerance);
  expect_near(grad_weight, reference.grad_weight, types.tolerance);
  expect_near(grad_bias, reference.grad_bias, types.tolerance);
}

TEST(Peers, AllThatWereBuiltLoadSideBySide) {
  for (const std::string& line : load_peers(ISOBIT_PEERS).unavailable)
    EXPECT_NE(line.find("not built"), std::string::npos) << line;
}

TEST(Peers, ComputeLayerNormAndItsGradients) {
  const Peers peers = load_peers(ISOBIT_PEERS);
  if (peers.available.empty()) GTEST_SKIP() << "no peer was built";
  for (int threads : {1, 2})
    for (const Types& types : kTypes)
      for (const Peer& peer : peers.available) {
        SCOPED_TRACE(testing::Message() << peer.name() << ", x " << name_of(types.x) << ", weight "
                                        << name_of(types.weight) << ", threads " << threads);
        check_forward(peer, types, threads);
        check_backward(peer, types, threads);
      }
}

TEST(Peers, AddElementwiseUnlessTheyDecline) {
  for (const Peer& peer : load_peers(ISOBIT_PEERS).available) {
    SCOPED_TRACE(peer.name());
    const std::vector<double> ones(kRows * kCols, 1), twos(kRows * kCols, 2);
    Array x(DType::f32, ones), residual(DType::f32, twos),
        y = Array::poisoned(DType::f32, ones.size());
    PeerCase c = layernorm_case(kTypes[0], "fwd", 2);
    c.op = "elementwise";
    c.arrays = {{"x", x.data()}, {"residual", residual.data()}, {"y", y.data()}};
    for (const auto& [kind, sum] : {std::pair{"add", 3.0}, {"increment", 2.0}}) {
      c.kind = kind;
      auto prepared = peer.prepare(c);
      if (!prepared) continue;
      prepared->run();
      expect_near(y, std::vector<double>(ones.size(), sum), 0);
    }
  }
}

TEST(Peers, NameTheReasonWhenTheyDecline) {
  for (const Peer& peer : load_peers(ISOBIT_PEERS).available) {
    std::string reason;
    PeerCase c = layernorm_case(kTypes[0], "fwd", 1);
    EXPECT_FALSE(peer.prepare(c, &reason));
    EXPECT_EQ(reason, "the case has no x");
    c.op = "sorcery";
    EXPECT_FALSE(peer.prepare(c, &reason));
    EXPECT_NE(reason.find("sorcery"), std::string::npos);
  }
}

TEST(Peers, MissingAndBrokenOnesAreOnlyReported) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "isobit_peers";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "isobit_peer_torch.so") << "no library";

  const Peers peers = load_peers(folder);
  EXPECT_TRUE(peers.available.empty());
  ASSERT_EQ(peers.unavailable.size(), 2U);
  EXPECT_EQ(peers.unavailable[0].find("onednn: not built"), 0U) << peers.unavailable[0];
  EXPECT_EQ(peers.unavailable[1].find("torch: "), 0U) << peers.unavailable[1];
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace isobit::lab
