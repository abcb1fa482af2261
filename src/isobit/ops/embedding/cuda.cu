// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs. Forward, a thread moves 16 bytes of a row. Backward, positions are sorted
// by token, and some threads take a token: each adds up a piece of its row, occurrence after
// occurrence. No thread adds to what another writes.
#include <cstdint>
#include <limits>
#include <type_traits>

#include "isobit/dispatch/threads.h"
#include "isobit/norms/cuda_arrays.h"
#include "isobit/norms/cuda_launch.h"
#include "isobit/ops/embedding/cuda_sort.h"
#include "isobit/ops/embedding/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/in_turn.h"
#include "isobit/tile/piece.h"

namespace isobit::embedding {
namespace {

using norms::RealOf;

constexpr int kWidest = 1024, kChosenThreads = 256;  // threads of a block

// Forward ---------------------------------------------------------------------------------------

// Unit: what a thread moves, an element or several that are adjacent.
template <class T, class Unit>
struct Gather {
  static constexpr int kMostThreads = kWidest;
  static constexpr int kElements = static_cast<int>(sizeof(Unit) / sizeof(T));

  Index index;
  const T* weight;
  T* y;
  std::int64_t weight_stride, y_stride, rows, in_row;  // units of a row

  explicit Gather(const ForwardProblem& problem)
      : index(problem),
        weight(reinterpret_cast<const T*>(problem.weight.data)),
        y(reinterpret_cast<T*>(problem.y.data)),
        weight_stride(problem.weight.stride),
        y_stride(problem.y.stride),
        rows(problem.rows),
        in_row(problem.cols / kElements) {}

  ISOBIT_EITHER std::int64_t count() const { return rows * in_row; }
  ISOBIT_DEVICE void operator()() const {
    tile::in_turn(count(), [&](std::int64_t at) {
      const std::int64_t row = at / in_row, col = (at - row * in_row) * kElements;
      const std::int64_t token = index.at(row);
      simt::store(
          reinterpret_cast<Unit*>(y + row * y_stride + col),
          index.has(token)
              ? simt::load(reinterpret_cast<const Unit*>(weight + token * weight_stride + col))
              : none());
    });
  }

 private:
  // In the place of a row that there is not.
  ISOBIT_DEVICE static Unit none() {
    const T nan = simt::Conversions::narrow<T>(std::numeric_limits<RealOf<T>>::quiet_NaN());
    if constexpr (kElements == 1) {
      return nan;
    } else {
      Unit unit;
#pragma unroll
      for (int i = 0; i < kElements; ++i) unit.elements[i] = nan;
      return unit;
    }
  }
};

void run_gather(const ForwardArgs&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
  norms::with_type(problem.dtype, [&]<class T>(Type<T>) {
    using Unit = tile::RawPiece<T>;
    const bool in_units = norms::on_pieces(problem.weight, sizeof(T)) &&
                          norms::on_pieces(problem.y, sizeof(T)) && problem.cols % Unit::kSize == 0;
    if (in_units)
      tile::launch_in_turn(Gather<T, Unit>(problem), plan[0], 0, execution);
    else
      tile::launch_in_turn(Gather<T, T>(problem), plan[0], 0, execution);
  });
}

// Backward --------------------------------------------------------------------------------------

// Adjacent elements of a sum.
template <class Real, int kElements>
struct Terms {
  Real elements[kElements];

  Terms() = default;
  ISOBIT_DEVICE explicit Terms(int value) {
#pragma unroll
    for (Real& element : elements) element = static_cast<Real>(value);
  }
  ISOBIT_DEVICE Terms& operator+=(const Terms& other) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) elements[i] = elements[i] + other.elements[i];
    return *this;
  }
  ISOBIT_DEVICE friend Terms operator+(Terms a, const Terms& b) { return a += b; }
};

// What both kernels of sums have. `lanes` threads of a block take an item together.
template <class T>
struct Sums {
  static constexpr int kMostThreads = kWidest;
  static constexpr int kElements = tile::kPiece<T>;
  using Real = RealOf<T>;
  using Piece = Terms<Real, kElements>;

  Sorted sorted;
  norms::Array<const T> grad_y;
  Real* kept;
  std::int64_t pitch, tokens;  // elements of a kept sum
  int cols, lanes;

