// SPDX-License-Identifier: Apache-2.0
// Products of 16-bit elements by the tensor cores of sm_90 as they are fastest: a warpgroup an
// instruction, m64n128k16, with both operands in shared memory, where one warp has them copied.
#include <cstdint>
#include <limits>

#include "isobit/ops/matmul/cuda_call.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/simt/warpgroup.h"
#include "isobit/tile/supply.h"

namespace isobit::matmul {
namespace {

// An operand's boxes: its lines are lanes (rows of a, columns of b) where k is adjacent, else k's.
struct Boxes {
  simt::BoxMap map;
  bool of_each;  // product; else one matrix serves all

  template <bool kAlongK>
  ISOBIT_DEVICE void bring(void* to, std::int64_t lane, std::int64_t k, std::int64_t product,
                           simt::Arrival* arrival) const {
    const int at_lane = static_cast<int>(lane), at_k = static_cast<int>(k);
    simt::copy_box(to, map, kAlongK ? at_k : at_lane, kAlongK ? at_lane : at_k,
                   of_each ? static_cast<int>(product) : 0, arrival);
  }
};

// Two warpgroups have 64 rows each of a tile of y of 128 x 128. Tiles of a and b, 64 of k deep,
// pass through kPlaces places, which a ninth warp has filled ahead, in the next tile of y too.
// Beyond the matrices there are zeros: on both sides beyond k, where they change no sum.
template <class T, bool kAAlongK, bool kBAlongK>
struct Wgmma {
  static constexpr int kSide = 2 * simt::kBoxSide, kDepth = simt::kBoxSide, kPlaces = 4;
  static constexpr int kStep = 16;  // of k, in one instruction
  static constexpr int kWarps = 8, kWarpRows = kSide / kWarps;
  static constexpr int kMostThreads = (kWarps + 1) * simt::kWarpThreads;
  static constexpr int kInPlace = 4 * simt::kBoxElements;  // two boxes of a, two of b
  static constexpr int kInTile = kWarpRows * kSide;        // sums of a warp
  using Supply = tile::Supply<kPlaces, kWarps>;
  using Sums = float[64];

  Boxes a, b;
  Call<T> call;
  Tiles tiles;

  Wgmma(const Problem& problem, const Boxes& a, const Boxes& b)
      : a(a), b(b), call(problem), tiles(call, kSide) {
    tiles.runs = 1;  // nobody shares k
  }

  struct Memory {
    T* places;
    float* sums;
    typename Supply::Memory supply;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    // A block's memory begins at 128 bytes, places at kBoxAlignment.
    T* const places = carver.template take<T>(
        kPlaces * kInPlace + simt::kBoxAlignment / static_cast<int>(sizeof(T)), 128);
    float* const sums = carver.template take<float>(kWarps * kInTile);
    return {places, sums, Supply::memory(carver)};
  }

  ISOBIT_DEVICE void operator()(const Memory& shared) const {
    const Supply supply(shared.supply);
    constexpr std::uintptr_t kLess = simt::kBoxAlignment - 1;
    T* const places =
        reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(shared.places) + kLess) & ~kLess);
    if (simt::thread() < kWarps * simt::kWarpThreads)
      multiply(supply, places, shared.sums);
    else if (simt::lane() == 0)
      bring(supply, places);
  }

 private:
  ISOBIT_DEVICE static int warp() { return simt::thread() / simt::kWarpThreads; }
  ISOBIT_DEVICE static T* of_a(T* places, int place) { return places + place * kInPlace; }
  ISOBIT_DEVICE static T* of_b(T* places, int place) { return of_a(places, place) + kInPlace / 2; }

  ISOBIT_DEVICE void bring(const Supply& supply, T* places) const {
    unsigned turn = 0;
#pragma unroll 1
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile tile = tiles[index];
#pragma unroll 1
      for (std::int64_t k = 0; k < call.k; k += kDepth, ++turn) {
        simt::Arrival* const arrival = supply.order(turn, kInPlace * static_cast<int>(sizeof(T)));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int lanes = half * simt::kBoxSide, to = half * simt::kBoxElements;
          a.template bring<kAAlongK>(of_a(places, Supply::place(turn)) + to, tile.row + lanes, k,
                                     tile.product, arrival);
          b.template bring<kBAlongK>(of_b(places, Supply::place(turn)) + to, tile.col + lanes, k,
                                     tile.product, arrival);
        }
      }
    }
  }

  ISOBIT_DEVICE void multiply(const Supply& supply, T* places, float* all) const {
    unsigned turn = 0;
#pragma unroll 1
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile tile = tiles[index];
      Sums sums = {};
#pragma unroll 1
      for (std::int64_t k = 0; k < call.k; k += kDepth, ++turn) {
        supply.wait(turn);
        const T* const rows = of_a(places, Supply::place(turn)) + warp() / 4 * simt::kBoxElements;
        const T* const cols = of_b(places, Supply::place(turn));
        simt::begin_products(sums);
#pragma unroll
        for (int step = 0; step < kDepth; step += kStep)
          simt::multiply_add<T, kAAlongK, kBAlongK>(sums, rows + in_box<kAAlongK>(step),
                                                    cols + in_box<kBAlongK>(step));
        simt::commit_products();
        simt::wait_products<1>(sums);  // those of the turn before are done
        if (k > 0) supply.give_back(turn - 1);
      }
      simt::wait_products<0>(sums);
      if (call.k > 0) supply.give_back(turn - 1);
      finish(all + warp() * kInTile, tile, sums);
    }
  }

  // Where a step of k begins in a box.
  template <bool kAlongK>
  ISOBIT_DEVICE static int in_box(int k) {
    return kAlongK ? k : k * simt::kBoxSide;
  }

  // Where a sum waits: the sums that a warp stores at once, two apart in eight rows, lie in
  // different banks, and those of a row side by side. Rows 8 apart are mixed alike.
  ISOBIT_DEVICE static int mixed(int row, int col) { return col ^ (row % 4 * 8 + row / 4 % 2); }

  // By way of the warp's own part of shared memory, so that neighbours in a row of y are neighbours
  // in a warp.
  ISOBIT_DEVICE void finish(float* own, const Tile& tile, const Sums& sums) const {
    const int line = simt::lane() / 4, pair = simt::lane() % 4 * 2;
    simt::sync_warp();  // the sums of the tile before have been read
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Sums) / sizeof(float)); ++i)
      simt::store_shared(
          own + (line + i / 2 % 2 * 8) * kSide + mixed(line, pair + i / 4 * 8 + i % 2), sums[i]);
    simt::sync_warp();
    const std::int64_t first = tile.row + warp() * kWarpRows;
