// SPDX-License-Identifier: Apache-2.0
// `isobit run`: one call on the user's own arrays.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <map>

#include "isobit/core/error.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/npy.h"
#include "isobit/lab/output.h"
#include "isobit/lab/triton.h"
#include "isobit/lab/usage.h"
#include "isobit/lab/verdict.h"
#include "isobit/lab/ways.h"

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
      throw UsageError(fmt::format("--in has '{}'; NAME=FILE.npy is needed", pair));
    const std::string name = pair.substr(0, equals);
    index_of(fmt::format("{} {} input", operation.op, operation.pass), name, inputs);
    files[name] = read_npy(pair.substr(equals + 1));
  }
  if (!files.contains("x"))
    throw UsageError(fmt::format("{} {} needs --in x=FILE.npy", operation.op, operation.pass));
  return files;
}

// The case that the arrays' shapes and types stand for.
Case case_of(const Operation& operation, const Flags& flags, const Files& files) {
  Flags plain;
  plain.ops = flags.ops;
  plain.options = flags.options;
  plain.dtype = {"f32"};
  Case c = cases_of(operation, plain, "quick").front();
  const NpyArray& x = files.find("x")->second;
  if (x.shape.empty()) throw UsageError("x has no dimension; 1 or more are needed");
  c.cols = x.shape.back();
  c.rows = 1;
  for (std::size_t i = 0; i + 1 < x.shape.size(); ++i) c.rows *= x.shape[i];
  c.types = {x.dtype, x.dtype};
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

// Arrays as the files have them; the operator's own check says what does not fit.
Form form_of(const NpyArray& file, const Argument& argument) {
  const bool matrix = argument.extent == Extent::matrix && !file.shape.empty();
  const std::int64_t cols = matrix ? file.shape.back() : file.elements();
  return {file.dtype, cols == 0 ? 0 : file.elements() / cols, cols};
}

std::size_t row_bytes(const Form& form) {
  return static_cast<std::size_t>(form.cols * size_of(form.dtype));
}

NpyArray to_file(const Array& array, std::vector<std::int64_t> shape) {
  const Form& form = array.form();
  NpyArray file{form.dtype, std::move(shape), {}};
  file.data.resize(static_cast<std::size_t>(form.rows) * row_bytes(form));
  for (std::int64_t row = 0; row < form.rows; ++row)
    std::memcpy(file.data.data() + static_cast<std::size_t>(row) * row_bytes(form), array.row(row),
                row_bytes(form));
  return file;
}

void from_file(const Array& array, const NpyArray& file) {
  const Form& form = array.form();
  for (std::int64_t row = 0; row < form.rows; ++row)
    std::memcpy(array.row(row), file.data.data() + static_cast<std::size_t>(row) * row_bytes(form),
                row_bytes(form));
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
  const auto row_text = [&](std::int64_t row) {
    std::vector<double> values(static_cast<std::size_t>(form.cols));
    array.load(row, 0, std::span<double>(values));
    return fmt::format("[{}]", abbreviated(form.cols, " ", "... ", [&](std::int64_t col) {
                         return fmt::format("{:12.6g}", values[static_cast<std::size_t>(col)]);
                       }));
  };
  fmt::print("{} ({}, {}) {}\n {}\n", name, form.rows, form.cols, name_of(form.dtype),
             abbreviated(form.rows, "\n ", "...\n ", row_text));
}

// A workload that holds the files; inputs without a file are absent.
Workload load(const Case& c, const Files& files) {
  Workload workload(c, [&](const Case& of, const Argument& argument) -> std::optional<Form> {
    if (argument.role == Role::output) return any_argument(of, argument);
    const auto file = files.find(argument.name);
    if (file == files.end()) return std::nullopt;
    return form_of(file->second, argument);
  });
  for (const Argument& argument : c.operation->arguments) {
    if (argument.role != Role::input || !workload.args().applies(argument)) continue;
    if (const Array* array = workload.find(argument.name))
      from_file(*array, files.find(argument.name)->second);
    else if (argument.presence == Presence::required)
      throw UsageError(fmt::format("{} {} needs --in {}=FILE.npy", c.operation->op,
                                   c.operation->pass, argument.name));
  }
  workload.seal();
  c.operation->check(workload.args());
  return workload;
}

// Among the ways that were selected the default variant, where it is one of them.
Way one_way(const Workload& workload, const Flags& flags) {
  const Ways ways = ways_of(workload, flags, Unnamed::best);
  if (ways.able.empty())
    throw Unsupported(fmt::format("{} {}: no selected variant can run this call{}",
                                  workload.operation().op, workload.operation().pass,
                                  ways.reasons()));
  for (const Way& way : ways.able)
    if (!in_triton(way.info) && way.variant == workload.operation().default_variant(
                                                   workload.args(), execution_for(way).machine))
      return way;
  return ways.able.front();
}

std::vector<std::int64_t> shape_of(const Argument& output, const NpyArray& x) {
  if (output.extent == Extent::matrix) return x.shape;
  if (output.extent == Extent::row_vector) return {x.shape.back()};
  return {x.shape.begin(), x.shape.end() - 1};
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
    const Array array({DType::f64, rows, cols}, cols, 0, {});
    from_file(array, file);
    print(name, array);
  });
}

void report(const Workload& workload, const Way& way, const Verdict& verdict, const Flags& flags) {
  Json line = describe(workload.the_case(), way);
  line["outputs"] = verdict.outputs_json();
  line["passed"] = verdict.passed();
  if (flags.json) {
    fmt::print("{}\n", line.dump());
    return;
  }
  Table table({"output", ">C", ">max abs", ">max ulp", "bits"});
  for (const auto& [argument, worst, bits] : verdict.outputs)
    table.add({std::string(argument->name), short_number(worst.c), short_number(worst.max_abs),
               short_number(worst.max_ulp), bits});
  fmt::print("{} {} {}\n", workload.operation().op, workload.operation().pass, label(way));
  table.print();
}

}  // namespace

int run_files(const Flags& flags) {
  if (flags.ops.size() != 1) throw UsageError("run needs one operator");
  if (flags.dump && flags.out.empty()) throw UsageError("--dump needs --out DIR");
  const Operation& operation = *operations_of(flags).front();
  const Files files = read_files(operation, flags);
  const Workload workload = load(case_of(operation, flags, files), files);
  const Way way = one_way(workload, flags);
  run(workload, way);
  const Verdict verdict = Judge(workload)();

  if (!flags.out.empty()) std::filesystem::create_directories(flags.out);
  for (const Argument& argument : operation.arguments) {
    const Array* array = workload.find(argument.name);
    if (array == nullptr) continue;
    if (flags.print) print(argument.name, *array);
    if (argument.role == Role::output && !flags.out.empty())
      write_npy(flags.out / fmt::format("{}.npy", argument.name),
                to_file(*array, shape_of(argument, files.find("x")->second)));
  }
  if (flags.dump) dump(workload, flags);
  report(workload, way, verdict, flags);
  if (!verdict.passed()) fmt::print(stderr, "failed:\n{}", verdict.complaints());
  return verdict.passed() ? kPassed : kFailed;
}

}  // namespace isobit::lab
