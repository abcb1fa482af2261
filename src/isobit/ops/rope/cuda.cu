// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: a pair a thread; a token a block, whose cosines and sines are loaded once
// for all heads (fused_qk) or computed (on_the_fly). A kernel cannot refuse a position that has no
// tables: what would turn by it becomes NaN.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "isobit/dispatch/threads.h"
#include "isobit/ops/rope/formula.h"
#include "isobit/ops/rope/problem.h"
#include "isobit/ops/rope_tables/formula.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/in_turn.h"
#include "isobit/tile/scalar.h"

namespace isobit::rope {
namespace {

using Wide = tile::Scalar<double>;

using tile::RealOf;

template <class T>
struct Array {
  const T* x;
  T* y;
  std::int64_t heads;
  Steps x_steps, y_steps;

  explicit Array(const Heads& given)
      : x(reinterpret_cast<const T*>(given.x)),
        y(reinterpret_cast<T*>(given.y)),
        heads(given.count),
        x_steps(given.x_steps),
        y_steps(given.y_steps) {}
};

// A head of one token.
template <class T>
struct Head {
  const T* x;
  T* y;
  std::int64_t x_step, y_step;
};

// A cosine and a sine.
template <class Real>
struct Entry {
  Real cosine, sine;
};

// All of a call.
template <class T>
struct Call {
  using Real = RealOf<T>;
  Array<T> q, k;
  bool half, backward;
  std::int64_t batch, seq, head_dim, pairs;
  const Real *cos, *sin;  // null: computed
  std::int64_t cos_stride, sin_stride;
  const std::int64_t* positions;
  std::int64_t position_batch_step, position_step, offset, end;
  double base;

  explicit Call(const Problem& p)
      : q(p.q),
        k(p.k),
        half(p.style == Style::half),
        backward(p.backward),
        batch(p.batch),
        seq(p.seq),
        head_dim(p.head_dim),
        pairs(p.pairs),
        cos(p.tables ? reinterpret_cast<const Real*>(p.cos.data) : nullptr),
        sin(p.tables ? reinterpret_cast<const Real*>(p.sin.data) : nullptr),
        cos_stride(p.cos.stride),
        sin_stride(p.sin.stride),
        positions(p.positions),
        position_batch_step(p.position_batch_step),
        position_step(p.position_step),
        offset(p.offset),
        end(p.end),
        base(p.base) {}

  ISOBIT_EITHER std::int64_t heads() const { return q.heads + k.heads; }
  ISOBIT_EITHER std::int64_t tokens() const { return batch * seq; }

  // With the offset; negative where there is no such position.
  ISOBIT_DEVICE std::int64_t position(std::int64_t token) const {
    const std::int64_t sequence = token / seq, place = token - sequence * seq;
    if (positions == nullptr) return place + offset;
    const std::int64_t given =
        simt::load(positions + (sequence * position_batch_step + place * position_step));
    return given >= 0 && given < end - offset ? given + offset : -1;
  }

  ISOBIT_DEVICE Head<T> head(std::int64_t token, std::int64_t index) const {
    const Array<T>& array = index < q.heads ? q : k;
    const std::int64_t head = index < q.heads ? index : index - q.heads;
    const std::int64_t sequence = token / seq, place = token - sequence * seq;
    const Steps &from = array.x_steps, &to = array.y_steps;
    return {array.x + (sequence * from.batch + place * from.seq + head * from.head),
            array.y + (sequence * to.batch + place * to.seq + head * to.head), from.dim, to.dim};
  }

