// SPDX-License-Identifier: Apache-2.0
// softmax(q k' scale) v and its gradients, one query after the other, in double, or in quad where
// the elements are doubles; powers and hyperbolic tangents by the C library.
#include "isobit/ops/attention/reference.h"

#include <cfloat>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "isobit/core/magnitude.h"
#include "isobit/core/tensor_core.h"
#include "isobit/norms/reference_rows.h"

namespace isobit::attention {
namespace {

// Of the type that is computed in.
template <class Real>
struct Machine {
  static constexpr bool kWide = std::is_same_v<Real, quad>;
  static constexpr double kLargest = kWide ? DBL_MAX : double{FLT_MAX};
  static constexpr double kUnit = kWide ? 0x1p-53 : 0x1p-24;
  static constexpr double kLeastNormal = kWide ? 0x1p-1022 : 0x1p-126;
  // What weights are dropped below, in units of what scales are multiplied by.
  static constexpr double kDropped = kWide ? 0x1p-967 : 0x1p-100;
};
constexpr double kEndless = std::numeric_limits<double>::infinity();

template <class Real>
using Wide = std::conditional_t<std::is_same_v<Real, quad>, long double, double>;

template <class Real>
Real power(Real x) {
  return static_cast<Real>(std::exp2(static_cast<Wide<Real>>(x)));
}
template <class Real>
Real* data(const TensorView& view) {
  return static_cast<Real*>(view.data);
}
template <class Real>
void put(const TensorView& view, std::int64_t at, Real value) {
  if (view.given()) data<Real>(view)[at] = value;
}
template <class Real>
void add(const TensorView& view, std::int64_t at, Real value) {
  if (view.given()) data<Real>(view)[at] += value;
}
// A scale that is no number, or beyond the range on the way, says nothing.
template <class Real>
Real sized(Real scale, Real on_the_way = 0) {
  const bool inside =
      scale <= Real(Machine<Real>::kLargest) && on_the_way <= Real(Machine<Real>::kLargest) / 4;
  return inside ? scale : Real(kEndless);
}

// A term's part of a scale: by tensor cores a subnormal factor may count as 0, so that all of it
// may be missing, and so may what a sum has below the normal numbers.
template <class Real>
Real term_of(Arithmetic arithmetic, Real a, Real b) {
  const auto is_subnormal = [](Real x) {
    return x != 0 && magnitude(x) < Real(Machine<Real>::kLeastNormal);
  };
  const Real size = magnitude(a * b);
  const bool lost =
      arithmetic == Arithmetic::tensor && size != 0 && (is_subnormal(a) || is_subnormal(b));
  return lost ? size / Real(Machine<Real>::kUnit) : size;
}
template <class Real>
Real least_of(Arithmetic arithmetic) {
  const Real least = Real(Machine<Real>::kLeastNormal);
  return arithmetic == Arithmetic::tensor ? least / Real(Machine<Real>::kUnit) : least;
}

// The sequence of a query, and where its keys are.
template <class Real>
struct Sequence {
  std::int64_t number;     // as dropout counts
  std::int64_t query = 0;  // of the sequence
  std::int64_t queries = 0, keys = 0;
  std::int64_t begin = 0, end = 0;  // of the keys that it has
  std::int64_t first = 0;           // row of its first key
  const Real* blocks = nullptr;
  std::int64_t block = 0, kv_heads = 0, kv_head = 0;

  static std::int64_t whole(const TensorView& view, std::int64_t at) {
    return static_cast<std::int64_t>(static_cast<double>(data<Real>(view)[at]));
  }
  static const TensorView* pool_of(const ForwardArgs& args) {
    return args.blocks.given() ? &args.blocks : nullptr;
  }
  static const TensorView* pool_of(const BackwardArgs&) { return nullptr; }