#pragma unroll 1
    for (int i = simt::lane(); i < kInTile; i += simt::kWarpThreads) {
      const int row = i / kSide, col = i % kSide;
      if (first + row < call.m && tile.col + col < call.n)
        call.finish(tile.product, first + row, tile.col + col,
                    simt::load_shared(own + row * kSide + mixed(row, col)) + 0.0F);
    }
  }
};

// An operand as copies take it, with `lanes` by k of it.
struct Lying {
  simt::Matrices matrices;
  bool along_k, of_each;
  const char* wrong = "";
};
Lying lying(const Problem& problem, const Array& array, std::size_t which, std::int64_t lanes,
            std::int64_t lane, std::int64_t k) {
  const bool along_k = problem.k == 1 ? lane != 1 : k == 1;
  const std::int64_t length = along_k ? problem.k : lanes, lines = along_k ? lanes : problem.k;
  const std::int64_t across = (length + 7) / 8 * 8;
  const Loop& loop = problem.loops[0];
  const std::int64_t step = problem.loop_count > 0 ? loop.steps[which] : 0;
  Lying operand{{array.data, length, lines, step == 0 ? 1 : loop.extent,
                 lines > 1 ? (along_k ? lane : k) : across, 0},
                along_k,
                step != 0};
  simt::Matrices& own = operand.matrices;
  own.stride = step != 0 ? step : own.line_stride * lines;
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;
  if (length > 1 && (along_k ? k : lane) != 1)
    operand.wrong = "it takes a and b whose rows or columns are adjacent elements";
  else if (reinterpret_cast<std::uintptr_t>(array.data) % 16 != 0 || own.line_stride % 8 != 0 ||
           own.stride % 8 != 0)
    operand.wrong =
        "it takes a and b whose rows (or columns, if those are adjacent) begin at 16 bytes";
  else if (own.line_stride < length || own.stride % own.line_stride != 0 ||
           own.stride < own.line_stride * lines || own.stride >= kMostBytes / 2)
    operand.wrong = "it takes a and b whose rows and products lie behind each other";
  return operand;
}
Lying lying_a(const Problem& problem) {
  const Array& a = problem.first.a;
  return lying(problem, a, 0, problem.m, a.row, a.col);
}
Lying lying_b(const Problem& problem) {
  const Array& b = problem.first.b;
  return lying(problem, b, 1, problem.n, b.col, b.row);
}

template <class T>
Boxes boxes_of(const Lying& operand, const Problem& problem) {
  // Of no k there is nothing to copy.
  if (problem.k == 0) return {{}, false};
  return {simt::box_map<T>(operand.matrices), operand.of_each};
}

void run_wgmma(const ForwardArgs&, const Problem& problem, const Plan&,
               const Execution& execution) {
  with_type(problem, [&]<class T>(T) {
    if constexpr (sizeof(T) == 2) {
      const Lying of_a = lying_a(problem), of_b = lying_b(problem);
      const Boxes a = boxes_of<T>(of_a, problem), b = boxes_of<T>(of_b, problem);
      with_bool(of_a.along_k, [&](auto a_along_k) {
        with_bool(of_b.along_k, [&](auto b_along_k) {
          using Kernel = Wgmma<T, decltype(a_along_k)::value, decltype(b_along_k)::value>;
          const Kernel kernel(problem, a, b);
          // A multiprocessor has room for one block, which goes from tile to tile.
          const std::int64_t most = std::max(1, execution.machine.gpu.multiprocessors);
          launch(kernel, std::min(kernel.tiles.count(), most), Kernel::kMostThreads, execution);
        });
      });
    }
  });
}

std::string declines_wgmma(const Problem& problem, const Machine& machine) {
  if (problem.arithmetic != Arithmetic::tensor) return "has no arithmetic but tensor";
  if (machine.device == Device::sass) return "the executor of machine code has no tensor cores";
  if (machine.gpu.capability != 90) return "only GPUs of sm_90 have its instructions";
  if (problem.empty() || problem.k == 0) return {};
  if (problem.loop_count > 1) return "it takes products in one dimension of a batch";
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() - 2 * simt::kBoxSide;
  if (std::max({problem.m, problem.n, problem.k, problem.products()}) > kMost)
    return "it takes extents below 2^31";
  const char* const of_a = lying_a(problem).wrong;
  return *of_a != '\0' ? of_a : lying_b(problem).wrong;
}

}  // namespace

ForwardVariant cuda_wgmma_variant() {
  return {.name = "wgmma", .bits = Bits::own, .declines = declines_wgmma, .run = run_wgmma};
}

}  // namespace isobit::matmul