  ISOBIT_DEVICE Entry<Real> none() const {
    const Real nan = std::numeric_limits<Real>::quiet_NaN();
    return {nan, nan};
  }
  ISOBIT_DEVICE Entry<Real> signed_entry(Real cosine, Real sine) const {
    return {cosine, backward ? -sine : sine};
  }
  ISOBIT_DEVICE Entry<Real> loaded(std::int64_t position, std::int64_t i) const {
    if (position < 0) return none();
    return signed_entry(simt::load(cos + position * cos_stride + i),
                        simt::load(sin + position * sin_stride + i));
  }
  ISOBIT_DEVICE Entry<Real> computed(const rope_tables::Two<Wide>& ratio, std::int64_t position,
                                     std::int64_t i) const {
    if (position < 0) return none();
    const auto found = rope_tables::turn<Wide>(static_cast<double>(position),
                                               rope_tables::frequency<Wide>(ratio, i));
    return signed_entry(static_cast<Real>(found.cosine), static_cast<Real>(found.sine));
  }

  ISOBIT_DEVICE void turn_pair(const Head<T>& head, std::int64_t i,
                               const Entry<Real>& entry) const {
    using S = tile::Scalar<Real>;
    using C = simt::Conversions;
    const std::int64_t first = half ? i : 2 * i, second = half ? i + pairs : 2 * i + 1;
    const Pair<S> found = turned<S>({C::template widen<Real>(head.x[first * head.x_step]),
                                     C::template widen<Real>(head.x[second * head.x_step])},
                                    entry.cosine, entry.sine);
    head.y[first * head.y_step] = C::template narrow<T>(found.first);
    head.y[second * head.y_step] = C::template narrow<T>(found.second);
  }
  // Of the elements that do not turn: a NaN becomes the one that every operator writes.
  ISOBIT_DEVICE void move_element(const Head<T>& head, std::int64_t i) const {
    using C = simt::Conversions;
    head.y[i * head.y_step] =
        C::template narrow<T>(C::template widen<Real>(head.x[i * head.x_step]));
  }
};

constexpr int kWidest = 512;  // threads of a block

template <class T>
struct Naive {
  static constexpr int kMostThreads = kWidest;
  Call<T> call;

  ISOBIT_EITHER std::int64_t in_head() const { return call.head_dim - call.pairs; }
  ISOBIT_EITHER std::int64_t count(int) const { return call.tokens() * call.heads() * in_head(); }
  ISOBIT_EITHER static std::int64_t a_block(int threads) { return threads; }

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t step = simt::blocks() * simt::threads();
    rope_tables::Two<Wide> ratio{};
    if (call.cos == nullptr) ratio = rope_tables::frequency_ratio<Wide>(call.base, call.pairs);
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread(); at < count(0);
         at += step) {
      const std::int64_t line = at / in_head(), i = at - line * in_head();
      const std::int64_t token = line / call.heads();
      const Head<T> head = call.head(token, line - token * call.heads());
      if (i >= call.pairs) {
        call.move_element(head, call.pairs + i);
        continue;
      }
      const std::int64_t position = call.position(token);
      call.turn_pair(
          head, i,
          call.cos != nullptr ? call.loaded(position, i) : call.computed(ratio, position, i));
    }
  }
};

template <class T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T elements[kSize];
};

