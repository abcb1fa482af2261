// SPDX-License-Identifier: Apache-2.0
// A run-time of HIP for tests, without a GPU: memory is the processor's, and a launch is written
// down instead of made. HIP_DEVICES says how many MI300X it finds, HIP_LOADS what loading code
// gives, HIP_LAUNCHES where launches are written.
#include <hip/hip_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char* variable) {
  const char* text = getenv(variable);
  return text != NULL ? atoi(text) : 0;
}

const char* hipGetErrorString(hipError_t error) {
  return error == hipSuccess ? "no error" : "an error of the test";
}
hipError_t hipGetDeviceCount(int* count) {
  *count = number("HIP_DEVICES");
  return *count > 0 ? hipSuccess : hipErrorNoDevice;
}
hipError_t hipGetDevice(int* device) {
  *device = 0;
  return hipSuccess;
}
hipError_t hipGetLastError(void) { return hipSuccess; }
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  (void)device;
  switch (attribute) {
    case hipDeviceAttributeComputeCapabilityMajor:  *value = 9; break;
    case hipDeviceAttributeComputeCapabilityMinor:  *value = 4; break;
    case hipDeviceAttributeMultiprocessorCount:     *value = 304; break;
    case hipDeviceAttributeMaxSharedMemoryPerBlock: *value = 64 << 10; break;
    case hipDeviceAttributeL2CacheSize:             *value = 4 << 20; break;
    case hipDeviceAttributeMemoryClockRate:         *value = 1300000; break;
    case hipDeviceAttributeMemoryBusWidth:          *value = 8192; break;
    case hipDeviceAttributeClockRate:               *value = 2100000; break;
    default:                                        return hipErrorInvalidValue;
  }
  return hipSuccess;
}

hipError_t hipDeviceGetName(char* name, int bytes, hipDevice_t device) {
  (void)device;
  snprintf(name, (size_t)bytes, "a GPU of the test");
  return hipSuccess;
}
hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t device) {
  (void)device;
  *bytes = (size_t)192 << 30;
  return hipSuccess;
}

hipError_t hipMallocAsync(void** memory, size_t bytes, hipStream_t stream) {
  (void)stream;
  *memory = calloc(bytes + 1, 1);
  return *memory != NULL ? hipSuccess : hipErrorOutOfMemory;
}
hipError_t hipFreeAsync(void* memory, hipStream_t stream) {
  (void)stream;
  free(memory);
  return hipSuccess;
}
hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream) {
  (void)kind;
  (void)stream;
  memcpy(to, from, bytes);
  return hipSuccess;
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
  (void)stream;
  return hipSuccess;
}

hipError_t hipModuleLoadData(hipModule_t* module, const void* code) {
  *module = (hipModule_t)code;
  return (hipError_t)number("HIP_LOADS");
}
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  *function = (hipFunction_t)name;  // which the library keeps
  return module != NULL ? hipSuccess : hipErrorNotFound;
}
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned blocks, unsigned blocks_y,
                                 unsigned blocks_z, unsigned threads, unsigned threads_y,
                                 unsigned threads_z, unsigned shared_bytes, hipStream_t stream,
                                 void** arguments, void** extra) {
  (void)stream;
  (void)extra;
  if (arguments == NULL || blocks_y * blocks_z * threads_y * threads_z != 1)
    return hipErrorInvalidValue;
  FILE* file = fopen(getenv("HIP_LAUNCHES"), "a");
  if (file == NULL) return hipErrorFileNotFound;
  fprintf(file, "%s %u %u %u\n", (const char*)function, blocks, threads, shared_bytes);
  return fclose(file) == 0 ? hipSuccess : hipErrorUnknown;
}
