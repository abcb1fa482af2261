// SPDX-License-Identifier: Apache-2.0
// What nvcc's machine code tells of its kernels: the registers of a thread.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace isobit::executor {

// By the kernels' names. `elf`: the machine code of an object, as an ELF file.
std::map<std::string, int> registers_in(std::string_view elf);

}  // namespace isobit::executor
