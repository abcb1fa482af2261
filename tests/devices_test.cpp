// SPDX-License-Identifier: Apache-2.0
// Workloads on a device, which is the emulator here: copies of their arrays, and who is not there.
#include "isobit/core/error.h"
#include "isobit/dispatch/gpu_library.h"
#include "isobit/lab/device_arrays.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

class Devices : public testing::Test {
 protected:
  void SetUp() override {
    attach_devices();
    if (attached(Device::emu) == nullptr) GTEST_SKIP() << missing_device(Device::emu);
  }

  static Configuration emulated(const Workload& workload) {
    Flags flags;
    flags.device = {"emu"};
    return configurations_of(workload, flags, Unnamed::best).able.at(0);
  }
};

Workload small_workload() {
  Case c = cases_of_every_type(*catalog().front(), 3, 20).front();
  c.offset = 1;
  c.row_stride = 23;
  Workload workload(c);
  workload.draw();
  workload.poison();
  return workload;
}

TEST_F(Devices, ComputeOnCopiesUntilTheyAreDownloaded) {
  const Workload workload = small_workload();
  const Configuration configuration = emulated(workload);
  const std::string before = bits_of_outputs(workload);
  DeviceArrays arrays(workload, *attached(Device::emu));
  arrays.run(configuration.variant, configuration.plan);
  arrays.wait();
  EXPECT_EQ(bits_of_outputs(workload), before);
  arrays.download();
  EXPECT_NE(bits_of_outputs(workload), before);
  EXPECT_EQ(workload.damage(), "");
  EXPECT_TRUE(Judge(workload)().passed());
}

TEST_F(Devices, RunnersLeaveTheProcessorsArraysAlone) {
  const Workload workload = small_workload();
  const std::string before = bits_of_outputs(workload);
  const TimedCall timed = timed_call(workload, emulated(workload));
  timed.call();
  timed.call();
  timed.wait();
  EXPECT_EQ(bits_of_outputs(workload), before);
}

TEST_F(Devices, WhatAKernelWritesBesideItsArraysComesBackToo) {
  const Workload workload = small_workload();
  DeviceArrays arrays(workload, *attached(Device::emu));
  const Array& y = *workload.find("y");
  y.line(0)[-1] = std::byte{7};  // as if it had been written there
  EXPECT_NE(workload.damage(), "");
  arrays.download();
  EXPECT_EQ(workload.damage(), "");
}

TEST_F(Devices, AreRefusedWithTheReasonWhereTheyAreMissing) {
  if (cuda_library().library != nullptr) GTEST_SKIP() << "there is a GPU";
  try {
    execution_for(Device::cuda);
    FAIL() << "nothing was missing";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find(cuda_library().missing), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("isobit doctor"), std::string::npos);
  }
}

}  // namespace
}  // namespace isobit::lab
