// SPDX-License-Identifier: Apache-2.0
// Turns flags into cases; a name that is not known ends here.
#include "isobit/lab/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <type_traits>
#include <utility>

#include "isobit/lab/families.h"
#include "isobit/lab/triton.h"
#include "isobit/lab/usage.h"
#include "isobit/ops/catalog.h"

namespace isobit::lab {
namespace {

// Above this many elements only a few families are part of a grid, so that it ends.
constexpr std::int64_t kLargeCase = std::int64_t{1} << 26;
constexpr std::string_view kLargeFamilies[] = {"randn", "mean1e6", "const_grad"};

template <class T>
std::vector<T> or_else(const std::vector<T>& given, std::vector<T> fallback) {
  return given.empty() ? fallback : given;
}

DType dtype_of(std::string_view flag, std::string_view name) {
  static constexpr std::string_view kNames[] = {"f32", "f16", "bf16", "f64", "i32"};
  return *dtype_named(kNames[index_of(flag, name, kNames)]);
}

// Every type of a list once.
std::vector<DType> types_of_x(const std::vector<CaseGrid>& grids) {
  std::vector<DType> types;
  for (const CaseGrid& grid : grids)
    for (const Types& one : grid.types)
      if (!contains(types, one.x)) types.push_back(one.x);
  return types;
}

// What the flags say of types; `unnamed` where they say nothing. The types of x that an operation
// takes stand in its widest grids.
std::vector<Types> types_of(const Operation& operation, const Flags& flags,
                            const std::vector<Types>& unnamed) {
  if (flags.dtype.empty() && flags.weight_dtype.empty() && flags.y_dtype.empty()) return unnamed;
  const auto dtypes = [](std::string_view what, const std::vector<std::string>& names) {
    std::vector<DType> types;
    for (const std::string& name : names) types.push_back(dtype_of(what, name));
    return types;
  };
  const std::vector<DType> weights = dtypes("weight dtype", flags.weight_dtype);
  const std::vector<DType> ys = dtypes("y dtype", flags.y_dtype);
  std::vector<Types> types;
  const auto add = [&](DType x) {
    for (DType weight : or_else(weights, {x}))
      for (DType y : or_else(ys, {x})) types.push_back({x, weight, y});
  };
  if (flags.dtype.empty()) {
    for (const Types& one : unnamed)
      if (types.empty() || types.back().x != one.x) add(one.x);
    return types;
  }
  const std::vector<DType> known = types_of_x(operation.cases("full"));
  std::vector<std::string_view> names;
  for (DType dtype : known) names.push_back(name_of(dtype));
  for (const std::string& name : flags.dtype) {
    const DType dtype = dtype_of("dtype", name);
    if (contains(known, dtype))
      add(dtype);
    else if (one_operator(flags))
      index_of(fmt::format("{} dtype", operation.op), name, names);
  }
  return types;
}

// The extra arguments that the flags ask for, each name known.
std::vector<std::string> with_of(const Operation& operation, const Flags& flags,
                                 const CaseGrid& grid) {
  if (flags.with.empty()) return {grid.with.begin(), grid.with.end()};
  std::vector<std::string_view> extras;
  for (const Argument& argument : operation.arguments)
    if (argument.presence == Presence::extra) extras.push_back(argument.name);
  std::vector<std::string> sets;
  for (const std::string& set : flags.with) {
    sets.push_back(set == "none" ? "" : set);
    for (std::size_t start = 0; start < sets.back().size();) {
      const std::size_t end = std::min(sets.back().find('+', start), sets.back().size());
      if (one_operator(flags))
        index_of(fmt::format("{} extra argument", operation.op),
                 sets.back().substr(start, end - start), extras);
      start = end + 1;
    }
  }
  return sets;
}

// Whether statistics are given; one answer where the operation takes none.
std::vector<bool> statistics_of(const Operation& operation, const Flags& flags) {
  std::vector<bool> given;
  for (const std::string& name : flags.statistics)
    given.push_back(index_of("statistics", name, kStatistics) == 1);
  if (given.empty() || !takes_statistics(operation)) return {false};
  return given;
}

using Options = std::map<std::string_view, double>;

// What a flag's text means for an option.
double value_in(const Operation& operation, const Option& option, std::string_view text) {
  if (!option.choices.empty())
    return static_cast<double>(
        index_of(fmt::format("{} {}", operation.op, option.name), text, option.choices));
  const std::string flag = flag_of(option.name);
  const double value = number<double>(flag, text);
  if (option.whole && !(value >= 0 && value < 0x1p53 && value == std::trunc(value)))
    throw UsageError(fmt::format("{} is {}; a whole number below 2^53 is needed", flag, text));
  return value;
}

std::vector<double> values_of(const Operation& operation, const Option& option, const Flags& flags,
                              const CaseGrid* grid) {
  if (const auto given = flags.options.find(option.name);
      given != flags.options.end() && !given->second.empty()) {
    std::vector<double> values;
    for (const std::string& text : given->second)
      values.push_back(value_in(operation, option, text));
    return values;
  }
  if (grid != nullptr)
    if (const auto listed = grid->options.find(option.name); listed != grid->options.end())
      return listed->second;
  if (grid == nullptr || option.choices.empty()) return {option.fallback};
  std::vector<double> all(option.choices.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i);
  return all;
}

// Every combination of the options' values.
std::vector<Options> options_of(const Operation& operation, const Flags& flags,
                                const CaseGrid* grid) {
  for (const auto& [name, values] : flags.options) {
    const bool known =
        std::ranges::find(operation.options, name, &Option::name) != operation.options.end();
    if (!known && !values.empty() && one_operator(flags))
      throw UsageError(fmt::format("{} has no option {}", operation.op, flag_of(name)));
  }
  std::vector<Options> combinations(1);
  for (const Option& option : operation.options) {
    std::vector<Options> wider;
    for (const Options& options : combinations)
      for (double value : values_of(operation, option, flags, grid)) {
        wider.push_back(options);
        wider.back()[option.name] = value;
      }
    combinations = std::move(wider);
  }
  return combinations;
}

// Whether a flag says what to compute, so that the grid is not meant.
bool names_a_case(const Operation& operation, const Flags& flags) {
  if (!flags.rows.empty() || !flags.cols.empty() || !flags.dtype.empty() ||
      !flags.weight_dtype.empty() || !flags.y_dtype.empty() || !flags.with.empty() ||
      !flags.input.empty())
    return true;
  return std::any_of(operation.options.begin(), operation.options.end(), [&](const Option& option) {
    const auto given = flags.options.find(option.name);
    return option.choices.empty() && given != flags.options.end() && !given->second.empty();
  });
}

Flags with_small_shape(Flags flags) {
  flags.rows = or_else(flags.rows, {kSmallRows});
  flags.cols = or_else(flags.cols, {kSmallCols});
  return flags;
}

// A grid of the operation, where the flags do not say otherwise. It looks into the flags.
CaseGrid narrowed(const Operation&, const Flags&&, CaseGrid) = delete;
CaseGrid narrowed(const Operation& operation, const Flags& flags, CaseGrid grid) {
  if (!flags.rows.empty() || !flags.cols.empty()) {
    grid.rows = or_else(flags.rows, or_else(grid.rows, {64}));
    grid.cols = or_else(flags.cols, or_else(grid.cols, {768}));
    grid.shapes.clear();
  }
  for (std::int64_t rows : grid.rows)
    for (std::int64_t cols : grid.cols) grid.shapes.push_back({rows, cols});
  grid.types = types_of(operation, flags, grid.types);
  if (!flags.input.empty()) grid.inputs.assign(flags.input.begin(), flags.input.end());
  for (std::string_view family : grid.inputs) index_of("input family", family, family_names());
  return grid;
}

// Arrays whose size can be computed; whether there is as much memory is the allocator's to say.
void require_extents(std::int64_t rows, std::int64_t cols, std::int64_t offset,
                     std::int64_t row_stride) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  const auto require = [](bool condition, std::string_view flag, std::int64_t value,
                          std::string_view rule) {
    if (!condition) throw UsageError(fmt::format("--{} is {}; {}", flag, value, rule));
  };
  require(rows >= 0 && rows <= kMost, "rows", rows, "0 to 2^50 are allowed");
  require(cols >= 0 && cols <= kMost, "cols", cols, "0 to 2^50 are allowed");
  require(offset >= 0 && offset <= kMost, "offset", offset, "0 to 2^50 are allowed");
  require(row_stride == 0 || row_stride >= cols, "row-stride", row_stride,
          fmt::format("rows have {} columns", cols));
  const std::int64_t stride = std::max(row_stride, cols);
  require(stride == 0 || rows <= kMost / stride, "rows", rows,
          fmt::format("2^50 elements are the most, and a row takes {}", stride));
}

}  // namespace

