// SPDX-License-Identifier: Apache-2.0
// Products of 16-bit elements by the tensor cores of NVIDIA's GPUs from sm_80 on: a warp an
// instruction, m16n8k16, one sum an element over all of k.
#include <cstdint>
#include <type_traits>

#include "isobit/ops/matmul/cuda_call.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/copy_ring.h"
#include "isobit/tile/matrix_tile.h"

namespace isobit::matmul {
namespace {

// Whether the lines of an operand may be moved in pieces, and whether they lie along k.
struct Layout {
  bool along_k, in_pieces;
};

// Warps of kRows x kCols share a tile of y of kSide x kSide. Tiles of a and b, kDepth deep, pass
// through a ring of kPlaces in shared memory, where the sums wait afterwards for what becomes of
// them. In the last tile of k there are zeros on both sides, which change no sum.
template <class T, int kSide, bool kAAlongK, bool kBAlongK>
struct Mma {
  static constexpr int kDepth = 32, kPlaces = 4, kStep = 16;
  static constexpr int kDown = 2, kAcross = kSide / 32;  // warps
  static constexpr int kMostThreads = kDown * kAcross * simt::kWarpThreads;
  static constexpr int kLeastBlocks = kSide == 128 ? 2 : 4;  // 128 registers a thread
  static constexpr int kRows = kSide / kDown, kCols = kSide / kAcross;
  static constexpr int kInPlace = 2 * kSide * kDepth;
  static_assert(kPlaces * kInPlace * sizeof(T) >= kSide * kSide * sizeof(float));
  using TileA = tile::OperandTile<T, kSide, kDepth, kAAlongK>;
  using TileB = tile::OperandTile<T, kSide, kDepth, kBAlongK>;
  using Sums = float[kRows / 16][kCols / 8][4];

  Call<T> call;
  Tiles tiles;
  bool a_in_pieces, b_in_pieces;

  Mma(const Problem& problem, bool a_in_pieces, bool b_in_pieces)
      : call(problem), tiles(call, kSide), a_in_pieces(a_in_pieces), b_in_pieces(b_in_pieces) {
    tiles.runs = 1;  // nobody shares k
  }

  struct Memory {
    T* places;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    return {carver.template take<T>(kPlaces * kInPlace, 128)};
  }

  ISOBIT_DEVICE void operator()(const Memory& shared) const {
#pragma unroll 1
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile tile = tiles[index];
      const T* const a = call.of_a(tile.product) + tile.row * call.a.row;
      const T* const b = call.of_b(tile.product) + tile.col * call.b.col;
      Sums sums = {};
      tile::in_turns<kPlaces>(
          (call.k + kDepth - 1) / kDepth,
          [&](std::int64_t turn, int place) {
            const std::int64_t k = turn * kDepth;
            const int depth = inside(call.k - k, kDepth);
            TileA(of_a(shared, place))
                .template bring<kMostThreads>(a + k * call.a.col, call.a.row, call.a.col,
                                              inside(call.m - tile.row, kSide), depth, a_in_pieces);
            TileB(of_b(shared, place))
                .template bring<kMostThreads>(b + k * call.b.row, call.b.col, call.b.row,
                                              inside(call.n - tile.col, kSide), depth, b_in_pieces);
          },
          [&](int place) { multiply(shared, place, sums); });
      finish(shared, tile, sums);
    }
  }

 private:
  ISOBIT_DEVICE static int inside(std::int64_t rest, int most) {
    return rest < most ? static_cast<int>(rest) : most;
  }
  ISOBIT_DEVICE static T* of_a(const Memory& shared, int place) {
    return shared.places + place * kInPlace;
  }
  ISOBIT_DEVICE static T* of_b(const Memory& shared, int place) {
    return of_a(shared, place) + TileA::kElements;
  }
  // Where this warp's part of the tile begins.
  ISOBIT_DEVICE static int first_row() {
    return simt::thread() / simt::kWarpThreads / kAcross * kRows;
  }
  ISOBIT_DEVICE static int first_col() {
    return simt::thread() / simt::kWarpThreads % kAcross * kCols;
  }

  ISOBIT_DEVICE static void multiply(const Memory& shared, int place, Sums& sums) {
    const TileA a(of_a(shared, place));
    const TileB b(of_b(shared, place));
#pragma unroll
    for (int k = 0; k < kDepth; k += kStep) {
      unsigned rows[kRows / 16][4];
#pragma unroll
      for (int i = 0; i < kRows / 16; ++i) a.take(first_row() + 16 * i, k, rows[i]);
#pragma unroll
      for (int j = 0; j < kCols / 16; ++j) {
        unsigned words[4];
        b.take(first_col() + 16 * j, k, words);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const unsigned cols[2] = {words[half], words[half + 2]};
#pragma unroll
          for (int i = 0; i < kRows / 16; ++i)
            simt::multiply_add<T>(sums[i][2 * j + half], rows[i], cols);
        }
      }
    }
  }