  Sums(const BackwardProblem& problem, const Sorted& sorted, std::byte* kept, std::int64_t pitch,
       int lanes)
      : sorted(sorted),
        grad_y(problem.grad_y),
        kept(reinterpret_cast<Real*>(kept)),
        pitch(pitch / static_cast<std::int64_t>(sizeof(Real))),
        tokens(problem.tokens),
        cols(static_cast<int>(problem.cols)),
        lanes(lanes) {}

  template <class Item>
  ISOBIT_DEVICE void for_each_item(std::int64_t count, const Item& item) const {
    const std::int64_t groups = simt::threads() / lanes;
    for (std::int64_t i = simt::block() * groups + simt::thread() / lanes; i < count;
         i += simt::blocks() * groups)
      item(i);
  }
  // The pieces of a row that belong to this thread, by their first columns.
  template <class Body>
  ISOBIT_DEVICE void for_each_piece(const Body& body) const {
    for (int col = simt::thread() % lanes * kElements; col < cols; col += lanes * kElements)
      body(col);
  }

  // Of at most kChunk occurrences from `begin` on.
  ISOBIT_DEVICE Piece sum(std::int64_t begin, std::int64_t count, int col) const {
    if (count <= order::kRun) return run(begin, count, col);
    order::PairTree<Piece> runs;
#pragma unroll 1
    for (std::int64_t first = 0; first < count; first += order::kRun)
      runs.push(run(begin + first, count - first < order::kRun ? count - first : order::kRun, col));
    return runs.total();
  }

 private:
  ISOBIT_DEVICE Piece run(std::int64_t begin, std::int64_t count, int col) const {
    Piece total(0);
#pragma unroll 1
    for (std::int64_t i = begin; i < begin + count; ++i) {
      Piece term;
      grad_y.row(simt::load(sorted.places + i)).load({0, col, cols - col}, term.elements);
      total += term;
    }
    return total;
  }
};

// The sums of the chunks of frequent tokens: an item is a slot.
template <class T>
struct Keep : Sums<T> {
  using Sums<T>::Sums;

  ISOBIT_DEVICE void operator()() const {
    this->for_each_item(slots_of(this->sorted.rows), [&](std::int64_t slot) {
      std::int64_t begin = 0, count = 0;
      if (!chunk_of(slot, begin, count)) return;
      this->for_each_piece([&](int col) {
        const auto sum = this->sum(begin, count, col);
        tile::store_piece(this->kept + slot * this->pitch + col, this->cols - col, true,
                          sum.elements);
      });
    });
  }

 private:
  // The chunk whose sum has this slot, where there is one.
  ISOBIT_DEVICE bool chunk_of(std::int64_t slot, std::int64_t& begin, std::int64_t& count) const {
    const Sorted& sorted = this->sorted;
    const std::int64_t from = slot / 2 * kChunk;
    const std::int64_t to = from + kChunk < sorted.rows ? from + kChunk : sorted.rows;
    const bool first = slot % 2 == 1;
    // Of those that begin here only the last can have several chunks.
    const unsigned key = simt::load(sorted.keys + (first ? to - 1 : from));
    if (key >= this->tokens) return false;
    const std::int64_t start = sorted.before(key), end = sorted.before(key + 1);
    if (end - start <= kChunk || (start >= from) != first) return false;
    begin = first ? start : start + (from - start + kChunk - 1) / kChunk * kChunk;
    if (begin >= end || begin >= to) return false;
    count = end - begin < kChunk ? end - begin : kChunk;
    return true;
  }
};

// The rows of the gradient: an item is a token.
template <class T>
struct Write : Sums<T> {
  using Base = Sums<T>;
  using typename Base::Piece;
  using typename Base::Real;

  norms::Array<T> grad_weight;
  bool by_frequency;

  Write(const BackwardProblem& problem, const Sorted& sorted, std::byte* kept, std::int64_t pitch,
        int lanes)
      : Base(problem, sorted, kept, pitch, lanes),
        grad_weight(problem.grad_weight),
        by_frequency(problem.by_frequency) {}

