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
  std::vector<std::string_view> names;
  for (DType dtype : kDTypes) names.push_back(name_of(dtype));
  return kDTypes[index_of(flag, name, names)];
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
        index_of(fmt::format("{} {} extra argument", operation.op, operation.pass),
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

bool means(std::string_view flag, std::string_view name) {
  return flag == name || flag == flag_for_both_sides(name);
}

// What the flags give for a dim or an option.
template <class T>
struct Given {
  std::span<const T> values;  // empty where they give nothing
  bool both_sides = false;    // by the flag for both

  Given(const std::map<std::string, std::vector<T>, std::less<>>& flags, std::string_view name) {
    const auto find = [&](std::string_view flag) {
      const auto found = flags.find(flag);
      if (found != flags.end()) values = found->second;
    };
    find(name);
    if (const std::string_view both = flag_for_both_sides(name); values.empty() && !both.empty()) {
      find(both);
      both_sides = !values.empty();
    }
  }
};

std::string first_side(std::string_view name) {
  return fmt::format("{}_h", flag_for_both_sides(name));
}

// Whether a name is the second of two sides that one flag gives, so that it has the first's value.
bool is_first_side_again(const auto& flags, std::string_view name) {
  return name.ends_with("_w") && Given(flags, name).both_sides &&
         Given(flags, first_side(name)).both_sides;
}

using Options = std::map<std::string_view, double>;

// Whether an option's choices, if it has any, include this one.
bool has_value(const Option& option, std::string_view text) {
  return option.choices.empty() || contains(option.choices, text);
}

// What a flag's text means for an option.
double value_in(const Operation& operation, const Option& option, std::string_view text) {
  if (!option.choices.empty())
    return static_cast<double>(
        index_of(fmt::format("{} {}", operation.op, option.name), text, option.choices));
  const std::string flag = flag_of(option.name);
  const double value = number<double>(flag, text);
  const bool in_range =
      option.type == OptionType::integer ? std::fabs(value) < 0x1p53 : value >= 0 && value < 0x1p53;
  if (option.is_integer() && !(in_range && value == std::trunc(value)))
    throw UsageError(fmt::format("{} is {}; must be a whole number below 2^53", flag, text));
  return value;
}

std::vector<double> values_of(const Operation& operation, const Option& option, const Flags& flags,
                              const CaseGrid* grid) {
  if (const Given given(flags.options, option.name); !given.values.empty()) {
    std::vector<double> values;
    for (const std::string& text : given.values)
      if (one_operator(flags) || has_value(option, text))
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
    const bool known = std::ranges::any_of(operation.options, [&name = name](const Option& option) {
      return means(name, option.name);
    });
    if (!known && !values.empty() && one_operator(flags))
      throw UsageError(
          fmt::format("{} {} has no option {}", operation.op, operation.pass, flag_of(name)));
  }
  std::vector<Options> combinations(1);
  for (const Option& option : operation.options) {
    std::vector<Options> wider;
    const bool again = is_first_side_again(flags.options, option.name);
    for (const Options& options : combinations)
      for (double value : again ? std::vector{options.at(first_side(option.name))}
                                : values_of(operation, option, flags, grid)) {
        wider.push_back(options);
        wider.back()[option.name] = value;
      }
    combinations = std::move(wider);
  }
  return combinations;
}

// What the flags give for a dim.
std::span<const std::int64_t> extents_in(const Flags& flags, const Dim& dim) {
  return Given(flags.dims, dim.name).values;
}

// Every combination of extents, in the order of the dims; those that others determine are 0.
std::vector<std::vector<std::int64_t>> shapes_of(const Operation& operation, const Flags& flags,
                                                 const CaseGrid& grid) {
  std::vector<std::vector<std::int64_t>> shapes(1);
  for (const Dim& dim : operation.dims) {
    const std::span<const std::int64_t> given = extents_in(flags, dim);
    std::vector<std::int64_t> extents(given.begin(), given.end());
    if (const auto listed = grid.dims.find(dim.name); extents.empty() && listed != grid.dims.end())
      extents = listed->second;
    if (extents.empty()) extents = {dim.derived != nullptr ? 0 : dim.usual};
    const bool again = is_first_side_again(flags.dims, dim.name);
    const std::string first = again ? first_side(dim.name) : std::string(dim.name);
    const auto index = static_cast<std::size_t>(
        std::ranges::find(operation.dims, first, &Dim::name) - operation.dims.begin());
    std::vector<std::vector<std::int64_t>> wider;
    for (const std::vector<std::int64_t>& shape : shapes)
      for (std::int64_t extent : again ? std::vector{shape[index]} : extents) {
        wider.push_back(shape);
        wider.back().push_back(extent);
      }
    shapes = std::move(wider);
  }
  return shapes;
}

// Refuses flags for dims that the operation lacks or computes.
void check_dims(const Operation& operation, const Flags& flags) {
  for (const auto& [name, extents] : flags.dims) {
    if (extents.empty()) continue;
    const auto dim = std::ranges::find_if(
        operation.dims, [&name = name](const Dim& one) { return means(name, one.name); });
    if (dim == operation.dims.end()) {
      std::vector<std::string> known;
      for (const Dim& one : operation.dims)
        if (one.derived == nullptr) known.push_back(flag_of(one.name));
      throw UsageError(fmt::format("{} has no {}; known: {}", operation.op, flag_of(name),
                                   fmt::join(known, ", ")));
    }
    if (dim->derived != nullptr)
      throw UsageError(
          fmt::format("{} computes {} from its other dimensions", operation.op, flag_of(name)));
  }
}

// The extents of one combination, with those that follow from them and the options.
Extents complete(const Operation& operation, const std::vector<std::int64_t>& shape,
                 const Options& options) {
  Extents extents{};
  std::ranges::copy(shape, extents.begin());
  const Arguments args = operation.make_arguments();
  for (const Option& option : operation.options)
    if (const auto found = options.find(option.name); found != options.end())
      option.set(args.get(), found->second);
  operation.derive(extents, args);
  return extents;
}

// Whether a flag says what to compute, so that the grid is not meant.
bool names_a_case(const Operation& operation, const Flags& flags) {
  const auto named = [&](const Dim& dim) { return !extents_in(flags, dim).empty(); };
  if (std::ranges::any_of(operation.dims, named) || !flags.dtype.empty() ||
      !flags.weight_dtype.empty() || !flags.y_dtype.empty() || !flags.with.empty() ||
      !flags.input.empty())
    return true;
  return std::any_of(operation.options.begin(), operation.options.end(), [&](const Option& option) {
    return option.choices.empty() && !Given(flags.options, option.name).values.empty();
  });
}

// A grid of the operation, where the flags do not say otherwise. It looks into the flags.
CaseGrid narrowed(const Operation&, const Flags&&, CaseGrid) = delete;
CaseGrid narrowed(const Operation& operation, const Flags& flags, CaseGrid grid) {
  const auto named = [&](const Dim& dim) { return !extents_in(flags, dim).empty(); };
  if (std::ranges::any_of(operation.dims, named)) grid.shapes.clear();
  if (grid.shapes.empty()) grid.shapes = shapes_of(operation, flags, grid);
  grid.types = types_of(operation, flags, grid.types);
  if (!flags.input.empty()) grid.inputs.assign(flags.input.begin(), flags.input.end());
  for (std::string_view family : grid.inputs) index_of("input family", family, family_names());
  return grid;
}

// Arrays whose size can be computed; whether there is as much memory is the allocator's to say.
void require_sizes(const Case& c) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  const auto require = [](bool condition, std::string_view name, std::int64_t value,
                          std::string_view rule) {
    if (!condition) throw UsageError(fmt::format("{} is {}; {}", flag_of(name), value, rule));
  };
  const Operation& operation = *c.operation;
  for (std::size_t i = 0; i < operation.dims.size(); ++i)
    require(c.extents[i] >= 0 && c.extents[i] <= kMost, operation.dims[i].name, c.extents[i],
            "allowed: 0 to 2^50");
  require(c.offset >= 0 && c.offset <= kMost, "offset", c.offset, "allowed: 0 to 2^50");
  for (const Argument& argument : operation.arguments) {
    const Form form = c.form_of(argument);
    const std::span<const int> dims = operation.dims_of(argument);
    std::int64_t elements = std::max<std::int64_t>(form.line_length(), 1);
    if (form.extents.size() >= 2 && c.row_stride != 0) {
      require(c.row_stride >= form.line_length(), "row_stride", c.row_stride,
              fmt::format("must be at least {}, the length of a row", form.line_length()));
      elements = std::max(elements, c.row_stride);
    }
    for (std::size_t i = form.extents.size() - 1; i-- > 0;) {
      require(form.extents[i] <= kMost / elements, operation.dims[dims[i]].name, form.extents[i],
              fmt::format("an array has at most 2^50 elements; one index has {}", elements));
      elements *= std::max<std::int64_t>(form.extents[i], 1);
    }
  }
}

