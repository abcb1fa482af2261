// SPDX-License-Identifier: Apache-2.0
// Memory for large results and workspaces on the processor, kept for the next ones.
//
// The C library returns what is larger than 32 MB to the system at once, less when it ends the
// heap, and the next result pays for fresh pages again, which costs more than the operator. A
// pool's memory is huge pages, and stays.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isobit::torch::pool {

// A block for at least so many bytes, or null where the pool does not serve them.
void* take(std::int64_t bytes);
// Gives a block back; the same bytes as it was taken with.
void give(void* block, std::int64_t bytes);

// At most so many bytes wait for their next use. 0 turns the pool off: results come from PyTorch's
// allocator then. The default is an eighth of the machine's memory.
void set_limit(std::int64_t bytes);
std::int64_t limit();

// Returns what waits to the system.
void empty();

struct Use {
  std::int64_t lent;     // bytes in tensors that live
  std::int64_t waiting;  // bytes kept for the next ones
};
Use use();

}  // namespace isobit::torch::pool