// A token a block: a thread has the same pairs of all its heads, so that their cosines and sines
// are in registers. `kWidth` elements at once, 16 bytes or one.
template <class T, int kWidth, class EntryAt>
ISOBIT_DEVICE void turn_token(const Call<T>& call, std::int64_t token, const EntryAt& entry_at) {
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;
  using C = simt::Conversions;
  using V = Vector<T>;
  // Elements of a thread: of both halves, or neighbours.
  const std::int64_t per_thread = kWidth == 1 ? 1 : call.half ? kWidth : kWidth / 2;
  const std::int64_t parts = (call.pairs + per_thread - 1) / per_thread;
  // As many threads side by side as a head has parts, the others at other heads.
  const std::int64_t side = parts < simt::threads() ? parts : simt::threads();
  const std::int64_t groups = side == 0 ? 0 : simt::threads() / side;
  const std::int64_t group = side == 0 ? 0 : simt::thread() / side;
  if (group < groups)
    for (std::int64_t part = simt::thread() - group * side; part < parts; part += side) {
      const std::int64_t i = part * per_thread;
      if constexpr (kWidth == 1) {
        const Entry<Real> entry = entry_at(i);
        for (std::int64_t head = group; head < call.heads(); head += groups)
          call.turn_pair(call.head(token, head), i, entry);
      } else {
        Entry<Real> entries[kWidth];
        for (int j = 0; j < per_thread; ++j) entries[j] = entry_at(i + j);
        for (std::int64_t index = group; index < call.heads(); index += groups) {
          const Head<T> head = call.head(token, index);
          if (call.half) {
            V a = simt::load_once(reinterpret_cast<const V*>(head.x + i));
            V b = simt::load_once(reinterpret_cast<const V*>(head.x + call.pairs + i));
#pragma unroll
            for (int j = 0; j < kWidth; ++j) {
              const Pair<S> found = turned<S>(
                  {C::template widen<Real>(a.elements[j]), C::template widen<Real>(b.elements[j])},
                  entries[j].cosine, entries[j].sine);
              a.elements[j] = C::template narrow<T>(found.first);
              b.elements[j] = C::template narrow<T>(found.second);
            }
            simt::store_once(reinterpret_cast<V*>(head.y + i), a);
            simt::store_once(reinterpret_cast<V*>(head.y + call.pairs + i), b);
          } else {
            V v = simt::load_once(reinterpret_cast<const V*>(head.x + 2 * i));
#pragma unroll
            for (int j = 0; j < kWidth / 2; ++j) {
              const Pair<S> found = turned<S>({C::template widen<Real>(v.elements[2 * j]),
                                               C::template widen<Real>(v.elements[2 * j + 1])},
                                              entries[j].cosine, entries[j].sine);
              v.elements[2 * j] = C::template narrow<T>(found.first);
              v.elements[2 * j + 1] = C::template narrow<T>(found.second);
            }
            simt::store_once(reinterpret_cast<V*>(head.y + 2 * i), v);
          }
        }
      }
    }
  const std::int64_t rest = call.head_dim - 2 * call.pairs;
  for (std::int64_t at = simt::thread(); at < rest * call.heads(); at += simt::threads())
    call.move_element(call.head(token, at / rest), 2 * call.pairs + at % rest);
}

template <class T, int kWidth>
struct FusedQk {
  static constexpr int kMostThreads = kWidest;
  Call<T> call;

  ISOBIT_EITHER std::int64_t count(int) const { return call.tokens(); }
  ISOBIT_EITHER static std::int64_t a_block(int) { return 1; }

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t token = simt::block(); token < call.tokens(); token += simt::blocks()) {
      const std::int64_t position = call.position(token);
      turn_token<T, kWidth>(call, token, [&](std::int64_t i) { return call.loaded(position, i); });
    }
  }
};

template <class T, int kWidth>
struct OnTheFly {
  using Real = RealOf<T>;
  static constexpr int kMostThreads = kWidest;
  Call<T> call;

  struct Memory {
    Real *cos, *sin;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Real* const cos = carver.template take<Real>(call.pairs);
    return {cos, carver.template take<Real>(call.pairs)};
  }

  ISOBIT_EITHER std::int64_t count(int) const { return call.tokens(); }
  ISOBIT_EITHER static std::int64_t a_block(int) { return 1; }

  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    const auto ratio = rope_tables::frequency_ratio<Wide>(call.base, call.pairs);
    for (std::int64_t token = simt::block(); token < call.tokens(); token += simt::blocks()) {
      const std::int64_t position = call.position(token);
      for (std::int64_t i = simt::thread(); i < call.pairs; i += simt::threads()) {
        const Entry<Real> entry = call.computed(ratio, position, i);
        memory.cos[i] = entry.cosine;
        memory.sin[i] = entry.sine;
      }
      simt::sync_block();
      turn_token<T, kWidth>(
          call, token, [&](std::int64_t i) { return Entry<Real>{memory.cos[i], memory.sin[i]}; });
      simt::sync_block();  // nobody needs this token's tables any more
    }
  }
};