// Of its largest array; what is too large for a number was refused.
std::int64_t elements_of(const Case& c) {
  std::int64_t most = 0;
  for (const Argument& argument : c.operation->arguments)
    most = std::max(most, c.form_of(argument).elements());
  return most;
}

// Of several operators, those that have an option but none of the choices that its flag names are
// left out. A choice that nobody has is a mistake.
void leave_out_without_choices(std::vector<const Operation*>& operations, const Flags& flags) {
  for (const auto& flag : flags.options) {
    const std::string& name = flag.first;
    const std::vector<std::string>& texts = flag.second;
    const auto option_of = [&](const Operation* operation) -> const Option* {
      const auto found = std::ranges::find(operation->options, name, &Option::name);
      return found == operation->options.end() ? nullptr : &*found;
    };
    std::vector<std::string_view> known;
    bool any = false;
    for (const Operation* operation : operations)
      if (const Option* option = option_of(operation)) {
        any |= option->choices.empty();
        known.insert(known.end(), option->choices.begin(), option->choices.end());
      }
    if (!any && !known.empty())
      for (const std::string& text : texts) index_of(name, text, known);
    std::erase_if(operations, [&](const Operation* operation) {
      const Option* option = option_of(operation);
      return option != nullptr && !texts.empty() &&
             std::ranges::none_of(texts,
                                  [&](const auto& text) { return has_value(*option, text); });
    });
  }
}

}  // namespace

