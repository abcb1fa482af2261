// SPDX-License-Identifier: Apache-2.0
// Calls the C interface with a workload's arrays, as a C program would.
#include <algorithm>
#include <string>
#include <vector>

#include "isobit/isobit.h"
#include "isobit/lab/callers.h"

namespace isobit::lab {
namespace {

isobit_tensor tensor_of(const TensorView& view) {
  isobit_tensor tensor{};
  tensor.data = view.data;
  tensor.bytes = view.bytes;
  tensor.dtype = 1 + static_cast<std::int32_t>(std::ranges::find(kDTypes, view.dtype) - kDTypes);
  tensor.rank = view.rank;
  std::ranges::copy(view.shape, tensor.shape);
  std::ranges::copy(view.strides, tensor.strides);
  return tensor;
}

isobit_option option_of(const Option& option, double value) {
  isobit_option given{};
  given.name = option.name.data();  // a literal, hence terminated
  if (!option.choices.empty()) {
    given.type = ISOBIT_TEXT;
    given.value.text = option.choices[static_cast<std::size_t>(value)].data();
  } else if (option.is_integer()) {
    given.type = ISOBIT_INTEGER;
    given.value.integer = static_cast<std::int64_t>(value);
  } else {
    given.type = ISOBIT_NUMBER;
    given.value.number = value;
  }
  return given;
}

}  // namespace

Called call_from_c(const Workload& workload, int threads) {
  Called called{.configuration = "C"};
  const Operation& operation = workload.operation();
  std::vector<isobit_tensor> tensors;
  std::vector<isobit_named_tensor> named;
  tensors.reserve(operation.arguments.size());
  for (const Argument& argument : operation.arguments)
    if (const TensorView& view = workload.args()[argument]; view.given())
      named.push_back({argument.name.data(), &tensors.emplace_back(tensor_of(view))});
  std::vector<isobit_option> options;
  for (const Option& option : operation.options)
    options.push_back(option_of(option, workload.the_case().options.at(option.name)));

  isobit_context context{};
  context.struct_size = sizeof context;
  context.threads = threads;
  workload.poison();
  if (isobit_call(operation.op.data(), operation.pass.data(), named.data(),
                  static_cast<std::int32_t>(named.size()), options.data(),
                  static_cast<std::int32_t>(options.size()), &context) != ISOBIT_OK) {
    called.declined = isobit_last_error();
    return called;
  }
  for (const Argument* output : workload.outputs())
    called.outputs.emplace(output->name, bits(*workload.find(output->name)));
  return called;
}

}  // namespace isobit::lab
