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
      else if (dtype == DType::f64)
        at<double>(i) = values[i];
      else
        at<float>(i) = static_cast<float>(values[i]);
    }
  }
  static Array poisoned(DType dtype, std::size_t size) {
    return Array(dtype, std::vector<double>(size, std::nan("")));
  }

  double operator[](std::size_t i) {
    if (dtype_ == DType::f64) return at<double>(i);
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

struct Tolerated {
  DType x, weight;
  double tolerance;
};
constexpr Tolerated kTypes[] = {{DType::f32, DType::f32, 1e-5},
                                {DType::bf16, DType::f32, 2e-2},
                                {DType::bf16, DType::bf16, 2e-2}};

PeerCase layernorm_case(const Tolerated& types, std::string pass, int threads) {
  PeerCase c;
  c.op = "layernorm";
  c.pass = std::move(pass);
  c.types = {types.x, types.weight};
  c.dims = {{"rows", kRows}, {"cols", kCols}};
  c.options = {{.name = "eps", .number = kEps}};
  c.threads = threads;
  return c;
}

// A library of products alone.
bool has_norms(const Peer& peer) { return peer.name() != "openblas"; }

// Every peer of norms has f32; what else it has is its own choice.
std::optional<PreparedPeer> prepare(const Peer& peer, const PeerCase& c) {
  std::string reason;
  auto prepared = peer.prepare(c, &reason);
  EXPECT_TRUE(prepared || c.types.x != DType::f32 || !has_norms(peer)) << reason;
  return prepared;
}

void check_forward(const Peer& peer, const Tolerated& types, int threads) {
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

void check_backward(const Peer& peer, const Tolerated& types, int threads) {
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
    for (const Tolerated& types : kTypes)
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
      c.options = {{.name = "kind", .text = kind, .usual = false}};
      auto prepared = peer.prepare(c);
      if (!prepared) continue;
      prepared->run();
      expect_near(y, std::vector<double>(ones.size(), sum), 0);
    }
  }
}

TEST(Peers, TransposeUnlessTheyDecline) {
  std::vector<double> values(kRows * kCols), transposed(values);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t j = 0; j < kCols; ++j) transposed[j * kRows + i] = values[i * kCols + j];
  for (const Peer& peer : load_peers(ISOBIT_PEERS).available) {
    SCOPED_TRACE(peer.name());
    Array x(DType::f32, values), y = Array::poisoned(DType::f32, values.size());
    PeerCase c;
    c.op = "transpose";
    c.pass = "fwd";
    c.types = {DType::f32, DType::f32, DType::f32};
    c.dims = {{"batch", 1}, {"rows", kRows}, {"cols", kCols}};
    c.threads = 2;
    c.arrays = {{"x", x.data()}, {"y", y.data()}};
    auto prepared = peer.prepare(c);
    if (!prepared) continue;
    prepared->run();
    expect_near(y, transposed, 0);
  }
}

TEST(Peers, ApplyFunctionsUnlessTheyDecline) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  std::vector<double> x(kRows * kCols), gates(x), silu(x), gated(x), gradients(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>(i % 64) / 8 - 4;
    gates[i] = static_cast<double>(i % 48) / 8 - 3;
    silu[i] = x[i] * sigmoid(x[i]);
    gated[i] = x[i] * gates[i] * sigmoid(gates[i]);
    gradients[i] = gates[i] * sigmoid(x[i]) * (1 + x[i] * sigmoid(-x[i]));
  }
  Array from(DType::f32, x), gate(DType::f32, gates);
  for (const Peer& peer : load_peers(ISOBIT_PEERS).available) {
    SCOPED_TRACE(peer.name());
    const auto expect = [&](const char* pass, const char* other, const char* result,
                            const std::vector<double>& truth) {
      Array y = Array::poisoned(DType::f32, x.size());
      PeerCase c;
      c.op = "activation";
      c.pass = pass;
      c.types = {DType::f32, DType::f32, DType::f32};
      c.dims = {{"rows", kRows}, {"cols", kCols}};
      c.threads = 2;
      c.options = {{.name = "function", .text = "silu", .number = 0, .usual = false}};
      c.arrays = {{"x", from.data()}, {result, y.data()}};
      if (*other != '\0') c.arrays.push_back({other, gate.data()});
      auto prepared = peer.prepare(c);
      if (!prepared) return;
      prepared->run();
      expect_near(y, truth, 1e-6);
    };
    expect("fwd", "", "y", silu);
    expect("fwd", "gate", "y", gated);
    expect("bwd", "grad_y", "grad_x", gradients);
  }
}