// Whether every head of an array consists of vectors of 16 bytes.
bool on_vectors(const Problem& problem, const Heads& heads) {
  if (heads.count == 0) return true;
  const std::int64_t size = size_of(problem.dtype);
  const auto fits = [&](const std::byte* data, const Steps& steps) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && steps.dim == 1 &&
           (steps.batch * size % 16 == 0 || problem.batch == 1) &&
           (steps.seq * size % 16 == 0 || problem.seq == 1) &&
           (steps.head * size % 16 == 0 || heads.count == 1);
  };
  const std::int64_t adjacent = problem.style == Style::half ? problem.pairs : 2 * problem.pairs;
  return adjacent * size % 16 == 0 && fits(heads.x, heads.x_steps) && fits(heads.y, heads.y_steps);
}

constexpr int kBlocks[] = {0, 1, 2, 4, 8};
constexpr Knob kKnobs[] = {
    threads_knob(kWidest),
    {"blocks", kBlocks, "blocks per multiprocessor, which take turns; 0: as many as have work"},
};

Plan a_block_each(const Problem&, const Machine&) { return {128, 0}; }
Plan blocks_take_turns(const Problem&, const Machine&) { return {128, 8}; }

template <class Kernel>
void launch(const Kernel& kernel, const Plan& plan, const Execution& execution) {
  simt::launch(static_cast<simt::Stream>(execution.stream),
               {.blocks = tile::blocks_for(kernel.count(plan[0]), Kernel::a_block(plan[0]), 1,
                                           plan[1], execution.machine),
                .threads = plan[0]},
               kernel);
}

// Calls run(Type<T>) with the elements' type, where there is anything to do.
template <class Run>
void with_type(const Problem& problem, const Run& run) {
  if (problem.elements() > 0) tile::with_type(problem.dtype, run);
}

template <class Args>
void run_naive(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  with_type(problem,
            [&]<class T>(Type<T>) { launch(Naive<T>{Call<T>(problem)}, plan, execution); });
}

template <class Args, template <class, int> class Kernel>
void run_fused(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  with_type(problem, [&]<class T>(Type<T>) {
    const Call<T> call(problem);
    if (on_vectors(problem, problem.q) && on_vectors(problem, problem.k))
      launch(Kernel<T, Vector<T>::kSize>{call}, plan, execution);
    else
      launch(Kernel<T, 1>{call}, plan, execution);
  });
}

std::string needs_tables(const Problem& problem, const Machine&) {
  return problem.tables ? "" : "it loads cosines and sines, but none are given";
}
std::string needs_none(const Problem& problem, const Machine& machine) {
  if (problem.tables) return "it computes cosines and sines, but they are given";
  // Beside what a launch may need, of the least that any block may have.
  const std::int64_t bytes = 2 * problem.pairs * size_of(problem.real()) + 256;
  return bytes <= std::min<std::int64_t>(machine.gpu.shared_bytes, 48 << 10)
             ? ""
             : "the cosines and sines of a token exceed 48 KiB of shared memory";
}

template <class Args>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "fused_qk",
     .knobs = kKnobs,
     .declines = needs_tables,
     .choose = blocks_take_turns,
     .run = run_fused<Args, FusedQk>},
    {.name = "on_the_fly",
     .knobs = kKnobs,
     .declines = needs_none,
     .choose = blocks_take_turns,
     .run = run_fused<Args, OnTheFly>},
    {.name = "naive", .knobs = kKnobs, .choose = a_block_each, .run = run_naive<Args>},
};

}  // namespace

std::span<const ForwardVariant> cuda_forward_variants() { return kVariants<ForwardArgs>; }
std::span<const BackwardVariant> cuda_backward_variants() { return kVariants<BackwardArgs>; }

}  // namespace isobit::rope