  template <class Args>
  Sequence(const Args& args, std::int64_t batch, std::int64_t real_batch, std::int64_t head,
           std::int64_t row)
      : number(real_batch), query(row) {
    std::int64_t at = batch;  // of what sequences have
    queries = args.q.shape[2];
    kv_heads = args.k.shape[1];
    kv_head = head / (args.q.shape[1] / kv_heads);
    keys = args.k.shape[2];
    first = (batch * kv_heads + kv_head) * keys;
    const bool packed = args.query_starts.given();
    const std::int64_t sequences = packed ? args.query_starts.shape[0] - 1 : 0;
    if (packed) {
      at = 0;
      while (at < sequences && whole(args.query_starts, at + 1) <= row) ++at;
      number = at;
      const std::int64_t start = whole(args.query_starts, at);
      query = row - start;
      queries = (at < sequences ? whole(args.query_starts, at + 1) : queries) - start;
    }
    const bool none = packed && at == sequences;
    if (args.key_starts.given()) {
      first += whole(args.key_starts, at);
      keys = none ? 0 : whole(args.key_starts, at + 1) - whole(args.key_starts, at);
    }
    if (const TensorView* pool = pool_of(args)) {
      block = args.k.shape[2];
      keys = none ? 0 : whole(args.key_end, at);
      blocks = data<Real>(*pool) + (none ? 0 : at * pool->shape[1]);
    }
    end = keys;
    if (none) return;
    if (args.key_begin.given()) begin = whole(args.key_begin, at);
    if (args.key_end.given()) end = whole(args.key_end, at);
  }
  // Of all rows of k and v.
  std::int64_t row_of(std::int64_t key) const {
    if (blocks == nullptr) return first + key;
    const auto found = static_cast<std::int64_t>(static_cast<double>(blocks[key / block]));
    return (found * kv_heads + kv_head) * block + key % block;
  }
};

// The scores of one query.
template <class Real>
struct Scores {
  std::vector<bool> there, kept;
  std::vector<Real> exponent;            // the score times log2 e
  std::vector<Real> off;                 // what an error of the score is divided by
  std::vector<Real> slope, slope_scale;  // of a cap
  Real keep_scale = 1;

