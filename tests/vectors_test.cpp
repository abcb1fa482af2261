// SPDX-License-Identifier: Apache-2.0
// Each operation on vectors is one IEEE operation, on every instruction set of this machine.
#include "vectors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>
#include <vector>

#include "guarded_pages.h"
#include "isobit/core/machine.h"
#include "isobit/core/order.h"

namespace isobit::vectors {
namespace {

constexpr int kWidest = 64;

AllVectors vectors_of(Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, vectors()); }

template <class T>
auto bits(T value) {
  return std::bit_cast<
      std::conditional_t<sizeof(T) == 2, std::uint16_t,
                         std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>(value);
}

// Any bits at all, or edges of the format, or numbers not far from 1.
template <class Real>
class Draw {
 public:
  Real operator()() {
    using Limits = std::numeric_limits<Real>;
    static constexpr Real kEdges[] = {0,
                                      Real(-0.0),
                                      Limits::infinity(),
                                      -Limits::infinity(),
                                      Limits::denorm_min(),
                                      Limits::min(),
                                      Limits::max(),
                                      1};
    const std::uint64_t any = next();
    if (any % 4 == 0) return std::bit_cast<Real>(static_cast<decltype(bits(Real()))>(next()));
    if (any % 4 == 1) return kEdges[next() % std::size(kEdges)];
    return std::ldexp(static_cast<Real>(static_cast<std::int64_t>(next())),
                      static_cast<int>(next() % 64) - 95);
  }

  std::vector<Real> vector() {
    std::vector<Real> values(kWidest);
    for (Real& value : values) value = (*this)();
    return values;
  }

