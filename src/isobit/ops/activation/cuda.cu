// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: one element a thread, and vectors of 16 bytes. Blocks take tiles of a row
// in turn; a variant is what a block does with one.
#include <cstdint>
#include <type_traits>

#include "isobit/dispatch/threads.h"
#include "isobit/ops/activation/formula.h"
#include "isobit/ops/activation/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/in_turn.h"
#include "isobit/tile/scalar.h"

namespace isobit::activation {
namespace {

// Adjacent elements of all arrays; null where there is none. y is grad_x in backward.
template <class T>
struct Tile {
  const T *x, *gate, *grad_y;
  T *y, *grad_gate;
  std::int64_t count;
};

// One array of a call, of which a row or a tile is wanted.
template <class T>
struct Array {
  T* data;
  std::int64_t stride;

  explicit Array(const Matrix& matrix)
      : data(reinterpret_cast<T*>(matrix.data)), stride(matrix.stride) {}
  ISOBIT_DEVICE T* at(std::int64_t row, std::int64_t col) const {
    return data == nullptr ? nullptr : data + row * stride + col;
  }
};

// All of a call: tiles of `size` elements, `in_row` to a row.
template <class T>
struct Tiles {
  Array<T> x, gate, grad_y, y, grad_gate;
  std::int64_t rows, cols, size, in_row;
  Function function;

  Tiles(const Problem& problem, std::int64_t size)
      : x(problem.x),
        gate(problem.gate),
        grad_y(problem.grad_y),
        y(problem.y),
        grad_gate(problem.grad_gate),
        rows(problem.y.rows),
        cols(problem.y.cols),
        size(size),
        in_row((cols + size - 1) / size),
        function(problem.function) {}

  ISOBIT_EITHER std::int64_t count() const { return rows * in_row; }
  ISOBIT_DEVICE Tile<T> operator[](std::int64_t index) const {
    const std::int64_t row = index / in_row, col = (index - row * in_row) * size;
    return {x.at(row, col), gate.at(row, col),      grad_y.at(row, col),
            y.at(row, col), grad_gate.at(row, col), cols - col < size ? cols - col : size};
  }
};

using tile::RealOf;

// The results of one element.
template <class T>
struct Results {
  T y, grad_gate;
};

template <class T>
ISOBIT_DEVICE Results<T> results(const Tile<T>& tile, Function function, T x_stored, T gate_stored,
                                 T grad_stored) {
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;
  using C = simt::Conversions;
  const Real x = C::template widen<Real>(x_stored);
  Results<T> result{};
  if (tile.grad_y == nullptr && tile.gate == nullptr) {
    result.y = C::template narrow<T>(value<S>(function, x));
    return result;
  }
  if (tile.gate == nullptr) {
    const Real grad = C::template widen<Real>(grad_stored);
    result.y = C::template narrow<T>(gradient<S>(function, grad, x));
    return result;
  }
  const Real gate = C::template widen<Real>(gate_stored);
  const Real factor = tile.grad_y == nullptr ? x : C::template widen<Real>(grad_stored);
  result.y = C::template narrow<T>(gated_value<S>(function, factor, gate));
  if (tile.grad_gate != nullptr)
    result.grad_gate = C::template narrow<T>(gate_gradient<S>(function, factor, x, gate));
  return result;
}

template <class T>
ISOBIT_DEVICE void one_element(const Tile<T>& tile, Function function, std::int64_t i) {
  const Results<T> result =
      results(tile, function, tile.x[i], tile.gate != nullptr ? tile.gate[i] : T{},
              tile.grad_y != nullptr ? tile.grad_y[i] : T{});
  tile.y[i] = result.y;
  if (tile.grad_gate != nullptr) tile.grad_gate[i] = result.grad_gate;
}

template <class T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T elements[kSize];
};

template <class T>
ISOBIT_DEVICE bool aligned(const T* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

constexpr int kWidest = 512;  // threads of a block

template <class T>
struct Naive {
  static constexpr int kMostThreads = kWidest;
  static constexpr int kElements = 1;  // a thread's, of a tile
  Tiles<T> tiles;

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile<T> tile = tiles[index];
      for (std::int64_t i = simt::thread(); i < tile.count; i += simt::threads())
        one_element(tile, tiles.function, i);
    }
  }
};

