// SPDX-License-Identifier: Apache-2.0
// Turns flags into cases; a name that is not known ends here.
#include "isobit/lab/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "isobit/lab/families.h"
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

// The types of x that an operation takes stand in its widest grid.
std::vector<TypePair> types_of(const Operation& operation, const Flags& flags,
                               const std::vector<TypePair>& unnamed) {
  std::vector<TypePair> types;
  std::vector<DType> weights;
  for (const std::string& name : flags.weight_dtype)
    weights.push_back(dtype_of("weight dtype", name));
  const auto add = [&](DType x) {
    for (DType weight : or_else(weights, {x})) types.push_back({x, weight});
  };
  if (flags.dtype.empty() && weights.empty()) return unnamed;
  if (flags.dtype.empty())
    for (const TypePair& pair : unnamed)
      if (types.empty() || types.back().x != pair.x) add(pair.x);

  std::vector<DType> known;
  for (const TypePair& pair : operation.cases("full").types)
    if (!contains(known, pair.x)) known.push_back(pair.x);
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

// Whether statistics are given; one answer where the operation takes none.
std::vector<bool> statistics_of(const Operation& operation, const Flags& flags) {
  std::vector<bool> given;
  for (const std::string& name : flags.statistics)
    given.push_back(index_of("statistics", name, kStatistics) == 1);
  if (given.empty() || !takes_statistics(operation)) return {false};
  return given;
}

using Options = std::map<std::string_view, double>;

std::vector<double> values_of(const Operation& operation, const Option& option, const Flags& flags,
                              const CaseGrid* grid) {
  if (const auto given = flags.options.find(option.name);
      given != flags.options.end() && !given->second.empty()) {
    std::vector<double> values;
    for (const std::string& text : given->second)
      values.push_back(option.choices.empty() ? number(option.name, text)
                                              : static_cast<double>(index_of(
                                                    fmt::format("{} {}", operation.op, option.name),
                                                    text, option.choices)));
    return values;
  }
  if (grid != nullptr && option.name == "eps" && !grid->eps.empty()) return grid->eps;
  if (grid == nullptr || option.choices.empty()) return {option.fallback};
  std::vector<double> all(option.choices.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i);
  return all;
}

// Every combination of the options' values.
std::vector<Options> options_of(const Operation& operation, const Flags& flags,
                                const CaseGrid* grid) {
  for (const auto& [name, values] : flags.options) {
    const bool known = std::any_of(operation.options.begin(), operation.options.end(),
                                   [&](const Option& option) { return option.name == name; });
    if (!known && !values.empty() && one_operator(flags))
      throw UsageError(fmt::format("{} has no option --{}", operation.op, name));
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
      !flags.weight_dtype.empty() || !flags.input.empty())
    return true;
  return std::any_of(operation.options.begin(), operation.options.end(), [&](const Option& option) {
    const auto given = flags.options.find(option.name);
    return option.choices.empty() && given != flags.options.end() && !given->second.empty();
  });
}

CaseGrid grid_of(const Operation& operation, const Flags& flags, bool use_grid,
                 std::string_view name) {
  CaseGrid grid{
      .rows = {64}, .cols = {768}, .types = {{DType::f32, DType::f32}}, .inputs = {"randn"}};
  if (use_grid) grid = operation.cases(name);
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

double number(std::string_view flag, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw UsageError(fmt::format("--{} is '{}'; a number is needed", flag, text));
  return value;
}

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
  const CaseGrid axes = grid_of(operation, flags, use_grid, grid);
  const std::vector<bool> statistics = statistics_of(operation, flags);

  std::vector<Case> cases;
  for (const Options& options : options_of(operation, flags, use_grid ? &axes : nullptr))
    for (const TypePair& types : axes.types)
      for (const auto& [rows, cols] : axes.shapes)
        for (std::string_view input : axes.inputs)
          for (std::uint64_t seed : or_else(flags.seed, {0}))
            for (std::int64_t offset : or_else(flags.offset, {0}))
              for (std::int64_t row_stride : or_else(flags.row_stride, {0})) {
                require_extents(rows, cols, offset, row_stride);
                const bool large = cols > 0 && rows > kLargeCase / cols;
                if (large && flags.input.empty() && !contains(kLargeFamilies, input)) continue;
                for (bool given : statistics)
                  cases.push_back({&operation, rows, cols, types.x, types.weight, options,
                                   std::string(input), seed, offset, row_stride, given});
              }
  return cases;
}

}  // namespace isobit::lab
