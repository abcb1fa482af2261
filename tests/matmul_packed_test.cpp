// SPDX-License-Identifier: Apache-2.0
// A matrix that is packed once gives the bits of one that is not, whatever it is multiplied by, and
// refuses what it was not packed for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "float_arrays.h"
#include "guarded_pages.h"
#include "isobit/core/error.h"
#include "isobit/lab/configurations.h"
#include "isobit/ops/matmul/cpu_panels.h"
#include "isobit/ops/matmul/matmul.h"
#include "workloads.h"

namespace isobit::matmul {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

// Elements of any type, and views of them.
class Elements {
 public:
  Elements(DType dtype, const Floats& values, float scale = 1)
      : dtype_(dtype), bytes_(values.size() * static_cast<std::size_t>(size_of(dtype))) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float value = values[i] * scale;
      switch (dtype) {
        case DType::f16:  put(i, from_float<f16>(value)); break;
        case DType::bf16: put(i, from_float<bf16>(value)); break;
        case DType::f64:  put(i, static_cast<double>(value) / 3); break;
        default:          put(i, value);
      }
    }
  }

  TensorView view(const std::vector<std::int64_t>& shape,
                  const std::vector<std::int64_t>& strides = {}) const {
    TensorView result = isobit::view(nullptr, shape, strides);
    result.data = const_cast<std::byte*>(bytes_.data());
    result.bytes = std::ssize(bytes_);
    result.dtype = dtype_;
    return result;
  }
  bool operator==(const Elements& other) const { return bytes_ == other.bytes_; }

 private:
  template <class T>
  void put(std::size_t i, T value) {
    std::memcpy(bytes_.data() + i * sizeof value, &value, sizeof value);
  }

  DType dtype_;
  std::vector<std::byte> bytes_;
};

Execution executed_on(Isa isa, int threads = 1) { return lab::execution_for(isa, threads); }

// Calls both ways: args without y, which is made of type `dtype` and of a shape.
void expect_same(ForwardArgs args, const TensorView& b, const PackedMatrix& packed, DType dtype,
                 const std::vector<std::int64_t>& shape, const Execution& execution) {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;
  const Floats before = numbers(count, 99);
  const Elements expected(dtype, before), y(dtype, before);
  args.b = b;
  args.y = expected.view(shape);
  forward(args, execution);
  args.b = {};
  args.y = y.view(shape);
  forward(args, packed, execution);
  EXPECT_TRUE(y == expected) << shape[0] << " rows, a of " << name_of(args.a.dtype) << ", "
                             << name_of(execution.machine.isa);
}

// Panels of a part, in memory that begins a line.
class Panel {
 public:
  explicit Panel(std::int64_t elements) : lines_(static_cast<std::size_t>(elements / 16 + 1)) {}
  void* data() { return lines_.data(); }
  const float* floats() const { return reinterpret_cast<const float*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    float lanes[16];
  };
  std::vector<Line> lines_;
};