  template <class Args>
  Scores(const Args& args, const Sequence<Real>& sequence, std::int64_t batch, std::int64_t head,
         std::int64_t row) {
    const std::int64_t heads = args.q.shape[1], dim = args.q.shape[3];
    const std::int64_t query = sequence.query, queries = sequence.queries, keys = sequence.keys;
    const std::int64_t of_row = (batch * heads + head) * args.q.shape[2] + row;
    const Real* q = data<Real>(args.q) + of_row * dim;
    const Real log2e = Real(1.4426950408889634073599246810018921374L);
    const Real scale = args.scale != 0 ? Real(args.scale)
                       : dim == 0      ? Real(1)
                                       : 1 / norms::reference::root(Real(dim));
    const std::int64_t position =
        query + (args.causal == Causal::bottom_right ? keys - queries : 0);
    keep_scale = args.dropout > 0 ? 1 / (1 - Real(args.dropout)) : Real(1);
    const std::int64_t begin = sequence.begin, end = sequence.end;
    for (std::int64_t key = 0; key < keys; ++key) {
      const Real* k = data<Real>(args.k) + sequence.row_of(key) * dim;
      Real product = 0, size = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        product += q[d] * k[d];
        size += term_of(args.arithmetic, q[d], k[d]);
      }
      if (args.arithmetic == Arithmetic::tensor)
        size += Real(dim) * least_of<Real>(args.arithmetic);
      Real score = product * scale, error = magnitude(scale) * size;
      Real bend = 1, bend_error = 0;
      if (args.softcap != 0) {
        const Real cap = Real(args.softcap);
        const auto h = static_cast<Real>(std::tanh(static_cast<Wide<Real>>(score / cap)));
        const auto cosh = static_cast<Real>(std::cosh(static_cast<Wide<Real>>(score / cap)));
        bend = 1 / (cosh * cosh);
        bend_error = bend * (4 + 2 * error / cap);
        score = cap * h;
        error = error * bend + 4 * magnitude(score);
      }
      bool seen = begin <= key && key < end;
      if (args.bias.given()) {
        const Real bias = data<Real>(args.bias)[of_row * keys + key];
        seen = seen && bias != -Real(kEndless);
        score += bias;
        error += magnitude(bias);
      }
      if (args.slopes.given()) {
        const std::int64_t distance = query + keys - queries - key;
        const Real lessened = data<Real>(args.slopes)[batch * heads + head] *
                              Real(distance < 0 ? -distance : distance);
        score -= lessened;
        error += magnitude(lessened);
      }
      if (args.mask.given()) seen = seen && data<Real>(args.mask)[of_row * keys + key] != 0;
      if (args.causal != Causal::no) seen = seen && key <= position;
      if (args.window > 0)
        seen = seen && key - position < args.window && position - key < args.window;
      exponent.push_back(score * log2e);
      there.push_back(seen && score != -Real(kEndless));
      off.push_back(sized(error, size));
      slope.push_back(bend);
      slope_scale.push_back(bend_error);
      kept.push_back(args.dropout == 0 || norms::reference::random_word(
                                              args.dropout_seed,
                                              static_cast<std::uint64_t>(sequence.number) << 32 |
                                                  static_cast<std::uint64_t>(head),
                                              (static_cast<std::uint64_t>(query) << 32) * 4 +
                                                  static_cast<std::uint64_t>(key - begin)) >=
                                              std::floor(args.dropout * 4294967296.0));
    }
  }
};

// The nearest whole number, ties to even; where a quad has digits that a long double lacks, any
// number is as good.
template <class Real>
Real whole(Real x) {
  if (!(magnitude(x) < Real(0x1p52))) return x;
  return static_cast<Real>(std::nearbyint(static_cast<Wide<Real>>(x)));
}

// Whether an error of the exponent may make its nearest whole number another.
template <class Real>
bool may_round_otherwise(Real exponent, Real off, std::int64_t dim) {
  const Real room =
      Real(static_cast<double>(64 + dim) * Machine<Real>::kUnit) * (1 + magnitude(exponent) + off);
  return whole(exponent - room) != whole(exponent + room);
}

// What y owes to weights of 16 bits, by tensor cores: the part of its scale that each weight has,
// and what is lost of those that are too small for f16.
template <class Real>
struct NarrowWeights {
  Real rounded = 0, lost = 0;

