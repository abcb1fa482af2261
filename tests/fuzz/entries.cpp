// SPDX-License-Identifier: Apache-2.0
// The table of entries. A test compares it with isobit.h.
#include "entries.h"

#include <algorithm>

#include "isobit/core/error.h"
#include "isobit/ops/catalog.h"

namespace isobit::fuzz {

std::vector<const Argument*> arguments(std::string_view op, std::string_view pass,
                                       std::string_view names) {
  const auto operation = std::ranges::find_if(
      catalog(), [&](const Operation* one) { return one->op == op && one->pass == pass; });
  require(operation != catalog().end(), "the catalog has no ", op, " ", pass);
  std::vector<const Argument*> result;
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = std::min(names.find(' ', begin), names.size());
    result.push_back((*operation)->find(names.substr(begin, end - begin)));
    require(result.back() != nullptr, op, " ", pass, " has no argument ",
            names.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

namespace {

// isobit_matmul_packed, of a matrix that is packed for the call.
isobit_status pack_and_multiply(const void* untyped, const isobit_context* context) {
  const auto* given = static_cast<const isobit_matmul_args*>(untyped);
  if (given == nullptr) return isobit_matmul_packed(nullptr, nullptr, context);
  isobit_packed_matrix* packed = nullptr;
  if (const isobit_status status = isobit_matmul_pack(given->b, context, &packed);
      status != ISOBIT_OK)
    return status;
  isobit_matmul_args args = *given;
  args.b = nullptr;
  const isobit_status status = isobit_matmul_packed(&args, packed, context);
  isobit_packed_matrix_free(packed);
  return status;
}

}  // namespace

std::span<const Entry> entries() {
  static const std::vector<Entry> kEntries = [] {
    std::vector<Entry> all = {
#include "entries.inc"
    };
    Entry packed = *std::ranges::find(all, "isobit_matmul", &Entry::function);
    packed.function = "isobit_matmul_packed";
    packed.call = pack_and_multiply;
    packed.copied = "b";
    all.push_back(std::move(packed));
    return all;
  }();
  return kEntries;
}

const Operation& operation_of(const Entry& entry) {
  return **std::ranges::find_if(catalog(), [&](const Operation* operation) {
    return operation->find(entry.arrays.front()->name) == entry.arrays.front();
  });
}

}  // namespace isobit::fuzz
