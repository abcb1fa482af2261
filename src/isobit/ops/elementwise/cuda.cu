// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: one element a thread, four, by way of shared memory, in vectors of 16
// bytes, and fetched in bulk. Blocks take tiles of a row in turn; a variant is what a block does
// with one.
#include <cstdint>
#include <type_traits>

#include "isobit/dispatch/threads.h"
#include "isobit/ops/elementwise/formula.h"
#include "isobit/ops/elementwise/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/in_turn.h"
#include "isobit/tile/ring.h"

namespace isobit::elementwise {
namespace {

// Adjacent elements of a row; without a residual 1 is added.
template <class T>
struct Tile {
  const T *x, *residual;
  T* y;
  std::int64_t count;

  ISOBIT_DEVICE T addend(std::int64_t i) const {
    return residual != nullptr ? residual[i] : one<T>();
  }
};

// All of a call: tiles of `size` elements, `in_row` to a row.
template <class T>
struct Tiles {
  const T *x, *residual;
  T* y;
  std::int64_t x_stride, residual_stride, y_stride;
  std::int64_t rows, cols, size, in_row;

  Tiles(const Problem& problem, std::int64_t size)
      : x(reinterpret_cast<const T*>(problem.x.data)),
        residual(reinterpret_cast<const T*>(problem.residual.data)),
        y(reinterpret_cast<T*>(problem.y.data)),
        x_stride(problem.x.stride),
        residual_stride(problem.residual.stride),
        y_stride(problem.y.stride),
        rows(problem.y.rows),
        cols(problem.y.cols),
        size(size),
        in_row((cols + size - 1) / size) {}

  ISOBIT_EITHER std::int64_t count() const { return rows * in_row; }
  ISOBIT_DEVICE Tile<T> operator[](std::int64_t index) const {
    const std::int64_t row = index / in_row, col = (index - row * in_row) * size;
    return {x + row * x_stride + col,
            residual == nullptr ? nullptr : residual + row * residual_stride + col,
            y + row * y_stride + col, cols - col < size ? cols - col : size};
  }
};

template <class T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T elements[kSize];
};

template <class T>
ISOBIT_EITHER bool aligned(const T* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

// Threads of a block: so many leave a thread 64 registers, so the four blocks of 256 that stay do
// find room.
constexpr int kWidest = 1024;

template <class T>
struct Naive {
  static constexpr int kMostThreads = kWidest;
  static constexpr int kElements = 1;  // a thread's, of a tile
  Tiles<T> tiles;

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile<T> tile = tiles[index];
      for (std::int64_t i = simt::thread(); i < tile.count; i += simt::threads())
        tile.y[i] = sum<simt::Conversions>(tile.x[i], tile.addend(i));
    }
  }
};

// Four loads of each operand are under way at once.
template <class T>
struct Unrolled {
  static constexpr int kMostThreads = kWidest;
  static constexpr int kElements = 4;
  Tiles<T> tiles;

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile<T> tile = tiles[index];
      T x[kElements] = {}, addends[kElements] = {};
#pragma unroll
      for (int k = 0; k < kElements; ++k)
        if (const std::int64_t i = simt::thread() + k * simt::threads(); i < tile.count) {
          x[k] = tile.x[i];
          addends[k] = tile.addend(i);
        }
#pragma unroll
      for (int k = 0; k < kElements; ++k)
        if (const std::int64_t i = simt::thread() + k * simt::threads(); i < tile.count)
          tile.y[i] = sum<simt::Conversions>(x[k], addends[k]);
    }
  }
};

// Kept to show that it does not help: nothing is used twice.
template <class T>
struct Shared {
  static constexpr int kMostThreads = kWidest;
  static constexpr int kElements = 1;
  Tiles<T> tiles;
  int threads;

  struct Memory {
    T *x, *addend;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    T* x = carver.template take<T>(threads);
    return {x, carver.template take<T>(threads)};
  }