  NarrowWeights(const ForwardArgs& args, const Rounding& rounding) {
    if (args.arithmetic != Arithmetic::tensor) return;
    const bool is_f16 = rounding.dtype == DType::f16;
    const double limit = tensor_core::limit_of_two(args.q.shape[3], 128);
    rounded = Real((is_f16 ? 0x1p13 : 0x1p16) / limit);
    lost = Real(is_f16 ? 0x1p-15 / limit : 0);
  }
};

template <class Real>
void forward_query(const ForwardArgs& args, const ForwardArgs& scales, const Rounding& rounding,
                   std::int64_t batch, std::int64_t head, std::int64_t query) {
  const std::int64_t heads = args.q.shape[1], queries = args.q.shape[2], cols = args.v.shape[3];
  const Sequence<Real> sequence(args, batch, rounding.first + batch, head, query);
  const std::int64_t keys = sequence.keys;
  const Scores<Real> scores(args, sequence, batch, head, query);
  const std::int64_t row = (batch * heads + head) * queries + query;
  const Real nan = std::numeric_limits<double>::quiet_NaN();
  Real top = -Real(kEndless), off = 0;
  bool number = true;
  for (std::int64_t key = 0; key < keys; ++key) {
    const auto at = static_cast<std::size_t>(key);
    if (!scores.there[at]) continue;
    if (!(scores.exponent[at] < Real(kEndless))) number = false;
    if (scores.exponent[at] > top) top = scores.exponent[at];
    if (scores.off[at] > off) off = scores.off[at];
  }
  const Real max = whole(top);
  const bool any = top != -Real(kEndless);
  const bool beyond = sized(magnitude(top) * 2) == Real(kEndless) && any;
  Real sum = 0;
  std::vector<Real> y(static_cast<std::size_t>(cols)), terms(y), sizes(y);
  for (std::int64_t key = 0; key < keys; ++key) {
    const auto at = static_cast<std::size_t>(key);
    if (!scores.there[at]) continue;
    const Real weight = power(scores.exponent[at] - max);
    sum += weight;
    if (!scores.kept[at]) continue;
    for (std::int64_t c = 0; c < cols; ++c) {
      const Real value = data<Real>(args.v)[sequence.row_of(key) * cols + c],
                 size = magnitude(value) * scores.keep_scale;
      y[static_cast<std::size_t>(c)] += weight * scores.keep_scale * value;
      terms[static_cast<std::size_t>(c)] +=
          weight * scores.keep_scale * term_of(args.arithmetic, value, Real(1));
      sizes[static_cast<std::size_t>(c)] += size;
    }
  }
  const NarrowWeights<Real> narrow(args, rounding);
  const std::int64_t steps = args.arithmetic == Arithmetic::tensor ? 2 : 1;
  const bool ambiguous = any && may_round_otherwise(top, off, steps * args.q.shape[3]);
  for (std::int64_t c = 0; c < cols; ++c) {
    const auto at = static_cast<std::size_t>(c);
    put(args.y, row * cols + c, !number ? nan : any ? y[at] / sum : Real(0));
    const Real scale = terms[at] / (any ? sum : Real(1)) * (1 + off + narrow.rounded) +
                       (Real(Machine<Real>::kDropped) + narrow.lost) * sizes[at] +
                       (any ? Real(keys + 8) * least_of<Real>(args.arithmetic) : Real(0));
    put(scales.y, row * cols + c, beyond ? Real(kEndless) : sized(scale, 2 * terms[at]));
  }
  const Real lse =
      any ? top * Real(0.69314718055994530941723212145817656807L) +
                static_cast<Real>(std::log(static_cast<Wide<Real>>(sum * power(max - top))))
          : -Real(kEndless);
  put(args.lse, row, number ? lse : nan);
  put(scales.lse, row, beyond ? Real(kEndless) : sized(1 + magnitude(top) + off));
  put(args.max, row, number ? max : nan);
  put(args.sum, row, number ? sum : nan);
  const Real step = Real(ambiguous ? 2 / Machine<Real>::kUnit : 1);
  put(scales.max, row, beyond ? Real(kEndless) : sized(step + off * 2));
  put(scales.sum, row, beyond ? Real(kEndless) : sized(sum * (1 + off + step)));
}

template <class Real>
void forward_in(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding& rounding) {
  for (std::int64_t batch = 0; batch < exact.q.shape[0]; ++batch)
    for (std::int64_t head = 0; head < exact.q.shape[1]; ++head)
      for (std::int64_t query = 0; query < exact.q.shape[2]; ++query)
        forward_query<Real>(exact, scale, rounding, batch, head, query);
}

// What gradients owe to weights and gradients of scores of 16 bits, by tensor cores: the part of
// its scale that each number has, and what f16 loses of those beside the largest of their row,
// which is no larger than that of all.
template <class Real>
struct NarrowGradients {
  Real rounded = 0, lost = 0;
  Real weight = 0, gradient = 0;  // the largest

