// SPDX-License-Identifier: Apache-2.0
#include "isobit/executor/elf_registers.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace isobit::executor {
namespace {

template <class T>
T read(std::string_view elf, std::size_t at) {
  if (at > elf.size() || sizeof(T) > elf.size() - at)
    throw std::runtime_error("machine code is cut short");
  T value;
  std::memcpy(&value, elf.data() + at, sizeof value);
  return value;
}

}  // namespace

// Among the attributes of all functions: a word of a format, a kind and, in the format that has a
// payload, its length. That of registers names a symbol, and how many.
std::map<std::string, int> registers_in(std::string_view elf) {
  std::map<std::string, int> registers;
  if (elf.empty()) return registers;
  const auto header = read<Elf64_Ehdr>(elf, 0);
  const auto section = [&](std::size_t index) {
    return read<Elf64_Shdr>(elf, header.e_shoff + index * header.e_shentsize);
  };
  const auto section_named = [&](std::string_view wanted) {
    const Elf64_Shdr names = section(header.e_shstrndx);
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
      const Elf64_Shdr each = section(i);
      if (wanted == elf.substr(names.sh_offset + each.sh_name).data()) return each;
    }
    throw std::runtime_error("machine code without " + std::string(wanted));
  };
  const Elf64_Shdr symbols = section_named(".symtab"), attributes = section_named(".nv.info");
  const Elf64_Shdr names = section(symbols.sh_link);
  constexpr std::uint8_t kPayload = 4, kRegisters = 0x2f;
  for (std::size_t at = attributes.sh_offset; at < attributes.sh_offset + attributes.sh_size;) {
    const auto format = read<std::uint8_t>(elf, at), kind = read<std::uint8_t>(elf, at + 1);
    if (format == kPayload && kind == kRegisters) {
      const auto index = read<std::uint32_t>(elf, at + 4);
      const auto symbol = read<Elf64_Sym>(elf, symbols.sh_offset + index * symbols.sh_entsize);
      registers[elf.substr(names.sh_offset + symbol.st_name).data()] =
          read<std::int32_t>(elf, at + 8);
    }
    at += format == kPayload ? 4 + std::size_t{read<std::uint16_t>(elf, at + 2)} : 4;
  }
  return registers;
}

}  // namespace isobit::executor
