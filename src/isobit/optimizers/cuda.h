// SPDX-License-Identifier: Apache-2.0
// The variants of any optimiser for GPUs: one element a thread, and vectors of 16 bytes. Blocks
// take tiles of a row in turn; a variant is what a block does with one.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isobit/dispatch/threads.h"
#include "isobit/optimizers/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/in_turn.h"
#include "isobit/tile/scalar.h"

namespace isobit::optimizers {

// Adjacent elements of all arrays; null where there is none.
template <class T, class G>
struct Tile {
  const T* param;
  const G* grad;
  const T* state[kStates];
  T* new_param;
  G* narrow;
  T* new_state[kStates];
  std::int64_t count;
};

// One array of a call, of which a tile is wanted.
template <class T>
struct Array {
  T* data = nullptr;
  std::int64_t stride = 0;

  Array() = default;
  explicit Array(const Matrix& matrix)
      : data(reinterpret_cast<T*>(matrix.data)), stride(matrix.stride) {}
  ISOBIT_DEVICE T* at(std::int64_t row, std::int64_t col) const {
    return data == nullptr ? nullptr : data + row * stride + col;
  }
};

// All of a call: tiles of `size` elements, `in_row` to a row.
template <class Rule, class T, class G>
struct Tiles {
  using Real = tile::RealOf<T>;
  Array<T> param, new_param, state[kStates], new_state[kStates];
  Array<G> grad, narrow;
  std::int64_t rows, cols, size, in_row;
  typename Rule::template Constants<Real> constants;

  Tiles(const Arrays& arrays, const typename Rule::template Constants<double>& given,
        std::int64_t size)
      : param(arrays.param),
        new_param(arrays.new_param),
        grad(arrays.grad),
        narrow(arrays.narrow),
        rows(arrays.param.rows),
        cols(arrays.param.cols),
        size(size),
        in_row((cols + size - 1) / size),
        constants(given.template as<Real>()) {
    for (int k = 0; k < kStates; ++k) {
      state[k] = Array<T>(arrays.state[k]);
      new_state[k] = Array<T>(arrays.new_state[k]);
    }
  }

  ISOBIT_EITHER std::int64_t count() const { return rows * in_row; }
  ISOBIT_DEVICE Tile<T, G> operator[](std::int64_t index) const {
    const std::int64_t row = index / in_row, col = (index - row * in_row) * size;
    Tile<T, G> tile{};
    tile.param = param.at(row, col);
    tile.grad = grad.at(row, col);
    tile.new_param = new_param.at(row, col);
    tile.narrow = narrow.at(row, col);
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      tile.state[k] = state[k].at(row, col);
      tile.new_state[k] = new_state[k].at(row, col);
    }
    tile.count = cols - col < size ? cols - col : size;
    return tile;
  }

  // An element's results in the place of what they are made of.
  ISOBIT_DEVICE void step(Real& value, Real of_grad, Real (&states)[kStates]) const {
    Rule::template step<tile::Scalar<Real>>(constants, value, of_grad, states);
  }

  ISOBIT_DEVICE void one_element(const Tile<T, G>& tile, std::int64_t i) const {
    using C = simt::Conversions;
    Real value = C::template widen<Real>(tile.param[i]);
    Real states[kStates];
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      states[k] = tile.state[k] == nullptr ? Real(0) : C::template widen<Real>(tile.state[k][i]);
    step(value, C::template widen<Real>(tile.grad[i]), states);
    tile.new_param[i] = C::template narrow<T>(value);
    if (tile.narrow != nullptr) tile.narrow[i] = C::template narrow<G>(value);
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      if (tile.new_state[k] != nullptr) tile.new_state[k][i] = C::template narrow<T>(states[k]);
  }
};

inline constexpr int kWidest = 512;  // threads of a block

template <class Rule, class T, class G>
struct Naive {
  static constexpr int kMostThreads = kWidest;
  static constexpr int kElements = 1;  // a thread's, of a tile
  Tiles<Rule, T, G> tiles;

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile<T, G> tile = tiles[index];
      for (std::int64_t i = simt::thread(); i < tile.count; i += simt::threads())
        tiles.one_element(tile, i);
    }
  }
};

