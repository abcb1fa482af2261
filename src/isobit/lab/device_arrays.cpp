// SPDX-License-Identifier: Apache-2.0
// All on the default stream: what is called later comes later.
#include "isobit/lab/device_arrays.h"

#include <new>

#include "isobit/core/error.h"

namespace isobit::lab {

DeviceArrays::DeviceArrays(const Workload& workload, const DeviceLibrary& library)
    : workload_(workload),
      memory_(library.memory),
      args_(workload.operation().make_arguments()),
      execution_(execution_on(library, nullptr)) {
  execution_.allocator = {workspace, [](void*, void*, std::size_t) {}, this};
  const Operation& operation = workload.operation();
  for (const Option& option : operation.options)
    option.set(args_.get(), option.get(workload.args().get()));
  try {
    for (const Argument& argument : operation.arguments) {
      const Array* array = workload.find(argument.name);
      if (array == nullptr) continue;
      const std::span<std::byte> storage = array->storage();
      std::byte* copy = allocate(storage.size());
      copies_.push_back({array, copy, argument.role == Role::output});
      memory_.upload(nullptr, copy, storage.data(), storage.size());
      TensorView& view = args_[argument];
      view = workload.args()[argument];
      if (view.data != nullptr)
        view.data = copy + (static_cast<std::byte*>(view.data) - storage.data());
    }
    memory_.synchronize(nullptr);
  } catch (...) {
    release();
    throw;
  }
}

DeviceArrays::~DeviceArrays() { release(); }

void DeviceArrays::run(int variant, const Plan& plan) {
  workload_.operation().run(variant, plan, args_, execution_);
}

void DeviceArrays::upload() const {
  for (const Copy& copy : copies_) {
    if (copy.written) continue;
    const std::span<std::byte> storage = copy.array->storage();
    memory_.upload(nullptr, copy.memory, storage.data(), storage.size());
  }
}

void DeviceArrays::download_all(bool inputs) const {
  for (const Copy& copy : copies_) {
    if (!copy.written && !inputs) continue;
    const std::span<std::byte> storage = copy.array->storage();
    memory_.download(nullptr, storage.data(), copy.memory, storage.size());
  }
  memory_.synchronize(nullptr);
}

std::byte* DeviceArrays::allocate(std::size_t bytes) const {
  void* memory = memory_.allocate(nullptr, bytes);
  if (memory == nullptr)
    throw DeviceError(text("cannot allocate ", bytes, " bytes of device memory for an array"));
  return static_cast<std::byte*>(memory);
}

void DeviceArrays::release() const {
  for (const Copy& copy : copies_) memory_.release(nullptr, copy.memory, 0);
  if (workspace_ != nullptr) memory_.release(nullptr, workspace_, workspace_bytes_);
}

void* DeviceArrays::workspace(void* self, std::size_t bytes) {
  auto& arrays = *static_cast<DeviceArrays*>(self);
  if (bytes > arrays.workspace_bytes_) {
    if (arrays.workspace_ != nullptr)
      arrays.memory_.release(nullptr, arrays.workspace_, arrays.workspace_bytes_);
    arrays.workspace_ = arrays.memory_.allocate(nullptr, bytes);
    arrays.workspace_bytes_ = arrays.workspace_ != nullptr ? bytes : 0;
  }
  return arrays.workspace_;
}

}  // namespace isobit::lab