  ISOBIT_DEVICE void operator()() const {
    this->for_each_item(this->tokens, [&](std::int64_t token) {
      const auto key = static_cast<unsigned>(token);
      const std::int64_t begin = this->sorted.before(key);
      const std::int64_t count = this->sorted.before(key + 1) - begin;
      const bool divides = by_frequency && count > 0;
      this->for_each_piece([&](int col) {
        Piece sum = count <= kChunk ? this->sum(begin, count, col) : joined(begin, count, col);
        if (divides) {
#pragma unroll
          for (Real& element : sum.elements) element = element / static_cast<Real>(count);
        }
        grad_weight.row(token).store({0, col, this->cols - col}, sum.elements);
      });
    });
  }

 private:
  ISOBIT_DEVICE Piece joined(std::int64_t begin, std::int64_t count, int col) const {
    order::PairTree<Piece> chunks;
#pragma unroll 1
    for (std::int64_t i = 0; i < count; i += kChunk) {
      Piece sum;
      tile::load_piece(this->kept + slot_of(begin + i, i == 0) * this->pitch + col,
                       this->cols - col, true, sum.elements);
      chunks.push(sum);
    }
    return chunks.total();
  }
};

// A call's workspace.
struct Room {
  Pieces memory;
  Sort sort;
  std::int64_t pitch;
  std::byte* kept;

  explicit Room(const BackwardProblem& problem, std::byte* workspace = nullptr)
      : memory(workspace),
        sort(problem, memory),
        pitch((problem.cols * size_of(problem.real()) + 63) / 64 * 64),
        kept(memory.take(slots_of(problem.rows) * pitch)) {}
};

std::size_t room(const BackwardProblem& problem, const Plan&, const Machine&) {
  return Room(problem).memory.taken();
}

void run_sorted(const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
                const Execution& execution) {
  if (problem.tokens == 0 || problem.cols == 0) return;
  const auto stream = static_cast<simt::Stream>(execution.stream);
  const Room room(problem, execution.workspace);
  const Sorted sorted = room.sort(problem, stream);
  const int lanes = std::min(plan[0], plan[1]);
  const auto shape = [&](std::int64_t items) -> simt::LaunchShape {
    return {.blocks = norms::blocks_for(items, plan[1] / lanes, 1, 0, execution.machine),
            .threads = plan[1]};
  };
  norms::with_type(problem.dtype, [&]<class T>(Type<T>) {
    if (const std::int64_t slots = slots_of(problem.rows); slots > 0)
      simt::launch(stream, shape(slots), Keep<T>(problem, sorted, room.kept, room.pitch, lanes));
    simt::launch(stream, shape(problem.tokens),
                 Write<T>(problem, sorted, room.kept, room.pitch, lanes));
  });
}

std::string declines(const BackwardProblem& problem, const Machine&) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
  if (problem.rows > kMost || problem.tokens > kMost)
    return "rows and tokens are counted in 31 bits";
  return norms::wider_than(1 << 30, problem.cols, "a count of 32 bits");
}

// As many lanes as a row has pieces.
Plan choose_lanes(const BackwardProblem& problem, const Machine&) {
  const std::int64_t pieces = problem.cols * size_of(problem.dtype) / tile::kPieceBytes;
  int lanes = 8;
  while (lanes < pieces && lanes < kChosenThreads) lanes *= 2;
  return {lanes, kChosenThreads};
}

constexpr Knob kForwardKnobs[] = {threads_knob(kWidest)};
constexpr int kLanes[] = {8, 16, 32, 64, 128, 256};
constexpr Knob kBackwardKnobs[] = {
    {"lanes", kLanes, "threads that take a token together; no more than a block has"},
    threads_knob(kWidest, "threads per block that adds; those that sort have fixed ones")};

constexpr ForwardVariant kForwardVariants[] = {
    {.name = "gather",
     .knobs = kForwardKnobs,
     .choose = [](const ForwardProblem&, const Machine&) -> Plan { return {kChosenThreads}; },
     .run = run_gather},
};
constexpr BackwardVariant kBackwardVariants[] = {
    {.name = "sorted",
     .knobs = kBackwardKnobs,
     .declines = declines,
     .choose = choose_lanes,
     .workspace = room,
     .run = run_sorted},
};

}  // namespace

std::span<const ForwardVariant> cuda_forward_variants() { return kForwardVariants; }
std::span<const BackwardVariant> cuda_backward_variants() { return kBackwardVariants; }

}  // namespace isobit::embedding