// Where pairs are the slower ones, a packed matrix alone takes them, for a few rows.
TEST(Pairs, HaveTheBitsOfElements) {
  int sets = 0;
  for (Isa isa : Machine::isas_here()) {
    const PairKernels* const pairs = pair_kernels_for(DType::bf16, isa);
    if (pairs == nullptr) continue;
    ++sets;
    const PackKernels& elements = pack_kernels_for(DType::bf16, isa);
    for (std::int64_t m : {1, 14, 33})
      for (std::int64_t n : {5, 16, 50})
        for (std::int64_t k : {1, 2, 37})
          for (const bool turned : {false, true}) {
            const Elements a(DType::bf16, numbers(m * k)), b(DType::bf16, numbers(k * n, 2));
            const auto* const a_data = static_cast<const std::byte*>(a.view({m * k}).data);
            const auto* const b_data = static_cast<const std::byte*>(b.view({k * n}).data);
            const Lanes rows = turned ? Lanes{a_data, 1, m, m} : Lanes{a_data, k, 1, m};
            const Lanes cols = turned ? Lanes{b_data, k, 1, n} : Lanes{b_data, 1, n, n};
            const std::int64_t pitch = (n + 31) / 32 * 32;
            const auto sums_of = [&](const auto& of_a, const auto& of_b, auto multiply,
                                     Panel& b_panel) {
              Panel a_panel((m + elements.rows) * 2 * elements.row_pitch * k), sums(m * pitch);
              of_a.pack_a(rows, k, a_panel.data());
              of_b.pack_b(cols, k, b_panel.data());
              multiply({a_panel.data(), b_panel.data(), sums.data(), pitch, m, n, k, false});
              Floats result;
              for (std::int64_t at = 0; at < m * n; ++at)
                result.push_back(sums.floats()[at / n * pitch + at % n]);
              return result;
            };
            Panel as_elements(pitch * k), as_pairs(pitch * k), widened(pitch * k);
            const Floats sums = sums_of(elements, elements, elements.multiply, as_elements);
            EXPECT_TRUE(same(sums_of(*pairs, *pairs, pairs->multiply, as_pairs), sums))
                << m << " x " << n << " x " << k;
            EXPECT_TRUE(same(sums_of(elements, *pairs, pairs->multiply_widened, as_pairs), sums))
                << m << " x " << n << " x " << k << ", widened";
            const std::int64_t first = std::min(n, elements.cols);
            const std::int64_t line = first <= elements.width ? elements.width : elements.cols;
            pairs->widen_b(as_pairs.data(), first, k, widened.data());
            for (std::int64_t at = 0; at < first * k; ++at) {
              const std::int64_t place = at / first * line + at % first;
              EXPECT_EQ(widened.floats()[place], as_elements.floats()[place]) << at;
            }
          }
  }
  if (sets == 0) GTEST_SKIP() << "no instruction multiplies pairs here";
}

TEST(Pairs, TellTheSmallestExponentOfAPart) {
  int sets = 0;
  for (Isa isa : Machine::isas_here()) {
    const PairKernels* const pairs = pair_kernels_for(DType::bf16, isa);
    if (pairs == nullptr) continue;
    ++sets;
    constexpr std::int64_t kLanes = 20, kK = 5;
    Panel to(64 * kK);
    for (std::int64_t at = 0; at < kLanes * kK; ++at) {
      Floats values(kLanes * kK, 3);
      values[at] = 0x1.8p-40f;  // its biased exponent is 87
      values[(at + 1) % (kLanes * kK)] = 0;
      const Elements elements(DType::bf16, values);
      const auto* const data = static_cast<const std::byte*>(elements.view({kLanes * kK}).data);
      for (const Lanes& lanes : {Lanes{data, kK, 1, kLanes}, Lanes{data, 1, kLanes, kLanes}}) {
        EXPECT_EQ(pairs->pack_a(lanes, kK, to.data()), 87) << at;
        EXPECT_EQ(pairs->pack_b(lanes, kK, to.data()), 87) << at;
      }
    }
  }
  if (sets == 0) GTEST_SKIP() << "no instruction multiplies pairs here";
}

TEST(PackedMatrix, GivesTheBitsOfAnArray) {
  struct Shape {
    std::int64_t k, n;
  };
  for (const Shape& s :
       {Shape{1, 1}, Shape{37, 75}, Shape{513, 33}, Shape{1031, 17}, Shape{8705, 9}})
    for (DType dtype : kFloats) {
      if (lab::thinned() && s.k > 513 && dtype != DType::bf16) continue;
      const Elements a(dtype, numbers(130 * s.k)), b(dtype, numbers(s.k * s.n, 2));
      for (Isa isa : Machine::isas_here())
        for (const bool turned : {false, true}) {
          const TensorView of_b = turned ? b.view({s.k, s.n}, {1, s.k}) : b.view({s.k, s.n});
          const PackedMatrix packed(of_b, executed_on(isa, turned ? 3 : 1));
          for (std::int64_t m : {1, 3, 17, 130})
            expect_same({.a = a.view({m, s.k}), .b = {}, .y = {}}, of_b, packed, dtype, {m, s.n},
                        executed_on(isa, turned ? 1 : 3));
        }
    }
}

