// SPDX-License-Identifier: Apache-2.0
// Convolutions on GPUs as products in the tiles of matmul: windows come to shared memory straight
// from where they lie, or from columns in the workspace.
#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "isobit/core/pieces.h"
#include "isobit/ops/convolution/cuda_parts.h"
#include "isobit/ops/convolution/cuda_windows.h"
#include "isobit/ops/matmul/cuda_tiles.h"

namespace isobit::convolution {
namespace {

// Warps that pack weights, and one word for all of them.
constexpr int kMostFound = PackWeights<float>::kMostBlocks * PackWeights<float>::kWarps + 1;
constexpr std::int64_t kFewestColumns = 128;  // at a time: those of a large tile

// A product of each group, whose operands come from elsewhere.
matmul::Problem product_of(const Problem& problem, std::int64_t m, std::int64_t n, std::int64_t k) {
  matmul::Problem product;
  product.element = problem.real();
  product.m = m;
  product.n = n;
  product.k = k;
  product.loop_count = 1;
  product.loops[0].extent = problem.groups;
  return product;
}
// Filters by positions, or a part of these.
matmul::Problem product_of(const Problem& problem, std::int64_t positions) {
  return product_of(problem, problem.outs, positions, problem.k());
}
matmul::Problem product_of_weights(const Problem& problem) {
  return product_of(problem, problem.outs, terms_of(problem), positions_of(problem));
}

// Calls run(Real{}, integral_constant of sums a side) as a plan says.
template <class Run>
void with_tile(const matmul::Problem& product, const Plan& plan, const Run& run) {
  if (product.element == DType::f64) return run(double{}, std::integral_constant<int, 4>{});
  if (plan[0] == 8) return run(float{}, std::integral_constant<int, 8>{});
  run(float{}, std::integral_constant<int, 4>{});
}

// Where a large tile has rows that it would not fill, a small one does half the work.
Plan choose_tile_of(const matmul::Problem& product, const Machine& machine) {
  if (product.m <= 64) return {4};
  return matmul::choose_tile(product, machine);
}

// A call's workspace: packed weights, what was found among them, sums of runs, columns.
struct Room {
  std::byte *weights = nullptr, *found = nullptr, *runs = nullptr, *columns = nullptr;
  std::int64_t positions = 0;  // of which there are columns at a time
  std::size_t bytes = 0;

  // Columns stay in half of the second cache, or are as few as a tile takes.
  Room(const Problem& problem, const Machine& machine, bool with_columns,
       std::byte* memory = nullptr)
      : positions(positions_of(problem)) {
    if (problem.empty()) return;
    const std::int64_t size = size_of(problem.real()), lines = problem.groups * problem.k();
    if (with_columns) {
      const std::int64_t fit = machine.gpu.l2_bytes / 2 / std::max<std::int64_t>(1, lines * size);
      positions =
          std::min(positions, std::max(fit / kFewestColumns, std::int64_t{1}) * kFewestColumns);
    }
    Pieces pieces(memory);
    weights = pieces.take(lines * problem.outs * size);
    found = pieces.take(kMostFound * std::int64_t{sizeof(unsigned)});
    runs = pieces.take(
        static_cast<std::int64_t>(matmul::room_for_runs(product_of(problem, positions))));
    if (with_columns) columns = pieces.take(lines * positions * size);
    bytes = pieces.taken();
  }
};

// Columns of windows: group, term, position.
template <class Real>
struct Unfold {
  static constexpr int kMostThreads = 256;
  Windows<Real> windows;
  std::int64_t lines, terms, first, positions;  // lines: of all groups
  Real* to;

  Unfold(const Problem& problem, std::int64_t first, std::int64_t positions, std::byte* to)
      : windows(problem),
        lines(problem.groups * problem.k()),
        terms(problem.k()),
        first(first),
        positions(positions),
        to(reinterpret_cast<Real*>(to)) {}

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread(); at < lines * positions;
         at += simt::blocks() * simt::threads()) {
      const std::int64_t line = at / positions, group = line / terms;
      const auto place = windows.places[static_cast<unsigned>(first + (at - line * positions))];
      to[at] = windows.at(group, place, windows.terms[static_cast<unsigned>(line - group * terms)]);
    }
  }
};

// The product with packed weights as a.
matmul::Problem with_weights(const Problem& problem, std::int64_t positions, std::byte* weights) {
  matmul::Problem product = product_of(problem, positions);
  product.first.a = {weights, problem.real(), 1, problem.outs};
  product.loops[0].steps[0] = problem.k() * problem.outs;
  return product;
}

template <class Real>
void pack(const Problem& problem, const Room& room, const Execution& execution) {
  const PackWeights<Real> kernel(problem, room.weights, room.found);
  matmul::launch(kernel, kernel.blocks(), PackWeights<Real>::kMostThreads, execution);
  if (!problem.gradient) return;
  const FoundAny any{kernel.found, kernel.blocks() * PackWeights<Real>::kWarps,
                     kernel.found + kMostFound - 1};
  matmul::launch(any, 1, FoundAny::kMostThreads, execution);
}

// Taps that do not land are absent, which zeros beside infinite weights are not.
void mend(const Problem& problem, const Room& room, const Execution& execution) {
  if (!problem.gradient) return;
  launch_direct(problem, reinterpret_cast<const unsigned*>(room.found) + kMostFound - 1,
                kChosenThreads, execution);
}