  // Where a sum waits: the sums that a warp stores at once, two apart in eight rows, lie in
  // different banks, and those of a row side by side. Rows 8 apart are mixed alike.
  ISOBIT_DEVICE static int mixed(int row, int col) { return col ^ (row % 4 * 8 + row / 4 % 2); }

  // By way of shared memory, so that neighbours in a row of y are neighbours in a warp.
  ISOBIT_DEVICE void finish(const Memory& shared, const Tile& tile, const Sums& sums) const {
    auto* const all = reinterpret_cast<float*>(shared.places);
    simt::sync_block();  // the tiles of a and b have been read
    const int line = simt::lane() / 4, pair = first_col() + simt::lane() % 4 * 2;
    float* const first = all + (first_row() + line) * kSide;
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i)
#pragma unroll
      for (int j = 0; j < kCols / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          simt::store_shared(
              first + (16 * i + e / 2 * 8) * kSide + mixed(line, pair + 8 * j + e % 2),
              sums[i][j][e]);
    simt::sync_block();
#pragma unroll 1
    for (int i = simt::thread(); i < kSide * kSide; i += kMostThreads) {
      const int row = i / kSide, col = i % kSide;
      if (tile.row + row < call.m && tile.col + col < call.n)
        call.finish(tile.product, tile.row + row, tile.col + col,
                    simt::load_shared(all + row * kSide + mixed(row, col)) + 0.0F);
    }
  }
};

// Pieces of 16 bytes: every line of every product begins at one.
bool in_pieces(const Problem& problem, const Array& array, std::size_t which, std::int64_t step,
               std::int64_t line) {
  bool whole = step == 1 && reinterpret_cast<std::uintptr_t>(array.data) % 16 == 0 && line % 8 == 0;
  for (int i = 0; i < problem.loop_count; ++i)
    whole &= problem.loops[static_cast<std::size_t>(i)].steps[which] % 8 == 0;
  return whole;
}

Layout layout_of(const Problem& problem, const Array& array, std::size_t which, std::int64_t lane,
                 std::int64_t k) {
  const bool along_k = k == 1 || lane != 1;
  return {along_k, along_k ? in_pieces(problem, array, which, k, lane)
                           : in_pieces(problem, array, which, lane, k)};
}

template <class T, int kSide>
void run_side(const Problem& problem, const Execution& execution) {
  const Array &a = problem.first.a, &b = problem.first.b;
  const Layout of_a = layout_of(problem, a, 0, a.row, a.col);
  const Layout of_b = layout_of(problem, b, 1, b.col, b.row);
  with_bool(of_a.along_k, [&](auto a_along_k) {
    with_bool(of_b.along_k, [&](auto b_along_k) {
      using Kernel = Mma<T, kSide, decltype(a_along_k)::value, decltype(b_along_k)::value>;
      const Kernel kernel(problem, of_a.in_pieces, of_b.in_pieces);
      launch(kernel, kernel.tiles.count(), Kernel::kMostThreads, execution);
    });
  });
}

void run_mma(const ForwardArgs&, const Problem& problem, const Plan& plan,
             const Execution& execution) {
  with_type(problem, [&]<class T>(T) {
    if constexpr (sizeof(T) == 2)
      plan[0] == 128 ? run_side<T, 128>(problem, execution) : run_side<T, 64>(problem, execution);
  });
}

std::string declines_mma(const Problem& problem, const Machine& machine) {
  if (problem.arithmetic != Arithmetic::tensor) return "has no arithmetic but tensor";
  if (machine.device == Device::sass) return "the executor of machine code has no tensor cores";
  return {};
}

constexpr int kSides[] = {64, 128};
constexpr Knob kKnobs[] = {{"side", kSides, "rows and columns of a block's tile of y"}};

// Large tiles read less, where there are enough of them for all multiprocessors.
Plan choose_side(const Problem& problem, const Machine& machine) {
  const std::int64_t tiles = (problem.m + 127) / 128 * ((problem.n + 127) / 128);
  return {problem.products() * tiles >= machine.gpu.multiprocessors ? 128 : 64};
}

}  // namespace

ForwardVariant cuda_tensor_variant() {
  return {.name = "mma",
          .knobs = kKnobs,
          .declines = declines_mma,
          .choose = choose_side,
          .run = run_mma};
}

}  // namespace isobit::matmul
