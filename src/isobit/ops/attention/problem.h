// SPDX-License-Identifier: Apache-2.0
// A call of attention after its check: the same of both passes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "isobit/core/dtype.h"
#include "isobit/core/inline.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/attention/attention.h"

namespace isobit::attention {

inline constexpr int kPanel = 128;              // keys, or queries, whose terms are one chain
inline constexpr std::int64_t kShortDim = 512;  // of heads that some variants are made for
inline constexpr int kRun = 16;                 // panels that are folded one after the other
inline constexpr std::string_view kCausals[] = {"no", "top_left", "bottom_right"};
inline constexpr std::string_view kArithmetics[] = {"canonical", "tensor"};

// An array of four dims, or of three with no columns. No data where it is not given.
struct Array {
  std::byte* data = nullptr;
  std::int64_t size = 4;                               // bytes of an element
  std::int64_t batch = 0, head = 0, row = 0, col = 0;  // elements from one to the next

  ISOBIT_INLINE explicit operator bool() const { return data != nullptr; }
  ISOBIT_INLINE std::byte* at(std::int64_t b, std::int64_t h, std::int64_t i = 0,
                              std::int64_t j = 0) const {
    return data + (b * batch + h * head + i * row + j * col) * size;
  }
};

// Keys [begin, end) that a query may see, or queries that may see a key.
struct Range {
  std::int64_t begin, end;
  ISOBIT_INLINE std::int64_t count() const { return end > begin ? end - begin : 0; }
};

// How many queries and keys a sequence has.
struct Lengths {
  std::int64_t queries = 0, keys = 0;
  double pairs() const { return static_cast<double>(queries) * static_cast<double>(keys); }
};

struct Problem {
  DType dtype = DType::f32;
  std::int64_t batch = 0, heads = 0, kv_heads = 0;
  std::int64_t seq_q = 0, seq_k = 0, head_dim = 0, value_dim = 0;
  Array q, k, v, bias, mask, y, lse, max, sum;
  Array slopes;                    // of two dims, batch and head
  Array key_begin, key_end;        // whole numbers, of the batch
  Array query_starts, key_starts;  // whole numbers, of sequences and one more
  Array blocks;                    // the same, of sequences and of places of blocks
  std::int64_t sequences = 0;      // the batch, or as many as are packed
  std::int64_t block = 0;          // keys of a block
  std::int64_t pool = 0;           // blocks that there are
  std::int64_t first = 0;          // place in its blocks of a sequence's first key
  bool from_the_end = false;       // the last query stands at the last key
  Array grad_y, grad_lse, grad_q, grad_k, grad_v, grad_bias;
  bool causal = false;
  std::int64_t offset = 0;  // of the first query's position
  std::int64_t apart = 0;   // the same as slopes have it: the last query stands at the last key
  std::int64_t window = 0;
  double scale = 0, softcap = 0;  // a scale of 0 is the usual one
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  Arithmetic arithmetic = Arithmetic::canonical;

  DType real() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
  ISOBIT_INLINE std::int64_t group() const { return kv_heads == 0 ? 1 : heads / kv_heads; }
  bool empty() const { return batch == 0 || heads == 0 || seq_q == 0; }
  // Whether the band alone decides which keys are allowed, and products are scores but for a
  // factor: positive, and no zero as a float, by which what is masked with -infinity would become
  // NaN.
  bool plain() const {
    return !bias && !mask && !slopes && softcap == 0 && (scale == 0 || scale >= 0x1p-100);
  }

  ISOBIT_INLINE static std::int64_t within(std::int64_t value, std::int64_t most) {
    return value < 0 ? 0 : value < most ? value : most;
  }
  ISOBIT_INLINE Range keys_of(std::int64_t query) const { return keys_at(query + offset); }
  ISOBIT_INLINE Range keys_at(std::int64_t position) const {
    Range keys{0, seq_k};
    if (window > 0) keys.begin = within(position - window + 1, seq_k);
    if (causal)
      keys.end = within(position + 1, seq_k);
    else if (window > 0)
      keys.end = within(position + window, seq_k);
    return keys;
  }
  std::byte* slope_of(std::int64_t b, std::int64_t h) const {
    return slopes ? slopes.at(b, h) : nullptr;
  }
  // Keys that a sequence has. What the arrays hold may be anything: on a device nothing checks it.
  ISOBIT_INLINE Range held(std::int64_t b) const {
    const auto number = [&](const Array& array, std::int64_t otherwise) {
      return array ? within(*reinterpret_cast<const std::int64_t*>(array.at(b, 0)), seq_k)
                   : otherwise;
    };
    const std::int64_t begin = number(key_begin, 0), end = number(key_end, seq_k);
    return {begin, end < begin ? begin : end};
  }

