// SPDX-License-Identifier: Apache-2.0
// What GPUs of sm_90 alone have, for kernels that are launched nowhere else: simt.h has the rest.
#pragma once

#include "isobit/simt/simt.h"

#if defined(__CUDACC__)
#include "isobit/simt/cuda/warpgroup.h"
#elif defined(__HIP__)
#include "isobit/simt/hip/warpgroup.h"
#else
#include "isobit/simt/host/warpgroup.h"
#endif