// Tiles of several panels down and across, and a matrix with gaps in both directions.
TEST(PackedMatrix, MayBeLargerThanATileAndHaveAnyStrides) {
  constexpr std::int64_t kM = 950, kN = 1100, kK = 600;
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Elements a(dtype, numbers(kM * kK)), b(dtype, numbers(kK * kN * 6, 2));
    const Isa isa = Machine::isas_here().back();
    const TensorView of_b = b.view({kK, kN}, {3 * kN, 2});
    const PackedMatrix packed(of_b, executed_on(isa, 2));
    for (int threads : {1, 2, 7})
      expect_same({.a = a.view({kM, kK}), .b = {}, .y = {}}, of_b, packed, dtype, {kM, kN},
                  executed_on(isa, threads));
  }
}

TEST(PackedMatrix, TakesAllThatAnArrayDoes) {
  constexpr std::int64_t kM = 21, kN = 50, kK = 530;
  struct Types {
    DType a, y, bias;
  };
  for (const Types& types :
       {Types{DType::f32, DType::f32, DType::f32}, Types{DType::f32, DType::bf16, DType::f32},
        Types{DType::bf16, DType::f32, DType::bf16}, Types{DType::f16, DType::f16, DType::f32},
        Types{DType::f64, DType::f64, DType::f64}}) {
    const Elements a(types.a, numbers(kM * kK)), b(types.a, numbers(kK * kN, 2));
    const Elements bias(types.bias, numbers(kN, 3)), c(types.y, numbers(kM * kN, 4));
    const Elements residual(types.y, numbers(kM * kN, 5));
    const TensorView of_b = b.view({kK, kN});
    for (Isa isa : Machine::isas_here()) {
      const PackedMatrix packed(of_b, executed_on(isa));
      for (Activation activation : {Activation::none, Activation::gelu_tanh, Activation::silu}) {
        ForwardArgs args{.a = a.view({kM, kK}), .b = {}, .y = {}};
        args.bias = bias.view({kN});
        args.c = c.view({kM, kN});
        args.residual = residual.view({kM, kN}, {1, kM});
        args.alpha = 0.75;
        args.beta = -1.5;
        args.activation = activation;
        const Floats nothing(kM * kN, kNan);
        const Elements pre(types.y, nothing), expected_pre(types.y, nothing);
        const Elements y(types.y, nothing), expected(types.y, nothing);
        ForwardArgs unpacked = args;
        unpacked.b = of_b;
        unpacked.pre = expected_pre.view({kM, kN});
        unpacked.y = expected.view({kM, kN}, {1, kM});
        forward(unpacked, executed_on(isa, 2));
        args.pre = pre.view({kM, kN});
        args.y = y.view({kM, kN}, {1, kM});
        forward(args, packed, executed_on(isa, 2));
        EXPECT_TRUE(y == expected) << name_of(types.a) << ' ' << name_of(isa);
        EXPECT_TRUE(pre == expected_pre) << name_of(types.a) << ' ' << name_of(isa);
      }
    }
  }
}

TEST(PackedMatrix, ServesWholeBatches) {
  constexpr std::int64_t kM = 5, kN = 40, kK = 70;
  const Elements a(DType::f32, numbers(12 * kM * kK)), b(DType::f32, numbers(kK * kN, 2));
  const TensorView of_b = b.view({kK, kN});
  const TensorView shared = b.view({3, 2, kK, kN}, {0, 0, kN, 1});
  for (Isa isa : Machine::isas_here()) {
    const PackedMatrix packed(of_b, executed_on(isa));
    for (const TensorView& of_a :
         {a.view({3, 2, kM, kK}), a.view({3, 2, kM, kK}, {kM * kK, kK, 4 * kK, 2})})
      expect_same({.a = of_a, .b = {}, .y = {}}, shared, packed, DType::f32, {3, 2, kM, kN},
                  executed_on(isa, 3));
  }
}

