// SPDX-License-Identifier: Apache-2.0
// One row at a time in vectors, compiled once for each instruction set.
#include "isobit/ops/channel_norm/cpu_kernels.h"

#include "isobit/ops/channel_norm/cpu_elements.h"
#include "isobit/ops/channel_norm/formula.h"
#include "isobit/simd/prefetch.h"
#include "isobit/simd/row_loops.h"
#include "isobit/simd/row_sums.h"

namespace isobit::channel_norm::ISOBIT_ISA {
namespace {

using order::kBlock;

template <class Real>
const Statistics<Real>& statistics_at(const Known& known, std::int64_t row) {
  return static_cast<const Statistics<Real>*>(known.statistics)[row];
}

// Calls body(Normalise or NormaliseAny), which give the same bits where both may be used.
template <class S, class Body>
ISOBIT_INLINE void with_normaliser(const Statistics<typename S::Real>& statistics,
                                   const Body& body) {
  if (statistics.plain) [[likely]]
    body(layernorm::Normalise<S>(statistics));
  else
    body(layernorm::NormaliseAny<S>(statistics));
}

// The weights, or the biases, of the elements of a piece: the channel's, or each element its own.
template <class S, bool kSpread>
class OfPiece {
 public:
  using Real = typename S::Real;

  ISOBIT_INLINE OfPiece(const void* all, const Row& row, const Piece& piece)
      : of_piece_(static_cast<const Real*>(all) +
                  (kSpread ? row.channel_of(piece.segment) * row.extent + piece.l
                           : row.channel_of(piece.segment))),
        first_(S::all(*of_piece_)) {}
  ISOBIT_INLINE auto operator()(std::int64_t i, auto... part) const {
    if constexpr (kSpread)
      return S::load(of_piece_ + i, part...);
    else
      return first_;
  }

