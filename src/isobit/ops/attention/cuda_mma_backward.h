// SPDX-License-Identifier: Apache-2.0
// The gradients by tensor cores: a block takes some queries of a head, or some keys, and panel
// after panel of the keys that those see, or of the queries that see these. A warp has 16 of the
// rows; their products with a panel, and then the gradients of their scores, are in its registers.
#pragma once

#include <cstdint>

#include "isobit/core/order.h"
#include "isobit/ops/attention/cuda_call.h"
#include "isobit/ops/attention/cuda_mma_gradients.h"
#include "isobit/ops/attention/cuda_mma_parts.h"
#include "isobit/ops/attention/cuda_narrow.h"
#include "isobit/ops/attention/cuda_tiles.h"
#include "isobit/tile/copy_ring.h"
#include "isobit/tile/matrix_tile.h"
#include "isobit/tile/register_tile.h"

namespace isobit::attention {

// kWarps warps of 16 queries, or keys.
template <class T, int kWarps, bool kOfKeys>
struct GradientsMma : GradientRows<T, 16 * kWarps, kOfKeys> {
  static constexpr int kMostThreads = kWarps * simt::kWarpThreads, kRows = 16 * kWarps;
  static constexpr int kPart = mma::kPart, kPlaces = mma::kPlaces;
  static constexpr int kInPlace = kSide * kPart;
  using S = tile::Scalar<float>;
  using Chunk = tile::Chunk<float>;
  using Rows = tile::OperandTile<T, kRows, kPart, true>;
  using Columns = tile::OperandTile<T, kSide, kPart, true>;
  using Lines = tile::MatrixTile<T, kSide, kPart>;
  using Scores = GradientScores;
  using Weights = GradientWeights;

  using Base = GradientRows<T, kRows, kOfKeys>;
  using Base::call;
  using Base::columns_of;
  using Base::dim;
  using Base::of_head;
  using Base::panel_at;
  using Base::rows_of;
  using Base::seen_by_warp;
  using Base::tiles;

  float* means;  // of all queries: gradients by queries leave them for those by keys
  bool pieces_of_rows[2], pieces_of_columns[2], pieces_of_results[2];

  GradientsMma(const Problem& p, float* means)
      : Base(p),
        means(means),
        pieces_of_rows{mma::in_pieces(rows_of(0)), mma::in_pieces(rows_of(1))},
        pieces_of_columns{mma::in_pieces(columns_of(0)), mma::in_pieces(columns_of(1))},
        pieces_of_results{mma::in_pieces(kOfKeys ? p.grad_k : p.grad_q), mma::in_pieces(p.grad_v)} {
  }

  struct Memory {
    T *rows[2], *places;
    Chunk* sums;
    float* scores;  // a warp's own
    QueryStatistics* queries;
    GradientTile* tile;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Memory m{};
    for (int i = 0; i < 2; ++i)
      m.rows[i] = carver.template take<T>(mma::parts_of(dim(i)) * Rows::kElements, 128);
    m.places = carver.template take<T>(kPlaces * kInPlace, 128);
    m.sums = carver.template take<Chunk>(chunks() * kMostThreads);
    m.scores = carver.template take<float>(is_plain() ? 0 : kRows * kSide);
    m.queries = carver.template take<QueryStatistics>(kStatistics);
    m.tile = carver.template take<GradientTile>(1);
    return m;
  }
  // Bytes of all that.
  ISOBIT_EITHER std::int64_t shared_bytes() const {
    return (mma::parts_of(dim(0)) + mma::parts_of(dim(1))) * Rows::kElements * 2 +
           kPlaces * kInPlace * 2 + chunks() * kMostThreads * 16 +
           (is_plain() ? 0 : kRows * kSide * 4) +
           kStatistics * static_cast<std::int64_t>(sizeof(QueryStatistics)) +
           static_cast<std::int64_t>(sizeof(GradientTile));
  }
  ISOBIT_EITHER bool is_plain() const { return mma::is_plain(call.p); }

  ISOBIT_DEVICE void operator()(const Memory& m) const {
    each_tile(
        tiles(), m.tile,
        [&](std::int64_t index) {
          const HeadAndPlace found(index, of_head);
          return Base::tile_at(found.head, found.place);
        },
        [&](const GradientTile& tile) {
          if (tile.rows > 0) compute(m, tile);
        });
  }

 private:
  // Of the two panels whose statistics are there at once, or of the rows.
  static constexpr int kStatistics = kOfKeys ? 2 * kSide : kRows;

