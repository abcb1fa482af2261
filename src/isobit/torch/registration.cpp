// SPDX-License-Identifier: Apache-2.0
// Registers by hand and checks the codes: PyTorch's own helpers end the process when a second copy
// of an adapter is loaded.
#include "isobit/torch/registration.h"

namespace isobit::torch {

Registration Registration::definitions(const char* name_space) {
  Registration result;
  result.ok_ = aoti_torch_library_init_fragment(name_space, __FILE__, __LINE__, &result.library_) ==
               AOTI_TORCH_SUCCESS;
  return result;
}

Registration Registration::implementations(const char* name_space, const char* key) {
  Registration result;
  result.ok_ = aoti_torch_library_init_impl(name_space, key, __FILE__, __LINE__,
                                            &result.library_) == AOTI_TORCH_SUCCESS;
  return result;
}

Registration::Registration(Registration&& other) noexcept { *this = std::move(other); }

Registration& Registration::operator=(Registration&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(ok_, other.ok_);
  return *this;
}

Registration::~Registration() {
  if (library_ != nullptr) aoti_torch_delete_library_object(library_);
}

void Registration::define(const std::string& schema) {
  ok_ = ok_ && aoti_torch_library_def(library_, schema.c_str()) == AOTI_TORCH_SUCCESS;
}

void Registration::implement(const char* name, Kernel kernel) {
  ok_ =
      ok_ && torch_library_impl(library_, name, kernel, TORCH_TARGET_VERSION) == AOTI_TORCH_SUCCESS;
}

}  // namespace isobit::torch
