// SPDX-License-Identifier: Apache-2.0
// Products by a warpgroup, by the model of core/tensor_core.h. Like copies they are made as late as
// they may: whoever reads their sums or writes over their operands too early sees it.
#include "isobit/simt/host/warpgroup.h"

#include <algorithm>
#include <cstring>

#include "isobit/core/tensor_core.h"
#include "isobit/simt/host/state.h"

namespace isobit::simt::host {
namespace {

using tensor_core::kDepth;
using tensor_core::Number;

constexpr int kGroupThreads = 128;
constexpr int kLineBytes = 128, kEightLines = 8 * kLineBytes;

std::uintptr_t mixed(std::uintptr_t address) { return address ^ (address >> 7 & 7) << 4; }

// Where element `lane`, `k` of an operand lies.
const std::uint16_t* element_of(const Boxes& boxes, int lane, int k) {
  const auto from = reinterpret_cast<std::uintptr_t>(boxes.from);
  const int at = boxes.along_k ? lane * kLineBytes + 2 * k
                               : lane / kBoxSide * kBoxBytes + k * kLineBytes + lane % kBoxSide * 2;
  return reinterpret_cast<const std::uint16_t*>(mixed(from + static_cast<std::uintptr_t>(at)));
}

void take_lane(const Boxes& boxes, int lane, tensor_core::Format format, Number (&line)[kDepth]) {
  for (int k = 0; k < kDepth; ++k) {
    const std::uint16_t* const element = element_of(boxes, lane, k);
    emulator.observe(element, sizeof *element, false);
    line[k] = tensor_core::taken_apart(*element, format);
  }
}

void make(const Product& product, float* sums, int columns) {
  constexpr tensor_core::Generation kGeneration = tensor_core::generation_of(kCapability);
  const tensor_core::Format format = product.of_bf16 ? tensor_core::kBf16 : tensor_core::kF16;
  const Self& thread = emulator.current().self;
  const int lane = thread.thread % kWarpThreads;
  const int first_row = thread.thread % kGroupThreads / kWarpThreads * 16 + lane / 4;
  Number rows[2][kDepth], column[kDepth];
  for (int i = 0; i < 2; ++i) {
    if (product.a.from != nullptr)
      take_lane(product.a, first_row + 8 * i, format, rows[i]);
    else
      for (int k = 0; k < kDepth; ++k)
        rows[i][k] = tensor_core::taken_apart(product.rows[i][k], format);
  }
  for (int j = 0; j < columns / 8; ++j)
    for (int e = 0; e < 2; ++e) {
      take_lane(product.b, 8 * j + lane % 4 * 2 + e, format, column);
      for (int i = 0; i < 2; ++i) {
        float& sum = sums[4 * j + 2 * i + e];
        sum = tensor_core::multiply_add(rows[i], column, sum, format, kGeneration);
      }
    }
}

// The first line of eight, whose pieces are mixed by nothing, and within it.
void require_operand(const Boxes& boxes, std::int64_t bytes, Site site) {
  const auto from = reinterpret_cast<std::uintptr_t>(boxes.from);
  if (from % 16 != 0 || from % kEightLines >= kLineBytes)
    fail(site, text("an operand at ", from % kEightLines, " of 1024 bytes: not in the first line"));
  require_shared(reinterpret_cast<const void*>(from / kEightLines * kEightLines), bytes, site);
}

bool is_spoilt(const Sums& sums) {
  for (int i = 0; i < sums.count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, sums.first + i, sizeof bits);
    if (bits != 0xffff'ffff) return false;
  }
  return true;
}

std::size_t bytes_of(const Sums& sums) {
  return static_cast<std::size_t>(sums.count) * sizeof(float);
}
int columns_of(const Sums& sums) { return 2 * sums.count; }

// Begins the product; `a` is there, wherever it lies.
void begin(const Sums& sums, const Product& product, Site site) {
  Products& products = emulator.current().products;
  const Self& self = emulator.current().self;
  if (self.thread / kGroupThreads * kGroupThreads + kGroupThreads > self.threads)
    fail(site, "a warp that is none of four whole ones");
  if (!products.begun) fail(site, "a product without a fence since the last wait");
  const std::int64_t boxes = columns_of(sums) / kBoxSide;
  require_operand(product.b,
                  product.b.along_k ? boxes * kBoxBytes : (boxes - 1) * kBoxBytes + 2 * kEightLines,
                  site);
  if (products.sums.first == nullptr) {
    products.sums = sums;
    std::memcpy(products.made, sums.first, bytes_of(sums));
    std::memset(sums.first, 0xff, bytes_of(sums));
  } else if (products.sums.first != sums.first) {
    fail(site, "sums of two arrays under way");
  }
  products.open.push_back(product);
}

}  // namespace

void copy_box(void* to, const Matrices& from, int element, int second, int third, Arrival* arrival,
              Site site) {
  if (reinterpret_cast<std::uintptr_t>(to) % kBoxAlignment != 0)
    fail(site, "the target of a box is not aligned to 1024 bytes");
  if (reinterpret_cast<std::uintptr_t>(from.data) % 16 != 0 || from.line_stride % 8 != 0 ||
      from.stride % 8 != 0)
    fail(site, "matrices whose lines do not begin at 16 bytes");
  const int line = from.woven ? third : second, matrix = from.woven ? second : third;
  std::vector<Copy> pieces;
  for (int l = 0; l < kBoxSide; ++l)
    for (int piece = 0; piece < 8; ++piece) {
      const std::int64_t at_line = std::int64_t{line} + l,
                         first = std::int64_t{element} + piece * 8;
      const bool there = matrix < from.count && at_line < from.lines && first < from.length;
      const std::int64_t left = there ? std::min<std::int64_t>(8, from.length - first) : 0;
      const auto* source = static_cast<const std::uint16_t*>(from.data) +
                           (there ? matrix * from.stride + at_line * from.line_stride + first : 0);
      emulator.observe(source, 2 * left, false);
      auto* target = static_cast<std::byte*>(to) + l * kLineBytes + ((piece ^ l % 8) * 16);
      pieces.push_back({target, source, 16, static_cast<int>(2 * left)});
    }
  copy_pieces(to, kBoxBytes, std::move(pieces), arrival, site);
}

void meet(Site site) { ballot(kAllLanes, true, site); }

void begin_products(Site site) {
  meet(site);
  emulator.current().products.begun = true;
}

void multiply_add(Sums sums, Boxes a, Boxes b, bool of_bf16, Site site) {
  require_operand(a, a.along_k ? kBoxBytes : 2 * kEightLines, site);
  meet(site);
  begin(sums, {a, b, of_bf16}, site);
}

void multiply_add(Sums sums, const unsigned (&a)[4], Boxes b, bool of_bf16, Site site) {
  const Words* const all = gather({a[0], a[1], a[2], a[3]}, site);
  Product product{{nullptr, true}, b, of_bf16};
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < kDepth; ++k) {
      const Words& words = all[emulator.current().lane / 4 * 4 + k % 8 / 2];
      product.rows[i][k] = static_cast<std::uint16_t>(
          words[static_cast<std::size_t>(i + k / 8 * 2)] >> (k % 2 * 16));
    }
  begin(sums, product, site);
}

void commit_products(Site site) {
  meet(site);
  Products& products = emulator.current().products;
  products.committed.push_back(std::move(products.open));
  products.open.clear();
}

void wait_products(int still_open, Site site) {
  meet(site);
  Products& products = emulator.current().products;
  for (; static_cast<int>(products.committed.size()) > still_open; products.committed.pop_front())
    for (const Product& product : products.committed.front())
      make(product, products.made, columns_of(products.sums));
  products.begun = false;
  if (products.sums.first == nullptr) return;
  if (!is_spoilt(products.sums)) fail(site, "sums were written while products were under way");
  if (!products.committed.empty() || !products.open.empty()) return;
  std::memcpy(products.sums.first, products.made, bytes_of(products.sums));
  products.sums = {};
}

}  // namespace isobit::simt::host