// The instruction that multiplies pairs of bf16 would take subnormal sums for 0: then single
// elements are multiplied, made of the same panels.
TEST(PackedMatrix, KeepsSubnormalSumsOfNarrowNumbers) {
  constexpr std::int64_t kM = 20, kFew = 4, kN = 75, kK = 1031;
  for (float of_a : {1.0f, 0x1p-63f, 0x1p-130f})
    for (float of_b : {1.0f, 0x1p-63f, 0x1p-66f, 0x1p-130f, 0.0f}) {
      Floats values = numbers(kK * kN, 2);
      for (std::int64_t k = 600; k < kK; ++k)
        values[k * kN + 70] *= of_b;  // one panel of one block
      const Elements a(DType::bf16, numbers(kM * kK), of_a);
      for (const Elements& b :
           {Elements(DType::bf16, numbers(kK * kN, 2), of_b), Elements(DType::bf16, values)})
        for (Isa isa : Machine::isas_here()) {
          const TensorView matrix = b.view({kK, kN});
          const PackedMatrix packed(matrix, executed_on(isa));
          for (std::int64_t m : {kFew, kM})
            expect_same({.a = a.view({m, kK}), .b = {}, .y = {}}, matrix, packed, DType::f32,
                        {m, kN}, executed_on(isa, 2));
        }
    }
}

TEST(PackedMatrix, MayHaveNoElements) {
  const Floats bias = {1, -2, 3};
  const TensorView empty{nullptr, 0, DType::f32, 2, {0, 3}, {3, 1}};
  const Execution here = executed_on(Machine::here().isa);
  const PackedMatrix no_rows(empty, here);
  EXPECT_EQ(no_rows.bytes(), 0);
  Floats y(6, kNan);
  ForwardArgs args{.a = {nullptr, 0, DType::f32, 2, {2, 0}, {0, 1}}, .b = {}, .y = {}};
  args.bias = view(bias.data(), {3});
  args.y = view(y.data(), {2, 3});
  forward(args, no_rows, here);
  EXPECT_EQ(y, (Floats{1, -2, 3, 1, -2, 3}));

  const Floats a = numbers(6);
  const PackedMatrix no_cols({nullptr, 0, DType::f32, 2, {3, 0}, {0, 1}}, here);
  forward({.a = view(a.data(), {2, 3}), .b = {}, .y = {nullptr, 0, DType::f32, 2, {2, 0}, {0, 1}}},
          no_cols, here);

  const PackedMatrix some(view(a.data(), {3, 2}), here);
  forward({.a = {nullptr, 0, DType::f32, 2, {0, 3}, {3, 1}},
           .b = {},
           .y = {nullptr, 0, DType::f32, 2, {0, 2}, {2, 1}}},
          some, here);
}

std::string told(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) { return error.what(); }
  return "nothing";
}

TEST(PackedMatrix, RefusesWhatItWasNotPackedForAndWritesNothing) {
  const Floats a = numbers(2 * 3), b = numbers(3 * 4, 2), untouched(8, kNan);
  const Elements half(DType::f16, a);
  const Execution here = executed_on(Machine::here().isa);
  const TensorView of_a = view(a.data(), {2, 3});
  PackedMatrix packed(view(b.data(), {3, 4}), here);
  Floats y = untouched;
  const auto refusal = [&](const std::function<void(ForwardArgs&, Execution&)>& spoil) {
    ForwardArgs args{.a = of_a, .b = {}, .y = view(y.data(), {2, 4})};
    Execution execution = here;
    spoil(args, execution);
    const std::string says = told([&] { forward(args, packed, execution); });
    EXPECT_TRUE(same(y, untouched)) << says;
    return says;
  };
  EXPECT_EQ(refusal([&](ForwardArgs& args, Execution&) { args.a = view(a.data(), {3, 2}); }),
            "matmul: b was packed with 3 rows; a has 2 columns");
  EXPECT_EQ(refusal([&](ForwardArgs& args, Execution&) { args.a = view(a.data(), {3}); }),
            "matmul: a has 1 dimension; must have at least 2");
  EXPECT_EQ(refusal([&](ForwardArgs& args, Execution&) { args.a = {}; }), "matmul: a is missing");
  EXPECT_EQ(refusal([&](ForwardArgs& args, Execution&) { args.a = half.view({2, 3}); }),
            "matmul: b was packed of f32; a is f16");
  EXPECT_EQ(refusal([&](ForwardArgs& args, Execution&) { args.b = view(b.data(), {3, 4}); }),
            "matmul: b is given twice: as an array and packed");
  EXPECT_NE(
      refusal([&](ForwardArgs& args, Execution&) { args.y.shape[1] = 3; }).find("y has shape"),
      std::string::npos);
  EXPECT_NE(
      refusal([&](ForwardArgs& args, Execution&) { args.y.shape[0] = 1; }).find("y has shape"),
      std::string::npos);
  EXPECT_EQ(refusal([&](ForwardArgs& args, Execution&) { args.beta = 1; }),
            "matmul: beta is 1, but c is not given");
  EXPECT_NE(refusal([&](ForwardArgs& args, Execution&) {
              args.arithmetic = Arithmetic::tensor;
            }).find("use canonical"),
            std::string::npos);
  EXPECT_EQ(
      refusal([&](ForwardArgs&, Execution& execution) { execution.machine.device = Device::cuda; }),
      "matmul: b was packed for the processor; give it as an array");
  for (Isa isa : Machine::isas_here()) {
    if (isa == here.machine.isa) continue;
    EXPECT_EQ(refusal([&](ForwardArgs&, Execution& execution) { execution.machine.isa = isa; }),
              text("matmul: b was packed for ", name_of(here.machine.isa), "; this call is for ",
                   name_of(isa), "; pack it for that"));
  }
  PackedMatrix other = std::move(packed);
  EXPECT_EQ(refusal([](ForwardArgs&, Execution&) {}),
            "matmul: b was moved to another packed matrix");
  packed = std::move(other);
  EXPECT_EQ(told([&] { forward({.a = of_a, .b = {}, .y = view(y.data(), {2, 4})}, packed, here); }),
            "nothing");
}

