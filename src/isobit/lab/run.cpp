// SPDX-License-Identifier: Apache-2.0
// `isobit run`: one call on the user's own arrays.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

#include "isobit/core/error.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/npy.h"
#include "isobit/lab/output.h"
#include "isobit/lab/triton.h"
#include "isobit/lab/usage.h"
#include "isobit/lab/verdict.h"

namespace isobit::lab {
namespace {

using Files = std::map<std::string, NpyArray, std::less<>>;

Files read_files(const Operation& operation, const Flags& flags) {
  std::vector<std::string_view> inputs;
  for (const Argument& argument : operation.arguments)
    if (argument.role == Role::input) inputs.push_back(argument.name);
  Files files;
  for (const std::string& pair : flags.in) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos)
      throw UsageError(fmt::format("--in is '{}'; expected NAME=FILE.npy", pair));
    const std::string name = pair.substr(0, equals);
    index_of(fmt::format("{} {} input", operation.op, operation.pass), name, inputs);
    if (files.contains(name)) throw UsageError(fmt::format("--in {} is given twice", name));
    files[name] = read_npy(pair.substr(equals + 1));
  }
  const std::string_view first = operation.arguments.front().name;
  if (!files.contains(first))
    throw UsageError(
        fmt::format("{} {} needs --in {}=FILE.npy", operation.op, operation.pass, first));
  return files;
}

// Arrays as the files have them, their first dimensions as one; the operator's own check says what
// does not fit.
Form form_of(const Operation& operation, const NpyArray& file, const Argument& argument) {
  const std::size_t dims = operation.dims_of(argument).size(), rank = file.shape.size();
  const std::size_t rest = std::min(rank, dims - 1);
  Form form{file.dtype, std::vector<std::int64_t>(dims, 1)};
  std::copy_n(file.shape.end() - static_cast<std::ptrdiff_t>(rest), rest,
              form.extents.end() - static_cast<std::ptrdiff_t>(rest));
  for (std::size_t i = 0; i < rank - rest; ++i) form.extents[0] *= file.shape[i];
  return form;
}

// The case that the arrays' shapes and types stand for.
Case case_of(const Operation& operation, const Flags& flags, const Files& files) {
  Flags plain;
  plain.ops = flags.ops;
  plain.options = flags.options;
  plain.dtype = {"f32"};
  Case c = cases_of(operation, plain, "quick").front();
  const std::string_view first = operation.arguments.front().name;
  const NpyArray& x = files.find(first)->second;
  if (x.shape.empty())
    throw UsageError(fmt::format("{} has no dimensions; must have at least 1", first));
  if (!flags.dtype.empty() && flags.dtype.front() != name_of(x.dtype))
    throw UsageError(fmt::format("--dtype is {}; the file of {} has {}", flags.dtype.front(), first,
                                 name_of(x.dtype)));
  c.types = {x.dtype, x.dtype};
  c.extents = {};
  Extents known{};
  for (const Argument& argument : operation.arguments) {
    const auto file = files.find(argument.name);
    if (file == files.end()) continue;
    const Form form = form_of(operation, file->second, argument);
    const std::span<const int> dims = operation.dims_of(argument);
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (known[dims[i]]++ == 0) c.extents[dims[i]] = form.extents[i];
  }
  const Arguments options = operation.make_arguments();
  set_options(operation, c, options);
  operation.derive(c.extents, options);
  if (!flags.y_dtype.empty()) c.types.y = cases_of(operation, flags, "quick").front().types.y;
  for (const Argument& argument : operation.arguments) {
    const auto file = files.find(argument.name);
    if (file == files.end()) continue;
    if (argument.elements == Elements::like_weight) c.types.weight = file->second.dtype;
    if (argument.elements == Elements::like_y) c.types.y = file->second.dtype;
    if (argument.presence == Presence::extra) c.with += fmt::format("+{}", argument.name);
  }
  for (const std::string& with : flags.with) c.with += "+" + with;
  c.given_statistics = std::any_of(
      operation.arguments.begin(), operation.arguments.end(), [&](const Argument& argument) {
        return is_given_statistic(argument) && files.contains(argument.name);
      });
  c.input = "files";
  return c;
}

// The first and last three of more than eight, as NumPy abbreviates.
template <class Print>
std::string abbreviated(std::int64_t count, std::string_view separator, std::string_view dots,
                        Print print) {
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) {
    if (count > 8 && i == 3) {
      text += dots;
      i = count - 3;
    }
    text += fmt::format("{}{}", print(i), i + 1 < count ? separator : "");
  }
  return text;
}

void print(std::string_view name, const Array& array) {
  const Form& form = array.form();
  const auto line_text = [&](std::int64_t line) {
    std::vector<double> values(static_cast<std::size_t>(form.line_length()));
    array.load(line, 0, std::span<double>(values));
    return fmt::format("[{}]", abbreviated(form.line_length(), " ", "... ", [&](std::int64_t i) {
                         return fmt::format("{:12.6g}", values[static_cast<std::size_t>(i)]);
                       }));
  };
  fmt::print("{} ({}{}) {}\n {}\n", name, form.extents.size() == 1 ? "1, " : "",
             fmt::join(form.extents, ", "), name_of(form.dtype),
             abbreviated(form.lines(), "\n ", "...\n ", line_text));
}