  NarrowGradients(const BackwardArgs& args, const Rounding& rounding) {
    if (args.arithmetic != Arithmetic::tensor) return;
    const bool is_f16 = rounding.dtype == DType::f16;
    const double limit = tensor_core::limit_of_gradients(args.q.shape, args.k.shape, args.v.shape);
    rounded = Real((is_f16 ? 0x1p13 : 0x1p16) / limit);
    lost = Real(is_f16 ? 0x1p-15 / limit : 0);
  }
  void see(Real of_weight, Real of_gradient) {
    if (of_weight > weight) weight = of_weight;
    if (of_gradient > gradient) gradient = of_gradient;
  }
};

template <class Real>
void backward_query(const BackwardArgs& args, const BackwardArgs& scales, const Rounding& rounding,
                    NarrowGradients<Real>& narrow, std::int64_t batch, std::int64_t head,
                    std::int64_t query) {
  using M = Machine<Real>;
  const std::int64_t heads = args.q.shape[1], queries = args.q.shape[2];
  const std::int64_t cols = args.v.shape[3], dim = args.q.shape[3];
  const Sequence<Real> sequence(args, batch, rounding.first + batch, head, query);
  const std::int64_t keys = sequence.keys, first = sequence.first;
  const Scores<Real> scores(args, sequence, batch, head, query);
  const std::int64_t row = (batch * heads + head) * queries + query;
  const Real *q = data<Real>(args.q) + row * dim, *grad = data<Real>(args.grad_y) + row * cols,
             *y = data<Real>(args.y) + row * cols;
  const Real max = data<Real>(args.max)[row], sum = data<Real>(args.sum)[row];
  const Real scale = args.scale != 0 ? Real(args.scale)
                     : dim == 0      ? Real(1)
                                     : 1 / norms::reference::root(Real(dim));
  Real mean = 0, mean_size = 0;
  for (std::int64_t c = 0; c < cols; ++c) {
    mean += grad[c] * y[c];
    mean_size += magnitude(grad[c] * y[c]);
  }
  if (args.grad_lse.given()) {
    mean -= data<Real>(args.grad_lse)[row];
    mean_size += magnitude(data<Real>(args.grad_lse)[row]);
  }
  for (std::int64_t key = 0; key < keys; ++key) {
    const auto at = static_cast<std::size_t>(key);
    if (!scores.there[at]) continue;
    // max is an argument: what an error of the exponent does is no less than an error of 2^x.
    const Real room = Real(static_cast<double>(16 + dim) * M::kUnit) *
                      (1 + magnitude(scores.exponent[at]) + scores.off[at]);
    if (magnitude(scores.exponent[at]) < Real(kEndless) && magnitude(max) <= Real(kEndless) &&
        !(room < Real(1))) {
      // Its score may have left the range, or be off by a whole number or more: then nothing is
      // known of what it adds.
      for (std::int64_t d = 0; d < dim; ++d) {
        add(scales.grad_q, row * dim + d, Real(kEndless));
        add(scales.grad_k, (first + key) * dim + d, Real(kEndless));
      }
      for (std::int64_t c = 0; c < cols; ++c)
        add(scales.grad_v, (first + key) * cols + c, Real(kEndless));
      put(scales.grad_bias, row * keys + key, Real(kEndless));
      continue;
    }
    const Real *k = data<Real>(args.k) + (first + key) * dim,
               *v = data<Real>(args.v) + (first + key) * cols;
    const Real p = power(scores.exponent[at] - max) / sum;
    const Real most = power(scores.exponent[at] - max + room) / sum;
    const Real p_scale = sized(most * (1 + scores.off[at])) + Real(M::kDropped);
    Real of_weight = 0, size = 0;
    if (scores.kept[at])
      for (std::int64_t c = 0; c < cols; ++c) {
        const Real term = grad[c] * v[c] * scores.keep_scale;
        of_weight += term;
        size += magnitude(term);
        add(args.grad_v, (first + key) * cols + c, p * scores.keep_scale * grad[c]);
        add(scales.grad_v, (first + key) * cols + c,
            sized((p_scale + p * narrow.rounded + narrow.weight * narrow.lost) * scores.keep_scale *
                      magnitude(grad[c]) +
                  Real(M::kLeastNormal)));
      }
    const Real gradient = p * (of_weight - mean);
    const Real terms =
        sized(p_scale * (size + mean_size) + Real(2 * M::kLeastNormal), size + mean_size);
    put(args.grad_bias, row * keys + key, gradient);
    put(scales.grad_bias, row * keys + key, terms);
    const Real bent = gradient * scores.slope[at];
    const Real bent_terms =
        args.softcap == 0
            ? terms
            : sized(terms * (scores.slope[at] + scores.slope_scale[at]) + Real(M::kLeastNormal));
    narrow.see(p, magnitude(bent));
    const Real narrow_terms = magnitude(bent) * narrow.rounded + narrow.gradient * narrow.lost;
    for (std::int64_t d = 0; d < dim; ++d) {
      const auto one = [&](const TensorView& to, const TensorView& to_scale, std::int64_t place,
                           Real factor) {
        add(to, place, scale * bent * factor);
        add(to_scale, place,
            sized(magnitude(scale) * ((bent_terms + narrow_terms) * magnitude(factor) +
                                      Real(2 * M::kLeastNormal)) +
                      Real(M::kLeastNormal),
                  bent_terms * magnitude(factor)));
      };
      one(args.grad_q, scales.grad_q, row * dim + d, k[d]);
      one(args.grad_k, scales.grad_k, (first + key) * dim + d, q[d]);
    }
  }
}

template <class Real>
void backward_in(const BackwardArgs& exact, const BackwardArgs& scale, const Rounding& rounding) {
  NarrowGradients<Real> narrow(exact, rounding);
  for (int turns = narrow.lost > 0 ? 2 : 1; turns > 0; --turns) {  // the first finds the largest
    for (const BackwardArgs* args : {&exact, &scale})
      for (const TensorView* view :
           {&args->grad_q, &args->grad_k, &args->grad_v, &args->grad_bias}) {
        if (!view->given()) continue;
        std::int64_t count = 1;
        for (int i = 0; i < view->rank; ++i) count *= view->shape[i];
        std::fill_n(data<Real>(*view), count, Real(0));
      }
    for (std::int64_t batch = 0; batch < exact.q.shape[0]; ++batch)
      for (std::int64_t head = 0; head < exact.q.shape[1]; ++head)
        for (std::int64_t query = 0; query < exact.q.shape[2]; ++query)
          backward_query<Real>(exact, scale, rounding, narrow, batch, head, query);
  }
}

void emit_view(std::string_view name, const TensorView& view, const EmitArray& emit) {
  if (!view.given()) return;
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < view.rank; ++i) rows *= view.shape[i];
  const std::int64_t cols = view.shape[view.rank - 1];
  emit(name, rows, cols,
       std::span<const double>(data<double>(view), static_cast<std::size_t>(rows * cols)));
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale,
                       const Rounding& rounding) {
  exact.q.dtype == DType::f128 ? forward_in<quad>(exact, scale, rounding)
                               : forward_in<double>(exact, scale, rounding);
}
void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale,
                        const Rounding& rounding) {
  exact.q.dtype == DType::f128 ? backward_in<quad>(exact, scale, rounding)
                               : backward_in<double>(exact, scale, rounding);
}

void forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                           const EmitArray& emit) {
  const std::int64_t queries = exact.q.shape[2], keys = exact.k.shape[2];
  const bool alike = !exact.query_starts.given() && !exact.blocks.given();
  std::vector<double> all;
  for (std::int64_t batch = 0; batch < exact.q.shape[0]; ++batch)
    for (std::int64_t head = 0; head < exact.q.shape[1]; ++head)
      for (std::int64_t query = 0; query < queries; ++query) {
        const Sequence<double> sequence(exact, batch, rounding.first + batch, head, query);
        const Scores<double> scores(exact, sequence, batch, head, query);
        all.insert(all.end(), scores.exponent.begin(), scores.exponent.end());
      }
  if (alike) emit("exponents", exact.q.shape[0] * exact.q.shape[1] * queries, keys, all);
  forward_reference(exact, {}, rounding);
  emit_view("y", exact.y, emit);
  emit_view("lse", exact.lse, emit);
}

void backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                            const EmitArray& emit) {
  backward_reference(exact, {}, rounding);
  emit_view("grad_q", exact.grad_q, emit);
  emit_view("grad_k", exact.grad_k, emit);
  emit_view("grad_v", exact.grad_v, emit);
}

}  // namespace isobit::attention
