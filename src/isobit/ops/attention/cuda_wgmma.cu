// SPDX-License-Identifier: Apache-2.0
// flash by the tensor cores of sm_90 as they are fastest: a warpgroup an instruction. Its scores
// and weights are in registers, and so are sums of y; one warp has queries, keys and values copied.
#include <cstdint>
#include <limits>

#include "isobit/ops/attention/cuda_rows.h"
#include "isobit/simt/warpgroup.h"
#include "isobit/tile/supply.h"

namespace isobit::attention {
namespace {

constexpr std::int64_t kMostColumns = 128;  // of v, whose sums are in registers

// An array's boxes. A batch and a head are so many lines or matrices further on; a line is a row.
struct Boxes {
  simt::BoxMap map;
  std::int64_t lines_of_batch, matrices_of_batch;
  bool of_each;  // head; else one serves all
  bool woven;

  ISOBIT_DEVICE void bring(void* to, std::int64_t element, std::int64_t batch, std::int64_t head,
                           std::int64_t row, simt::Arrival* arrival) const {
    const int line = static_cast<int>(batch * lines_of_batch + row);
    const int matrix = static_cast<int>(batch * matrices_of_batch + (of_each ? head : 0));
    simt::copy_box(to, map, static_cast<int>(element), woven ? matrix : line, woven ? line : matrix,
                   arrival);
  }
};

// Two warpgroups have 64 queries each of a tile of 128. A ninth warp has them copied, and panels of
// k and v, 64 elements of a head at a time, into kPlaces places: in the next tile too, while this
// one ends. Beyond the arrays there are zeros. v has kParts times 64 columns at most.
template <class T, int kParts>
struct FlashWgmma : WarpRows<T> {
  using Base = WarpRows<T>;
  using Base::call, Base::is_plain, Base::kInPlace, Base::kOfColumns, Base::kOfKeys, Base::kStep,
      Base::kSteps, Base::put_part, Base::put_state, Base::weigh;
  using typename Base::Chunk, typename Base::Folds, typename Base::Rows, typename Base::S,
      typename Base::Scores, typename Base::State, typename Base::Sums, typename Base::Weights;
  static constexpr int kWarps = 8, kTakers = kWarps * simt::kWarpThreads;
  static constexpr int kMostThreads = kTakers + 4 * simt::kWarpThreads;
  static constexpr int kQueries = 2 * simt::kBoxSide, kPlaces = 8;
  static constexpr int kBytes = kInPlace * static_cast<int>(sizeof(T));
  static_assert(kInPlace == 2 * simt::kBoxElements && kQueries == kPanel);
  using Supply = tile::Supply<kPlaces, kWarps>;
  using OfQueries = tile::Supply<1, kWarps>;

  Boxes q, k, v;
  Tiles<T, kQueries> tiles;
  int levels;     // of runs that are not joined yet
  float* states;  // theirs: block, level, number, thread
  bool y_in_pieces;

  FlashWgmma(const Problem& p, std::byte* workspace)
      : Base{{p}},
        q{},
        k{},
        v{},
        tiles(p),
        levels(waiting_of(p)),
        states(reinterpret_cast<float*>(workspace)),
        y_in_pieces(in_pieces(p.y)) {}

  struct Memory {
    T *queries, *places;
    float* own;  // of each warp
    Tile<float>* tiles;
    typename Supply::Memory supply;
    typename OfQueries::Memory of_queries;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    // A block's memory begins at 128 bytes, places at kBoxAlignment.
    constexpr int kMore = simt::kBoxAlignment / static_cast<int>(sizeof(T));
    Memory m{};
    m.queries = carver.template take<T>((parts_of_k() + kPlaces) * kInPlace + kMore, 128);
    m.own = carver.template take<float>(kWarps * own(), 128);
    m.tiles = carver.template take<Tile<float>>(2);
    m.supply = Supply::memory(carver);
    m.of_queries = OfQueries::memory(carver);
    return m;
  }
  // Numbers that a warp has: scores, where more than a range makes them exponents, or rows of y.
  ISOBIT_EITHER int own() const { return is_plain() ? Rows::kElements / 2 : 16 * kPanel; }
  ISOBIT_EITHER int parts_of_k() const { return static_cast<int>(parts_of(call.p.head_dim)); }
  ISOBIT_EITHER static std::int64_t state_size() { return (kParts * 32 + 4) * kTakers; }

