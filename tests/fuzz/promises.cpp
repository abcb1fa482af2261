// SPDX-License-Identifier: Apache-2.0
// Judges a call by its memory before and after, and by the same call once more.
#include "promises.h"

#include <algorithm>
#include <cstring>

#include "call.h"
#include "isobit/core/error.h"

namespace isobit::fuzz {
namespace {

using Memory = std::vector<Call::Block>;

// What lies at each byte of a block.
enum Owner : std::uint8_t { kNobody = 0, kInput = 1, kOutput = 2 };
using Owners = std::vector<std::vector<std::uint8_t>>;

std::string_view name(const Array& array) { return array.argument->name; }

// Why this array should have been refused.
std::string fault(const Array& array) {
  const std::optional<__int128> reach = array.reach();
  if (!reach) return text(name(array), " describes no tensor");
  if (*reach > array.tensor.bytes) return text(name(array), " reaches beyond its storage");
  if (*reach == 0) return "";
  if (array.address) return text(name(array), " is nowhere");
  const auto address = reinterpret_cast<std::uintptr_t>(array.tensor.data);
  if (address % static_cast<std::uintptr_t>(array.element_size()) != 0)
    return text(name(array), " is not aligned");
  return "";
}

bool same_view(const Array& a, const Array& b) {
  if (a.block != b.block || a.begin != b.begin || a.tensor.dtype != b.tensor.dtype ||
      a.tensor.rank != b.tensor.rank)
    return false;
  for (int i = 0; i < a.tensor.rank; ++i)
    if (a.tensor.shape[i] != b.tensor.shape[i] ||
        (a.tensor.shape[i] > 1 && a.tensor.strides[i] != b.tensor.strides[i]))
      return false;
  return true;
}

// Marks the bytes of every array; says why the call should have been refused.
std::string mark(const Entry& entry, Call& call, Owners& owners) {
  if (std::string why = call.fault_beside_arrays(); !why.empty()) return why;
  for (const Call::Block& block : call.blocks()) owners.emplace_back(block.size());
  for (const Array& array : call.arrays())
    if (std::string why = array.given ? fault(array) : ""; !why.empty()) return why;
  const auto mark_inputs = [&](bool copied) {
    for (const Array& array : call.arrays()) {
      if (!array.given || array.is_output() || (name(array) == entry.copied) != copied) continue;
      array.each_run([&](std::int64_t begin, std::int64_t bytes) {
        for (std::int64_t i = begin; i < begin + bytes; ++i)
          owners[array.block][static_cast<std::size_t>(i)] |= kInput;
      });
    }
  };
  mark_inputs(false);
  for (const Array& array : call.arrays()) {
    if (!array.given || !array.is_output()) continue;
    std::uint8_t met = 0;
    array.each_run([&](std::int64_t begin, std::int64_t bytes) {
      for (std::int64_t i = begin; i < begin + bytes; ++i) {
        met |= owners[array.block][static_cast<std::size_t>(i)];
        owners[array.block][static_cast<std::size_t>(i)] |= kOutput;
      }
    });
    if (met & kOutput) return text(name(array), " overlaps an output");
    const auto is_view_of_this = [&](const Array& other) {
      return other.given && !other.is_output() && same_view(array, other);
    };
    if ((met & kInput) && std::ranges::none_of(call.arrays(), is_view_of_this))
      return text(name(array), " overlaps an input");
  }
  mark_inputs(true);  // what is written may lie there
  return "";
}

bool other_nan(std::int32_t dtype, const std::byte* at) {
  const auto differs = [&](auto exponent, auto canonical) {
    auto bits = exponent;
    std::memcpy(&bits, at, sizeof bits);
    const auto magnitude = static_cast<decltype(bits)>(bits << 1) >> 1;
    return magnitude > exponent && bits != canonical;
  };
  switch (dtype) {
    case ISOBIT_F32:  return differs(std::uint32_t{0x7f800000}, kNanF32);
    case ISOBIT_F16:  return differs(std::uint16_t{0x7c00}, kNanF16);
    case ISOBIT_BF16: return differs(std::uint16_t{0x7f80}, kNanBf16);
    case ISOBIT_F64:  return differs(std::uint64_t{0x7ff0000000000000}, kNanF64);
    default:          return false;
  }
}

std::string strange_nan(Call& call) {
  if (call.moves_bytes()) return "";
  for (const Array& array : call.arrays()) {
    if (!array.given || !array.is_output()) continue;
    bool found = false;
    array.each_run([&](std::int64_t begin, std::int64_t bytes) {
      for (std::int64_t i = begin; i < begin + bytes; i += array.element_size())
        found |= other_nan(array.tensor.dtype, call.blocks()[array.block].data() + i);
    });
    if (found) return text(name(array), " holds a NaN with other bits");
  }
  return "";
}

bool changed_beside_outputs(const Owners& owners, const Memory& before, const Memory& after) {
  for (std::size_t i = 0; i < owners.size(); ++i)
    for (std::size_t at = 0; at < owners[i].size(); ++at)
      if (!(owners[i][at] & kOutput) && before[i][at] != after[i][at]) return true;
  return false;
}

// Other garbage where outputs will be written.
void spoil_outputs(const Owners& owners, Memory& memory) {
  for (std::size_t i = 0; i < owners.size(); ++i)
    for (std::size_t at = 0; at < owners[i].size(); ++at)
      if (owners[i][at] == kOutput) memory[i][at] ^= std::byte{0xa5};
}

// What may be said of a call by its outcome alone.
std::string odd_outcome(const Entry& entry, const Outcome& outcome) {
  if (outcome.kept_memory) return "workspace was kept";
  if (outcome.status == ISOBIT_OK)
    return outcome.message.empty() ? "" : text("success says: ", outcome.message);
  if (outcome.status == ISOBIT_OUT_OF_MEMORY && !outcome.denied_memory)
    return "out of memory, though none was denied";
  if (outcome.status != ISOBIT_OUT_OF_MEMORY && outcome.status != ISOBIT_INVALID_ARGUMENT &&
      outcome.status != ISOBIT_UNSUPPORTED)
    return text("status ", static_cast<int>(outcome.status), ": ", outcome.message);
  if (outcome.message.find(": ") == std::string::npos ||
      !outcome.message.starts_with(entry.operation))
    return text("a refusal that names no operator: ", outcome.message);
  return "";
}

std::string judge(const Entry& entry, Call& call) {
  const Memory before = call.blocks();
  const Outcome outcome = call.run(Call::Lent::chosen);
  if (std::string why = odd_outcome(entry, outcome); !why.empty()) return why;
  if (outcome.status != ISOBIT_OK)
    return call.blocks() == before ? "" : text("wrote, then said: ", outcome.message);

  Owners owners;
  if (std::string why = mark(entry, call, owners); !why.empty()) return "accepted, though " + why;
  if (changed_beside_outputs(owners, before, call.blocks())) return "wrote beside its outputs";
  if (std::string why = strange_nan(call); !why.empty()) return why;

  const Memory after = call.blocks();
  Memory again = before;
  spoil_outputs(owners, again);
  // In place: the arrays' addresses must stay.
  for (std::size_t i = 0; i < again.size(); ++i)
    std::ranges::copy(again[i], call.blocks()[i].begin());
  const Outcome second = call.run(Call::Lent::other);
  if (second.status != ISOBIT_OK) return text("the same call was refused: ", second.message);
  return call.blocks() == after ? "" : "the same call gave other bits";
}

}  // namespace

std::string broken_promise(std::span<const Entry> entries, std::span<const std::uint8_t> input) {
  Bytes bytes(input);
  const Entry& entry = entries[bytes.below(entries.size())];
  Call call(entry, bytes);
  const std::string why = judge(entry, call);
  return why.empty() ? "" : text(entry.function, ": ", why);
}

}  // namespace isobit::fuzz