 private:
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t state_ = 0;
};

class VectorsOf : public testing::TestWithParam<Isa> {
 protected:
  const AllVectors vectors = vectors_of(GetParam());
};

template <class Real>
void expect_operations(const Vectors<Real>& vectors) {
  Draw<Real> draw;
  std::vector<Real> to(kWidest);
  for (int round = 0; round < 5000; ++round) {
    const auto a = draw.vector(), b = draw.vector(), c = draw.vector();
    const auto expect = [&](auto operation, const char* name, auto scalar) {
      operation(a.data(), b.data(), c.data(), to.data());
      for (int i = 0; i < vectors.width; ++i)
        ASSERT_EQ(bits(to[i]), bits(narrow<Real>(scalar(a[i], b[i], c[i]))))
            << name << " of " << a[i] << ", " << b[i] << ", " << c[i];
    };
    expect(vectors.add, "add", [](Real x, Real y, Real) { return x + y; });
    expect(vectors.sub, "sub", [](Real x, Real y, Real) { return x - y; });
    expect(vectors.mul, "mul", [](Real x, Real y, Real) { return x * y; });
    expect(vectors.fma, "fma", [](Real x, Real y, Real z) { return std::fma(x, y, z); });
    expect(vectors.minus_product, "minus_product",
           [](Real x, Real y, Real z) { return std::fma(-x, y, z); });
    expect(vectors.div, "div", [](Real x, Real y, Real) { return x / y; });
    expect(vectors.sqrt, "sqrt", [](Real x, Real, Real) { return std::sqrt(x); });
    expect(vectors.min, "min", [](Real x, Real y, Real) { return x < y ? x : y; });
    expect(vectors.max, "max", [](Real x, Real y, Real) { return x > y ? x : y; });
    expect(vectors.choose, "choose", [](Real x, Real y, Real z) { return x < y ? y : z; });
    expect(vectors.bits, "bits", [](Real x, Real y, Real z) {
      const auto word = ((bits(x) & bits(y)) ^ bits(z)) + bits(x);
      return std::bit_cast<Real>(static_cast<decltype(word)>(word << 3 >> 2));
    });
    if (vectors.neighbours != nullptr) {
      vectors.neighbours(a.data(), nullptr, nullptr, to.data());
      for (int i = 0; i < vectors.width; ++i)
        ASSERT_EQ(bits(to[i]), bits(narrow<Real>(a[i ^ 1]))) << "neighbours " << i;
    }
    std::vector<Real> halves = a;
    const Real folded = order::detail::fold(halves.data(), vectors.width);
    ASSERT_EQ(bits(narrow<Real>(vectors.fold(a.data()))), bits(narrow<Real>(folded)));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(VectorsOf, OperationsRoundAsScalarsDo) {
  expect_operations(vectors.f32);
  expect_operations(vectors.f64);
}

// Every pattern of 16 bits, every rounding boundary between two of them, both signs, and NaNs.
template <class T>
void expect_conversions(const Elements<float, T>& elements, int width) {
  std::vector<T> narrow(kWidest), numbers(kWidest);
  std::vector<float> wide(kWidest);
  const auto expect_stores = [&](const std::vector<float>& from) {
    elements.store(from.data(), narrow.data());
    elements.store_numbers(from.data(), numbers.data());
    for (int i = 0; i < width; ++i) {
      ASSERT_EQ(bits(narrow[i]), bits(from_float<T>(from[i]))) << from[i];
      if (!std::isnan(from[i])) { ASSERT_EQ(bits(numbers[i]), bits(narrow[i])) << from[i]; }
    }
  };
  for (std::uint32_t first = 0; first < 0x10000; first += width) {
    std::vector<T> from(kWidest);
    for (int i = 0; i < width; ++i) from[i].bits = static_cast<std::uint16_t>(first + i);
    elements.load(from.data(), wide.data());
    for (int i = 0; i < width; ++i)
      ASSERT_EQ(bits(wide[i]), bits(from_float<float>(to_float(from[i])))) << first + i;
    std::vector<float> halves = wide;
    for (int i = 0; i < width; ++i) {
      const T next{static_cast<std::uint16_t>(first + i + 1)};
      halves[i] = wide[i] + (to_float(next) - wide[i]) / 2;
    }
    for (float toward : {0.0f, INFINITY, -INFINITY}) {
      std::vector<float> beside = halves;
      for (float& value : beside) value = std::nextafter(value, toward);
      expect_stores(beside);
    }
    expect_stores(halves);
    expect_stores(wide);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(VectorsOf, ConversionsAreThoseOfScalars) {
  expect_conversions(vectors.f32_in_f16, vectors.f32.width);
  expect_conversions(vectors.f32_in_bf16, vectors.f32.width);
}

template <class Real, class T>
void expect_parts(const Elements<Real, T>& elements, int width) {
  Draw<Real> draw;
  for (int count = -1; count <= width + 1; ++count) {
    const std::vector<Real> from = draw.vector();
    std::vector<T> to(kWidest, narrow<T>(Real(7))), part;
    elements.store_part(from.data(), count, to.data());
    for (int i = 0; i < kWidest; ++i)
      ASSERT_EQ(bits(to[i]), bits(narrow<T>(i < count && i < width ? from[i] : Real(7)))) << count;
    // Nothing beyond the part is there to be read.
    for (int i = 0; i < count && i < width; ++i) part.push_back(narrow<T>(from[i]));
    part.shrink_to_fit();
    std::vector<Real> wide(kWidest);
    elements.load_part(part.data(), count, wide.data());
    for (int i = 0; i < width; ++i) {
      const Real expected = i < std::ssize(part) ? widen<Real>(part[i]) : Real(0);
      ASSERT_EQ(bits(wide[i]), bits(narrow<Real>(expected))) << count;
    }
  }
}

template <class Real>
void expect_only(const Vectors<Real>& vectors) {
  Draw<Real> draw;
  for (int count = -1; count <= vectors.width + 1; ++count) {
    const std::vector<Real> from = draw.vector();
    std::vector<Real> to(kWidest);
    vectors.only(from.data(), count, to.data());
    for (int i = 0; i < vectors.width; ++i)
      ASSERT_EQ(bits(to[i]), bits(narrow<Real>(i < count ? from[i] : Real(0)))) << count;
  }
}

TEST_P(VectorsOf, PartsLeaveTheRestAlone) {
  expect_parts(vectors.f32.elements, vectors.f32.width);
  expect_parts(vectors.f32_in_f16, vectors.f32.width);
  expect_parts(vectors.f32_in_bf16, vectors.f32.width);
  expect_parts(vectors.f64.elements, vectors.f64.width);
  expect_only(vectors.f32);
  expect_only(vectors.f64);
}

// Arrays of exactly what may be touched, beside a page that may not be.
class AtForbiddenPages {
 public:
  AtForbiddenPages() : pages_(1 << 14) {}

  // call(array, another) with two arrays of `count` elements, of which it may touch only these.
  template <class T, class Call>
  void expect_untouched(const char* what, std::int64_t count, Call call) {
    for (const guarded::Edge edge : {guarded::Edge::front, guarded::Edge::back}) {
      const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
      T* array = reinterpret_cast<T*>(pages_.at(edge, bytes));
      T* another = reinterpret_cast<T*>(others_.at(edge, bytes));
      const auto address = guarded::trapped([&] { call(array, another); });
      EXPECT_FALSE(address) << what << " of " << count << " elements of " << sizeof(T) << " bytes "
                            << guarded::name_of(edge) << " touches "
                            << pages_.place_of(*address) + others_.place_of(*address);
    }
  }

 private:
  guarded::Pages pages_, others_{1 << 14};
};

template <class Real, class T>
void expect_pages_untouched(const Elements<Real, T>& elements, int width) {
  AtForbiddenPages pages;
  Real reals[kWidest] = {};
  const auto expect = [&](const char* what, std::int64_t count, auto call) {
    pages.expect_untouched<T>(what, count, [&](T* array, T*) { call(array); });
  };
  expect("load", width, [&](T* from) { elements.load(from, reals); });
  expect("store", width, [&](T* to) { elements.store(reals, to); });
  expect("store_numbers", width, [&](T* to) { elements.store_numbers(reals, to); });
  for (int count = 0; count <= width; ++count) {
    expect("load_part", count, [&](T* from) { elements.load_part(from, count, reals); });
    expect("store_part", count, [&](T* to) { elements.store_part(reals, count, to); });
  }
}

template <class Real>
void expect_pages_untouched_by_sums(const Vectors<Real>& vectors) {
  AtForbiddenPages pages;
  for (int count = 0; count <= 1100; ++count) {
    pages.expect_untouched<Real>("sum", count,
                                 [&](const Real* x, const Real*) { vectors.sum(x, count); });
    pages.expect_untouched<Real>("dot", count,
                                 [&](const Real* x, const Real* y) { vectors.dot(x, y, count); });
  }
}

TEST_P(VectorsOf, NothingBeforeOrAfterAnArrayIsTouched) {
  expect_pages_untouched(vectors.f32.elements, vectors.f32.width);
  expect_pages_untouched(vectors.f32_in_f16, vectors.f32.width);
  expect_pages_untouched(vectors.f32_in_bf16, vectors.f32.width);
  expect_pages_untouched(vectors.f64.elements, vectors.f64.width);
  expect_pages_untouched_by_sums(vectors.f32);
  expect_pages_untouched_by_sums(vectors.f64);
}

template <class Real, class T>
void expect_rows(const Elements<Real, T>& elements) {
  constexpr int kLine = 64 / sizeof(T), kMost = 12 * kLine;
  Draw<Real> draw;
  std::vector<Real> from(kMost);
  for (Real& value : from) value = draw();
  for (int begin = 0; begin < kLine; ++begin)
    for (int count = 0; count <= kMost; count += count < 2 * kLine ? 1 : 7)
      for (const bool streaming : {false, true}) {
        std::vector<T> to(kMost + 2 * kLine, narrow<T>(Real(7))), expected = to;
        for (int i = 0; i < count; ++i) expected[begin + i] = narrow<T>(from[i]);
        elements.store_row(from.data(), count, streaming, to.data() + begin);
        ASSERT_EQ(std::memcmp(to.data(), expected.data(), to.size() * sizeof(T)), 0)
            << count << " elements from " << begin << " on, streaming: " << streaming;
      }
}

TEST_P(VectorsOf, RowsAreStoredWhereverTheyBegin) {
  expect_rows(vectors.f32.elements);
  expect_rows(vectors.f32_in_f16);
  expect_rows(vectors.f32_in_bf16);
  expect_rows(vectors.f64.elements);
}

// Rows of 1 to 24 lines; beside each other, and with an element between them.
template <class Real, class T>
void expect_streamed_rows(const Elements<Real, T>& elements) {
  constexpr int kLine = 64 / sizeof(T), kRows = 37;
  std::vector<Real> from(kRows * 24 * kLine);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<Real>(i % 251) - 125;
  for (const int count : {kLine, 4 * kLine - 1, 4 * kLine, 4 * kLine + 1, 5 * kLine + kLine / 2,
                          9 * kLine - 3, 20 * kLine, 20 * kLine - 1, 24 * kLine})
    for (const int stride : {count, count + 1})
      for (const int begin : {0, 1, kLine - 1}) {
        std::vector<T> to(kRows * stride + 2 * kLine, narrow<T>(Real(7))), expected = to;
        for (int row = 0; row < kRows; ++row)
          for (int i = 0; i < count; ++i)
            expected[begin + row * stride + i] = narrow<T>(from[row * count + i]);
        elements.stream_rows(from.data(), kRows, count, stride, to.data() + begin);
        ASSERT_EQ(std::memcmp(to.data(), expected.data(), to.size() * sizeof(T)), 0)
            << count << " elements every " << stride << " from " << begin << " on";
      }
}

TEST_P(VectorsOf, RowsAreStreamedWhereverTheyBegin) {
  expect_streamed_rows(vectors.f32.elements);
  expect_streamed_rows(vectors.f32_in_f16);
  expect_streamed_rows(vectors.f32_in_bf16);
  expect_streamed_rows(vectors.f64.elements);
}

template <class Real>
void expect_sums(const Vectors<Real>& vectors) {
  for (int count : {0, 1, 7, 64, 200, 448, 449, 511, 512, 513, 1000, 4096, 5001}) {
    std::vector<Real> x(count), y(count);
    for (int i = 0; i < count; ++i) {
      x[i] = std::sin(Real(0.1) * static_cast<Real>(i)) * 1000;
      y[i] = std::cos(Real(0.3) * static_cast<Real>(i));
    }
    const auto at_x = [&](std::int64_t i) { return x[i]; };
    const auto at_y = [&](std::int64_t i) { return y[i]; };
    EXPECT_EQ(bits(vectors.sum(x.data(), count)), bits(order::sum<Real>(count, at_x))) << count;
    EXPECT_EQ(bits(vectors.dot(x.data(), y.data(), count)),
              bits(order::dot<Real>(count, at_x, at_y)))
        << count;
  }
}

TEST_P(VectorsOf, RowsAreSummedInTheSpecifiedOrder) {
  expect_sums(vectors.f32);
  expect_sums(vectors.f64);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, VectorsOf,
                         testing::ValuesIn(Machine::isas_here().begin(),
                                           Machine::isas_here().end()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace isobit::vectors