 private:
  const Real* of_piece_;
  typename S::V first_;
};

// Asks for the block that comes some blocks after a whole one, if the row goes on in memory.
template <class T>
ISOBIT_INLINE void fetch_ahead(const T* block, std::int64_t count) {
  constexpr std::int64_t kLine = 64 / sizeof(T), kAhead = 4 * kBlock;
  if (count == kBlock)
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < kBlock; i += kLine)
      simd::fetch_to_second_cache(block + kAhead + i);
}

// Adds block after block of a part of a row: of_block(begin, count) gives the sums of one.
template <class S, class OfBlock>
ISOBIT_INLINE void add_blocks(const Part& part, void* to, const OfBlock& of_block) {
  using Real = typename S::Real;
  order::PairTree<Real> sums, dots;
  for (std::int64_t begin = part.begin; begin < part.end; begin += kBlock) {
    const std::int64_t left = part.end - begin;
    const simd::Sums<S> of = of_block(begin, left < kBlock ? left : kBlock);
    sums.push(of.sum);
    dots.push(of.dot);
  }
  *static_cast<Moments<Real>*>(to) = {sums.total(), dots.total()};
}

template <class S, class T>
void moments(const Given& given, const Part& part, const void* centres, void* to) {
  using Real = typename S::Real;
  const Row row = given.row(part.first);
  alignas(64) T buffer[kBlock];
  if (centres == nullptr)
    return add_blocks<S>(
        part, to,
        [&](std::int64_t begin, std::int64_t count) ISOBIT_INLINE_LAMBDA -> simd::Sums<S> {
          const T* x = block(given.x, row, begin, count, buffer);
          fetch_ahead(x, count);
          return {
              simd::row_sum<S>(count, [x](std::int64_t i, auto... part)
                                          ISOBIT_INLINE_LAMBDA { return S::load(x + i, part...); }),
              0};
        });
  const auto centre = S::all(*static_cast<const Real*>(centres));
  add_blocks<S>(part, to, [&](std::int64_t begin, std::int64_t count) ISOBIT_INLINE_LAMBDA {
    const T* x = block(given.x, row, begin, count, buffer);
    return simd::row_sum_and_dot<S>(
        count, [x, centre](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
          const auto d = S::only(S::sub(S::load(x + i, part...), centre), part...);
          return simd::Terms<S>{d, d};
        });
  });
}

template <class S, class T, bool kSpread>
void normalise(const ForwardProblem& p, const Known& known, const Part& part) {
  using Real = typename S::Real;
  const Row row = p.row(part.first);
  with_normaliser<S>(
      statistics_at<Real>(known, part.first), [&](const auto& normaliser) ISOBIT_INLINE_LAMBDA {
        alignas(64) T from[kBlock], to[kBlock];
        for_each_piece(row, part.begin, part.end, [&](const Piece& piece) ISOBIT_INLINE_LAMBDA {
          const T* x = elements(p.x, row, piece, from);
          if (!p.training) fetch_ahead(x, piece.count);
          const Results<T> y(p.y, row, piece, to);
          const OfPiece<S, kSpread> w(known.weight, row, piece), b(known.bias, row, piece);
          simd::store_row<S>(y.data(), piece.count, known.streams,
                             [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
                               return S::fma(normaliser(S::load(x + i, part...)), w(i, part...),
                                             b(i, part...));
                             });
          y.done();
        });
      });
  if (known.streams) simd::fence();
}

template <class S>
[[gnu::noinline]] simd::Sums<S> sums_of_stored(std::int64_t count, const typename S::Real* a,
                                               const typename S::Real* b) {
  return simd::row_sum_and_dot<S>(count, simd::StoredTerms<S>{a, b});
}

// The sums of g and of g * x̂ over a row, where g is grad_y, or its product with the weight. Blocks
// of pieces, and those of rows that are not usual ones, go by way of memory.
template <class S, class T, bool kWeighted, bool kSpread>
ISOBIT_INLINE void products(const BackwardProblem& p, const Known& known, const Row& row,
                            const Part& part, void* to) {
  using Real = typename S::Real;
  alignas(64) T x_buffer[kBlock], grad_buffer[kBlock];
  alignas(64) Real g[kBlock], xhat[kBlock];
  const auto statistics_of = [&](std::int64_t segment) ISOBIT_INLINE_LAMBDA -> const auto& {
    return statistics_at<Real>(known, p.row_of(row.image_of(segment), row.channel_of(segment)));
  };
  // Calls body(gradient, value), which give the vectors of a piece.
  const auto with_terms = [&](const Piece& piece, const auto& normaliser,
                              const auto& body) ISOBIT_INLINE_LAMBDA {
    const T* x = elements(p.x, row, piece, x_buffer);
    const T* grad_y = elements(p.grad_y, row, piece, grad_buffer);
    fetch_ahead(x, piece.count);
    fetch_ahead(grad_y, piece.count);
    const OfPiece<S, kSpread> w(known.weight, row, piece);
    body(
        [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
          const auto gradient = S::load(grad_y + i, part...);
          if constexpr (kWeighted)
            return S::mul(gradient, w(i, part...));
          else
            return gradient;
        },
        [&](std::int64_t i, auto... part)
            ISOBIT_INLINE_LAMBDA { return normaliser(S::load(x + i, part...)); });
  };
  add_blocks<S>(part, to, [&](std::int64_t begin, std::int64_t count) ISOBIT_INLINE_LAMBDA {
    const std::int64_t segment = begin / row.extent, l = begin % row.extent;
    const Statistics<Real>& statistics = statistics_of(segment);
    if (l + count <= row.extent && statistics.plain) {  // all of one channel and image
      simd::Sums<S> sums;
      with_terms(Piece{0, segment, l, count}, layernorm::Normalise<S>(statistics),
                 [&](const auto& gradient, const auto& value) ISOBIT_INLINE_LAMBDA {
                   sums = simd::row_sum_and_dot<S>(
                       count, [&](std::int64_t i, auto... some) ISOBIT_INLINE_LAMBDA {
                         return simd::Terms<S>{gradient(i, some...),
                                               S::only(value(i, some...), some...)};
                       });
                 });
      return sums;
    }
    for_each_piece(row, begin, begin + count, [&](const Piece& piece) ISOBIT_INLINE_LAMBDA {
      const auto store = [&](const auto& gradient, const auto& value) ISOBIT_INLINE_LAMBDA {
        simd::for_each_vector<S>(piece.count, [&](std::int64_t i,
                                                  auto... some) ISOBIT_INLINE_LAMBDA {
          S::template store<simd::Stores::cached>(g + piece.at + i, gradient(i, some...), some...);
          S::template store<simd::Stores::cached>(xhat + piece.at + i, value(i, some...), some...);
        });
      };
      with_normaliser<S>(statistics_of(piece.segment),
                         [&](const auto& normaliser)
                             ISOBIT_INLINE_LAMBDA { with_terms(piece, normaliser, store); });
    });
    return sums_of_stored<S>(count, g, xhat);
  });
}

template <class S, class T, bool kSpread>
void row_products(const BackwardProblem& p, const Known& known, const Part& part, void* to) {
  products<S, T, true, kSpread>(p, known, p.row(part.first), part, to);
}
template <class S, class T>
void channel_products(const BackwardProblem& p, const Known& known, const Part& part, void* to) {
  products<S, T, false, false>(p, known, p.of_channel(part.first), part, to);
}

template <class S, class T, bool kSpread>
void gradient(const BackwardProblem& p, const Known& known, const Part& part) {
  using Real = typename S::Real;
  const Row row = p.row(part.first);
  const Statistics<Real>& statistics = statistics_at<Real>(known, part.first);
  alignas(64) T x_buffer[kBlock], grad_buffer[kBlock], to[kBlock];
  const auto put = [&](const auto& value) ISOBIT_INLINE_LAMBDA {
    for_each_piece(row, part.begin, part.end, [&](const Piece& piece) ISOBIT_INLINE_LAMBDA {
      const T* x = p.training ? elements(p.x, row, piece, x_buffer) : nullptr;
      const T* grad_y = elements(p.grad_y, row, piece, grad_buffer);
      if (!p.training) fetch_ahead(grad_y, piece.count);
      const Results<T> grad_x(p.grad_x, row, piece, to);
      const OfPiece<S, kSpread> w(known.weight, row, piece);
      simd::store_row<S>(grad_x.data(), piece.count, known.streams,
                         [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
                           return value(x, i, S::mul(S::load(grad_y + i, part...), w(i, part...)),
                                        part...);
                         });
      grad_x.done();
    });
    if (known.streams) simd::fence();
  };
  if (!p.training) {
    put([rstd = S::all(statistics.rstd)](const T*, std::int64_t, auto g, auto...)
            ISOBIT_INLINE_LAMBDA { return S::mul(rstd, g); });
    return;
  }
  const auto& means = static_cast<const Moments<Real>*>(known.means)[part.first];
  const auto mean_g = S::all(means.sum), mean_gx = S::all(means.squares);
  with_normaliser<S>(statistics, [&](const auto& normaliser) ISOBIT_INLINE_LAMBDA {
    put([&](const T* x, std::int64_t i, auto g, auto... part) ISOBIT_INLINE_LAMBDA {
      return normaliser.gradient(g, normaliser(S::load(x + i, part...)), mean_g, mean_gx);
    });
  });
}

template <class S, class T, bool kSpread>
Kernels kernels_of() {
  return {moments<S, T>,
          row_products<S, T, kSpread>,
          channel_products<S, T>,
          {normalise<S, T, kSpread>, gradient<S, T, kSpread>}};
}
template <class S, class T>
Kernels kernels_of(bool spread) {
  return spread ? kernels_of<S, T, true>() : kernels_of<S, T, false>();
}

}  // namespace

Kernels kernels_along(DType dtype, bool spread) {
  switch (dtype) {
    case DType::f16:  return kernels_of<simd::F32, f16>(spread);
    case DType::bf16: return kernels_of<simd::F32, bf16>(spread);
    case DType::f64:  return kernels_of<simd::F64, double>(spread);
    default:          return kernels_of<simd::F32, float>(spread);
  }
}

}  // namespace isobit::channel_norm::ISOBIT_ISA
