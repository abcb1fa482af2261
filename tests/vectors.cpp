// SPDX-License-Identifier: Apache-2.0
// Calls of simd's vectors, row_loops.h, collected_rows.h and row_sums.h, compiled once for each
// instruction set.
#include "vectors.h"

#include "isobit/simd/collected_rows.h"
#include "isobit/simd/fence.h"
#include "isobit/simd/roots.h"
#include "isobit/simd/row_loops.h"
#include "isobit/simd/row_sums.h"

namespace isobit::vectors::ISOBIT_ISA {
namespace {

using simd::Nan;
using simd::Stores;

template <class S, class T>
Elements<typename S::Real, T> elements() {
  using Real = typename S::Real;
  return {[](const T* from, Real* to) { S::store(to, S::load(from)); },
          [](const T* from, std::int64_t count, Real* to) {
            S::store(to, S::load(from, S::first(count)));
          },
          [](const Real* from, T* to) { S::store(to, S::load(from)); },
          [](const Real* from, T* to) {
            S::template store<Stores::cached, Nan::absent>(to, S::load(from));
          },
          [](const Real* from, std::int64_t count, T* to) {
            S::store(to, S::load(from), S::first(count));
          },
          [](const Real* from, std::int64_t count, bool streaming, T* to) {
            simd::store_row<S>(to, count, streaming,
                               [from](std::int64_t i, auto... part)
                                   ISOBIT_INLINE_LAMBDA { return S::load(from + i, part...); });
            simd::fence();
          },
          [](const Real* from, std::int64_t rows, std::int64_t count, std::int64_t stride, T* to) {
            simd::StoredRows<T> stored(to, stride, count, true);
            for (std::int64_t row = 0; row < rows; ++row)
              stored.template store<S>(
                  to + row * stride, [at = from + row * count](std::int64_t i, auto... part)
                                         ISOBIT_INLINE_LAMBDA { return S::load(at + i, part...); });
            stored.finish();
            simd::fence();
          }};
}

template <class S>
Vectors<typename S::Real> vectors_of() {
  using Real = typename S::Real;
  return {.width = S::kWidth,
          .add = [](const Real* a, const Real* b, const Real*,
                    Real* to) { S::store(to, S::add(S::load(a), S::load(b))); },
          .sub = [](const Real* a, const Real* b, const Real*,
                    Real* to) { S::store(to, S::sub(S::load(a), S::load(b))); },
          .mul = [](const Real* a, const Real* b, const Real*,
                    Real* to) { S::store(to, S::mul(S::load(a), S::load(b))); },
          .fma = [](const Real* a, const Real* b, const Real* c,
                    Real* to) { S::store(to, S::fma(S::load(a), S::load(b), S::load(c))); },
          .minus_product =
              [](const Real* a, const Real* b, const Real* c, Real* to) {
                S::store(to, S::minus_product(S::load(a), S::load(b), S::load(c)));
              },
          .div = [](const Real* a, const Real* b, const Real*,
                    Real* to) { S::store(to, S::div(S::load(a), S::load(b))); },
          .sqrt = [](const Real* a, const Real*, const Real*,
                     Real* to) { S::store(to, simd::WithRoots<S>::sqrt(S::load(a))); },
          .min = [](const Real* a, const Real* b, const Real*,
                    Real* to) { S::store(to, S::min(S::load(a), S::load(b))); },
          .max = [](const Real* a, const Real* b, const Real*,
                    Real* to) { S::store(to, S::max(S::load(a), S::load(b))); },
          .choose =
              [](const Real* a, const Real* b, const Real* c, Real* to) {
                S::store(to, S::choose(S::less(S::load(a), S::load(b)), S::load(b), S::load(c)));
              },
          // ((a & b) ^ c) + a, shifted to the left by 3 and to the right by 2
          .bits =
              [](const Real* a, const Real* b, const Real* c, Real* to) {
                const auto word =
                    S::bits_add(S::bits_xor(S::bits_and(S::bits(S::load(a)), S::bits(S::load(b))),
                                            S::bits(S::load(c))),
                                S::bits(S::load(a)));
                S::store(to, S::real(S::template shift_right<2>(S::template shift_left<3>(word))));
              },
          .neighbours =
              [] {
                typename Vectors<Real>::Operation exchange = nullptr;
                if constexpr (S::kWidth > 1)
                  exchange = [](const Real* a, const Real*, const Real*, Real* to) {
                    S::store(to, S::neighbours(S::load(a)));
                  };
                return exchange;
              }(),
          .fold = [](const Real* from) { return S::fold(S::load(from)); },
          .only = [](const Real* from, std::int64_t count,
                     Real* to) { S::store(to, S::only(S::load(from), S::first(count))); },
          .sum =
              [](const Real* x, std::int64_t count) {
                return simd::row_sum<S>(
                    count, [x](std::int64_t i, auto... part)
                               ISOBIT_INLINE_LAMBDA { return S::load(x + i, part...); });
              },
          .dot =
              [](const Real* x, const Real* y, std::int64_t count) {
                return simd::row_dot<S>(
                    count, [x, y](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
                      return simd::Terms<S>{S::load(x + i, part...), S::load(y + i, part...)};
                    });
              },
          .elements = elements<S, Real>()};
}

}  // namespace

AllVectors vectors() {
  return {vectors_of<simd::F32>(), elements<simd::F32, f16>(), elements<simd::F32, bf16>(),
          vectors_of<simd::F64>()};
}

}  // namespace isobit::vectors::ISOBIT_ISA
