// SPDX-License-Identifier: Apache-2.0
// Rows of adjacent channels side by side, each in a lane of its own, where channels come last in
// memory: of batch_norm all, of group_norm the sums over what shares a weight. Compiled once for
// each instruction set.
#include "isobit/ops/channel_norm/cpu_elements.h"
#include "isobit/ops/channel_norm/cpu_lanes.h"
#include "isobit/simd/column_sums.h"
#include "isobit/simd/fence.h"
#include "isobit/simd/prefetch.h"

namespace isobit::channel_norm::ISOBIT_ISA {
namespace {

using order::kBlock;
using simd::Want;

// The places of elements [begin, begin + count) in arrays, of the first channel: one after the
// other, without a division.
class Walk {
 public:
  ISOBIT_INLINE Walk(const Row& row, std::int64_t begin)
      : row_(row), image_(begin / row.extent), l_(begin % row.extent) {}
  ISOBIT_INLINE std::int64_t place(const Images& array) const {
    return row_.place(array, image_, l_);
  }
  ISOBIT_INLINE std::int64_t image() const { return image_; }
  ISOBIT_INLINE void next() {
    if (++l_ == row_.extent) l_ = 0, ++image_;
  }

 private:
  Row row_;
  std::int64_t image_, l_;
};

// The sums of a part, of all its rows: prepare(count) goes ahead of every block, whose i-th element
// has the terms at(i, j, part...) in the lanes from j on.
template <class S, Want kWant = Want::both, class Prepare, class At>
ISOBIT_INLINE void add_blocks(const Part& part, void* to, const Prepare& prepare, const At& at) {
  simd::SumsAbreast<S, kWant, kMostAbreast> sums;
  for (std::int64_t begin = part.begin; begin < part.end; begin += kBlock) {
    const std::int64_t count = part.end - begin < kBlock ? part.end - begin : kBlock;
    prepare(count);
    sums.add_block(part.rows, count, at);
  }
  sums.put(part.rows, static_cast<Moments<typename S::Real>*>(to));
}

template <class T>
ISOBIT_INLINE T* data_of(const Images& array) {
  return reinterpret_cast<T*>(array.data);
}

inline constexpr std::int64_t kAhead = 16;  // pixels

// The elements of an array that a block has, whose lines are asked for in memory's order: they are
// read in another. Of the second cache, since blocks do not fit the first.
template <class T>
class BlockOf {
 public:
  ISOBIT_INLINE BlockOf(const Images& array, const Part& part) : array_(array), rows_(part.rows) {}
  ISOBIT_INLINE void set(std::int64_t i, const Walk& walk) {
    elements_[i] = data_of<const T>(array_) + walk.place(array_);
    // Pixels that are adjacent need no help: processors fetch them, or they are copies in a cache.
    if (array_.l == rows_) return;
    constexpr std::int64_t kLine = 64 / sizeof(T);
    for (std::int64_t j = 0; j < rows_; j += kLine) simd::fetch_to_second_cache(elements_[i] + j);
  }
  ISOBIT_INLINE const T* operator[](std::int64_t i) const { return elements_[i]; }