  ISOBIT_DEVICE void operator()(const Memory& shared) const {
    const int thread = simt::thread();
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile<T> tile = tiles[index];
      const bool mine = thread < tile.count;
      if (mine) {
        shared.x[thread] = tile.x[thread];
        shared.addend[thread] = tile.addend(thread);
      }
      simt::sync_block();
      if (mine) tile.y[thread] = sum<simt::Conversions>(shared.x[thread], shared.addend[thread]);
      simt::sync_block();
    }
  }
};

// 64 bytes of each operand a thread, in four vectors, or half of that in types of 16 bits, which
// take more registers. A tile that does not lie on vectors goes
// element by element.
template <class T>
struct Vec16 {
  static constexpr int kMostThreads = kWidest;
  static constexpr int kVectors = sizeof(T) == 2 ? 2 : 4;
  static constexpr int kElements = kVectors * Vector<T>::kSize;
  Tiles<T> tiles;

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile<T> tile = tiles[index];
      const bool vectors = aligned(tile.x) && aligned(tile.y) && aligned(tile.residual);
      const std::int64_t whole = vectors ? tile.count / Vector<T>::kSize : 0;
      add_vectors(tile, whole);
      for (std::int64_t i = whole * Vector<T>::kSize + simt::thread(); i < tile.count;
           i += simt::threads())
        tile.y[i] = sum<simt::Conversions>(tile.x[i], tile.addend(i));
    }
  }

 private:
  ISOBIT_DEVICE static void add_vectors(const Tile<T>& tile, std::int64_t whole) {
    const auto* x = reinterpret_cast<const Vector<T>*>(tile.x);
    const auto* residual = reinterpret_cast<const Vector<T>*>(tile.residual);
    auto* y = reinterpret_cast<Vector<T>*>(tile.y);
    Vector<T> sums[kVectors], addends[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (const std::int64_t i = simt::thread() + k * simt::threads(); i < whole) {
        sums[k] = simt::load_once(x + i);
        if (residual != nullptr) addends[k] = simt::load_once(residual + i);
      }
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (const std::int64_t i = simt::thread() + k * simt::threads(); i < whole) {
#pragma unroll
        for (int j = 0; j < Vector<T>::kSize; ++j)
          sums[k].elements[j] = sum<simt::Conversions>(
              sums[k].elements[j], residual != nullptr ? addends[k].elements[j] : one<T>());
        simt::store_once(y + i, sums[k]);
      }
  }
};

// The next tile is fetched in bulk while the block adds this one.
template <class T>
struct Bulk {
  static constexpr int kMostThreads = kWidest;
  static constexpr int kElements = 2 * Vector<T>::kSize;
  static constexpr int kPlaces = 2;
  using Ring = tile::Ring<T>;
  using Memory = typename Ring::Memory;
  Tiles<T> tiles;

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    const int arrays = tiles.residual != nullptr ? 2 : 1;
    return Ring::memory(carver, kPlaces, static_cast<int>(tiles.size), arrays);
  }

  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    const Ring ring(memory);
    order(ring, 0, simt::block());
    unsigned turn = 0;
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      order(ring, turn + 1, index + simt::blocks());
      ring.wait(turn);
      add(tiles[index], ring.array(turn, 0), ring.array(turn, 1));
      simt::sync_block();  // nobody needs the tile any more
      ++turn;
    }
  }

 private:
  // The part of a tile that comes in bulk: whole vectors.
  ISOBIT_DEVICE static int bulk_elements(const Tile<T>& tile) {
    return static_cast<int>(tile.count) / Vector<T>::kSize * Vector<T>::kSize;
  }

  ISOBIT_DEVICE void order(const Ring& ring, unsigned turn, std::int64_t index) const {
    if (index >= tiles.count()) return;
    const Tile<T> tile = tiles[index];
    ring.order(turn, tile.x, tile.residual, bulk_elements(tile) * static_cast<int>(sizeof(T)));
  }

  ISOBIT_DEVICE void add(const Tile<T>& tile, const T* x, const T* residual) const {
    constexpr int kSize = Vector<T>::kSize;
    const int fetched = bulk_elements(tile);
    for (int i = simt::thread() * kSize; i < fetched; i += simt::threads() * kSize) {
      Vector<T> sums = simt::load_shared(reinterpret_cast<const Vector<T>*>(x + i));
      Vector<T> addends;
      if (tile.residual != nullptr)
        addends = simt::load_shared(reinterpret_cast<const Vector<T>*>(residual + i));
#pragma unroll
      for (int j = 0; j < kSize; ++j)
        sums.elements[j] = sum<simt::Conversions>(
            sums.elements[j], tile.residual != nullptr ? addends.elements[j] : one<T>());
      simt::store_once(reinterpret_cast<Vector<T>*>(tile.y + i), sums);
    }
    for (std::int64_t i = fetched + simt::thread(); i < tile.count; i += simt::threads())
      tile.y[i] = sum<simt::Conversions>(tile.x[i], tile.addend(i));
  }
};