bool one_operator(const Flags& flags) { return !flags.all && flags.ops.size() == 1; }

template <class T>
T number(std::string_view flag, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw UsageError(fmt::format("{} is '{}'; a {}number is needed", flag, text,
                                 std::is_integral_v<T> ? "whole " : ""));
  return value;
}

template double number(std::string_view, std::string_view);
template int number(std::string_view, std::string_view);
template std::int64_t number(std::string_view, std::string_view);
template std::uint64_t number(std::string_view, std::string_view);

std::vector<const Operation*> operations_of(const Flags& flags) {
  std::vector<std::string_view> ops, passes;
  for (const Operation* operation : catalog()) {
    if (!contains(ops, operation->op)) ops.push_back(operation->op);
    if (!contains(passes, operation->pass)) passes.push_back(operation->pass);
  }
  for (const std::string& name : flags.ops) index_of("operator", name, ops);
  for (const std::string& name : flags.pass) index_of("pass", name, passes);

  std::vector<const Operation*> selected;
  for (const Operation* operation : catalog())
    if ((flags.ops.empty() || contains(flags.ops, operation->op)) &&
        (flags.pass.empty() || contains(flags.pass, operation->pass)))
      selected.push_back(operation);
  if (selected.empty())
    throw UsageError(
        fmt::format("{} has no pass {}", fmt::join(flags.ops, ", "), fmt::join(flags.pass, ", ")));
  return selected;
}

