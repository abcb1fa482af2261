// SPDX-License-Identifier: Apache-2.0
// The names of a function of PTX: which registers and which memory they stand for.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "isobit/executor/warp.h"

namespace isobit::executor {

inline std::uint32_t aligned(std::uint32_t at, std::int64_t alignment) {
  const auto to = static_cast<std::uint32_t>(std::max<std::int64_t>(alignment, 1));
  return (at + to - 1) / to * to;
}

inline constexpr std::uint32_t kSlotAlignment = 64;

// The bytes of 32 values, or of a predicate, whose width is 0.
inline int bytes_of_slot(int width) { return width == 0 ? 4 : width * kLanes; }

// A function's constants: a number, the same in each lane.
class Constants {
 public:
  explicit Constants(Function& function) : function_(function) {}

  Slot slot(std::uint64_t bits, int width) {
    const auto [found, is_new] = slots_.try_emplace({bits, width}, 0);
    if (!is_new) return found->second;
    auto& all = function_.constants;
    const std::uint32_t at = aligned(static_cast<std::uint32_t>(all.size()), kSlotAlignment);
    all.resize(at + static_cast<std::size_t>(bytes_of_slot(width)));
    if (width == 0) {
      const std::uint32_t lanes = bits != 0 ? kAllLanes : 0;
      std::memcpy(&all[at], &lanes, sizeof lanes);
    } else {
      for (int lane = 0; lane < kLanes; ++lane)
        std::memcpy(&all[at + static_cast<std::size_t>(lane * width)], &bits,
                    static_cast<std::size_t>(width));
    }
    return found->second = at | kConstant;
  }

 private:
  Function& function_;
  std::map<std::pair<std::uint64_t, int>, Slot> slots_;
};

class Names {
 public:
  struct Register {
    Slot slot;
    int width;  // 0: a predicate
  };

  // Gives everything that is declared its place in the function.
  Names(const Text& text, Function& function)
      : text_(text), function_(function), constants_(function) {
    for (const Declaration& result : text.results) function.results.push_back(variable(result));
    for (const Declaration& parameter : text.parameters) declare_parameter(parameter);
    for (const Declaration& each : text.declarations) declare(each);
  }

  std::optional<Register> register_named(std::string_view name, int scope) const {
    if (const auto found = in_scopes(registers_, name, scope)) return found;
    std::size_t digits = name.size();
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
    const auto range = ranges_.find(name.substr(0, digits));
    if (digits == name.size() || range == ranges_.end()) return std::nullopt;
    const auto index = std::stoul(std::string(name.substr(digits)));
    const auto& [first, width, count] = range->second;
    if (index >= static_cast<std::size_t>(count)) return std::nullopt;
    return Register{first + static_cast<Slot>(index) * static_cast<Slot>(bytes_of_slot(width)),
                    width};
  }

  // In local memory: a variable, or a parameter of a function.
  std::optional<Variable> local(std::string_view name, int scope) const {
    return in_scopes(locals_, name, scope);
  }
  // A kernel's, as an offset into their buffer.
  std::optional<std::uint32_t> entry_parameter(std::string_view name) const {
    const auto found = entry_parameters_.find(name);
    return found == entry_parameters_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<std::size_t> label(std::string_view name, int scope) const {
    return in_scopes(text_.labels, name, scope);
  }

  Slot new_register(int width, std::int64_t count) {
    const Slot at = aligned(function_.register_bytes, kSlotAlignment);
    function_.register_bytes =
        at + static_cast<std::uint32_t>(count) * static_cast<std::uint32_t>(bytes_of_slot(width));
    return at;
  }

  Slot constant(std::uint64_t bits, int width) { return constants_.slot(bits, width); }

 private:
  struct Range {
    Slot first;
    int width;
    std::int64_t count;
  };
  using Key = std::pair<int, std::string_view>;  // a scope and a name

  Variable variable(const Declaration& declared) {
    const std::uint32_t at = aligned(function_.local_bytes, declared.alignment);
    const auto bytes = static_cast<std::uint32_t>(declared.bytes * declared.count);
    function_.local_bytes = at + bytes;
    return locals_[{declared.scope, declared.name}] = {at, bytes};
  }

  void declare_parameter(const Declaration& declared) {
    if (!text_.is_entry) {
      function_.parameters.push_back(variable(declared));
      return;
    }
    const std::uint32_t at = aligned(function_.parameter_bytes, declared.alignment);
    const auto bytes = static_cast<std::uint32_t>(declared.bytes * declared.count);
    function_.parameter_bytes = at + bytes;
    function_.parameters.push_back({at, bytes});
    entry_parameters_[declared.name] = at;
  }

  void declare(const Declaration& declared) {
    if (declared.space == ".local" || declared.space == ".param") {
      variable(declared);
    } else if (declared.space == ".shared") {
      throw PtxError(std::string(text_.name) +
                     ": static shared memory; the project's kernels have dynamic only");
    } else if (declared.is_range) {
      ranges_[declared.name] = {new_register(declared.bytes, declared.count), declared.bytes,
                                declared.count};
    } else {
      registers_[{declared.scope, declared.name}] = {new_register(declared.bytes, 1),
                                                     declared.bytes};
    }
  }

  // What a name means in a scope, or in one around it.
  template <class Found>
  std::optional<Found> in_scopes(const std::map<Key, Found>& map, std::string_view name,
                                 int scope) const {
    for (; scope >= 0; scope = text_.parents[static_cast<std::size_t>(scope)])
      if (const auto found = map.find(Key(scope, name)); found != map.end()) return found->second;
    return std::nullopt;
  }

  const Text& text_;
  Function& function_;
  std::map<Key, Register> registers_;
  std::map<std::string_view, Range> ranges_;
  std::map<Key, Variable> locals_;
  std::map<std::string_view, std::uint32_t> entry_parameters_;
  Constants constants_;
};

}  // namespace isobit::executor