  // Sums of threads, four each: of the gradient of q, or of those of k and v.
  ISOBIT_EITHER std::int64_t chunks() const {
    return (mma::parts_of(dim(0)) + (kOfKeys ? mma::parts_of(dim(1)) : 0)) * mma::kOfPart;
  }
  ISOBIT_DEVICE bool wants_sums() const {
    return dim(0) > 0 && (kOfKeys ? bool{call.p.grad_k} : bool{call.p.grad_q});
  }
  ISOBIT_DEVICE bool wants_values() const { return kOfKeys && dim(1) > 0 && call.p.grad_v; }

  ISOBIT_DEVICE void compute(const Memory& m, const GradientTile& tile) const {
    bring_rows(m, tile);
    clear(m);
    if constexpr (!kOfKeys) find_statistics(m, tile);
    const int of_scores = mma::turns_of(dim(0)), of_weights = mma::turns_of(dim(1));
    const int before = of_scores + of_weights, turns = before + (wants_sums() ? of_scores : 0);
    const bool any = kOfKeys || wants_sums() || call.p.grad_bias;
    const std::int64_t panels = any ? tile.panels * (kOfKeys ? call.p.group() : 1) : 0;
    Scores probabilities, products;
    Weights weights, gradients;
    float back[2], back_of_weights[2];
    unsigned kept = 0;
    int index = 0, part = 0;
    tile::in_turns<kPlaces>(
        panels * turns,
        [&](std::int64_t turn, int place) {
          const int of_panel = static_cast<int>(turn) / turns;
          const int at = static_cast<int>(turn) - of_panel * turns;
          bring(tile, of_panel, at < before ? at : at - before, m.places + place * kInPlace);
          if (kOfKeys && at == 0) find_statistics(m, tile, of_panel);
        },
        [&](int place) {
          const Panel panel = panel_at(tile, index);
          T* const there = m.places + place * kInPlace;
          const Range seen = seen_by_warp(tile, panel);
          const auto multiply = [&](int i, int of_dim, Scores& sums) {
            if (of_dim == 0) {
#pragma unroll
              for (auto& each : sums)
#pragma unroll
                for (float& sum : each) sum = 0;
            }
            mma::multiply_part<T>(Rows(m.rows[i] + of_dim * Rows::kElements), Columns(there),
                                  mma::inside(dim(i) - of_dim * kPart, kPart), seen, sums);
          };
          if (part < of_scores) {
            multiply(0, part, probabilities);
            if (part == of_scores - 1) {
              weigh(m, tile, panel, index, probabilities);
              kept = call.p.dropout > 0 ? kept_of(tile, panel) : ~0U;
              if (wants_values()) narrow_rows<T>(probabilities, kept, weights, back_of_weights);
            }
          } else if (part < before) {
            const int of_dim = part - of_scores;
            multiply(1, of_dim, products);
            if (wants_values())
              add(m, there, static_cast<int>(mma::parts_of(dim(0))) + of_dim, seen, weights,
                  back_of_weights);
            if (part == before - 1) {
              differentiate(m, tile, panel, index, kept, probabilities, products);
              narrow_rows<T>(products, ~0U, gradients, back);
            }
          } else {
            add(m, there, part - before, seen, gradients, back);
          }
          if (++part == turns) part = 0, ++index;
        });
    finish(m, tile);
  }

  ISOBIT_DEVICE void bring_rows(const Memory& m, const GradientTile& tile) const {
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      const Array& array = rows_of(i);
      const auto* from = reinterpret_cast<const T*>(
          array.at(tile.in.batch, kOfKeys ? tile.kv_head : tile.head, tile.at));
#pragma unroll 1
      for (std::int64_t d = 0; d < dim(i); d += kPart)
        Rows(m.rows[i] + d / kPart * Rows::kElements)
            .template bring<kMostThreads>(from + d * array.col, array.row, array.col, tile.rows,
                                          mma::inside(dim(i) - d, kPart), pieces_of_rows[i]);
    }
    simt::commit_copies();
  }