template <class Real, int kEach>
using Tiles = matmul::RegisterTiled<Real, kEach, matmul::RowsOfA<Real>, WindowsAsColumns<Real>,
                                    ProductCall<Real>>;

// Columns as an image of one row, of which the windows are single elements of k channels.
Problem of_columns(const Problem& problem, std::byte* columns, std::int64_t positions) {
  Problem result;
  result.element = problem.real();
  result.batch = 1;
  result.groups = problem.groups;
  result.ins = problem.k();
  result.w.results = result.w.sources = positions;
  result.source = {columns, problem.real(), 0, positions, 0, 1};
  return result;
}

}  // namespace

void Implicit::run(const Problem& problem, const Plan& plan, const Execution& execution) {
  if (problem.empty()) return;
  const Room room(problem, execution.machine, false, execution.workspace);
  const matmul::Problem product = with_weights(problem, room.positions, room.weights);
  with_tile(product, plan, [&]<class Real, int kEach>(Real, std::integral_constant<int, kEach>) {
    pack<Real>(problem, room, execution);
    const ProductCall<Real> call(product, problem, 0);
    matmul::launch_tiles(Tiles<Real, kEach>(call, room.runs, {}, {Windows<Real>(problem)}),
                         execution);
    mend(problem, room, execution);
  });
}

void Implicit::run_im2col(const Problem& problem, const Plan& plan, const Execution& execution) {
  if (problem.empty()) return;
  const Room room(problem, execution.machine, true, execution.workspace);
  const std::int64_t all = positions_of(problem);
  with_tile(product_of(problem, 1), plan,
            [&]<class Real, int kEach>(Real, std::integral_constant<int, kEach>) {
              pack<Real>(problem, room, execution);
              for (std::int64_t first = 0; first < all; first += room.positions) {
                const std::int64_t some = std::min(room.positions, all - first);
                const Unfold<Real> unfold(problem, first, some, room.columns);
                if (problem.k() > 0)
                  matmul::launch(unfold, blocks_for(unfold.lines * some), 256, execution);
                const matmul::Problem product = with_weights(problem, some, room.weights);
                const ProductCall<Real> call(product, problem, first);
                const Windows<Real> columns(of_columns(problem, room.columns, some));
                matmul::launch_tiles(Tiles<Real, kEach>(call, room.runs, {}, {columns}), execution);
              }
              mend(problem, room, execution);
            });
}

std::string Implicit::declines(const Problem& problem, const Machine&) {
  if (problem.gradient && problem.mode != PaddingMode::zeros)
    return "has gradients only where zeros are padded";
  if (positions_of(problem) >= kDividedBelow || terms_of(problem) >= kDividedBelow)
    return "counts positions, and weights of a filter, below 2^31";
  return {};
}

// By a model, as nothing was measured: of machine code an fma takes 4.4 instructions in a tile of
// 64 rows and a depth of 16, and 46 to 52 in `tiled_halo` (`isobit profile conv2d --device sass`,
// 3 x 3 taps, 28 x 28 results, 64 channels to 64 filters, and 16 to 8).
bool Implicit::suits(const Problem& problem, const Machine&) {
  const auto of_tile = [](std::int64_t count, std::int64_t tile) {
    return (count + tile - 1) / tile * tile;
  };
  const double useful = static_cast<double>(problem.outs) * static_cast<double>(problem.k());
  const double done = static_cast<double>(of_tile(problem.outs, 64)) *
                      static_cast<double>(of_tile(problem.k(), 16));
  return 4.4 * done < 48 * useful;
}

template <bool kWithColumns>
std::size_t Implicit::workspace(const Problem& problem, const Machine& machine) {
  return Room(problem, machine, kWithColumns).bytes;
}
Plan Implicit::choose(const Problem& problem, const Machine& machine) {
  return choose_tile_of(product_of(problem, positions_of(problem)), machine);
}

template std::size_t Implicit::workspace<false>(const Problem&, const Machine&);
template std::size_t Implicit::workspace<true>(const Problem&, const Machine&);

// By the same model: 4.1 instructions in a tile; with one weight a thread 245 (3 x 3 taps, 56 x 56
// positions).
bool tiles_suit_weights(const Problem& problem) {
  if (!Implicit::declines(problem, {}).empty()) return false;
  const double terms = static_cast<double>(terms_of(problem));
  const double outs = static_cast<double>(problem.outs);
  const double done = static_cast<double>((problem.outs + 63) / 64) *
                      static_cast<double>((terms_of(problem) + 63) / 64) * 64 * 64;
  return 4.1 * done < 245 * outs * terms;
}

Plan choose_tiles_of_weights(const Problem& problem, const Machine& machine) {
  return choose_tile_of(product_of_weights(problem), machine);
}

std::size_t tiles_of_weights_workspace(const Problem& problem) {
  return matmul::room_for_runs(product_of_weights(problem));
}

void sum_weights_in_tiles(const Problem& problem, const Plan& plan, const Execution& execution) {
  const matmul::Problem product = product_of_weights(problem);
  if (product.empty()) return;
  with_tile(product, plan, [&]<class Real, int kEach>(Real, std::integral_constant<int, kEach>) {
    using C = WeightsCall<Real>;
    using Kernel = matmul::RegisterTiled<Real, kEach, FiltersAsRows<Real>, TermsAsColumns<Real>, C>;
    matmul::launch_tiles(Kernel(C(product, problem), execution.workspace,
                                FiltersAsRows<Real>(problem), {Windows<Real>(problem)}),
                         execution);
  });
}

}  // namespace isobit::convolution