constexpr int kBlocks[] = {0, 1, 2, 4, 8};
constexpr Knob kKnobs[] = {
    threads_knob(kWidest),
    {"blocks", kBlocks,
     "blocks per multiprocessor, which take tiles in turn; 0: one block per tile"},
};

Plan one_block_a_tile(const Problem&, const Machine&) { return {256, 0}; }
Plan blocks_take_turns(const Problem&, const Machine&) { return {256, 4}; }

template <template <class> class Kernel, class T>
Kernel<T> kernel(const Problem& problem, int threads) {
  const Tiles<T> tiles(problem, std::int64_t{threads} * Kernel<T>::kElements);
  if constexpr (requires { Kernel<T>{tiles, threads}; })
    return {tiles, threads};
  else
    return {tiles};
}

template <template <class> class Kernel>
void run_variant(const Args&, const Problem& problem, const Plan& plan,
                 const Execution& execution) {
  if (problem.y.rows == 0 || problem.y.cols == 0) return;
  visit(problem.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (!std::is_same_v<T, quad>) {
      const Kernel<T> kernel = elementwise::kernel<Kernel, T>(problem, plan[0]);
      simt::launch(
          static_cast<simt::Stream>(execution.stream),
          {.blocks = tile::blocks_for(kernel.tiles.count(), 1, 1, plan[1], execution.machine),
           .threads = plan[0]},
          kernel);
    }
  });
}

std::string needs_whole_vectors(const Problem& problem, const Machine& machine) {
  if (machine.gpu.capability < 90) return "bulk copies need sm_90 or later";
  const auto on_vectors = [&](const Matrix& matrix) {
    return aligned(matrix.data) &&
           (matrix.rows <= 1 || matrix.stride * size_of(problem.dtype) % 16 == 0);
  };
  return on_vectors(problem.x) && on_vectors(problem.residual) && on_vectors(problem.y)
             ? ""
             : "bulk copies need rows that start at multiples of 16 bytes";
}

constexpr ElementwiseVariant kVariants[] = {
    {.name = "vec16", .knobs = kKnobs, .choose = blocks_take_turns, .run = run_variant<Vec16>},
    {.name = "bulk",
     .knobs = kKnobs,
     .declines = needs_whole_vectors,
     .choose = blocks_take_turns,
     .run = run_variant<Bulk>},
    {.name = "unrolled4",
     .knobs = kKnobs,
     .choose = one_block_a_tile,
     .run = run_variant<Unrolled>},
    {.name = "shared", .knobs = kKnobs, .choose = one_block_a_tile, .run = run_variant<Shared>},
    {.name = "naive", .knobs = kKnobs, .choose = one_block_a_tile, .run = run_variant<Naive>},
};

}  // namespace

std::span<const ElementwiseVariant> cuda_variants() { return kVariants; }

}  // namespace isobit::elementwise
