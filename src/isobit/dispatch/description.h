// SPDX-License-Identifier: Apache-2.0
// How a pass of an operator describes its dimensions, arguments and options. All faces of the
// operator follow from this description: the lab, the call by name, the generated headers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "isobit/core/tensor_view.h"

namespace isobit {

inline constexpr int kMaxDims = 12;
using Extents = std::array<std::int64_t, kMaxDims>;  // in the order of a pass's dims

// A named dimension. One of a pass at most is its batch: results at one index of it do not depend
// on what stands at the others, except for outputs that lack the dim, which are sums over it. It is
// the first dim of every argument that has it.
struct Dim {
  std::string_view name;       // the lab's flag: --rows
  std::int64_t usual = 1;      // its extent where no flag gives one
  std::int64_t in_parity = 1;  // for `parity` and Triton, beside any options of the quick grid
  bool batch = false;
  // Where other dims and the options determine it: its extent. Null for a free dim.
  std::int64_t (*derived)(const Extents& others, const void* args) = nullptr;
};

enum class Role { input, output };
// Which type an argument has. statistic: f32, or f64 beside f64; index: i64; mask: bool.
enum class Elements { like_x, like_weight, like_y, statistic, index, mask };
enum class Presence { required, optional, extra };  // extra: optional, and unusual
// How the lab draws an input. family: as the case says. weight: around 1. gradient: normal, or all
// the same where the family says so. index: below the extent of a dim. mask: true or false.
// begin, end: a place in the first half of a dim's extent, or one in the second or behind it.
// starts: ascending places from 0, where what lies one behind the other in a batch of 1 begins.
// produced: what another pass of the operator gives under this name.
enum class Drawn {
  none,
  family,
  normal,
  weight,
  gradient,
  index,
  begin,
  end,
  starts,
  mask,
  produced
};
// Which views it may have. rows: the last dim is adjacent, the others are evenly spaced rows.
// any: any strides that are not negative; an output's elements do not overlap.
enum class Strides { rows, any };

// One array argument. `view` finds it in the operator's own argument struct.
struct Argument {
  std::string_view name;
  Role role;
  std::string_view dims;  // by name, divided by blanks
  Elements elements;
  Presence presence;
  Drawn drawn;
  TensorView& (*view)(void* args);
  Strides strides = Strides::rows;
  std::string_view below = {};       // an index is below the extent of this dim,
  std::string_view below_each = {};  // for each in a row of this argument, if given
  // Beside both of these arguments its batch is 1, whatever the others have.
  std::array<std::string_view, 2> single_beside = {};
  bool (*applies)(const void* args) = nullptr;  // whether these options use it; null: always
  std::string_view meaning = {};                // for the generated headers
  // Whether C's struct had no such member before: then it stands at the end, and programs that were
  // compiled before leave it out.
  bool added = false;

  constexpr Argument means(std::string_view words) const {
    Argument result = *this;
    result.meaning = words;
    return result;
  }
  constexpr Argument below_extent_of(std::string_view dim) const {
    Argument result = *this;
    result.below = dim;
    return result;
  }
  constexpr Argument for_each_in_a_row_of(std::string_view argument) const {
    Argument result = *this;
    result.below_each = argument;
    return result;
  }
  constexpr Argument single_beside_both(std::string_view one, std::string_view other) const {
    Argument result = *this;
    result.single_beside = {one, other};
    return result;
  }
  constexpr Argument where(bool (*applies_to)(const void* args)) const {
    Argument result = *this;
    result.applies = applies_to;
    return result;
  }
  constexpr Argument added_later() const {
    Argument result = *this;
    result.added = true;
    return result;
  }
  constexpr Argument with_any_strides() const {
    Argument result = *this;
    result.strides = Strides::any;
    return result;
  }
};

enum class OptionType { real, integer, whole, choice, yes_no };  // whole: not negative
// What of an option a tuned plan depends on: nothing, whether it is 0, or its value.
enum class PlanDependence { none, presence, value };

// One number or choice beside the arrays.
struct Option {
  std::string_view name;
  OptionType type;
  double fallback;
  std::span<const std::string_view> choices;  // the value is an index into them; empty: a number
  double (*get)(const void* args);
  void (*set)(void* args, double value);
  void (*set_whole)(void* args, std::uint64_t value);  // every bit of an integer
  PlanDependence plan = PlanDependence::none;
  bool zero_is_default = false;   // in C's structs, which begin with zeros
  bool in_lab = true;             // whether the lab has a flag for it
  bool added = false;             // at the end of C's structs, where it may be left out
  std::string_view former = {};   // its name before 0.2, which flags still take
  std::string_view meaning = {};  // for the generated headers

  constexpr Option means(std::string_view words) const {
    Option result = *this;
    result.meaning = words;
    return result;
  }
  constexpr Option changing_plans(PlanDependence dependence) const {
    Option result = *this;
    result.plan = dependence;
    return result;
  }
  constexpr Option once_called(std::string_view name_before) const {
    Option result = *this;
    result.former = name_before;
    return result;
  }
  constexpr Option defaulting_at_zero() const {
    Option result = *this;
    result.zero_is_default = true;
    return result;
  }
  constexpr Option outside_the_lab() const {
    Option result = *this;
    result.in_lab = false;
    return result;
  }
  constexpr Option added_later() const {
    Option result = *this;
    result.added = true;
    return result;
  }
  bool is_integer() const { return type == OptionType::integer || type == OptionType::whole; }
};

namespace detail {

template <class Class, class Member>
Class class_of(Member Class::*);
template <class Class, class Member>
Member member_of(Member Class::*);

inline constexpr std::string_view kNoYes[] = {"no", "yes"};

}  // namespace detail

template <auto Member>
constexpr Argument argument(std::string_view name, Role role, std::string_view dims,
                            Elements elements, Presence presence, Drawn drawn = Drawn::none) {
  using Args = decltype(detail::class_of(Member));
  return {name, role, dims, elements, presence, drawn, [](void* args) -> TensorView& {
            return static_cast<Args*>(args)->*Member;
          }};
}

// A bool is a choice between no and yes; an enum, one among `choices`, which changes plans.
template <auto Member>
constexpr Option option(std::string_view name, double fallback,
                        std::span<const std::string_view> choices = {}) {
  using Args = decltype(detail::class_of(Member));
  using Value = decltype(detail::member_of(Member));
  constexpr bool kYesNo = std::is_same_v<Value, bool>;
  constexpr OptionType kType = kYesNo                            ? OptionType::yes_no
                               : std::is_enum_v<Value>           ? OptionType::choice
                               : std::is_floating_point_v<Value> ? OptionType::real
                               : std::is_signed_v<Value>         ? OptionType::integer
                                                                 : OptionType::whole;
  return {
      .name = name,
      .type = kType,
      .fallback = fallback,
      .choices = kYesNo ? std::span<const std::string_view>(detail::kNoYes) : choices,
      .get =
          [](const void* args) {
            return static_cast<double>(static_cast<const Args*>(args)->*Member);
          },
      .set = [](void* args,
                double value) { static_cast<Args*>(args)->*Member = static_cast<Value>(value); },
      .set_whole =
          [](void* args, std::uint64_t value) {
            static_cast<Args*>(args)->*Member = static_cast<Value>(value);
          },
      .plan = kYesNo || std::is_enum_v<Value> ? PlanDependence::value : PlanDependence::none};
}

}  // namespace isobit
