// SPDX-License-Identifier: Apache-2.0
// The parts of an operation that need no types.
#include "isobit/dispatch/operation.h"

#include <algorithm>
#include <stdexcept>

#include "isobit/core/error.h"

namespace isobit {
namespace {

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    result.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

void hold(bool condition, std::string_view op, std::string_view pass, std::string_view what,
          std::string_view rule) {
  if (!condition)
    throw std::logic_error(text("the description of ", op, " ", pass, ": ", what, " ", rule));
}

}  // namespace

bool VariantInfo::matches(std::string_view selector) const {
  if (selector == "all") return true;
  const std::string full = text('.', place(), '.', name, '.');
  return full.find(text('.', selector, '.')) != std::string::npos;
}

std::vector<std::string> VariantInfo::selectors() const {
  std::string full(place());
  full += '.';
  full += name;
  std::vector<std::string> runs;
  for (std::size_t begin = 0; begin != std::string::npos;) {
    for (std::size_t end = begin; end != std::string::npos;) {
      end = full.find('.', end + 1);
      runs.push_back(full.substr(begin, end - begin));
    }
    begin = full.find('.', begin);
    if (begin != std::string::npos) ++begin;
  }
  return runs;
}

Operation::Operation(std::string_view op, std::string_view pass, std::string_view summary,
                     int version, std::span<const Dim> dims, std::span<const Argument> arguments,
                     std::span<const Option> options)
    : op(op),
      pass(pass),
      summary(summary),
      version(version),
      dims(dims),
      arguments(arguments),
      options(options),
      title_(pass == "bwd" ? text(op, " backward") : std::string(op)) {
  hold(std::ssize(dims) <= kMaxDims, op, pass, "dims", "are more than Extents holds");
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    hold(std::ranges::count(dims, dims[i].name, &Dim::name) == 1, op, pass, dims[i].name,
         "is named twice");
    if (!dims[i].batch) continue;
    hold(batch_ < 0, op, pass, dims[i].name, "is a second batch dim");
    batch_ = i;
  }
  for (const Argument& argument : arguments) {
    std::vector<int>& places = dims_of_.emplace_back();
    for (std::string_view name : words(argument.dims)) {
      const auto known = std::ranges::find(dims, name, &Dim::name);
      hold(known != dims.end(), op, pass, name, "is a dim of an argument only");
      const int place = static_cast<int>(known - dims.begin());
      hold(std::ranges::find(places, place) == places.end(), op, pass, argument.name,
           "has one dim twice");
      hold(place != batch_ || places.empty(), op, pass, argument.name,
           "does not begin with its batch dim");
      places.push_back(place);
    }
    hold(!places.empty(), op, pass, argument.name, "has no dim");
  }
}

const Argument* Operation::find(std::string_view name) const {
  const auto found = std::ranges::find(arguments, name, &Argument::name);
  return found == arguments.end() ? nullptr : &*found;
}

const Option* Operation::find_option(std::string_view name) const {
  const auto found = std::ranges::find(options, name, &Option::name);
  return found == options.end() ? nullptr : &*found;
}

std::span<const int> Operation::dims_of(const Argument& argument) const {
  return dims_of_[static_cast<std::size_t>(&argument - arguments.data())];
}

bool Operation::has_batch(const Argument& argument) const {
  return batch_ >= 0 && dims_of(argument).front() == batch_;
}

void Operation::derive(Extents& extents, const Arguments& args) const {
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i].derived != nullptr) extents[i] = dims[i].derived(extents, args.get());
}

}  // namespace isobit