  ISOBIT_DEVICE void operator()(Memory m) const {
    constexpr std::uintptr_t kLess = simt::kBoxAlignment - 1;
    m.queries =
        reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(m.queries) + kLess) & ~kLess);
    m.places = m.queries + parts_of_k() * kInPlace;
    const Supply supply(m.supply);
    const OfQueries of_queries(m.of_queries);
    if (simt::thread() < kTakers) {
      simt::have_more_registers<232>();
      compute_all(m, supply, of_queries);
    } else {
      simt::have_fewer_registers<40>();
      if (simt::thread() == kTakers) bring_all(m, supply, of_queries);
    }
  }

 private:
  using Part = float[32];  // sums of a warp's rows and kPart columns

  // ---- the warp that has things copied ---------------------------------------------------------

  // Tiles wait in two places in turn: when the queries of one are ordered, all have done with those
  // of the tile before it, and so with the tile before that. One without queries is the last.
  ISOBIT_DEVICE void bring_all(const Memory& m, const Supply& supply,
                               const OfQueries& of_queries) const {
    const Problem& p = call.p;
    unsigned turn = 0, number = 0;
#pragma unroll 1
    for (std::int64_t index = simt::block(); index < tiles.count(p); index += simt::blocks()) {
      const Tile<float> tile = tiles.at(call, index);
      if (tile.queries <= 0) continue;
      of_queries.make_room(number);
      m.tiles[number % 2] = tile;
      simt::Arrival* const arrival = of_queries.order(number, parts_of_k() * kBytes);
#pragma unroll 1
      for (int part = 0; part < parts_of_k(); ++part)
        bring(q, m.queries + part * kInPlace, part, tile.in.batch, tile.head,
              tile.in.queries.begin + tile.first, arrival);
      ++number;
      const std::int64_t runs = runs_of(tile);
#pragma unroll 1
      for (std::int64_t run = 0; run < runs; ++run) {
        const Panels panels = panels_of(tile, run);
#pragma unroll 1
        for (int panel = 0; panel < panels.count; ++panel)
          bring_panel(m, supply, tile, panels.first + panel * kPanel, turn);
      }
    }
    of_queries.make_room(number);
    m.tiles[number % 2].queries = 0;
    of_queries.order(number, 0);
  }

  ISOBIT_DEVICE void bring_panel(const Memory& m, const Supply& supply, const Tile<float>& tile,
                                 std::int64_t first, unsigned& turn) const {
    const int parts = parts_of_k() + kParts;
#pragma unroll 1
    for (int part = 0; part < parts; ++part, ++turn) {
      const bool of_k = part < parts_of_k();
      bring(of_k ? k : v, m.places + Supply::place(turn) * kInPlace,
            of_k ? part : part - parts_of_k(), tile.in.batch, tile.kv_head,
            tile.in.first_key + first, supply.order(turn, kBytes));
    }
  }