  ISOBIT_INLINE static std::int64_t number(const Array& array, std::int64_t i, std::int64_t j = 0) {
    return *reinterpret_cast<const std::int64_t*>(array.at(i, j));
  }
  // The packed sequence that a row belongs to, or how many there are where it belongs to none.
  ISOBIT_INLINE std::int64_t sequence_of(const Array& starts, std::int64_t row) const {
    std::int64_t low = 0, high = sequences;  // starts[low] <= row
    if (row >= number(starts, high)) return sequences;
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      if (number(starts, middle) <= row)
        low = middle;
      else
        high = middle;
    }
    return low;
  }

  // What follows is the processor's alone, where contents have been checked.

  // Whether sequences may have lengths of their own.
  bool is_ragged() const { return query_starts || blocks || key_begin || key_end; }
  // Calls of one sequence that this is. Of packed ones there is one more: the queries that belong
  // to none, without keys.
  std::int64_t calls() const { return sequences + (query_starts ? 1 : 0); }
  // Where a sequence's queries are among those of all.
  Range queries_held(std::int64_t s) const {
    if (!query_starts) return {0, seq_q};
    return {number(query_starts, s), s < sequences ? number(query_starts, s + 1) : seq_q};
  }
  // The same of its keys: among all, or where there are blocks among its own.
  Range keys_held(std::int64_t s) const {
    if (query_starts && s == sequences) {
      const std::int64_t end = key_starts ? number(key_starts, s) : 0;
      return {end, end};
    }
    if (key_starts) return {number(key_starts, s), number(key_starts, s + 1)};
    return held(s);
  }
  Lengths lengths(std::int64_t s) const { return {queries_held(s).count(), keys_held(s).count()}; }
  // The call of one sequence whose queries and keys are those alone.
  Problem of(std::int64_t s) const {
    Problem result = *this;
    if (!is_ragged()) return result;
    const Range queries = queries_held(s), keys = keys_held(s);
    if (query_starts)
      for (Array Problem::* rows :
           {&Problem::q, &Problem::y, &Problem::lse, &Problem::max, &Problem::sum, &Problem::grad_y,
            &Problem::grad_lse, &Problem::grad_q})
        if (result.*rows) (result.*rows).data = (this->*rows).at(0, 0, queries.begin);
    if (blocks) {
      result.blocks.data = blocks.at(s < sequences ? s : 0, 0);
      result.blocks.batch = 0;
      result.first = keys.begin;
    } else {
      for (Array Problem::* rows : {&Problem::k, &Problem::v, &Problem::grad_k, &Problem::grad_v})
        if (result.*rows) (result.*rows).data = (this->*rows).at(0, 0, keys.begin);
      for (Array Problem::* columns : {&Problem::bias, &Problem::mask, &Problem::grad_bias})
        if (result.*columns) (result.*columns).data = (this->*columns).at(0, 0, 0, keys.begin);
    }
    result.query_starts = result.key_starts = result.key_begin = result.key_end = {};
    result.seq_q = queries.count();
    result.seq_k = keys.count();
    if (key_starts || blocks) {
      result.apart = (key_starts ? keys.count() : keys.end) - result.seq_q;
      result.offset = from_the_end ? result.apart : 0;
    }
    if (key_starts) return result;
    result.offset -= keys.begin;
    result.apart -= keys.begin;
    return result;
  }
  // A row of k or v of one sequence's call.
  std::byte* key_at(const Array& array, std::int64_t b, std::int64_t h, std::int64_t key,
                    std::int64_t col = 0) const {
    if (!blocks) return array.at(b, h, key, col);
    const std::int64_t place = first + key;
    return array.at(number(blocks, 0, place / block), h, place % block, col);
  }

  // And this is every device's again.

  // How far a key is from a query, as slopes have it.
  ISOBIT_INLINE std::int64_t distance(std::int64_t query, std::int64_t key) const {
    const std::int64_t distance = query + apart - key;
    return distance < 0 ? -distance : distance;
  }
  ISOBIT_INLINE Range queries_of(std::int64_t key) const {
    Range queries{0, seq_q};
    if (causal)
      queries.begin = within(key - offset, seq_q);
    else if (window > 0)
      queries.begin = within(key - offset - window + 1, seq_q);
    if (window > 0) queries.end = within(key - offset + window, seq_q);
    return queries;
  }
};

// The rules of arguments and options, and of what arrays contain.
Problem check(const ForwardArgs& args);
Problem check(const BackwardArgs& args);
void check_contents(const Problem& problem);

using ForwardVariant = Variant<ForwardArgs, Problem>;
using BackwardVariant = Variant<BackwardArgs, Problem>;

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();
std::span<const ForwardVariant> cuda_forward_variants();  // in device libraries
std::span<const BackwardVariant> cuda_backward_variants();

}  // namespace isobit::attention