// A workload that holds the files; inputs without a file are absent.
Workload load(const Case& c, const Files& files) {
  Workload workload(c, [&](const Case& of, const Argument& argument) -> std::optional<Form> {
    if (argument.role == Role::output) return any_argument(of, argument);
    const auto file = files.find(argument.name);
    if (file == files.end()) return std::nullopt;
    return form_of(*of.operation, file->second, argument);
  });
  for (const Argument& argument : c.operation->arguments) {
    if (argument.role != Role::input || !workload.args().applies(argument)) continue;
    if (const Array* array = workload.find(argument.name))
      array->unpack(files.find(argument.name)->second.data);
    else if (argument.presence == Presence::required)
      throw UsageError(fmt::format("{} {} needs --in {}=FILE.npy", c.operation->op,
                                   c.operation->pass, argument.name));
  }
  workload.seal();
  c.operation->check(workload.args());
  return workload;
}

// The default variant, where it is among what was selected.
Configuration one_configuration(const Workload& workload, const Flags& flags) {
  const Configurations configurations = configurations_of(workload, flags, Unnamed::best);
  if (configurations.able.empty())
    throw Unsupported(fmt::format("{} {}: no selected variant supports this call{}",
                                  workload.operation().op, workload.operation().pass,
                                  configurations.reasons()));
  for (const Configuration& configuration : configurations.able)
    if (!in_triton(configuration.info) &&
        configuration.variant == workload.operation().default_variant(
                                     workload.args(), execution_for(configuration).machine))
      return configuration;
  return configurations.able.front();
}

// An output's own extents, its batch dim as the leading dimensions of x.
std::vector<std::int64_t> shape_of(const Workload& workload, const Argument& output,
                                   const NpyArray& x) {
  const Operation& operation = workload.operation();
  std::vector<std::int64_t> shape = workload.find(output.name)->form().extents;
  if (!operation.has_batch(output)) return shape;
  const auto rest = std::ssize(operation.dims_of(operation.arguments.front())) - 1;
  const auto leading = std::max<std::ptrdiff_t>(std::ssize(x.shape) - rest, 0);
  shape.erase(shape.begin());
  shape.insert(shape.begin(), x.shape.begin(), x.shape.begin() + leading);
  return shape;
}

void dump(const Workload& workload, const Flags& flags) {
  const std::filesystem::path folder = flags.out / "intermediates";
  std::filesystem::create_directories(folder);
  emit_intermediates(workload, [&](std::string_view name, std::int64_t rows, std::int64_t cols,
                                   std::span<const double> values) {
    NpyArray file{DType::f64, {rows, cols}, {}};
    const auto bytes = std::as_bytes(values);
    file.data.assign(bytes.begin(), bytes.end());
    write_npy(folder / fmt::format("{}.npy", name), file);
    if (!flags.print) return;
    const Array array({DType::f64, {rows, cols}});
    array.unpack(file.data);
    print(name, array);
  });
}

void report(const Workload& workload, const Configuration& configuration, const Verdict& verdict,
            const Flags& flags) {
  Json line = describe(workload.the_case(), configuration);
  line["outputs"] = verdict.outputs_json();
  line["limit"] = verdict.limit;
  line["passed"] = verdict.passed();
  if (flags.json) {
    fmt::print("{}\n", line.dump());
    return;
  }
  Table table({"output", ">C", ">max abs", ">max ulp", "bits"});
  for (const Verdict::Output& output : verdict.outputs)
    table.add({std::string(output.argument->name), short_number(output.deviation.c),
               short_number(output.deviation.max_abs), short_number(output.deviation.max_ulp),
               output.bits});
  fmt::print("{} {} {}\n", workload.operation().op, workload.operation().pass,
             label(configuration));
  table.print();
}

// Where other commands take a grid, run has one call.
void require_one_of_each(const Flags& flags) {
  const auto require = [](std::string_view flag, std::size_t values) {
    if (values > 1) throw UsageError(fmt::format("{} has {} values; run takes one", flag, values));
  };
  require("--pass", flags.pass.size());
  require("--dtype", flags.dtype.size());
  require("--y-dtype", flags.y_dtype.size());
  require("--device", flags.device.size());
  require("--isa", flags.isa.size());
  require("--threads", flags.threads.size());
  for (const auto& [name, values] : flags.options) require(flag_of(name), values.size());
}

}  // namespace

int run_files(const Flags& flags) {
  if (flags.ops.size() != 1) throw UsageError("run needs exactly one operator");
  require_one_of_each(flags);
  if (flags.dump && flags.out.empty()) throw UsageError("--dump needs --out DIR");
  const Operation& operation = *operations_of(flags).front();
  const Files files = read_files(operation, flags);
  const Workload workload = load(case_of(operation, flags, files), files);
  const Configuration configuration = one_configuration(workload, flags);
  run(workload, configuration);
  const Verdict verdict = Judge(workload)();

  if (!flags.out.empty()) std::filesystem::create_directories(flags.out);
  for (const Argument& argument : operation.arguments) {
    const Array* array = workload.find(argument.name);
    if (array == nullptr) continue;
    if (flags.print) print(argument.name, *array);
    if (argument.role == Role::output && !flags.out.empty())
      write_npy(flags.out / fmt::format("{}.npy", argument.name),
                {array->form().dtype,
                 shape_of(workload, argument, files.find(operation.arguments.front().name)->second),
                 array->packed()});
  }
  if (flags.dump) dump(workload, flags);
  report(workload, configuration, verdict, flags);
  if (!verdict.passed()) fmt::print(stderr, "failed:\n{}", verdict.complaints());
  return verdict.passed() ? kPassed : kFailed;
}

}  // namespace isobit::lab
