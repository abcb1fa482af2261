// SPDX-License-Identifier: Apache-2.0
// Memory for large results and workspaces on the processor, kept for the next ones.
//
// The C library returns what is larger than 32 MB to the system at once, less when it ends the
// heap, and the next result pays for fresh pages again, which costs more than the operator. A
// pool's memory is huge pages, and stays. Addresses in small pages take long to translate: one row
// times a packed matrix of 4096 x 4096 f32 took 1.1 to 1.3 times as long [Intel Xeon 6/167].
//
// libisobit.so has one, for workspaces and packed matrices; the adapter to PyTorch has its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isobit::pool {

// A block for at least so many bytes, or null where the pool does not serve them.
void* take(std::int64_t bytes);
// Gives a block back; the same bytes as it was taken with.
void give(void* block, std::int64_t bytes);

// Memory of any size, from a cache line on: from the pool where that serves so much, elsewhere from
// the C library; null where there is none.
void* allocate(std::size_t bytes);
void release(void* memory);

// At most so many bytes wait for their next use. 0 turns the pool off. The default is 64 MiB,
// and 0 under AddressSanitizer.
void set_limit(std::int64_t bytes);
std::int64_t limit();

// Returns what waits to the system.
void empty();

struct Use {
  std::int64_t lent;     // bytes in use
  std::int64_t waiting;  // bytes kept for the next ones
};
Use use();

}  // namespace isobit::pool