TEST(Peers, ScanAsTheReference) {
  constexpr std::int64_t kLength = 40, kInner = 3;
  std::vector<double> x(kLength * kInner), sums(x.size()), most(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::sin(static_cast<double>(i));
    sums[i] = x[i] + (i < kInner ? 0 : sums[i - kInner]);
    most[i] = i < kInner ? x[i] : std::max(x[i], most[i - kInner]);
  }
  Array from(DType::f32, x);
  for (const Peer& peer : load_peers(ISOBIT_PEERS).available)
    for (const auto& [kind, truth] : {std::pair("sum", &sums), std::pair("max", &most)}) {
      Array y = Array::poisoned(DType::f32, x.size());
      PeerCase c;
      c.op = "scan";
      c.pass = "fwd";
      c.types = {DType::f32, DType::f32, DType::f32};
      c.dims = {{"outer", 1}, {"length", kLength}, {"inner", kInner}};
      c.threads = 2;
      c.options = {{.name = "kind", .text = kind, .number = 0, .usual = false}};
      c.arrays = {{"x", from.data()}, {"y", y.data()}};
      auto prepared = peer.prepare(c);
      if (!prepared) continue;
      prepared->run();
      expect_near(y, *truth, 1e-5);
    }
}

// Of a matrix that lies the other way round too; and the gradients, of those who have them.
TEST(Peers, MultiplyMatricesWhicheverWayTheyLie) {
  const std::vector<double> a = {1, 2, 3, 4, 5, 6}, b = {1, -1, 2, 0, 3, 1, 0, 1, 2, 1, -2, 4};
  const std::vector<double> b_turned = {1, 3, 2, -1, 1, 1, 2, 0, -2, 0, 1, 4};
  const std::vector<double> product = {13, 4, -4, 14, 31, 7, -4, 29};  // 2 x 3 times 3 x 4
  for (const Peer& peer : load_peers(ISOBIT_PEERS).available)
    for (const bool turned : {false, true}) {
      Array of_a(DType::f32, a), of_b(DType::f32, turned ? b_turned : b);
      PeerCase c;
      c.op = "matmul";
      c.types = {DType::f32, DType::f32, DType::f32};
      c.dims = {{"batch", 1}, {"m", 2}, {"n", 4}, {"k", 3}};
      c.threads = 2;

      Array y = Array::poisoned(DType::f32, 8);
      c.pass = "fwd";
      c.arrays = {{"a", of_a.data()}, {"b", of_b.data(), turned}, {"y", y.data()}};
      auto forward = peer.prepare(c);
      ASSERT_TRUE(forward) << peer.name();
      forward->run();
      expect_near(y, product, 1e-5);

      Array grad_y(DType::f32, {1, 0, 0, 0, 0, 1, 0, 0});
      Array grad_a = Array::poisoned(DType::f32, 6), grad_bias = Array::poisoned(DType::f32, 4);
      Array grad_b = Array::poisoned(DType::f32, 12);
      c.pass = "bwd";
      c.arrays = {{"grad_y", grad_y.data()},  {"a", of_a.data()},
                  {"b", of_b.data(), turned}, {"grad_a", grad_a.data()},
                  {"grad_b", grad_b.data()},  {"grad_bias", grad_bias.data()}};
      auto backward = peer.prepare(c);
      if (!backward) continue;
      backward->run();
      expect_near(grad_a, {1, 3, 2, -1, 1, 1}, 1e-5);
      expect_near(grad_b, {1, 4, 0, 0, 2, 5, 0, 0, 3, 6, 0, 0}, 1e-5);
      expect_near(grad_bias, {1, 1, 0, 0}, 1e-5);
    }
}

// Batches, and what is a vector, in every layout that a peer can be told.
TEST(Peers, MultiplyBatchesRowsAndColumns) {
  struct Extents {
    std::int64_t batch, m, n, k;
  };
  const auto check = [](const Peer& peer, DType dtype, const Extents& of, bool a_turned,
                        bool b_turned, int threads) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<double> a(of.batch * of.m * of.k), b(of.batch * of.k * of.n),
        product(of.batch * of.m * of.n, 0);
    for (std::vector<double>* values : {&a, &b})
      for (double& value : *values) value = normal(random);
    for (std::int64_t i = 0; i < of.batch; ++i)
      for (std::int64_t row = 0; row < of.m; ++row)
        for (std::int64_t col = 0; col < of.n; ++col)
          for (std::int64_t at = 0; at < of.k; ++at)
            product[(i * of.m + row) * of.n + col] +=
                a[i * of.m * of.k + (a_turned ? at * of.m + row : row * of.k + at)] *
                b[i * of.k * of.n + (b_turned ? col * of.k + at : at * of.n + col)];
    Array of_a(dtype, a), of_b(dtype, b), y = Array::poisoned(dtype, product.size());
    PeerCase c;
    c.op = "matmul";
    c.pass = "fwd";
    c.types = {dtype, dtype, dtype};
    c.dims = {{"batch", of.batch}, {"m", of.m}, {"n", of.n}, {"k", of.k}};
    c.threads = threads;
    c.arrays = {{"a", of_a.data(), a_turned}, {"b", of_b.data(), b_turned}, {"y", y.data()}};
    std::string reason;
    auto prepared = peer.prepare(c, &reason);
    EXPECT_TRUE(prepared || (dtype == DType::f64 && peer.name() == "onednn")) << reason;
    if (!prepared) return;
    prepared->run();
    expect_near(y, product, dtype == DType::f64 ? 1e-14 : 1e-5);
  };
  constexpr Extents kExtents[] = {{3, 5, 7, 6}, {1, 70, 90, 80}, {2, 1, 9, 8},
                                  {2, 9, 1, 8}, {3, 1, 1, 8},    {2, 4, 5, 1}};
  for (const Peer& peer : load_peers(ISOBIT_PEERS).available)
    for (const DType dtype : {DType::f32, DType::f64})
      for (const Extents& of : kExtents)
        for (const int way : {0, 1, 2, 3})
          for (const int threads : {1, 2}) {
            SCOPED_TRACE(testing::Message()
                         << peer.name() << ", " << name_of(dtype) << ", " << of.batch << " of "
                         << of.m << " x " << of.n << " x " << of.k << ", way " << way);
            check(peer, dtype, of, (way & 1) != 0, (way & 2) != 0, threads);
          }
}