TEST(PackedMatrix, IsMadeOfOneMatrixOfFloats) {
  const Floats b = numbers(24);
  const Execution here = executed_on(Machine::here().isa);
  const auto says = [&](const TensorView& matrix, const Execution& execution) {
    return told([&] { PackedMatrix(matrix, execution); });
  };
  EXPECT_EQ(says({}, here), "matmul pack: b is missing");
  EXPECT_EQ(says(view(b.data(), {2, 3, 4}), here), "matmul pack: b has 3 dimensions; must have 2");
  EXPECT_EQ(says(view(b.data(), {24}), here), "matmul pack: b has 1 dimensions; must have 2");
  TensorView matrix = view(b.data(), {4, 6});
  matrix.bytes = 92;
  EXPECT_NE(says(matrix, here).find("matmul pack: b"), std::string::npos);
  matrix = view(b.data(), {4, 6});
  matrix.dtype = DType::i32;
  EXPECT_NE(says(matrix, here).find("matmul pack: b has dtype i32"), std::string::npos);
  Execution gpu = here;
  gpu.machine.device = Device::cuda;
  EXPECT_EQ(says(view(b.data(), {4, 6}), gpu),
            "matmul pack: matrices are packed for the processor alone");
}

TEST(PackedMatrix, SaysWhatItIs) {
  const Execution here = executed_on(Machine::here().isa);
  const Floats b = numbers(600 * 192);
  const PackedMatrix packed(view(b.data(), {600, 192}), here);
  EXPECT_EQ(packed.k(), 600);
  EXPECT_EQ(packed.n(), 192);
  EXPECT_EQ(packed.dtype(), DType::f32);
  EXPECT_EQ(packed.isa(), here.machine.isa);
  EXPECT_EQ(packed.bytes(), 600 * 192 * 4);
}

TEST(PackedMatrix, KeepsNothingOfTheArray) {
  const Floats a = numbers(20 * 30);
  Floats b = numbers(30 * 40, 2), y(20 * 40), expected(20 * 40);
  const Execution here = executed_on(Machine::here().isa);
  forward({.a = view(a.data(), {20, 30}),
           .b = view(b.data(), {30, 40}),
           .y = view(expected.data(), {20, 40})},
          here);
  const PackedMatrix packed(view(b.data(), {30, 40}), here);
  std::fill(b.begin(), b.end(), kNan);
  forward({.a = view(a.data(), {20, 30}), .b = {}, .y = view(y.data(), {20, 40})}, packed, here);
  EXPECT_TRUE(same(y, expected));
}

