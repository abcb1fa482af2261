// SPDX-License-Identifier: Apache-2.0
// What tests of all operations share: workloads, every way to compute one, and the expectation that
// each is right and all agree.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/devices.h"
#include "isobit/lab/output.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/verdict.h"
#include "isobit/lab/workload.h"
#include "isobit/ops/catalog.h"

namespace isobit::lab {

// The bits of all outputs, one after the other.
inline std::string bits_of(const Workload& workload) {
  BitHash bits;
  for (const Argument* output : workload.outputs()) bits.add(*workload.find(output->name));
  return bits.hex();
}

// Of cases that only repeat, tests see one in so many: ISOBIT_ONE_IN in the environment, which the
// test presets set; without it they see all.
inline int one_in() {
  static const int number = [] {
    const char* text = std::getenv("ISOBIT_ONE_IN");
    return text == nullptr ? 1 : std::max(1, std::atoi(text));
  }();
  return number;
}

// Whether this run also takes smaller grids and fewer repetitions: its build is slow, or adds
// little to what others see.
inline bool thinned() { return one_in() > 3; }

// One of so many of the cases.
inline std::vector<Case> some_of(const std::vector<Case>& cases) {
  std::vector<Case> some;
  for (std::size_t i = 0; i < cases.size(); i += one_in()) some.push_back(cases[i]);
  return some;
}

// The emulator is a thousand times slower than the processor: it is given small calls, and of those
// one in so many.
inline constexpr std::int64_t kMostEmulated = 130'000;  // bytes

inline bool emulated_too(const Case& c) {
  static int calls = 0;
  attach_devices();
  const std::vector<VariantInfo> infos = c.operation->variants();
  std::int64_t bytes = 0;
  for (const Argument& argument : c.operation->arguments)
    if (const std::optional<Form> form = any_argument(c, argument))
      bytes += form->elements() * size_of(form->dtype);
  return bytes <= kMostEmulated && calls++ % (4 * one_in()) == 0 &&
         std::any_of(infos.begin(), infos.end(),
                     [](const VariantInfo& info) { return info.device == Device::emu; });
}

// Whether the bits of a case, or of a grid's, are the same on all devices.
inline bool is_canonical(const Case& c) {
  const auto arithmetic = c.options.find("arithmetic");
  return arithmetic == c.options.end() || arithmetic->second == 0;
}
inline bool is_canonical(const CaseGrid& grid) {
  const auto arithmetic = grid.options.find("arithmetic");
  return arithmetic == grid.options.end() || arithmetic->second.front() == 0;
}
// Whether the processor computes a case: in AMX's arithmetic of bf16 alone, as which a norm's
// linear layer has its results.
inline bool on_the_processor(const Case& c) {
  const bool is_product = c.operation->find("a") != nullptr;
  if (c.operation->find("q") != nullptr)  // attention has it forward
    return is_canonical(c) || (c.operation->pass == "fwd" && c.types.x == DType::bf16);
  return is_canonical(c) || (is_product ? c.types.x : c.types.y) == DType::bf16;
}

// What plans change is the same source on every instruction set. The portable kernels are the
// slowest by far: beside others they are given one of their other plans, in turn.
inline std::vector<Configuration> plans_beside(const Configuration& configuration) {
  static std::size_t turn = 0;
  std::vector<Configuration> others = other_plans(configuration);
  const bool portable = configuration.info.device == Device::cpu &&
                        configuration.info.has_instruction_sets() &&
                        configuration.isa == Isa::scalar && Machine::isas_here().size() > 1;
  if (!portable || one_in() == 1 || others.empty()) return others;
  return {others[turn++ % others.size()]};
}

// Every variant on every instruction set; the other plans for the last of the thread counts. On the
// emulator each variant's own plan and, in turn, one of the others.
inline std::vector<Configuration> every_configuration(const Workload& workload,
                                                      std::vector<int> threads) {
  static std::size_t turn = 0;
  Flags flags;
  flags.isa = isas_here();
  flags.threads = std::move(threads);
  flags.device = {"cpu"};
  if (is_canonical(workload.the_case()) && emulated_too(workload.the_case()))
    flags.device.emplace_back("emu");
  std::vector<Configuration> all = configurations_of(workload, flags, Unnamed::all).able;
  std::erase_if(all, [](const Configuration& configuration) {  // the same again
    return configuration.info.device == Device::cpu && configuration.isa != Isa::scalar &&
           !configuration.info.has_instruction_sets();
  });
  for (const Configuration& configuration : std::vector<Configuration>(all)) {
    if (configuration.info.device == Device::emu) {
      const std::vector<Configuration> others = other_plans(configuration);
      if (!others.empty()) all.push_back(others[turn++ % others.size()]);
    } else if (configuration.threads == flags.threads.back()) {
      const std::vector<Configuration> others = plans_beside(configuration);
      all.insert(all.end(), others.begin(), others.end());
    }
  }
  EXPECT_FALSE(all.empty());
  return all;
}

inline Configuration default_configuration(const Workload& workload) {
  return configurations_of(workload, Flags{}, Unnamed::best).able.at(0);
}

// Runs every way: right, beside nothing, and the same bits as the first; in an arithmetic that is a
// processor's or a GPU's, as the first there.
inline void expect_right(const Workload& workload,
                         const std::vector<Configuration>& configurations) {
  Judge judge(workload);
  using Bits = std::map<const Argument*, std::string>;
  Bits of_all, of_processor;
  for (const Configuration& configuration : configurations) {
    run(workload, configuration);
    const Verdict verdict = judge();
    const bool on_processor = configuration.info.device == Device::cpu;
    Bits& first = is_canonical(workload.the_case()) || !on_processor ? of_all : of_processor;
    const auto repeat = [&] { return command("verify", workload.the_case(), configuration); };
    ASSERT_TRUE(verdict.passed()) << verdict.complaints() << repeat();
    for (const Verdict::Output& output : verdict.outputs)
      ASSERT_EQ(output.bits, first.try_emplace(output.argument, output.bits).first->second)
          << output.argument->name << " has other bits than in the first way\n"
          << repeat();
  }
}

// Whether an argument has the batch dim, along which its operation has "rows"; others belong to
// all.
inline bool has_rows(const Operation& operation, const Argument& argument) {
  return operation.has_batch(argument);
}

// Whether all arrays are rows of adjacent elements, or vectors beside them.
inline bool of_rows(const Operation* operation) {
  return operation->dims.size() == 2 && operation->dims[0].name == "rows" &&
         operation->dims[1].name == "cols";
}

// An argument with rows of several elements.
inline bool is_matrix(const Operation& operation, const Argument& argument) {
  return has_rows(operation, argument) && operation.dims_of(argument).size() > 1;
}

// The elements of an array at one index of its first dim.
inline std::vector<std::byte> part_of(const Array& array, std::int64_t index) {
  const Form& form = array.form();
  if (form.extents.size() > 1) {
    const std::int64_t lines = form.lines() / form.extents[0];
    return array.packed(index * lines, lines);
  }
  const std::vector<std::byte> all = array.packed();
  const std::int64_t size = size_of(form.dtype);
  return {all.begin() + index * size, all.begin() + (index + 1) * size};
}

inline void put_part(const Array& array, std::int64_t index, std::span<const std::byte> part) {
  const Form& form = array.form();
  if (form.extents.size() > 1) return array.unpack(part, index * (form.lines() / form.extents[0]));
  std::vector<std::byte> all = array.packed();
  std::ranges::copy(part, all.begin() + index * std::ssize(part));
  array.unpack(all);
}

// The bytes of one index of the batch in every output that has it.
inline std::string row_bits(const Workload& workload, std::int64_t row) {
  std::string all;
  for (const Argument* output : workload.outputs())
    if (has_rows(workload.operation(), *output)) {
      const std::vector<std::byte> part = part_of(*workload.find(output->name), row);
      all.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
  return all;
}

// The bits of all outputs, one after the other.
inline std::string bits_of_outputs(const Workload& workload) {
  std::string all;
  for (const Argument* output : workload.outputs()) all += bits(*workload.find(output->name));
  return all;
}

// The case with another batch, and lines of this length, which are along the last dim that usually
// has one; other dims grow with it, but little, and none where an array would have more elements
// than `most`.
inline Case resized(Case c, std::int64_t batch, std::int64_t length, std::int64_t most = 600'000) {
  const Operation& operation = *c.operation;
  const std::span<const int> dims = operation.dims_of(operation.arguments.front());
  const int last = *std::find_if(dims.rbegin(), dims.rend(),
                                 [&](int dim) { return operation.dims[dim].usual > 1; });
  // An array may have several other dims, which share the room.
  std::ptrdiff_t others = std::max<std::ptrdiff_t>(1, std::ssize(dims) - 2);
  if (operation.op.starts_with("conv"))  // whose work is that of all dims together
    others = std::ssize(operation.dims) - std::ssize(dims) - 1;
  const double room = static_cast<double>(most / std::max<std::int64_t>(1, batch * length)) /
                      static_cast<double>(others * others);
  const auto each = static_cast<std::int64_t>(std::pow(room, 1 / static_cast<double>(others)));
  const std::int64_t other =
      std::clamp<std::int64_t>(1 + length / (16 * others), 1, std::max<std::int64_t>(each, 1));
  for (int i = 0; i < static_cast<int>(operation.dims.size()); ++i)
    c.extents[i] = i == operation.batch() ? batch : i == last ? length : other;
  const Arguments args = operation.make_arguments();
  set_options(operation, c, args);
  operation.derive(c.extents, args);
  return c;
}

// A call with every argument but the unusual ones, whose arrays nobody may touch.
inline Arguments untouchable(const Case& c) {
  const Arguments args = c.operation->make_arguments();
  set_options(*c.operation, c, args);
  std::uintptr_t address = 0;
  for (const Argument& argument : c.operation->arguments) {
    const std::optional<Form> form = any_argument(c, argument);
    if (!form || argument.presence == Presence::extra || !args.applies(argument)) continue;
    address += std::uintptr_t{1} << 40;
    const std::int64_t bytes = form->elements() * size_of(form->dtype);
    auto* data = reinterpret_cast<void*>(address);
    TensorView view{data, bytes, form->dtype, static_cast<int>(form->extents.size())};
    std::ranges::copy(form->extents, view.shape.begin());
    std::ranges::copy(strides_of(*form), view.strides.begin());
    args[argument] = view;
  }
  return args;
}

// Where options determine extents, they may leave none, or not divide what they must. And of no
// elements no image can be made.
inline bool suits_its_options(const Case& c) {
  if (c.operation->op != "interpolate" &&
      std::ranges::all_of(c.operation->dims, [](const Dim& dim) { return !dim.derived; }))
    return true;
  try {
    c.operation->check(untouchable(c));
  } catch (const InvalidArgument&) { return false; }
  return true;
}

// Every type, every option and every set of extra arguments of the quick grids, in a quarter of
// their combinations.
inline std::vector<Case> cases_of_every_type(const Operation& operation, std::int64_t rows,
                                             std::int64_t cols, std::int64_t most = 600'000) {
  using Combination = std::pair<std::map<std::string_view, double>, std::string>;
  std::vector<std::string> types;
  std::vector<Combination> combinations;
  std::set<std::pair<std::size_t, std::size_t>> chosen;
  std::vector<Case> result;
  for (Case c : cases_of(operation, Flags{}, "quick")) {
    if (!on_the_processor(c) || !c.has_free_batch()) continue;
    const auto index_in = [](auto& list, const auto& value) {
      const auto found = std::find(list.begin(), list.end(), value);
      if (found != list.end()) return static_cast<std::size_t>(found - list.begin());
      list.push_back(value);
      return list.size() - 1;
    };
    const std::size_t type = index_in(types, types_text(c.types)), known = combinations.size();
    const std::size_t combination = index_in(combinations, Combination(c.options, c.with));
    // The rule alone might leave a combination out for every type.
    const bool is_new = combination == known;
    if (!is_new && (type + combination) % 4 != 0) continue;
    if (!chosen.emplace(type, combination).second) continue;
    c.input = "randn";
    c = resized(c, rows, cols, most);
    if (suits_its_options(c)) result.push_back(c);
  }
  return result;
}

// Whether what is dropped depends on where a row stands.
inline bool drops(const Case& c) {
  const auto dropout = c.options.find("dropout");
  return dropout != c.options.end() && dropout->second > 0;
}

inline std::vector<double> values_of(const Workload& workload, std::string_view name) {
  const Array& array = *workload.find(name);
  const Form& form = array.form();
  std::vector<double> values(static_cast<std::size_t>(form.elements()));
  const std::int64_t length = form.line_length();
  for (std::int64_t line = 0; line < form.lines(); ++line)
    array.load(line, 0, std::span(values).subspan(line * length, length));
  return values;
}

// Sums in the order of rows. Convolutions add positions, of which an index of the batch has many.
inline bool sums_over_rows(const Operation* operation) {
  if (operation->op.starts_with("conv") || operation->op == "group_norm") return false;
  return std::ranges::any_of(operation->arguments, [&](const Argument& argument) {
    return argument.role == Role::output && operation->batch() >= 0 &&
           !has_rows(*operation, argument);
  });
}

// Whether what becomes of a row is multiplied by a weight: then most results are products.
inline bool feeds_a_product(const Operation& operation) {
  return std::ranges::find(operation.dims, "features", &Dim::name) != operation.dims.end();
}

// Beside huge logits the largest that is drawn, which the reference found, may be as far from
// forward's own as e^x can tell.
inline bool needs_forwards_own_results(const Operation& operation) {
  return operation.op == "linear_cross_entropy" && operation.pass == "bwd";
}

// Whether rows of columns are centred.
inline bool centres_rows(const Operation* operation) {
  return operation->find("mean") != nullptr &&
         std::ranges::find(operation->dims, "cols", &Dim::name) != operation->dims.end();
}

template <class Predicate>
std::vector<const Operation*> operations_where(Predicate predicate) {
  std::vector<const Operation*> operations;
  std::ranges::copy_if(catalog(), std::back_inserter(operations), predicate);
  return operations;
}

inline std::string name_of_pass(const testing::TestParamInfo<const Operation*>& info) {
  return std::string(info.param->op) + "_" + std::string(info.param->pass);
}

}  // namespace isobit::lab
