// SPDX-License-Identifier: Apache-2.0
// How the panels of a matrix are laid out and packed; each by the kernels that pack them in a call,
// so that what is multiplied is the same.
#include "isobit/ops/matmul/cpu_panels.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "isobit/core/order.h"
#include "isobit/simd/tasks.h"

namespace isobit::matmul {
namespace {

// Of some calls.
std::chrono::steady_clock::duration least_time(void (*call)()) {
  using Clock = std::chrono::steady_clock;
  auto least = Clock::duration::max();
  for (int turn = 0; turn < 32; ++turn) {
    const auto begin = Clock::now();
    call();
    least = std::min<Clock::duration>(least, Clock::now() - begin);
  }
  return least;
}

}  // namespace

const PackKernels& pack_kernels_for(DType element, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, pack_kernels(element));
}

const PairKernels* pair_kernels_for(DType element, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, pair_kernels(element));
}

// Some processors take four times as long for a pair as for an fma [Intel, family 6, model 167].
const PairKernels* faster_pairs_for(DType element, Isa isa) {
  const PairKernels* const pairs = pair_kernels_for(element, isa);
  if (pairs == nullptr) return nullptr;
  static const bool kAreFaster = least_time(pairs->add_pairs) < 2 * least_time(pairs->add_products);
  return kAreFaster ? pairs : nullptr;
}

const FewKernels& few_kernels_for(DType element, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, few_kernels(element));
}

Panels::Panels(const Array& b, std::int64_t k, std::int64_t n, const Execution& execution)
    : element_(b.dtype),
      k_(k),
      n_(n),
      isa_(execution.machine.isa),
      kernels_(pack_kernels_for(element_, isa_)),
      pairs_(pair_kernels_for(element_, isa_)),
      size_(element_ == DType::f64 ? 8 : 4) {
  if (k == 0 || n == 0) return;
  const std::int64_t blocks = (k + order::kPanel - 1) / order::kPanel;
  const std::int64_t last = (blocks - 1) * order::kPanel;
  const std::int64_t of_panels =
      line_bytes() * ((blocks - 1) * lines(order::kPanel) + lines(k - last));
  const std::int64_t units = blocks * panels();
  bytes_ = of_panels + (in_pairs() ? units : 0);
  memory_.reset(static_cast<std::byte*>(pool::allocate(static_cast<std::size_t>(bytes_))));
  if (memory_ == nullptr) throw std::bad_alloc();
  if (in_pairs()) exponents_ = reinterpret_cast<std::uint8_t*>(memory_.get() + of_panels);
  simd::in_parts(execution, simd::task_count(execution.machine, k * n, units), units, 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t unit = begin; unit < end; ++unit)
                     pack(b, unit / panels(), unit % panels());
                 });
}

std::int64_t Panels::count_at(std::int64_t k) const {
  return std::min<std::int64_t>(order::kPanel, k_ - k);
}

std::int64_t Panels::line_bytes() const {
  const std::int64_t rest = n_ % kernels_.cols;
  const std::int64_t last = rest == 0 ? 0 : rest <= kernels_.width ? kernels_.width : kernels_.cols;
  return (n_ - rest + last) * size_;
}

const std::byte* Panels::at(std::int64_t k, std::int64_t col) const {
  return memory_.get() + k / order::kPanel * lines(order::kPanel) * line_bytes() +
         col * lines(count_at(k)) * size_;
}

int Panels::least_exponent(std::int64_t k, std::int64_t col, std::int64_t cols) const {
  const std::uint8_t* const of_block = exponents_ + k / order::kPanel * panels();
  return *std::min_element(of_block + col / kernels_.cols,
                           of_block + (col + cols + kernels_.cols - 1) / kernels_.cols);
}

void Panels::pack(const Array& b, std::int64_t block, std::int64_t panel) {
  const std::int64_t k = block * order::kPanel, col = panel * kernels_.cols;
  const Array from = b.moved(k, col);
  const Lanes lanes{from.data, from.col, from.row, std::min(kernels_.cols, n_ - col)};
  void* const to = const_cast<std::byte*>(at(k, col));
  if (in_pairs())
    exponents_[block * panels() + panel] =
        static_cast<std::uint8_t>(pairs_->pack_b(lanes, count_at(k), to));
  else
    kernels_.pack_b(lanes, count_at(k), to);
}

}  // namespace isobit::matmul