  // A part of the rows of a panel.
  ISOBIT_DEVICE void bring(const GradientTile& tile, int index, int part, T* to) const {
    const Sequence& in = tile.in;
    const Panel panel = panel_at(tile, index);
    const int i = part < mma::turns_of(dim(0)) ? 0 : 1;
    const std::int64_t d = std::int64_t{i == 0 ? part : part - mma::turns_of(dim(0))} * kPart;
    const Array& array = columns_of(i);
    const std::int64_t end = kOfKeys ? in.queries.count() : in.held.end;
    const auto* from = reinterpret_cast<const T*>(
        kOfKeys ? array.at(in.batch, panel.head, in.queries.begin + panel.first)
                : array.at(in.batch, tile.kv_head, in.first_key + panel.first));
    Lines(to).template bring<kMostThreads>(from + d * array.col, array.row, array.col,
                                           mma::inside(end - panel.first, kSide),
                                           mma::inside(dim(i) - d, kPart), pieces_of_columns[i]);
  }
  // What is known of the queries of a panel, where that of the one before the last has been read.
  ISOBIT_DEVICE void find_statistics(const Memory& m, const GradientTile& tile, int index) const {
    const Panel panel = panel_at(tile, index);
    if (simt::thread() < kSide)
      simt::store_shared(m.queries + index % 2 * kSide + simt::thread(),
                         statistics_of(tile, panel.head, panel.first + simt::thread(),
                                       [&](std::int64_t at) { return means[at]; }));
  }
  // One that is not there sees no key.
  template <class Mean>
  ISOBIT_DEVICE QueryStatistics statistics_of(const GradientTile& tile, std::int64_t head,
                                              std::int64_t query, const Mean& mean) const {
    const Sequence& in = tile.in;
    if (query >= in.queries.count()) return {};
    const std::int64_t row = in.queries.begin + query;
    const float max = call.real(call.p.max, in.batch, head, row);
    const Range keys = call.keys_of(in, query);
    return {max, inverse_of<S>(max, call.real(call.p.sum, in.batch, head, row)),
            mean((in.batch * call.p.heads + head) * call.p.seq_q + row),
            static_cast<unsigned>(mma::inside(keys.begin - tile.first, kRows)) |
                static_cast<unsigned>(mma::inside(keys.end - tile.first, kRows)) << 16};
  }

  // A warp finds what is known of its own queries.
  ISOBIT_DEVICE void find_statistics(const Memory& m, const GradientTile& tile) const {
    const Problem& p = call.p;
#pragma unroll 1
    for (int i = 0; i < 16; ++i) {
      const int row = mma::warp() * 16 + i;
      QueryStatistics found{};
      if (row < tile.rows) {
        const std::int64_t batch = tile.in.batch, at = tile.at + row;
        float mean =
            mean_of(Line<T>(p.grad_y, batch, tile.head, at), Line<T>(p.y, batch, tile.head, at));
        if (p.grad_lse) mean = S::sub(mean, call.real(p.grad_lse, batch, tile.head, at));
        found = statistics_of(tile, tile.head, tile.first + row, [&](std::int64_t place) {
          if (simt::lane() == 0) means[place] = mean;
          return mean;
        });
      }
      if (simt::lane() == 0) simt::store_shared(m.queries + row, found);
    }
    simt::sync_warp();
  }
  // The row order's sum of products.
  ISOBIT_DEVICE float mean_of(const Line<T>& grad, const Line<T>& y) const {
    order::PairTree<float> blocks;
#pragma unroll 1
    for (std::int64_t first = 0; first < call.p.value_dim; first += order::kBlock) {
      float sum = S::add(
          lane_of_products<S>(grad, y, first, simt::lane(), call.p.value_dim),
          lane_of_products<S>(grad, y, first, simt::lane() + simt::kWarpThreads, call.p.value_dim));
#pragma unroll
      for (int apart = simt::kWarpThreads / 2; apart > 0; apart /= 2)
        sum = S::add(sum, simt::shuffle_xor(sum, apart));
      blocks.push(sum);
    }
    return blocks.total();
  }

  // What is known of the query of an element of the products.
  ISOBIT_DEVICE const QueryStatistics* query_at(const Memory& m, int index, int r, int col) const {
    return m.queries + (kOfKeys ? index % 2 * kSide + col : mma::row_of(r));
  }

