// SPDX-License-Identifier: Apache-2.0
// Makes, fills and inspects the memory of a case.
#include "isobit/lab/workload.h"

#include <fmt/format.h>

#include "isobit/lab/families.h"
#include "isobit/lab/reference.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::lab {

std::optional<Form> any_argument(const Case& c, const Argument& argument) {
  if (argument.presence == Presence::extra && !c.has(argument)) return std::nullopt;
  const DType dtype = c.dtype_of(argument);
  switch (argument.extent) {
    case Extent::matrix:        return Form{dtype, c.rows, c.cols};
    case Extent::row_vector:    return Form{dtype, 1, c.cols};
    case Extent::row_statistic: break;
  }
  return Form{dtype, 1, c.rows};
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
    const bool strided = argument.extent == Extent::matrix && case_.row_stride != 0;
    arrays_[i].emplace(*form, strided ? case_.row_stride : form->cols, case_.offset,
                       simd::threads());
    args_[argument] = arrays_[i]->view(argument.extent);
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
    if (argument.role == Role::input && argument.extent != Extent::row_statistic && arrays_[i])
      draw(argument, *arrays_[i]);
  }
  draw_statistics(*this);
  seal();
}

void Workload::draw(const Argument& argument, const Array& array) const {
  const Draw draw(case_.input, case_.seed, argument.name, array.form().dtype);
  const std::int64_t first = argument.extent == Extent::matrix ? case_.first_row : 0;
  const std::int64_t rows = array.form().rows, tasks = std::min<std::int64_t>(rows, 1024);
  simd::threads()(tasks, [&](std::int64_t task) {
    std::vector<double> values(static_cast<std::size_t>(array.form().cols));
    for (std::int64_t row = task * rows / tasks; row < (task + 1) * rows / tasks; ++row) {
      draw.row(first + row, values);
      array.store(row, 0, values);
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
      return fmt::format("memory beside {} was written", argument.name);
    if (argument.role == Role::input && arrays_[i]->storage_hash() != sealed_[i])
      return fmt::format("{} is an input and was written", argument.name);
  }
  return "";
}

}  // namespace isobit::lab
