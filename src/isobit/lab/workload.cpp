// SPDX-License-Identifier: Apache-2.0
// Makes, fills and inspects the memory of a case.
#include "isobit/lab/workload.h"

#include <fmt/format.h>

#include "isobit/lab/families.h"
#include "isobit/lab/reference.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::lab {
namespace {

// Elements from a line of an array to the next, at least.
std::int64_t line_stride(const Case& c, const Form& form, Layout layout) {
  const std::size_t rank = form.extents.size();
  if (c.row_gap == 0 || rank < 2) return c.row_stride;
  std::int64_t between = form.extents.back();
  if (layout == Layout::reversed) {  // elements of two lines beside each other
    between = 1;
    for (std::size_t i = 0; i + 2 < rank; ++i) between *= form.extents[i];
  }
  return between + c.row_gap;
}

}  // namespace

std::optional<Form> any_argument(const Case& c, const Argument& argument) {
  if (argument.presence == Presence::extra && !c.has(argument)) return std::nullopt;
  return c.form_of(argument);
}

std::optional<Form> case_argument(const Case& c, const Argument& argument) {
  if (!c.given_statistics && is_given_statistic(argument)) return std::nullopt;
  return any_argument(c, argument);
}

Workload::Workload(const Case& c, const FormOf& form_of)
    : case_(c),
      args_(c.operation->make_arguments()),
      arrays_(c.operation->arguments.size()),
      sealed_(c.operation->arguments.size()) {
  set_options(operation(), case_, args_);
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const Argument& argument = operation().arguments[i];
    const std::optional<Form> form = form_of(case_, argument);
    if (!form || !args_.applies(argument)) continue;
    const Layout layout = argument.strides == Strides::any ? case_.layout : Layout::dense;
    std::vector<std::int64_t> strides;
    if (transposes(layout, argument.name)) {
      Form in_memory = *form;
      std::swap(in_memory.extents.back(), *(in_memory.extents.end() - 2));
      strides = strides_of(in_memory, Layout::dense, line_stride(case_, in_memory, Layout::dense));
      std::swap(strides.back(), *(strides.end() - 2));
    } else {
      strides = strides_of(*form, layout, line_stride(case_, *form, layout));
    }
    arrays_[i].emplace(*form, strides, case_.offset, simd::threads());
    args_[argument] = arrays_[i]->view();
  }
}

const Array* Workload::find(std::string_view name) const {
  for (std::size_t i = 0; i < arrays_.size(); ++i)
    if (operation().arguments[i].name == name && arrays_[i]) return &*arrays_[i];
  return nullptr;
}

std::vector<const Argument*> Workload::outputs() const {
  std::vector<const Argument*> given;
  for (const Argument& argument : operation().arguments)
    if (argument.role == Role::output && find(argument.name)) given.push_back(&argument);
  return given;
}

void Workload::draw() {
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const Argument& argument = operation().arguments[i];
    if (argument.role == Role::input && argument.drawn != Drawn::produced && arrays_[i])
      draw(argument, *arrays_[i]);
  }
  draw_produced(*this);
  seal();
}

void Workload::draw(const Argument& argument, const Array& array) const {
  const Form& form = array.form();
  const Draw draw(case_.input, case_.seed, argument.name, argument.drawn, form.dtype,
                  case_.bound_of(argument));
  // The family has a line for each index of the batch dim, or several.
  const std::int64_t first = case_.has_batch(argument) ? case_.first : 0;
  if (case_.has_batch(argument) && form.extents.size() == 1) {
    std::vector<double> value(1);
    for (std::int64_t i = 0; i < form.line_length(); ++i) {
      draw.line(first + i, value);
      array.store(0, i, value);
    }
    return;
  }
  const std::int64_t lines = form.lines(), tasks = std::min<std::int64_t>(lines, 1024);
  const std::int64_t before =
      form.extents[0] == 0 || form.extents.size() == 1 ? 0 : first * (lines / form.extents[0]);
  simd::threads()(tasks, [&](std::int64_t task) {
    std::vector<double> values(static_cast<std::size_t>(form.line_length()));
    for (std::int64_t line = task * lines / tasks; line < (task + 1) * lines / tasks; ++line) {
      draw.line(before + line, values);
      array.store(line, 0, values);
    }
  });
}

void Workload::seal() {
  for (std::size_t i = 0; i < arrays_.size(); ++i)
    if (operation().arguments[i].role == Role::input && arrays_[i])
      sealed_[i] = arrays_[i]->storage_hash();
}

void Workload::poison() const {
  for (const Argument* output : outputs()) find(output->name)->poison(simd::threads());
}

std::string Workload::damage() const {
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    if (!arrays_[i]) continue;
    const Argument& argument = operation().arguments[i];
    if (argument.role == Role::output && !arrays_[i]->surroundings_intact())
      return fmt::format("memory outside {} was written", argument.name);
    if (argument.role == Role::input && arrays_[i]->storage_hash() != sealed_[i])
      return fmt::format("input {} was modified", argument.name);
  }
  return "";
}

}  // namespace isobit::lab