  // Products become probabilities: -0 for what is not there, which no other is.
  ISOBIT_DEVICE void weigh(const Memory& m, const GradientTile& tile, const Panel& panel, int index,
                           Scores& scores) const {
    if (!is_plain()) treat_each(m, tile, panel, scores);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int begin = 0, end = 0;
      QueryStatistics query{};
      if constexpr (!kOfKeys) {
        query = simt::load_shared(query_at(m, index, r, 0));
        const Range keys = call.keys_of(tile.in, tile.first + mma::row_of(r));
        begin = mma::inside(keys.begin - panel.first, kSide);
        end = mma::inside(keys.end - panel.first, kSide);
      }
#pragma unroll
      for (int j = 0; j < kEights; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[j][2 * r + e];
          int at = 8 * j + mma::column() + e;
          if constexpr (kOfKeys) {
            query = simt::load_shared(query_at(m, index, r, at));
            at = mma::row_of(r);
            begin = static_cast<int>(query.keys & 0xffffU);
            end = static_cast<int>(query.keys >> 16);
          }
          if (is_plain())
            score =
                begin <= at && at < end ? exponent_of<S>(tile.scaling, score) : -kInfinity<float>;
          const bool there = Call<T>::is_there(score);
          score = probability_of<S>(score, query.max, query.inverse);
          score = there ? score : -0.0F;
        }
    }
  }
  ISOBIT_DEVICE static bool is_there(float probability) {
    return S::bits(probability) != S::bits(-0.0F);
  }

  // Exponents of what has more to it, by way of shared memory: there neighbours in a warp are keys
  // side by side, as what is added to them lies in memory. The products stay there.
  ISOBIT_DEVICE void treat_each(const Memory& m, const GradientTile& tile, const Panel& panel,
                                Scores& scores) const {
    constexpr int kBeside = kOfKeys ? 16 : kSide;  // keys
    float* const own = scores_of(m);
    const Scaling<float> scaling = tile.scaling;
    each_pair(own, [&](ScorePair* pair, int j, int r) {
      *pair = {{scores[j][2 * r], scores[j][2 * r + 1]}};
    });
    simt::sync_warp();
    typename Call<T>::Row query{};
    std::int64_t before = -1;
#pragma unroll 1
    for (int i = simt::lane(); i < 16 * kSide; i += simt::kWarpThreads) {
      const int beside = i % kBeside, line = i / kBeside;
      const std::int64_t number =
          kOfKeys ? panel.first + line : tile.first + mma::warp() * 16 + line;
      const std::int64_t key =
          kOfKeys ? tile.first + mma::warp() * 16 + beside : panel.first + beside;
      if (number != before) {
        before = number;
        query = {};
        if (number < tile.in.queries.count())
          query = call.row(tile.in, panel.head, number, call.keys_of(tile.in, number));
      }
      float& score = *(kOfKeys ? score_at(own, beside, line) : score_at(own, line, beside));
      score = call.exponent(scaling, tile.in, query, key, score);
    }
    simt::sync_warp();
    each_pair(own, [&](ScorePair* pair, int j, int r) {
      const ScorePair exponents = *pair;
      *pair = {{scores[j][2 * r], scores[j][2 * r + 1]}};
#pragma unroll
      for (int e = 0; e < 2; ++e) scores[j][2 * r + e] = exponents.elements[e];
    });
  }
  ISOBIT_DEVICE float* scores_of(const Memory& m) const {
    return m.scores + mma::warp() * 16 * kSide;
  }
  // Which weights are not dropped: a bit each.
  ISOBIT_DEVICE unsigned kept_of(const GradientTile& tile, const Panel& panel) const {
    const Dropout<float> dropout = call.dropout();
    unsigned kept = 0;
#pragma unroll 1
    for (int at = 0; at < 4 * kEights; ++at) {
      const std::int64_t row = tile.first + mma::row_of(at % 4 / 2);
      const std::int64_t col = panel.first + at / 4 * 8 + mma::column() + at % 2;
      const std::int64_t query = kOfKeys ? col : row, key = kOfKeys ? row : col;
      if (dropout.keeps(tile.in.number, panel.head, query, key - tile.in.held.begin))
        kept |= 1U << at;
    }
    return kept;
  }

  // Gradients of weights become those of scores.
  ISOBIT_DEVICE void differentiate(const Memory& m, const GradientTile& tile, const Panel& panel,
                                   int index, unsigned kept, const Scores& probabilities,
                                   Scores& products) const {
    const Problem& p = call.p;
    const float more = p.dropout > 0 ? call.dropout().scale : 1.0F;
#pragma unroll
    for (int j = 0; j < kEights; ++j)
#pragma unroll
      for (int at = 0; at < 4; ++at) {
        const QueryStatistics* const query =
            query_at(m, index, at / 2, 8 * j + mma::column() + at % 2);
        const float of_weight =
            (kept >> (4 * j + at) & 1) != 0 ? S::mul(products[j][at], more) : 0.0F;
        products[j][at] =
            score_gradient<S>(probabilities[j][at], of_weight, simt::load_shared(&query->mean));
      }
    if (!is_plain()) uncap(m, tile, probabilities, products);
#pragma unroll
    for (int j = 0; j < kEights; ++j)
#pragma unroll
      for (int at = 0; at < 4; ++at)
        products[j][at] = is_there(probabilities[j][at]) ? S::add(products[j][at], 0.0F) : -0.0F;
    if (!kOfKeys && p.grad_bias) put_bias(m, tile, panel);
  }

  // Gradients of capped scores become those of products, which they take the place of in shared
  // memory: they are those of the bias.
  ISOBIT_DEVICE void uncap(const Memory& m, const GradientTile& tile, const Scores& probabilities,
                           Scores& gradients) const {
    each_pair(scores_of(m), [&](ScorePair* pair, int j, int r) {
      const ScorePair products = *pair;
      ScorePair of_bias;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& gradient = gradients[j][2 * r + e];
        of_bias.elements[e] = is_there(probabilities[j][2 * r + e]) ? gradient : 0.0F;
        if (tile.scaling.caps)
          gradient = before_cap<S>(tile.scaling, gradient, products.elements[e]);
      }
      if constexpr (!kOfKeys) *pair = of_bias;
    });
  }

  // Those of the bias, of the panel.
  ISOBIT_DEVICE void put_bias(const Memory& m, const GradientTile& tile, const Panel& panel) const {
    const Array& array = call.p.grad_bias;
    simt::sync_warp();
#pragma unroll 1
    for (int i = simt::lane(); i < 16 * kSide; i += simt::kWarpThreads) {
      const int line = i / kSide, row = mma::warp() * 16 + line;
      const std::int64_t key = panel.first + i % kSide;
      if (row < tile.rows && key < call.p.seq_k)
        *reinterpret_cast<T*>(array.at(tile.in.batch, tile.head, tile.at + row, key)) =
            simt::Conversions::template narrow<T>(*score_at(scores_of(m), line, i % kSide));
    }
    simt::sync_warp();
  }
  // And of keys that are in no panel.
  ISOBIT_DEVICE void clear_bias(const GradientTile& tile) const {
    const Array& array = call.p.grad_bias;
    const std::int64_t end = tile.start + tile.panels * kSide;
#pragma unroll 1
    for (int row = mma::warp(); row < tile.rows; row += kWarps)
#pragma unroll 1
      for (std::int64_t key = simt::lane(); key < call.p.seq_k; key += simt::kWarpThreads)
        if (key < tile.start || key >= end)
          *reinterpret_cast<T*>(array.at(tile.in.batch, tile.head, tile.at + row, key)) =
              simt::Conversions::template narrow<T>(0.0F);
  }

  ISOBIT_DEVICE static Chunk* sums_at(const Memory& m, int part, int j) {
    return m.sums + (part * mma::kOfPart + j) * kMostThreads + simt::thread();
  }
  ISOBIT_DEVICE void clear(const Memory& m) const {
    const int count = static_cast<int>(chunks());
#pragma unroll 1
    for (int i = 0; i < count; ++i) simt::store_shared(sums_at(m, 0, i), Chunk{});
  }
  // The product with a part of a panel becomes a part of the sums.
  ISOBIT_DEVICE static void add(const Memory& m, T* place, int part, const Range& seen,
                                const Weights& weights, const float (&back)[2]) {
    mma::Sums chain;
    mma::multiply_panel<T>(place, seen, weights, chain);
#pragma unroll
    for (int j = 0; j < mma::kOfPart; ++j) {
      Chunk sums = simt::load_shared(sums_at(m, part, j));
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums.elements[e] = S::fma(chain[j][e], back[e / 2], sums.elements[e]);
      simt::store_shared(sums_at(m, part, j), sums);
    }
  }

  ISOBIT_DEVICE void finish(const Memory& m, const GradientTile& tile) const {
    const Problem& p = call.p;
    simt::sync_block();  // the places have been read
    const auto put = [&](const Array& array, int i, int from, float factor) {
      if (!array) return;
      std::byte* const to =
          array.at(tile.in.batch, kOfKeys ? tile.kv_head : tile.head, tile.at + mma::warp() * 16);
#pragma unroll 1
      for (int part = 0; part < static_cast<int>(mma::parts_of(dim(i))); ++part)
        mma::put_part<T>(m.places + mma::warp() * 16 * kPart, array, to,
                         tile.rows - mma::warp() * 16, dim(i), pieces_of_results[i], part,
                         [&](int j, unsigned(&words)[2]) {
                           const Chunk sums = simt::load_shared(sums_at(m, from + part, j));
#pragma unroll
                           for (int r = 0; r < 2; ++r)
                             words[r] = narrow_pair<T>(S::mul(sums.elements[2 * r], factor),
                                                       S::mul(sums.elements[2 * r + 1], factor));
                         });
    };
    put(kOfKeys ? p.grad_k : p.grad_q, 0, 0, tile.scaling.gradient);
    if constexpr (kOfKeys)
      put(p.grad_v, 1, static_cast<int>(mma::parts_of(dim(0))),
          p.dropout > 0 ? call.dropout().scale : 1.0F);
    else if (p.grad_bias)
      clear_bias(tile);
  }
};

}  // namespace isobit::attention