 private:
  const Images& array_;
  std::int64_t rows_;
  const T* elements_[kBlock];
};

template <class S, class T>
void moments(const Given& given, const Part& part, const void* centres, void* to) {
  using Real = typename S::Real;
  BlockOf<T> x(given.x, part);
  Walk walk(given.of_channel(part.first), part.begin);
  const auto set = [&](std::int64_t count) ISOBIT_INLINE_LAMBDA {
    for (std::int64_t i = 0; i < count; ++i, walk.next()) x.set(i, walk);
  };
  if (centres == nullptr)
    return add_blocks<S, Want::sum>(
        part, to, set, [&](std::int64_t i, std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
          const auto element = S::load(x[i] + j, some...);
          return simd::Terms<S>{element, element};
        });
  alignas(64) Real centre[kMostAbreast] = {};
  for (std::int64_t i = 0; i < part.rows; ++i) centre[i] = static_cast<const Real*>(centres)[i];
  add_blocks<S>(part, to, set,
                [&](std::int64_t i, std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
                  const auto d = S::sub(S::load(x[i] + j, some...), S::load(centre + j));
                  return simd::Terms<S>{d, d};
                });
}

template <class S, class T>
void normalise(const ForwardProblem& p, const Known& known, const Part& part) {
  const NormalisingLanes<S, T, kMostWritten> lanes(known, part, 1);
  const Row row = p.of_channel(part.first);
  with_plainness(lanes.normalisers(), [&](auto plain) ISOBIT_INLINE_LAMBDA {
    Walk walk(row, part.begin);
    for (std::int64_t i = part.begin; i < part.end; ++i, walk.next()) {
      const T* x = data_of<const T>(p.x) + walk.place(p.x);
      T* y = data_of<T>(p.y) + walk.place(p.y);
      fetch(x + kAhead * p.x.l, part.rows);
      if (!known.streams) fetch<true>(y + kAhead * p.y.l, part.rows);
      lanes.template put<decltype(plain)::value>(x, y, known.streams);
    }
  });
  if (known.streams) simd::fence();
}

// Those of an image's groups, one after the other where the part has whole ones or a part of one.
template <class Normalisers>
ISOBIT_INLINE void fill_lanes(Normalisers& normalisers, const BackwardProblem& p,
                              const Known& known, const Part& part, std::int64_t image) {
  const std::int64_t of_group = p.channels / p.groups, before = part.first % of_group;
  const std::int64_t lanes = before + part.rows <= of_group             ? part.rows
                             : before == 0 && part.rows % of_group == 0 ? of_group
                                                                        : 1;
  normalisers.fill(known, part.rows / lanes, lanes, [&](std::int64_t i) ISOBIT_INLINE_LAMBDA {
    return p.row_of(image, part.first + i * lanes);
  });
}

// Statistics that change from image to image: a block's x̂ are computed before they are added.
template <class S, class T>
ISOBIT_INLINE void products_of_groups(const BackwardProblem& p, const Known& known,
                                      const Part& part, void* to) {
  using Real = typename S::Real;
  alignas(64) Real g[kBlock][kGroupedAbreast], xhat[kBlock][kGroupedAbreast];
  Normalisers<S, kGroupedAbreast> normalisers;
  const Row row = p.of_channel(part.first);
  Walk walk(row, part.begin);
  std::int64_t image = -1;
  const auto put = [&](std::int64_t i, auto plain) ISOBIT_INLINE_LAMBDA {
    const T* x = data_of<const T>(p.x) + walk.place(p.x);
    const T* grad_y = data_of<const T>(p.grad_y) + walk.place(p.grad_y);
    fetch(x + kAhead * p.x.l, part.rows);
    fetch(grad_y + kAhead * p.grad_y.l, part.rows);
    simd::for_each_vector<S>(part.rows, [&](std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
      S::template store<simd::Stores::cached>(g[i] + j, S::load(grad_y + j, some...));
      S::template store<simd::Stores::cached>(  // of lanes that are not there too
          xhat[i] + j,
          normalisers.template xhat<decltype(plain)::value>(S::load(x + j, some...), j));
    });
  };
  add_blocks<S>(
      part, to,
      [&](std::int64_t count) ISOBIT_INLINE_LAMBDA {
        for (std::int64_t i = 0; i < count; ++i, walk.next()) {
          if (walk.image() != image) {
            image = walk.image();
            fill_lanes(normalisers, p, known, part, image);
          }
          with_plainness(normalisers, [&](auto plain) ISOBIT_INLINE_LAMBDA { put(i, plain); });
        }
      },
      [&](std::int64_t i, std::int64_t j, auto...)
          ISOBIT_INLINE_LAMBDA { return simd::Terms<S>{S::load(g[i] + j), S::load(xhat[i] + j)}; });
}

// The sums of grad_y and of grad_y * x̂.
template <class S, class T>
void channel_products(const BackwardProblem& p, const Known& known, const Part& part, void* to) {
  if (p.groups != 0) return products_of_groups<S, T>(p, known, part, to);
  Normalisers<S, kMostAbreast> normalisers;
  normalisers.fill(known, part.rows, 1,
                   [&](std::int64_t i) ISOBIT_INLINE_LAMBDA { return part.first + i; });
  BlockOf<T> x(p.x, part), grad_y(p.grad_y, part);
  Walk walk(p.of_channel(part.first), part.begin);
  with_plainness(normalisers, [&](auto plain) ISOBIT_INLINE_LAMBDA {
    add_blocks<S>(
        part, to,
        [&](std::int64_t count) ISOBIT_INLINE_LAMBDA {
          for (std::int64_t i = 0; i < count; ++i, walk.next()) x.set(i, walk), grad_y.set(i, walk);
        },
        [&](std::int64_t i, std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
          return simd::Terms<S>{
              S::load(grad_y[i] + j, some...),
              normalisers.template xhat<decltype(plain)::value>(S::load(x[i] + j, some...), j)};
        });
  });
}

template <class S, class T>
void gradient(const BackwardProblem& p, const Known& known, const Part& part) {
  const GradientLanes<S, T, kMostWritten> lanes(known, part, 1, p.training);
  const Row row = p.of_channel(part.first);
  with_plainness(lanes.normalisers(), [&](auto plain) ISOBIT_INLINE_LAMBDA {
    Walk walk(row, part.begin);
    for (std::int64_t i = part.begin; i < part.end; ++i, walk.next()) {
      const T* x = data_of<const T>(p.x) + walk.place(p.x);
      const T* grad_y = data_of<const T>(p.grad_y) + walk.place(p.grad_y);
      T* grad_x = data_of<T>(p.grad_x) + walk.place(p.grad_x);
      fetch(x + kAhead * p.x.l, part.rows);
      fetch(grad_y + kAhead * p.grad_y.l, part.rows);
      if (!known.streams) fetch<true>(grad_x + kAhead * p.grad_x.l, part.rows);
      lanes.template put<decltype(plain)::value>(x, grad_y, grad_x, known.streams);
    }
  });
  if (known.streams) simd::fence();
}

template <class S, class T>
Kernels kernels_of() {
  return {moments<S, T>, nullptr, channel_products<S, T>, {normalise<S, T>, gradient<S, T>}};
}

}  // namespace

Kernels kernels_abreast(DType dtype) {
  switch (dtype) {
    case DType::f16:  return kernels_of<simd::F32, f16>();
    case DType::bf16: return kernels_of<simd::F32, bf16>();
    case DType::f64:  return kernels_of<simd::F64, double>();
    default:          return kernels_of<simd::F32, float>();
  }
}

}  // namespace isobit::channel_norm::ISOBIT_ISA
