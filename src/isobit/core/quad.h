// SPDX-License-Identifier: Apache-2.0
// Quad precision, by the name that each architecture has for it.
#pragma once

namespace isobit {

#if defined(__CUDACC__) || defined(__HIP__)
struct quad;  // GPUs know none, and no kernel needs one
#else
#if defined(__aarch64__)
using quad = long double;
#else
using quad = __float128;
#endif
static_assert(sizeof(quad) == 16);
#endif

}  // namespace isobit
