// SPDX-License-Identifier: Apache-2.0
// The one place that a new operator must be added to.
#include "isobit/ops/catalog.h"

#include "isobit/ops/elementwise/elementwise.h"
#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/ops/rmsnorm/rmsnorm.h"

namespace isobit {

std::span<const Operation* const> catalog() {
  static const Operation* const kOperations[] = {
      &elementwise::operation(),        &layernorm::forward_operation(),
      &layernorm::backward_operation(), &rmsnorm::forward_operation(),
      &rmsnorm::backward_operation(),
  };
  return kOperations;
}

}  // namespace isobit