  // 128 rows, of a head's elements those of a part.
  ISOBIT_DEVICE static void bring(const Boxes& boxes, T* to, int part, std::int64_t batch,
                                  std::int64_t head, std::int64_t row, simt::Arrival* arrival) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      boxes.bring(to + half * simt::kBoxElements, part * kPart, batch, head,
                  row + half * simt::kBoxSide, arrival);
  }

  // ---- the warps that compute ------------------------------------------------------------------

  ISOBIT_DEVICE static int group() { return warp() / 4; }

  ISOBIT_DEVICE void compute_all(const Memory& m, const Supply& supply,
                                 const OfQueries& of_queries) const {
    unsigned turn = 0;
#pragma unroll 1
    for (unsigned number = 0;; ++number) {
      of_queries.wait(number);
      const Tile<float>& tile = m.tiles[number % 2];
      if (tile.queries == 0) return;
      compute(m, tile, supply, of_queries, number, turn);
    }
  }

  ISOBIT_DEVICE void compute(const Memory& m, const Tile<float>& tile, const Supply& supply,
                             const OfQueries& of_queries, unsigned number, unsigned& turn) const {
    const std::int64_t runs = runs_of(tile);
    float* const own_memory = m.own + warp() * own();
    State state;
    Part sums[kParts];
#pragma unroll 1
    for (std::int64_t run = 0; run < runs; ++run) {
      state = {{-kInfinity<float>, -kInfinity<float>}, {0, 0}};
#pragma unroll
      for (Part& part : sums)
#pragma unroll
        for (float& sum : part) sum = 0;
      const Panels panels = panels_of(tile, run);
#pragma unroll 1
      for (int panel = 0; panel < panels.count; ++panel) {
        const std::int64_t first = panels.first + panel * kPanel;
        const Range seen = seen_by_group(tile, first);
        const bool is_last = run == runs - 1 && panel == panels.count - 1;
        if (seen.end <= 0 || seen.begin >= kPanel) {  // others see it
          if (is_last) of_queries.give_back(number);
          pass(supply, turn);
          continue;
        }
        Scores scores;
        Weights weights;
        Folds folds;
        multiply_keys(m, supply, turn, scores);
        if (is_last) of_queries.give_back(number);
        weigh(own_memory, tile, first, scores, state, folds, weights);
#pragma unroll
        for (int part = 0; part < kParts; ++part, ++turn)
          add_values(m, supply, turn, seen, weights, folds, sums[part]);
      }
      if (run == runs - 1 && panels.count == 0) of_queries.give_back(number);
      join_runs(
          states, state_size(), levels, run, run == runs - 1,
          [&](float* at) { keep(at, state, sums); },
          [&](const float* at) { fold(at, state, sums); });
    }
    finish(own_memory, tile, state, sums);
  }

  // A panel that is not for this warpgroup.
  ISOBIT_DEVICE void pass(const Supply& supply, unsigned& turn) const {
#pragma unroll 1
    for (int part = 0; part < parts_of_k() + kParts; ++part, ++turn) {
      supply.wait(turn);
      supply.give_back(turn);
    }
  }

  // Keys of a panel that a query of the warpgroup may see: none where it has no queries.
  ISOBIT_DEVICE Range seen_by_group(const Tile<float>& tile, std::int64_t first) const {
    if (group() * simt::kBoxSide >= tile.queries) return {0, 0};
    const std::int64_t query = tile.first + group() * simt::kBoxSide;
    return {call.keys_of(tile.in, query).begin - first,
            call.keys_of(tile.in, query + simt::kBoxSide - 1).end - first};
  }

  ISOBIT_DEVICE void multiply_keys(const Memory& m, const Supply& supply, unsigned& turn,
                                   Scores& scores) const {
    float products[64] = {};
    const unsigned begin = turn;
    simt::begin_products(products);
#pragma unroll 1
    for (int part = 0; part < parts_of_k(); ++part, ++turn) {
      supply.wait(turn);
      const T* const rows = m.queries + part * kInPlace + group() * simt::kBoxElements;
      const T* const keys = m.places + Supply::place(turn) * kInPlace;
#pragma unroll
      for (int d = 0; d < kPart; d += kStep)
        simt::multiply_add<T, true, true>(products, rows + d, keys + d);
    }
    simt::commit_products();
    simt::wait_products<0>(products);
#pragma unroll 1
    for (unsigned done = begin; done != turn; ++done) supply.give_back(done);
#pragma unroll
    for (int i = 0; i < 4 * kOfKeys; ++i) scores[i / 4][i % 4] = products[i];
  }

  // The product of weights and some columns of v, which becomes a part of the sums. What is not
  // finite in v reaches the queries that see it alone, so tensor cores have zeros in its place:
  // then a warp makes its own product, again, out of registers.
  ISOBIT_DEVICE void add_values(const Memory& m, const Supply& supply, unsigned turn,
                                const Range& seen, Weights& weights, const Folds& folds,
                                Part& sums) const {
    T* const place = m.places + Supply::place(turn) * kInPlace;
    float products[32] = {};
    supply.wait(turn);
    simt::begin_products(products, weights);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      simt::multiply_add<T, false>(products, weights[step], place + step * kStep * kPart);
    simt::commit_products();
    simt::wait_products<0>(products);
    Sums chain;
#pragma unroll
    for (int i = 0; i < 4 * kOfColumns; ++i) chain[i / 4][i % 4] = products[i];
    if (mma::is_spoilt(chain)) {
      mma::begin_again<T>(place, weights, chain);
      mma::add_panel<T>(place, seen, weights, true, chain);
    }
    supply.give_back(turn);
#pragma unroll
    for (int i = 0; i < 4 * kOfColumns; ++i)
      sums[i] = S::fma(sums[i], folds.first[i % 4 / 2],
                       S::mul(chain[i / 4][i % 4], folds.second[i % 4 / 2] * (1 / kLift<T>)));
  }

  // Each thread keeps its own numbers.
  ISOBIT_DEVICE static void keep(float* at, const State& state, const Part (&sums)[kParts]) {
    Base::template keep_state<kTakers>(at, state);
    at += 4 * kTakers;
#pragma unroll
    for (int i = 0; i < kParts * 32; ++i) at[i * kTakers] = sums[i / 32][i % 32];
  }
  ISOBIT_DEVICE static void fold(const float* at, State& state, Part (&sums)[kParts]) {
    const Folds folds = Base::template fold_state<kTakers>(at, state);
    at += 4 * kTakers;
#pragma unroll
    for (int i = 0; i < kParts * 32; ++i) {
      float& sum = sums[i / 32][i % 32];
      sum = S::fma(at[i * kTakers], folds.first[i % 4 / 2], S::mul(sum, folds.second[i % 4 / 2]));
    }
  }

  ISOBIT_DEVICE void finish(float* own_memory, const Tile<float>& tile, const State& state,
                            const Part (&sums)[kParts]) const {
    float inverse[2];
    put_state(tile, state, inverse);
    simt::sync_warp();
    T* const rows = reinterpret_cast<T*>(own_memory);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      put_part(rows, tile, part, inverse, y_in_pieces, [&](int j) {
        return Chunk{{sums[part][4 * j], sums[part][4 * j + 1], sums[part][4 * j + 2],
                      sums[part][4 * j + 3]}};
      });
  }
};

