// SPDX-License-Identifier: Apache-2.0
// Where the kernels' tests execute them: on the emulator, on the emulator with every access told to
// the detector of races (ISOBIT_RACES), or on a GPU (ISOBIT_ON_GPU).
#pragma once

#include <map>

#include "isobit/dispatch/device_library.h"
#include "isobit/lab/configurations.h"
#if !defined(ISOBIT_ON_GPU)
#include "isobit/simt/host/emulator.h"
#endif
#if defined(ISOBIT_RACES)
#include "isobit/simt/host/race.h"
#endif
#include "workloads.h"

namespace isobit::lab {

#if defined(ISOBIT_RACES)
inline constexpr bool kDetectsRaces = true;
inline void watch() { simt::host::detect_races(); }
#else
inline constexpr bool kDetectsRaces = false;
inline void watch() {}
#endif

#if defined(ISOBIT_ON_GPU)
inline constexpr Device kDevice = Device::cuda;

// Calls body(whether threads run in order) for each schedule of threads. A GPU has its own.
template <class Body>
void in_every_schedule(const Body& body) {
  body(true);
}
#else
inline constexpr Device kDevice = Device::emu;

template <class Body>
void in_every_schedule(const Body& body) {
  using simt::host::Order;
  using simt::host::Schedule;
  for (const Schedule& schedule :
       {Schedule{}, Schedule{.order = Order::reversed},
        Schedule{.order = Order::random, .seed = 1, .resident = 3, .shuffled_blocks = true},
        Schedule{.order = Order::starving, .seed = 1, .resident = 4}}) {
    // What touches memory that is not its own does so in every schedule.
    if (thinned() && schedule.order != Order::in_order) continue;
    // What races does so in every schedule.
    if (kDetectsRaces && schedule.order > Order::reversed) continue;
    simt::host::set_schedule(schedule);
    body(schedule.order == Order::in_order);
  }
  simt::host::set_schedule({});
}
#endif

// Copies of arrays on a device, and what runs there.
class OnDevice {
 public:
  explicit OnDevice(Device device) : library_(attached(device)) {}
  ~OnDevice() {
    for (const auto& [host, copy] : copies_) library_->memory.release(nullptr, copy.memory, 0);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  // Where the copy of an array lies; the same one for the same array. For the processor the array
  // itself.
  void* operator()(void* host, std::size_t bytes) {
    if (library_ == nullptr) return host;
    Copy& copy = copies_[host];
    if (copy.memory == nullptr) {
      copy = {library_->memory.allocate(nullptr, bytes), bytes};
      library_->memory.upload(nullptr, copy.memory, host, bytes);
    }
    return copy.memory;
  }

  void run(const Operation& operation, int variant, const Arguments& args) {
    const Execution execution =
        library_ != nullptr ? execution_on(*library_, nullptr) : execution_for(Isa::scalar, 1);
    if (library_ == nullptr) variant = operation.default_variant(args, execution.machine);
    operation.run(variant, operation.choose(variant, args, execution.machine), args, execution);
    if (library_ == nullptr) return;
    for (const auto& [host, copy] : copies_)
      library_->memory.download(nullptr, host, copy.memory, copy.bytes);
    library_->memory.synchronize(nullptr);
  }

 private:
  struct Copy {
    void* memory = nullptr;
    std::size_t bytes = 0;
  };

  const DeviceLibrary* library_;
  std::map<void*, Copy> copies_;
};

}  // namespace isobit::lab
