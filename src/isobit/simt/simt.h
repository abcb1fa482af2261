// SPDX-License-Identifier: Apache-2.0
// The one header that a kernel includes: nvcc compiles it for NVIDIA's GPUs, clang's HIP for AMD's,
// any other compiler for the emulator, which executes it here.
#pragma once

#if defined(__CUDACC__)
#include "isobit/simt/cuda/launch.h"
#include "isobit/simt/cuda/matrix.h"
#include "isobit/simt/cuda/memory.h"
#elif defined(__HIP__)
#include "isobit/simt/hip/launch.h"
#include "isobit/simt/hip/matrix.h"
#include "isobit/simt/hip/memory.h"
#else
#include "isobit/simt/host/launch.h"
#include "isobit/simt/host/matrix.h"
#include "isobit/simt/host/memory.h"
#endif