std::string_view flag_for_both_sides(std::string_view name) {
  const bool is_side = name.ends_with("_h") || name.ends_with("_w");
  return is_side ? name.substr(0, name.size() - 2) : std::string_view();
}

Flags with_extents(const Operation& operation, Flags flags, std::int64_t (*extent_of)(const Dim&)) {
  for (const Dim& dim : operation.dims)
    if (dim.derived == nullptr && extents_in(flags, dim).empty())
      flags.dims[std::string(dim.name)] = {extent_of(dim)};
  return flags;
}

bool one_operator(const Flags& flags) { return !flags.all && flags.ops.size() == 1; }

template <class T>
T number(std::string_view flag, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw UsageError(fmt::format("{} is '{}'; must be a {}number", flag, text,
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
  if (!one_operator(flags)) leave_out_without_choices(selected, flags);
  return selected;
}

std::vector<Case> cases_of(const Operation& operation, const Flags& flags, std::string_view grid) {
  static constexpr std::string_view kGrids[] = {"quick", "test", "full", "bench", "bench-quick"};
  if (!flags.grid.empty()) grid = kGrids[index_of("grid", flags.grid, kGrids)];
  const bool use_grid = !flags.grid.empty() || !names_a_case(operation, flags);
  const bool small = grid == "quick" && flags.grid.empty() && contains(flags.device, kTriton);
  const Flags asked = small ? with_extents(operation, flags, small_extent) : flags;
  if (one_operator(flags)) check_dims(operation, flags);
  std::vector<CaseGrid> grids = {{.types = {{DType::f32, DType::f32}}, .inputs = {"randn"}}};
  if (use_grid) grids = operation.cases(grid);
  std::vector<Layout> layouts;
  const bool multiplies = std::ranges::count_if(operation.arguments, [](const Argument& argument) {
                            return transposes(Layout::tt, argument.name);
                          }) == 2;
  for (const std::string& name : flags.layout) {
    const bool is_nn = multiplies && name == "nn";
    layouts.push_back(is_nn ? Layout::dense
                            : static_cast<Layout>(index_of("layout", name, kLayouts)));
    if (layouts.back() >= Layout::nt && !multiplies)
      throw UsageError(
          fmt::format("{} has no matrices a and b; layout {} is for products", operation.op, name));
  }
  if (layouts.empty() || !takes_any_strides(operation)) layouts = {Layout::dense};

  std::vector<Case> cases;
  std::set<Case> known;  // flags may make cases of two grids one
  for (const CaseGrid& one : grids) {
    const CaseGrid axes = narrowed(operation, asked, one);
    const std::vector<std::string> withs = with_of(operation, flags, axes);
    const std::vector<bool> statistics = statistics_of(operation, flags);
    const bool reshaped = use_grid && flags.with.empty() && axes.shapes != one.shapes;
    const auto add = [&](Case c) {
      // What is packed in a grid's own shapes is none in others.
      if (reshaped && !c.has_free_batch()) return;
      require_sizes(c);
      const bool large = elements_of(c) > kLargeCase;
      if (large && flags.input.empty() && !contains(kLargeFamilies, c.input)) return;
      for (bool given : statistics) {
        c.given_statistics = given;
        if (known.insert(c).second) cases.push_back(c);
      }
    };
    for (const Options& options : options_of(operation, flags, use_grid ? &axes : nullptr))
      for (const std::string& with : withs)
        for (const Types& types : axes.types)
          for (const std::vector<std::int64_t>& shape : axes.shapes)
            for (std::string_view input : axes.inputs)
              for (std::uint64_t seed : or_else(flags.seed, {0}))
                for (std::int64_t offset : or_else(flags.offset, {0}))
                  for (std::int64_t row_stride : or_else(flags.row_stride, {0}))
                    for (Layout layout : layouts)
                      add({.operation = &operation,
                           .extents = complete(operation, shape, options),
                           .types = types,
                           .options = options,
                           .input = std::string(input),
                           .seed = seed,
                           .offset = offset,
                           .row_stride = row_stride,
                           .layout = layout,
                           .with = with});
  }
  return cases;
}

}  // namespace isobit::lab