// An array of so many heads, as copies take it.
struct Lying {
  simt::Matrices matrices;
  std::int64_t lines_of_batch, matrices_of_batch;
  bool of_each;
  const char* wrong = "";
};
// A matrix is a head, or where one serves all a batch. Else a batch is some matrices further on, or
// where those are woven some lines.
Lying lying(const Problem& p, const Array& array, std::int64_t heads, std::int64_t rows,
            std::int64_t length) {
  const std::int64_t batches = p.query_starts || array.batch == 0 ? 1 : p.batch;
  const bool of_each = heads > 1 && array.head != 0;
  Lying found{{array.data, length, rows, of_each ? heads : batches, array.row, 0}, 0, 1, of_each};
  simt::Matrices& own = found.matrices;
  if (rows == 0) return found;
  if (length > 1 && array.col != 1) {
    found.wrong = "it takes q, k and v whose rows are adjacent elements";
    return found;
  }
  own.stride = of_each ? array.head : array.batch;
  if (own.count == 1) own.stride = (rows > 1 ? array.row : (length + 7) / 8 * 8) * rows;
  if (rows == 1) own.line_stride = own.stride;
  own.woven = own.stride < own.line_stride;
  if (batches == 1) found.matrices_of_batch = 0;
  if (batches > 1 && of_each) {
    const bool by_lines = own.woven;
    const std::int64_t apart = by_lines ? own.line_stride : own.stride;
    if (array.batch % apart != 0) {
      found.wrong = "it takes batches of q, k and v that are whole heads or rows apart";
      return found;
    }
    const std::int64_t steps = array.batch / apart;
    found.lines_of_batch = by_lines ? steps : 0;
    found.matrices_of_batch = by_lines ? 0 : steps;
    (by_lines ? own.lines : own.count) += (batches - 1) * steps;
  }
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() - 2 * simt::kBoxSide;
  const std::int64_t inner = own.woven ? own.stride : own.line_stride;
  const std::int64_t outer = own.woven ? own.line_stride : own.stride;
  if (reinterpret_cast<std::uintptr_t>(array.data) % 16 != 0 || inner % 8 != 0 || outer % 8 != 0)
    found.wrong = "it takes q, k and v whose rows begin at 16 bytes";
  else if (inner < length || outer % inner != 0 ||
           outer / inner < (own.woven ? own.count : own.lines) || outer >= kMostBytes / 2)
    found.wrong = "it takes q, k and v whose rows and heads lie behind each other";
  else if (own.lines > kMost || own.count > kMost)
    found.wrong = "it takes extents below 2^31";
  return found;
}
Lying lying_q(const Problem& p) { return lying(p, p.q, p.heads, p.seq_q, p.head_dim); }
Lying lying_k(const Problem& p) { return lying(p, p.k, p.kv_heads, p.seq_k, p.head_dim); }
Lying lying_v(const Problem& p) { return lying(p, p.v, p.kv_heads, p.seq_k, p.value_dim); }