std::vector<Case> cases_of(const Operation& operation, const Flags& flags, std::string_view grid) {
  static constexpr std::string_view kGrids[] = {"quick", "test", "full", "bench", "bench-quick"};
  if (!flags.grid.empty()) grid = kGrids[index_of("grid", flags.grid, kGrids)];
  const bool use_grid = !flags.grid.empty() || !names_a_case(operation, flags);
  const bool small = grid == "quick" && flags.grid.empty() && contains(flags.device, kTriton);
  const Flags smaller = with_small_shape(flags);
  const Flags& asked = small ? smaller : flags;
  std::vector<CaseGrid> grids = {
      {.rows = {64}, .cols = {768}, .types = {{DType::f32, DType::f32}}, .inputs = {"randn"}}};
  if (use_grid) grids = operation.cases(grid);

  std::vector<Case> cases;
  std::set<Case> known;  // flags may make cases of two grids one
  for (const CaseGrid& one : grids) {
    const CaseGrid axes = narrowed(operation, asked, one);
    const std::vector<std::string> withs = with_of(operation, flags, axes);
    const std::vector<bool> statistics = statistics_of(operation, flags);
    for (const Options& options : options_of(operation, flags, use_grid ? &axes : nullptr))
      for (const std::string& with : withs)
        for (const Types& types : axes.types)
          for (const auto& [rows, cols] : axes.shapes)
            for (std::string_view input : axes.inputs)
              for (std::uint64_t seed : or_else(flags.seed, {0}))
                for (std::int64_t offset : or_else(flags.offset, {0}))
                  for (std::int64_t row_stride : or_else(flags.row_stride, {0})) {
                    require_extents(rows, cols, offset, row_stride);
                    const bool large = cols > 0 && rows > kLargeCase / cols;
                    if (large && flags.input.empty() && !contains(kLargeFamilies, input)) continue;
                    for (bool given : statistics) {
                      Case c{.operation = &operation,
                             .rows = rows,
                             .cols = cols,
                             .types = types,
                             .options = options,
                             .input = std::string(input),
                             .seed = seed,
                             .offset = offset,
                             .row_stride = row_stride,
                             .with = with,
                             .given_statistics = given};
                      if (known.insert(c).second) cases.push_back(std::move(c));
                    }
                  }
  }
  return cases;
}

}  // namespace isobit::lab