// As many elements a thread as the wider type has in 16 bytes. A tile that does not lie on vectors
// goes element by element.
template <class Rule, class T, class G>
struct Vec16 {
  static constexpr int kMostThreads = kWidest;
  static constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  Tiles<Rule, T, G> tiles;

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile<T, G> tile = tiles[index];
      const std::int64_t whole = on_vectors(tile) ? tile.count / kElements : 0;
      for (std::int64_t i = simt::thread(); i < whole; i += simt::threads()) one_vector(tile, i);
      for (std::int64_t i = whole * kElements + simt::thread(); i < tile.count;
           i += simt::threads())
        tiles.one_element(tile, i);
    }
  }

 private:
  template <class Element>
  struct alignas(kElements * sizeof(Element)) Vector {
    Element elements[kElements];
  };

  template <class Element>
  ISOBIT_DEVICE static bool aligned(const Element* address) {
    return reinterpret_cast<std::uintptr_t>(address) % sizeof(Vector<Element>) == 0;
  }
  ISOBIT_DEVICE static bool on_vectors(const Tile<T, G>& tile) {
    bool all = aligned(tile.param) && aligned(tile.grad) && aligned(tile.new_param) &&
               aligned(tile.narrow);
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      all = all && aligned(tile.state[k]) && aligned(tile.new_state[k]);
    return all;
  }

  template <class Element>
  ISOBIT_DEVICE static Vector<Element> load(const Element* from, std::int64_t i) {
    return simt::load_once(reinterpret_cast<const Vector<Element>*>(from) + i);
  }
  template <class Element>
  ISOBIT_DEVICE static void store(Element* to, std::int64_t i, const Vector<Element>& vector) {
    simt::store_once(reinterpret_cast<Vector<Element>*>(to) + i, vector);
  }

  ISOBIT_DEVICE void one_vector(const Tile<T, G>& tile, std::int64_t i) const {
    using C = simt::Conversions;
    using Real = typename Tiles<Rule, T, G>::Real;
    Vector<T> param = load(tile.param, i);
    const Vector<G> grad = load(tile.grad, i);
    Vector<G> narrow{};
    Vector<T> state[kStates] = {};
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      if (tile.state[k] != nullptr) state[k] = load(tile.state[k], i);
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      Real value = C::template widen<Real>(param.elements[j]);
      Real states[kStates];
#pragma unroll
      for (int k = 0; k < kStates; ++k) states[k] = C::template widen<Real>(state[k].elements[j]);
      tiles.step(value, C::template widen<Real>(grad.elements[j]), states);
      param.elements[j] = C::template narrow<T>(value);
      narrow.elements[j] = C::template narrow<G>(value);
#pragma unroll
      for (int k = 0; k < kStates; ++k) state[k].elements[j] = C::template narrow<T>(states[k]);
    }
    store(tile.new_param, i, param);
    if (tile.narrow != nullptr) store(tile.narrow, i, narrow);
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      if (tile.new_state[k] != nullptr) store(tile.new_state[k], i, state[k]);
  }
};

inline constexpr int kBlocks[] = {0, 1, 2, 4, 8};
inline constexpr Knob kKnobs[] = {
    threads_knob(kWidest),
    {"blocks", kBlocks,
     "blocks per multiprocessor, which take tiles in turn; 0: one block per tile"},
};

template <class Problem>
Plan one_block_a_tile(const Problem&, const Machine&) {
  return {256, 0};
}
template <class Problem>
Plan blocks_take_turns(const Problem&, const Machine&) {
  return {256, 8};
}

template <class Rule, template <class, class, class> class Kernel, class T, class G, class Problem>
void launch(const Problem& problem, const Plan& plan, const Execution& execution) {
  const Kernel<Rule, T, G> kernel{Tiles<Rule, T, G>(
      problem, problem.constants, std::int64_t{plan[0]} * Kernel<Rule, T, G>::kElements)};
  simt::launch(static_cast<simt::Stream>(execution.stream),
               {.blocks = tile::blocks_for(kernel.tiles.count(), 1, 1, plan[1], execution.machine),
                .threads = plan[0]},
               kernel);
}

template <class Rule, template <class, class, class> class Kernel, class Args, class Problem>
void run_on_gpu(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  if (problem.param.rows == 0 || problem.param.cols == 0) return;
  if (problem.dtype == DType::f16)
    launch<Rule, Kernel, f16, f16>(problem, plan, execution);
  else if (problem.dtype == DType::bf16)
    launch<Rule, Kernel, bf16, bf16>(problem, plan, execution);
  else if (problem.dtype == DType::f64)
    launch<Rule, Kernel, double, double>(problem, plan, execution);
  else if (problem.grad_dtype == DType::f16)
    launch<Rule, Kernel, float, f16>(problem, plan, execution);
  else if (problem.grad_dtype == DType::bf16)
    launch<Rule, Kernel, float, bf16>(problem, plan, execution);
  else
    launch<Rule, Kernel, float, float>(problem, plan, execution);
}

template <class Rule, class Args, class Problem>
inline constexpr Variant<Args, Problem> kCudaVariants[] = {
    {.name = "vec16",
     .knobs = kKnobs,
     .choose = blocks_take_turns<Problem>,
     .run = run_on_gpu<Rule, Vec16, Args, Problem>},
    {.name = "naive",
     .knobs = kKnobs,
     .choose = one_block_a_tile<Problem>,
     .run = run_on_gpu<Rule, Naive, Args, Problem>},
};

}  // namespace isobit::optimizers