template <class T>
Boxes boxes_of(const Lying& array) {
  // Of no keys there is nothing to copy.
  if (array.matrices.lines == 0) return {};
  return {simt::box_map<T>(array.matrices), array.lines_of_batch, array.matrices_of_batch,
          array.of_each, array.matrices.woven};
}

// Calls run with the kernel for heads of v.
template <class Run>
void with_wgmma(const Problem& p, std::byte* workspace, const Run& run) {
  with_type(p.dtype, [&]<class T>(T) {
    if constexpr (sizeof(T) == 2) {
      if (p.value_dim <= kPart)
        run(FlashWgmma<T, 1>(p, workspace));
      else
        run(FlashWgmma<T, 2>(p, workspace));
    }
  });
}

std::string declines_wgmma(const Problem& p, const Machine& machine) {
  if (p.arithmetic != Arithmetic::tensor) return "has no arithmetic but tensor";
  if (machine.device == Device::sass) return "the executor of machine code has no tensor cores";
  if (machine.gpu.capability != 90) return "only GPUs of sm_90 have its instructions";
  if (p.blocks) return "it takes no keys in blocks";
  if (p.value_dim > kMostColumns) return "it takes heads of v of at most 128 elements";
  std::int64_t needed = 0;
  with_wgmma(p, nullptr, [&](const auto& kernel) {
    simt::Carver counter;
    kernel.memory(counter);
    needed = counter.bytes();
  });
  if (const std::string told = without_room(p, needed, machine); !told.empty()) return told;
  if (p.empty()) return {};
  if (p.head_dim == 0 || p.value_dim == 0) return "it takes heads of one element and more";
  for (const Lying& array : {lying_q(p), lying_k(p), lying_v(p)})
    if (*array.wrong != '\0') return array.wrong;
  return {};
}

// A multiprocessor has room for one block, which goes from tile to tile.
template <class Kernel>
std::int64_t blocks_for(const Kernel& kernel, const Machine& machine) {
  return std::min<std::int64_t>(kernel.tiles.count(kernel.call.p),
                                std::max(1, machine.gpu.multiprocessors));
}

std::size_t wgmma_workspace(const Problem& p, const Plan&, const Machine& machine) {
  if (p.empty()) return 0;
  std::int64_t count = 0;
  with_wgmma(p, nullptr, [&](const auto& kernel) {
    count = blocks_for(kernel, machine) * kernel.levels * kernel.state_size();
  });
  return static_cast<std::size_t>(count) * sizeof(float);
}

void run_wgmma(const ForwardArgs&, const Problem& p, const Plan&, const Execution& execution) {
  if (p.empty()) return;
  with_wgmma(p, execution.workspace, [&]<class T, int kParts>(const FlashWgmma<T, kParts>& given) {
    // Variables, not what expressions leave: maps have an alignment of their own.
    const Boxes q = boxes_of<T>(lying_q(p)), k = boxes_of<T>(lying_k(p)),
                v = boxes_of<T>(lying_v(p));
    FlashWgmma<T, kParts> kernel = given;
    kernel.q = q;
    kernel.k = k;
    kernel.v = v;
    simt::launch(static_cast<simt::Stream>(execution.stream),
                 {.blocks = blocks_for(kernel, execution.machine), .threads = kernel.kMostThreads},
                 kernel);
  });
}

}  // namespace

ForwardVariant cuda_wgmma_variant() {
  return {.name = "flash_wgmma",
          .bits = Bits::own,
          .declines = declines_wgmma,
          .workspace = wgmma_workspace,
          .run = run_wgmma};
}

}  // namespace isobit::attention