TEST(Peers, DeclineWhatIsAddedToAProduct) {
  for (const Peer& peer : load_peers(ISOBIT_PEERS).available)
    for (const char* more : {"bias", "c", "residual", "pre"}) {
      std::vector<double> ones(4, 1);
      Array x(DType::f32, ones);
      PeerCase c;
      c.op = "matmul";
      c.pass = "fwd";
      c.types = {DType::f32, DType::f32, DType::f32};
      c.dims = {{"batch", 1}, {"m", 2}, {"n", 2}, {"k", 2}};
      c.threads = 1;
      c.arrays = {{"a", x.data()}, {"b", x.data()}, {"y", x.data()}, {more, x.data()}};
      std::string reason;
      EXPECT_FALSE(peer.prepare(c, &reason)) << peer.name();
      EXPECT_EQ(reason, std::string("no ") + more + " here") << peer.name();
    }
}

TEST(Peers, NameTheReasonWhenTheyDecline) {
  for (const Peer& peer : load_peers(ISOBIT_PEERS).available) {
    std::string reason;
    PeerCase c = layernorm_case(kTypes[0], "fwd", 1);
    EXPECT_FALSE(peer.prepare(c, &reason));
    EXPECT_EQ(reason, has_norms(peer) ? "the case has no x" : "no layernorm fwd here");
    c.op = "sorcery";
    EXPECT_FALSE(peer.prepare(c, &reason));
    EXPECT_NE(reason.find("sorcery"), std::string::npos);
  }
}

// A time without an option that the case has is the time of something else.
TEST(Peers, DeclineAnOptionThatTheyDoNotKnow) {
  for (const Peer& peer : load_peers(ISOBIT_PEERS).available) {
    for (const char* op : {"activation", "layernorm", "rmsnorm", "elementwise", "matmul", "rope",
                           "scan", "transpose"}) {
      std::string reason;
      PeerCase c = layernorm_case(kTypes[0], "fwd", 1);
      c.op = op;
      c.options.push_back({.name = "spin", .number = 0.5, .usual = false});
      EXPECT_FALSE(peer.prepare(c, &reason));
      EXPECT_TRUE(reason == "no spin here" || reason.find(op) != std::string::npos) << reason;
    }
  }
}

TEST(Peers, MissingAndBrokenOnesAreOnlyReported) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "isobit_peers";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "isobit_peer_torch.so") << "no library";

  const Peers peers = load_peers(folder);
  EXPECT_TRUE(peers.available.empty());
  ASSERT_EQ(peers.unavailable.size(), 3U);
  EXPECT_EQ(peers.unavailable[0].find("onednn: not built"), 0U) << peers.unavailable[0];
  EXPECT_EQ(peers.unavailable[1].find("openblas: not built"), 0U) << peers.unavailable[1];
  EXPECT_EQ(peers.unavailable[2].find("torch: "), 0U) << peers.unavailable[2];
  std::filesystem::remove_all(folder);
}

TEST(Peers, OneWhoseLibraryHasGoneSaysWhich) {
  const Peers peers = load_peers(ISOBIT_BROKEN_PEERS);
  EXPECT_TRUE(peers.available.empty());
  ASSERT_EQ(peers.unavailable.size(), 3U);
  EXPECT_EQ(peers.unavailable[1].find("openblas: /nowhere/libopenblas.so: "), 0U)
      << peers.unavailable[1];
}

}  // namespace
}  // namespace isobit::lab
