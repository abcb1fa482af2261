// SPDX-License-Identifier: Apache-2.0
// Adjacent channels side by side, each in a lane of its own, where they come last in memory: of
// batch_norm all, of group_norm the sums over what shares a weight, and what is written. Compiled
// once for each instruction set.
#include <algorithm>

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

// Calls set(together, row_of) for the lanes of some channels of an image: row_of(i) is the row that
// the i-th `together` of them are of. Groups are taken as a whole where the part has whole ones or
// a part of one.
template <class Set>
ISOBIT_INLINE void set_rows(const Given& p, const Part& part, std::int64_t image, const Set& set) {
  const std::int64_t of_group = p.groups == 0 ? 1 : p.channels / p.groups;
  const std::int64_t before = part.first % of_group;
  const std::int64_t together = before + part.rows <= of_group             ? part.rows
                                : before == 0 && part.rows % of_group == 0 ? of_group
                                                                           : 1;
  set(together, [&, together](std::int64_t i)
                    ISOBIT_INLINE_LAMBDA { return p.row_of(image, part.first + i * together); });
}

// Statistics that change from image to image: where one has fewer elements than a block, a block's
// x̂ are computed before they are added.
template <class S, class T>
ISOBIT_INLINE void products_of_short_images(const BackwardProblem& p, const Known& known,
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
            set_rows(p, part, image,
                     [&](std::int64_t together, const auto& row_of) ISOBIT_INLINE_LAMBDA {
                       normalisers.fill(known, part.rows / together, together, row_of);
                     });
          }
          with_plainness(normalisers, [&](auto plain) ISOBIT_INLINE_LAMBDA { put(i, plain); });
        }
      },
      [&](std::int64_t i, std::int64_t j, auto...)
          ISOBIT_INLINE_LAMBDA { return simd::Terms<S>{S::load(g[i] + j), S::load(xhat[i] + j)}; });
}

// Of longer ones a block has elements of two at most.
template <class S, class T>
ISOBIT_INLINE void products_of_long_images(const BackwardProblem& p, const Known& known,
                                           const Part& part, void* to) {
  Normalisers<S, kMostAbreast> normalisers[2];
  std::int64_t images[2] = {-1, -1};  // whose they are
  const auto of_image = [&](std::int64_t image) -> const auto& {
    auto& found = normalisers[image % 2];
    if (images[image % 2] != image)
      set_rows(p, part, image, [&](std::int64_t together, const auto& row_of) ISOBIT_INLINE_LAMBDA {
        found.fill(known, part.rows / together, together, row_of);
      });
    images[image % 2] = image;
    return found;
  };
  BlockOf<T> x(p.x, part), grad_y(p.grad_y, part);
  Walk walk(p.of_channel(part.first), part.begin);
  simd::SumsAbreast<S, Want::both, kMostAbreast> sums;
  for (std::int64_t begin = part.begin; begin < part.end; begin += kBlock) {
    const std::int64_t count = part.end - begin < kBlock ? part.end - begin : kBlock;
    const std::int64_t image = walk.image();
    const std::int64_t of_first = std::min(count, p.extent - begin % p.extent);
    for (std::int64_t i = 0; i < count; ++i, walk.next()) x.set(i, walk), grad_y.set(i, walk);
    const auto& first = of_image(image);
    const auto& second = of_first < count ? of_image(image + 1) : first;
    // xhat(i, x, lane) is that of the i-th element.
    const auto add = [&](const auto& xhat) ISOBIT_INLINE_LAMBDA {
      sums.add_block(part.rows, count,
                     [&](std::int64_t i, std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
                       return simd::Terms<S>{S::load(grad_y[i] + j, some...),
                                             xhat(i, S::load(x[i] + j, some...), j)};
                     });
    };
    if (of_first == count && first.plain())
      add([&](std::int64_t, auto value, std::int64_t lane)
              ISOBIT_INLINE_LAMBDA { return first.template xhat<true>(value, lane); });
    else
      add([&](std::int64_t i, auto value, std::int64_t lane) ISOBIT_INLINE_LAMBDA {
        const auto& own = i < of_first ? first : second;
        return own.plain() ? own.template xhat<true>(value, lane)
                           : own.template xhat<false>(value, lane);
      });
  }
  sums.put(part.rows, static_cast<Moments<typename S::Real>*>(to));
}

// The sums of grad_y and of grad_y * x̂.
template <class S, class T>
void channel_products(const BackwardProblem& p, const Known& known, const Part& part, void* to) {
  if (p.groups != 0 && p.extent < kBlock) return products_of_short_images<S, T>(p, known, part, to);
  if (p.groups != 0) return products_of_long_images<S, T>(p, known, part, to);
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

// Calls body(walk, std::bool_constant) for every pixel of a part, with whether all rows are plain:
// of groups, those of its image.
template <class Lanes, class Body>
ISOBIT_INLINE void for_each_pixel(const Given& p, const Part& part, Lanes& lanes,
                                  const Body& body) {
  Walk walk(p.of_channel(part.first), part.begin);
  for (std::int64_t i = part.begin; i < part.end;) {
    std::int64_t pixels = part.end - i;
    if (p.groups != 0) pixels = std::min(pixels, p.extent - i % p.extent);
    i += pixels;
    set_rows(p, part, walk.image(),
             [&](std::int64_t together, const auto& row_of)
                 ISOBIT_INLINE_LAMBDA { lanes.set_rows(together, row_of); });
    with_plainness(lanes.normalisers(), [&](auto plain) ISOBIT_INLINE_LAMBDA {
      for (; pixels > 0; --pixels, walk.next()) body(walk, plain);
    });
  }
}

template <class S, class T>
void normalise(const ForwardProblem& p, const Known& known, const Part& part) {
  NormalisingLanes<S, T, kMostWritten> lanes(known, part, 1);
  for_each_pixel(p, part, lanes, [&](const Walk& walk, auto plain) ISOBIT_INLINE_LAMBDA {
    const T* x = data_of<const T>(p.x) + walk.place(p.x);
    T* y = data_of<T>(p.y) + walk.place(p.y);
    fetch(x + kAhead * p.x.l, part.rows);
    if (!known.streams) fetch<true>(y + kAhead * p.y.l, part.rows);
    lanes.template put<decltype(plain)::value>(x, y, known.streams);
  });
  if (known.streams) simd::fence();
}

template <class S, class T>
void gradient(const BackwardProblem& p, const Known& known, const Part& part) {
  GradientLanes<S, T, kMostWritten> lanes(known, part, 1, p.training);
  for_each_pixel(p, part, lanes, [&](const Walk& walk, auto plain) ISOBIT_INLINE_LAMBDA {
    const T* x = data_of<const T>(p.x) + walk.place(p.x);
    const T* grad_y = data_of<const T>(p.grad_y) + walk.place(p.grad_y);
    T* grad_x = data_of<T>(p.grad_x) + walk.place(p.grad_x);
    fetch(x + kAhead * p.x.l, part.rows);
    fetch(grad_y + kAhead * p.grad_y.l, part.rows);
    if (!known.streams) fetch<true>(grad_x + kAhead * p.grad_x.l, part.rows);
    lanes.template put<decltype(plain)::value>(x, grad_y, grad_x, known.streams);
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
