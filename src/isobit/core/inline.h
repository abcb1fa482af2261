// SPDX-License-Identifier: Apache-2.0
// Marks what may be compiled for several instruction sets: such a function must never exist out of
// line, or the linker could keep the AVX-512 copy for every caller.
#pragma once

#define ISOBIT_INLINE [[gnu::always_inline]] inline
