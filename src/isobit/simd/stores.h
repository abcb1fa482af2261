// SPDX-License-Identifier: Apache-2.0
// The ways in which a vector can be stored.
#pragma once

namespace isobit::simd {

// Streaming stores bypass the caches; they need whole lines, one after the other, and never store a
// part.
enum class Stores { cached, streaming };

// Whether a value may be NaN and must then be made canonical: a comparison and a blend a vector.
enum class Nan { possible, absent };

}  // namespace isobit::simd
