// SPDX-License-Identifier: Apache-2.0
// A matrix b as its panels, which are packed once and multiplied often.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "isobit/core/execution.h"
#include "isobit/ops/matmul/cpu_kernels.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/simd/pool.h"

namespace isobit::matmul {

const PackKernels& pack_kernels_for(DType element, Isa isa);
const PairKernels* pair_kernels_for(DType element, Isa isa);  // null where there are none
const PairKernels* faster_pairs_for(DType element, Isa isa);  // or where elements are faster
const FewKernels& few_kernels_for(DType element, Isa isa);
const TileKernels* tile_kernels_for(Isa isa);  // null where there are none
// Why a machine multiplies no tiles by AMX; empty where it does.
std::string declines_tiles(const Machine& machine);

// Every `order::kPanel` of k are one block after the other, and in a block every `cols` columns.
class Panels {
 public:
  Panels(const Array& b, std::int64_t k, std::int64_t n, const Execution& execution);

  DType element() const { return element_; }
  std::int64_t k() const { return k_; }
  std::int64_t n() const { return n_; }
  Isa isa() const { return isa_; }
  std::int64_t bytes() const { return bytes_; }
  const std::byte* data() const { return memory_.get(); }
  bool in_pairs() const { return pairs_ != nullptr; }
  const PairKernels* pairs() const { return pairs_; }

  // The panels from one on: k is a multiple of order::kPanel, and col one of a panel's columns.
  const std::byte* at(std::int64_t k, std::int64_t col) const;
  // Of pairs: the smallest biased exponent of these columns in a block, as PairKernels have it.
  int least_exponent(std::int64_t k, std::int64_t col, std::int64_t cols) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const { pool::release(memory); }
  };

  std::int64_t panels() const { return (n_ + kernels_.cols - 1) / kernels_.cols; }
  // Of a panel in a block of `k`: lines of elements, or of pairs.
  std::int64_t lines(std::int64_t k) const { return in_pairs() ? (k + 1) / 2 : k; }
  std::int64_t count_at(std::int64_t k) const;
  std::int64_t line_bytes() const;  // of all panels
  void pack(const Array& b, std::int64_t block, std::int64_t panel);

  DType element_;
  std::int64_t k_, n_;
  Isa isa_;
  const PackKernels& kernels_;
  const PairKernels* pairs_;
  std::int64_t size_;  // of an element or a pair
  std::int64_t bytes_ = 0;
  std::unique_ptr<std::byte[], Free> memory_;
  std::uint8_t* exponents_ = nullptr;  // of each panel, block after block; behind the panels
};

}  // namespace isobit::matmul
