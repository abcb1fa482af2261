// SPDX-License-Identifier: Apache-2.0
// The two products of flash: of keys and queries, and of values and weights. By vectors of widened
// elements, in the order of the arithmetic; or by AMX's tiles of bf16, in that of tensor alone.
#pragma once

#include "isobit/core/amx.h"
#include "isobit/ops/attention/cpu_parts.h"

namespace isobit::attention {

const TileKernels* tile_kernels_for(Isa isa);

class Products {
 public:
  static constexpr std::int64_t kPart = 32;  // keys that are packed together

  std::int64_t lanes, width;  // queries of a block of columns, and of one with few
  // Elements that are taken by some keys, by a panel of values, by a block's queries, by its sums'
  // rows and by its weights where those have a place of their own.
  std::int64_t part, values, queries, rows, weights;

  Products(const Problem& problem, Isa isa, By by)
      : pack_(matmul::pack_kernels_for(problem.dtype, isa)),
        packing_(by == By::tiles ? matmul::tile_kernels_for(isa) : nullptr),
        tile_kernels_(by == By::tiles ? tile_kernels_for(isa) : nullptr),
        multiply_(problem.arithmetic == Arithmetic::tensor ? pack_.multiply_in_steps
                                                           : pack_.multiply),
        rounds_(problem.arithmetic == Arithmetic::tensor),
        head_dim_(problem.head_dim),
        value_dim_(problem.value_dim) {
    lanes = pack_.cols;
    width = pack_.width;
    part = lines_of(parts_of(kPart, pack_.rows) * pack_.row_pitch * head_dim_);
    values = lines_of(parts_of(value_dim_, pack_.rows) * pack_.row_pitch * kPanel);
    queries = lines_of(lanes * head_dim_);
    rows = value_dim_;
    weights = 0;
    if (packing_ == nullptr) return;
    part = kPart / kLanes * pitch(head_dim_) / kFloat;
    values = parts_of(value_dim_, kLanes) * pitch(kPanel) / kFloat;
    queries = lanes / kLanes * pitch(head_dim_) / kFloat;
    rows = parts_of(value_dim_, kLanes) * kLanes;
    weights = lanes / kLanes * TileKernels::kPitch / kFloat;
  }

  // All products stand in between.
  void begin() const {
    if (tile_kernels_) tile_kernels_->begin();
  }
  void end() const {
    if (tile_kernels_) tile_kernels_->end();
  }

  // Some keys, or all queries of a block.
  void pack_keys(const matmul::Lanes& keys, void* to) const {
    packing_ ? packing_->pack_a(keys, head_dim_, to, pitch(head_dim_))
             : pack_.pack_a(keys, head_dim_, to);
  }
  void pack_queries(const matmul::Lanes& queries, void* to) const {
    packing_ ? packing_->pack_b(queries, head_dim_, to, pitch(head_dim_))
             : pack_.pack_b(queries, head_dim_, to);
  }
  void pack_values(const matmul::Lanes& columns, std::int64_t keys, void* to) const {
    packing_ ? packing_->pack_a(columns, keys, to, pitch(kPanel)) : pack_.pack_a(columns, keys, to);
  }

  // Products of a block's queries, `cols` in a row, and a part of keys.
  template <class Real>
  void multiply_keys(const Real* part, const Real* queries, Real* to, std::int64_t keys,
                     std::int64_t cols) const {
    if (head_dim_ == 0)
      std::fill_n(to, keys * cols, Real(0));
    else if (packing_)
      tile_kernels_->multiply({part, queries, pitch(head_dim_), pitch(head_dim_), floats(to), cols,
                               keys, cols, parts_of(head_dim_, amx::kStep), false});
    else
      multiply_({part, queries, to, cols, keys, cols, head_dim_, false});
  }

  // Weights times the first keys' values, of a panel of `all`. The weights stand where products
  // stood, but those of tiles in the place of their own.
  template <class Real>
  void multiply_values(const Real* packed, const Real* weights, const Real* tiles, Real* to,
                       std::int64_t keys, std::int64_t all, std::int64_t cols) const {
    if (packing_)
      return tile_kernels_->multiply({packed, tiles, pitch(kPanel), TileKernels::kPitch, floats(to),
                                      cols, value_dim_, cols, parts_of(keys, amx::kStep), false});
    const std::int64_t panels = parts_of(value_dim_, pack_.rows);
    for (std::int64_t i = 0; i < panels; ++i) {
      const std::int64_t begin = value_dim_ * i / panels, end = value_dim_ * (i + 1) / panels;
      multiply_({packed + i * pack_.row_pitch * all, weights, to + begin * cols, cols, end - begin,
                 cols, keys, false});
    }
  }

  // Exponents become weights, which change(values) may change before they are rounded.
  template <class Real, class Change>
  void weigh(const Kernels& kernels, const void* scaling, const Columns& columns, Real* tiles,
             bool changes, const Change& change) const {
    if (tile_kernels_ && !changes) return tile_kernels_->weigh(scaling, columns, tiles);
    kernels.weigh_columns(scaling, columns);
    if (changes) change();
    if (tile_kernels_)
      tile_kernels_->pack(columns.values, columns.cols, tiles);
    else if (rounds_)
      kernels.round(columns.values, columns.keys * columns.cols);
  }
  // A weight as it is multiplied.
  template <class Real>
  Real weight(const Real* weights, const Real* tiles, std::int64_t cols, std::int64_t key,
              std::int64_t col) const {
    if (!tile_kernels_) return weights[key * cols + col];
    const auto* panel =
        reinterpret_cast<const std::byte*>(tiles) + col / kLanes * TileKernels::kPitch;
    return element<Real, bf16>(panel + ((key / 2 * kLanes + col % kLanes) * 2 + key % 2) * 2);
  }

 private:
  static constexpr std::int64_t kLanes = matmul::TileKernels::kLanes, kFloat = 4;

  // Bytes of a panel of tiles.
  static std::int64_t pitch(std::int64_t k) {
    return parts_of(k, amx::kStep) * matmul::TileKernels::kBytes;
  }
  static float* floats(float* data) { return data; }
  static float* floats(double*) { return nullptr; }  // which have no tiles

  const matmul::PackKernels& pack_;
  const matmul::TileKernels* packing_;
  const TileKernels* tile_kernels_;
  void (*multiply_)(const matmul::Block&);
  bool rounds_;
  std::int64_t head_dim_, value_dim_;
};

}  // namespace isobit::attention