// 16 bytes of each array a thread. A tile that does not lie on vectors goes element by element.
template <class T>
struct Vec16 {
  static constexpr int kMostThreads = kWidest;
  static constexpr int kElements = Vector<T>::kSize;
  Tiles<T> tiles;

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile<T> tile = tiles[index];
      const bool vectors = aligned(tile.x) && aligned(tile.gate) && aligned(tile.grad_y) &&
                           aligned(tile.y) && aligned(tile.grad_gate);
      const std::int64_t whole = vectors ? tile.count / Vector<T>::kSize : 0;
      for (std::int64_t i = simt::thread(); i < whole; i += simt::threads()) one_vector(tile, i);
      for (std::int64_t i = whole * Vector<T>::kSize + simt::thread(); i < tile.count;
           i += simt::threads())
        one_element(tile, tiles.function, i);
    }
  }

 private:
  ISOBIT_DEVICE void one_vector(const Tile<T>& tile, std::int64_t i) const {
    using V = Vector<T>;
    const V x = simt::load_once(reinterpret_cast<const V*>(tile.x) + i);
    V gate{}, grad{}, y, grad_gate;
    if (tile.gate != nullptr) gate = simt::load_once(reinterpret_cast<const V*>(tile.gate) + i);
    if (tile.grad_y != nullptr) grad = simt::load_once(reinterpret_cast<const V*>(tile.grad_y) + i);
#pragma unroll
    for (int j = 0; j < V::kSize; ++j) {
      const Results<T> result =
          results(tile, tiles.function, x.elements[j], gate.elements[j], grad.elements[j]);
      y.elements[j] = result.y;
      grad_gate.elements[j] = result.grad_gate;
    }
    simt::store_once(reinterpret_cast<V*>(tile.y) + i, y);
    if (tile.grad_gate != nullptr)
      simt::store_once(reinterpret_cast<V*>(tile.grad_gate) + i, grad_gate);
  }
};

constexpr int kBlocks[] = {0, 1, 2, 4, 8};
constexpr Knob kKnobs[] = {
    threads_knob(kWidest),
    {"blocks", kBlocks,
     "blocks per multiprocessor, which take tiles in turn; 0: one block per tile"},
};

Plan one_block_a_tile(const Problem&, const Machine&) { return {256, 0}; }
Plan blocks_take_turns(const Problem&, const Machine&) { return {256, 8}; }

template <class Args, template <class> class Kernel>
void run_variant(const Args&, const Problem& problem, const Plan& plan,
                 const Execution& execution) {
  if (problem.y.rows == 0 || problem.y.cols == 0) return;
  tile::with_type(problem.dtype, [&]<class T>(Type<T>) {
    const Kernel<T> kernel{Tiles<T>(problem, std::int64_t{plan[0]} * Kernel<T>::kElements)};
    simt::launch(
        static_cast<simt::Stream>(execution.stream),
        {.blocks = tile::blocks_for(kernel.tiles.count(), 1, 1, plan[1], execution.machine),
         .threads = plan[0]},
        kernel);
  });
}

template <class Args>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "vec16",
     .knobs = kKnobs,
     .choose = blocks_take_turns,
     .run = run_variant<Args, Vec16>},
    {.name = "naive", .knobs = kKnobs, .choose = one_block_a_tile, .run = run_variant<Args, Naive>},
};

}  // namespace

std::span<const ForwardVariant> cuda_forward_variants() { return kVariants<ForwardArgs>; }
std::span<const BackwardVariant> cuda_backward_variants() { return kVariants<BackwardArgs>; }

}  // namespace isobit::activation
