// SPDX-License-Identifier: Apache-2.0
// Rows farther apart than 31 bits tell, for kernels that must find them.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <span>
#include <vector>

#include "isobit/core/dtype.h"
#include "isobit/core/tensor_view.h"
#include "simt/where.h"

namespace isobit::lab {

// Two rows so far apart, of which only their own elements cost memory where that is the
// processor's.
class FarRows {
 public:
  static constexpr std::int64_t kCols = 40;

  FarRows(std::int64_t stride, const DeviceLibrary* library)
      : stride_(stride), library_(library), bytes_(static_cast<std::size_t>(2 * (stride + kCols))) {
    memory_ = library == nullptr || library->device == Device::emu
                  ? mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                  : library->memory.allocate(nullptr, bytes_);
  }
  ~FarRows() {
    if (library_ == nullptr || library_->device == Device::emu)
      munmap(memory_, bytes_);
    else
      library_->memory.release(nullptr, memory_, bytes_);
  }
  FarRows(const FarRows&) = delete;
  FarRows& operator=(const FarRows&) = delete;

  TensorView view() const {
    return matrix_view(memory_, static_cast<std::int64_t>(bytes_), DType::bf16, 2, kCols, stride_);
  }
  void write(std::span<const bf16> values) const {
    for (std::size_t row = 0; row < 2; ++row)
      copy(row, [&](void* device, std::size_t bytes) {
        const void* host = values.data() + row * kCols;
        library_ == nullptr ? void(std::memcpy(device, host, bytes))
                            : library_->memory.upload(nullptr, device, host, bytes);
      });
  }
  std::vector<bf16> read() const {
    std::vector<bf16> values(2 * kCols);
    for (std::size_t row = 0; row < 2; ++row)
      copy(row, [&](const void* device, std::size_t bytes) {
        void* host = values.data() + row * kCols;
        library_ == nullptr ? void(std::memcpy(host, device, bytes))
                            : library_->memory.download(nullptr, host, device, bytes);
      });
    if (library_ != nullptr) library_->memory.synchronize(nullptr);
    return values;
  }

 private:
  template <class Copy>
  void copy(std::size_t row, const Copy& copy) const {
    copy(static_cast<bf16*>(memory_) + static_cast<std::int64_t>(row) * stride_,
         kCols * sizeof(bf16));
  }

  std::int64_t stride_;
  const DeviceLibrary* library_;
  std::size_t bytes_;
  void* memory_;
};

}  // namespace isobit::lab