TEST(PackedMatrix, ServesManyThreadsAtOnce) {
  constexpr std::int64_t kM = 40, kN = 300, kK = 700;
  constexpr int kCallers = 8;
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Elements a(dtype, numbers(kM * kK)), b(dtype, numbers(kK * kN, 2));
    const Execution here = executed_on(Machine::here().isa, 2);
    const TensorView of_b = b.view({kK, kN});
    const PackedMatrix packed(of_b, here);
    const Elements expected(dtype, Floats(kM * kN));
    forward({.a = a.view({kM, kK}), .b = of_b, .y = expected.view({kM, kN})}, here);
    std::vector<Elements> results(kCallers, Elements(dtype, Floats(kM * kN)));
    std::vector<std::thread> callers;
    for (const Elements& y : results)
      callers.emplace_back([&, of_y = y.view({kM, kN})] {
        for (int call = 0; call < 5; ++call)
          forward({.a = a.view({kM, kK}), .b = {}, .y = of_y}, packed, here);
      });
    for (std::thread& caller : callers) caller.join();
    for (const Elements& y : results) EXPECT_TRUE(y == expected);
  }
}

TEST(PackedMatrix, RefusedWorkspaceLeavesEverythingAsItWas) {
  const Floats a = numbers(20 * 30), b = numbers(30 * 40, 2), untouched(20 * 40, kNan);
  Execution here = executed_on(Machine::here().isa);
  const PackedMatrix packed(view(b.data(), {30, 40}), here);
  Floats y = untouched;
  here.allocator = {[](void*, std::size_t) -> void* { return nullptr; },
                    [](void*, void*, std::size_t) {}, nullptr};
  EXPECT_THROW(forward({.a = view(a.data(), {20, 30}), .b = {}, .y = view(y.data(), {20, 40})},
                       packed, here),
               OutOfMemory);
  EXPECT_TRUE(same(y, untouched));
}

TEST(PackedMatrix, CallsTakeLessMemoryThanWithAnArray) {
  constexpr std::int64_t kM = 70, kN = 700, kK = 600;
  for (DType dtype : kFloats)
    for (Isa isa : Machine::isas_here()) {
      const Elements a(dtype, numbers(kM * kK)), b(dtype, numbers(kK * kN, 2)),
          y(dtype, Floats(kM * kN));
      const auto most = [&](const std::function<void(const Execution&)>& call) {
        Counted counted;
        Execution here = executed_on(isa);
        here.machine.l2_bytes = 1 << 20;  // an array that stays there is not packed
        here.allocator = {Counted::take, Counted::give_back, &counted};
        call(here);
        EXPECT_EQ(counted.now, 0);
        return counted.most;
      };
      const TensorView of_a = a.view({kM, kK}), of_b = b.view({kK, kN}), of_y = y.view({kM, kN});
      const PackedMatrix packed(of_b, executed_on(isa));
      EXPECT_LT(
          most([&](const Execution& here) {
            forward({.a = of_a, .b = {}, .y = of_y}, packed, here);
          }),
          most([&](const Execution& here) { forward({.a = of_a, .b = of_b, .y = of_y}, here); }))
          << name_of(dtype) << ' ' << name_of(isa);
    }
}

// A matrix that ends and begins at pages that nobody may touch.
TEST(PackedMatrix, ReadsNoElementBeyondTheArray) {
  using guarded::Edge;
  guarded::Pages pages(64 << 10);
  for (DType dtype : kFloats)
    for (std::int64_t n : {1, 5, 16, 31, 33, 50})
      for (std::int64_t k : {1, 3, 16, 37, 70})
        for (const bool turned : {false, true})
          for (Edge edge : {Edge::front, Edge::back})
            for (Isa isa : Machine::isas_here()) {
              const Elements b(dtype, numbers(k * n));
              const std::vector<std::int64_t> strides =
                  turned ? std::vector<std::int64_t>{1, k} : std::vector<std::int64_t>{n, 1};
              TensorView matrix = b.view({k, n}, strides);
              void* const placed = pages.at(edge, static_cast<std::size_t>(matrix.bytes));
              std::memcpy(placed, matrix.data, static_cast<std::size_t>(matrix.bytes));
              const Elements a(dtype, numbers(2 * k, 3));
              const TensorView there = matrix;
              matrix.data = placed;
              expect_same({.a = a.view({2, k}), .b = {}, .y = {}}, there,
                          PackedMatrix(matrix, executed_on(isa)), dtype, {2, n}, executed_on(isa));
            }
}

}  // namespace
}  // namespace isobit::matmul
