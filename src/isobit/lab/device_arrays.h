// SPDX-License-Identifier: Apache-2.0
// A workload's arrays as a device has them: copies of all their storage, guards and gaps too.
#pragma once

#include <vector>

#include "isobit/dispatch/device_library.h"
#include "isobit/lab/workload.h"

namespace isobit::lab {

class DeviceArrays {
 public:
  // Copies all arrays as they are. The workload outlives it.
  DeviceArrays(const Workload& workload, const DeviceLibrary& library);
  ~DeviceArrays();
  DeviceArrays(const DeviceArrays&) = delete;
  DeviceArrays& operator=(const DeviceArrays&) = delete;

  // Runs on the copies, with workspace that is kept from call to call, perhaps until wait() ends.
  void run(int variant, const Plan& plan);
  void wait() const { memory_.synchronize(nullptr); }
  // Copies what a call reads to the device again.
  void upload() const;
  // Waits, and copies everything back; or only what a call writes.
  void download() const { download_all(true); }
  void download_results() const { download_all(false); }

 private:
  struct Copy {
    const Array* array;
    std::byte* memory;
    bool written;
  };

  void download_all(bool inputs) const;
  std::byte* allocate(std::size_t bytes) const;
  void release() const;
  static void* workspace(void* self, std::size_t bytes);

  const Workload& workload_;
  const DeviceMemory& memory_;
  Arguments args_;
  Execution execution_;
  std::vector<Copy> copies_;
  void* workspace_ = nullptr;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace isobit::lab
