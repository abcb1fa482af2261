// SPDX-License-Identifier: Apache-2.0
// The call by name, which serves every operator at once, and the descriptions that it follows.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isobit/capi/call.h"
#include "isobit/capi/observing.h"
#include "isobit/ops/catalog.h"

namespace isobit::capi {
namespace {

std::string listed(const auto& all, auto name_of) {
  std::string list;
  for (const auto& one : all)
    if (std::string_view name = name_of(one); list.find(name) == std::string::npos)
      list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

const Operation& find(const char* op, const char* pass) {
  require(op != nullptr, "isobit_call: op is null");
  const std::string_view name = op, of = pass == nullptr ? "fwd" : pass;
  const auto all = catalog();
  const auto found = std::ranges::find_if(
      all, [&](const Operation* one) { return one->op == name && one->pass == of; });
  if (found != all.end()) return **found;
  const bool known = std::ranges::any_of(all, [&](auto* one) { return one->op == name; });
  if (known) throw InvalidArgument(text(name, ": no pass '", of, "'; known: fwd, bwd"));
  throw InvalidArgument(text("isobit_call: no operator '", name,
                             "'; known: ", listed(all, [](auto* one) { return one->op; })));
}

void set(const Operation& operation, const Arguments& args, const isobit_option& given) {
  const std::string& title = operation.title();
  require(given.name != nullptr, title, ": an option's name is null");
  const Option* option = operation.find_option(given.name);
  if (option == nullptr)
    throw InvalidArgument(
        text(title, ": no option '", given.name,
             "'; known: ", listed(operation.options, [](const Option& one) { return one.name; })));
  const auto refuse = [&](std::string_view needed) {
    throw InvalidArgument(text(title, ": ", option->name, " must be ", needed));
  };
  switch (given.type) {
    case ISOBIT_NUMBER: {
      const double number = given.value.number;
      if (option->type == OptionType::real || option->type == OptionType::yes_no)
        return option->set(args.get(), option->type == OptionType::real ? number : number != 0);
      if (option->type == OptionType::choice) refuse("a string");
      if (number != std::trunc(number) || std::fabs(number) >= 0x1p53) refuse("an integer");
      if (option->type == OptionType::whole && number < 0) refuse("a whole number");
      return option->set_whole(args.get(),
                               static_cast<std::uint64_t>(static_cast<std::int64_t>(number)));
    }
    case ISOBIT_INTEGER:
      if (option->type == OptionType::real)
        return option->set(args.get(), static_cast<double>(given.value.integer));
      if (option->type == OptionType::choice) refuse("a string");
      return option->set_whole(args.get(), option->type == OptionType::yes_no
                                               ? given.value.integer != 0
                                               : static_cast<std::uint64_t>(given.value.integer));
    case ISOBIT_TEXT: {
      if (option->choices.empty()) refuse("a number");
      const std::string_view word = given.value.text == nullptr ? "" : given.value.text;
      const auto found = std::ranges::find(option->choices, word);
      if (found == option->choices.end())
        throw InvalidArgument(text(title, ": ", option->name, " is '", word, "'; allowed: ",
                                   listed(option->choices, [](auto choice) { return choice; })));
      return option->set(args.get(), static_cast<double>(found - option->choices.begin()));
    }
    default:
      throw InvalidArgument(
          text(title, ": ", option->name, " has type code ", given.type, "; allowed: 1 to 3"));
  }
}

void set(const Operation& operation, const Arguments& args, const isobit_named_tensor& given) {
  const std::string& title = operation.title();
  require(given.name != nullptr, title, ": a tensor's name is null");
  const Argument* argument = operation.find(given.name);
  if (argument == nullptr)
    throw InvalidArgument(text(
        title, ": no argument '", given.name,
        "'; known: ", listed(operation.arguments, [](const Argument& one) { return one.name; })));
  require(!args[*argument].given(), title, ": ", given.name, " is given twice");
  args[*argument] = Reader{title}(given.name, given.tensor);
}

// JSON, of which only texts of our own are part: quotes and backslashes do not occur in them.
std::string quoted(std::string_view text) { return '"' + std::string(text) + '"'; }

template <class Items, class Write>
std::string array(const Items& items, Write write) {
  std::string text = "[";
  for (const auto& item : items) text += (text.size() > 1 ? ", " : "") + write(item);
  return text + "]";
}

std::string number(double value) { return text(value); }

std::string describe(const Dim& dim) {
  return "{\"name\": " + quoted(dim.name) + ", \"batch\": " + (dim.batch ? "true" : "false") + "}";
}

// Where an operator is several functions to C, one for each choice of `kind`: those that take the
// argument.
std::vector<std::string_view> kinds_of(const Operation& operation, const Argument& argument) {
  std::vector<std::string_view> kinds;
  const Option* kind = operation.find_option("kind");
  if (kind == nullptr) return kinds;
  const Arguments args = operation.make_arguments();
  for (std::size_t i = 0; i < kind->choices.size(); ++i) {
    kind->set(args.get(), static_cast<double>(i));
    if (args.applies(argument)) kinds.push_back(kind->choices[i]);
  }
  return kinds;
}

std::string describe(const Operation& operation, const Argument& argument) {
  static constexpr std::string_view kElements[] = {"like_x",    "like_weight", "like_y",
                                                   "statistic", "index",       "mask"};
  static constexpr std::string_view kPresences[] = {"required", "optional", "extra"};
  return "{\"name\": " + quoted(argument.name) +
         ", \"role\": " + (argument.role == Role::input ? "\"input\"" : "\"output\"") +
         ", \"dims\": " +
         array(operation.dims_of(argument),
               [&](int place) {
                 return quoted(operation.dims[static_cast<std::size_t>(place)].name);
               }) +
         ", \"elements\": " + quoted(kElements[static_cast<int>(argument.elements)]) +
         ", \"presence\": " + quoted(kPresences[static_cast<int>(argument.presence)]) +
         ", \"strides\": " + (argument.strides == Strides::any ? "\"any\"" : "\"rows\"") +
         ", \"added\": " + (argument.added ? "true" : "false") +
         ", \"kinds\": " + array(kinds_of(operation, argument), quoted) +
         ", \"meaning\": " + quoted(argument.meaning) + "}";
}

std::string describe(const Option& option) {
  static constexpr std::string_view kTypes[] = {"real", "integer", "whole", "choice", "yes_no"};
  return "{\"name\": " + quoted(option.name) +
         ", \"type\": " + quoted(kTypes[static_cast<int>(option.type)]) +
         ", \"default\": " + number(option.fallback) +
         ", \"zero_is_default\": " + (option.zero_is_default ? "true" : "false") +
         ", \"added\": " + (option.added ? "true" : "false") +
         ", \"choices\": " + array(option.choices, quoted) +
         ", \"meaning\": " + quoted(option.meaning) + "}";
}

std::string describe(const Operation& operation) {
  return "{\"op\": " + quoted(operation.op) + ", \"pass\": " + quoted(operation.pass) +
         ", \"version\": " + std::to_string(operation.version) +
         ", \"summary\": " + quoted(operation.summary) +
         ",\n  \"dims\": " + array(operation.dims, [](const Dim& dim) { return describe(dim); }) +
         ",\n  \"arguments\": " +
         array(operation.arguments,
               [&](const Argument& argument) { return "\n    " + describe(operation, argument); }) +
         ",\n  \"options\": " +
         array(operation.options,
               [](const Option& option) { return "\n    " + describe(option); }) +
         "}";
}

}  // namespace
}  // namespace isobit::capi

using namespace isobit;

isobit_status isobit_call(const char* op, const char* pass, const isobit_named_tensor* tensors,
                          int32_t tensor_count, const isobit_option* options, int32_t option_count,
                          const isobit_context* context) {
  const Operation* operation = nullptr;
  const isobit_status known =
      capi::guarded("isobit_call", [&] { operation = &capi::find(op, pass); });
  if (known != ISOBIT_OK) return known;
  const std::string& title = operation->title();
  capi::LentThreads lent;
  const isobit_status status = capi::guarded(title, [&] {
    require(tensor_count >= 0 && (tensor_count == 0 || tensors != nullptr), title,
            ": tensor_count is ", tensor_count, tensors == nullptr ? ", tensors is null" : "");
    require(option_count >= 0 && (option_count == 0 || options != nullptr), title,
            ": option_count is ", option_count, options == nullptr ? ", options is null" : "");
    const Arguments args = operation->make_arguments();
    for (const isobit_named_tensor& given : std::span(tensors, tensor_count))
      capi::set(*operation, args, given);
    const std::span given_options(options, option_count);
    for (std::size_t i = 0; i < given_options.size(); ++i) {
      const isobit_option& given = given_options[i];
      capi::set(*operation, args, given);
      for (const isobit_option& before : given_options.first(i))
        require(std::string_view(before.name) != given.name, title, ": ", given.name,
                " is given twice");
    }
    const Execution execution = capi::execution(title, context, lent);
    if (capi::observers.load(std::memory_order_relaxed) == 0)
      return operation->call(args, execution);
    std::vector<capi::WholeOption> wholes;
    for (const isobit_option& given : std::span(options, option_count))
      if (given.type == ISOBIT_INTEGER && operation->find_option(given.name)->is_integer())
        wholes.push_back({given.name, static_cast<std::uint64_t>(given.value.integer)});
    capi::observe(*operation, args, wholes, execution.machine.device,
                  [&] { operation->call(args, execution); });
  });
  return lent.interrupted ? ISOBIT_INTERNAL : status;
}

const char* isobit_operators(void) {
  static const std::string kText = [] {
    return capi::array(catalog(),
                       [](const Operation* one) { return "\n " + capi::describe(*one); }) +
           "\n";
  }();
  return kText.c_str();
}
