// SPDX-License-Identifier: Apache-2.0
// Products of small matrices, by the model of core/tensor_core.h.
#include "isobit/core/tensor_core.h"
#include "isobit/simt/host/emulator.h"
#include "isobit/simt/host/state.h"

namespace isobit::simt::host {
namespace {

using tensor_core::kDepth;
using tensor_core::Number;

// Elements of 16 bits of one line, of which four lanes have the pairs: those of words[first], and
// behind them those of words[first + step].
void take_line(const Words* lanes, int first, int step, tensor_core::Format format,
               Number (&line)[kDepth]) {
  for (int k = 0; k < kDepth; ++k) {
    const std::uint32_t word = lanes[k % 8 / 2][static_cast<std::size_t>(first + k / 8 * step)];
    line[k] = tensor_core::taken_apart(word >> (k % 2 * 16) & 0xffff, format);
  }
}

}  // namespace

void multiply_add(float (&sums)[4], const Words& own, bool of_bf16, Site site) {
  constexpr tensor_core::Generation kGeneration = tensor_core::generation_of(kCapability);
  const Words* const all = gather(own, site);
  const tensor_core::Format format = of_bf16 ? tensor_core::kBf16 : tensor_core::kF16;
  const int lane = emulator.current().lane;
  Number rows[2][kDepth], columns[2][kDepth];
  for (int i = 0; i < 2; ++i) {
    take_line(all + lane / 4 * 4, i, 2, format, rows[i]);
    take_line(all + (lane % 4 * 2 + i) * 4, 4, 1, format, columns[i]);
  }
  for (int i = 0; i < 4; ++i)
    sums[i] = tensor_core::multiply_add(rows[i / 2], columns[i % 2], sums[i], format, kGeneration);
}

}  // namespace isobit::simt::host
