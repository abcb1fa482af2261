// SPDX-License-Identifier: Apache-2.0
// Reads and writes .npy: a magic word, the length of a header, the header as a Python dictionary,
// the elements.
#include "isobit/lab/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <regex>
#include <stdexcept>
#include <string>

namespace isobit::lab {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr std::size_t kMagicSize = 6;
constexpr std::size_t kHeaderAlignment = 64;  // of the elements, as NumPy writes them

struct Descr {
  DType dtype;
  const char* text;
};
constexpr Descr kDescrs[] = {{DType::f32, "<f4"}, {DType::f16, "<f2"}, {DType::f64, "<f8"},
                             {DType::i32, "<i4"}, {DType::i64, "<i8"}, {DType::boolean, "|b1"},
                             {DType::u8, "|u1"},  {DType::bf16, "<u2"}};

class Reader {
 public:
  explicit Reader(const std::filesystem::path& file)
      : name_(file.string()), in_(file, std::ios::binary) {
    require(in_.is_open(), "cannot be opened");
  }

  void bytes(void* to, std::size_t count) {
    in_.read(static_cast<char*>(to), static_cast<std::streamsize>(count));
    require(in_.gcount() == static_cast<std::streamsize>(count), "ends too early");
  }

  void require(bool condition, std::string_view what) const {
    if (!condition) throw std::runtime_error(fmt::format("{}: {}", name_, what));
  }

  // What follows 'key': in the dictionary, as far as `pattern` goes.
  std::string value(const std::string& header, const char* key, const char* pattern) const {
    std::smatch match;
    const std::regex entry(fmt::format("'{}'\\s*:\\s*{}", key, pattern));
    require(std::regex_search(header, match, entry),
            fmt::format("has no valid '{}' in its header", key));
    return match[1];
  }

 private:
  std::string name_;
  std::ifstream in_;
};

}  // namespace

std::int64_t NpyArray::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

NpyArray read_npy(const std::filesystem::path& file) {
  Reader reader(file);
  char magic[kMagicSize];
  std::uint8_t version[2];
  reader.bytes(magic, sizeof magic);
  reader.require(std::memcmp(magic, kMagic, kMagicSize) == 0, "is not a .npy file");
  reader.bytes(version, sizeof version);
  reader.require(version[0] >= 1 && version[0] <= 3,
                 fmt::format("has version {}; supported: 1 to 3", version[0]));
  std::uint32_t length = 0;  // little-endian, as is every machine that this runs on
  reader.bytes(&length, version[0] == 1 ? 2 : 4);
  reader.require(length <= 10000, "has a header of more than 10000 bytes");
  std::string header(length, '\0');
  reader.bytes(header.data(), length);

  NpyArray array;
  const std::string descr = reader.value(header, "descr", "'([^']*)'");
  const auto known = std::find_if(std::begin(kDescrs), std::end(kDescrs),
                                  [&](const Descr& entry) { return entry.text == descr; });
  reader.require(
      known != std::end(kDescrs),
      fmt::format("has elements '{}'; supported: <f4, <f2, <f8, <i4, <i8, |b1, |u1, <u2 (bf16)",
                  descr));
  array.dtype = known->dtype;

  const std::string shape = reader.value(header, "shape", "\\(([0-9, ]*)\\)");
  const std::regex digits("[0-9]+");
  std::int64_t bytes = size_of(array.dtype);
  for (std::sregex_iterator it(shape.begin(), shape.end(), digits), end; it != end; ++it) {
    reader.require(it->length() <= 18, "has a dimension that is too large");
    array.shape.push_back(std::stoll(it->str()));
    reader.require(!__builtin_mul_overflow(bytes, array.shape.back(), &bytes), "is too large");
  }
  const bool fortran = reader.value(header, "fortran_order", "(True|False)") == "True";
  reader.require(!fortran || array.shape.size() < 2,
                 "is in Fortran order; convert it with np.ascontiguousarray()");
  array.data.resize(static_cast<std::size_t>(bytes));
  reader.bytes(array.data.data(), array.data.size());
  return array;
}

void write_npy(const std::filesystem::path& file, const NpyArray& array) {
  const auto known = std::find_if(std::begin(kDescrs), std::end(kDescrs),
                                  [&](const Descr& entry) { return entry.dtype == array.dtype; });
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", known->text,
                  fmt::join(array.shape, ", "), array.shape.size() == 1 ? "," : "");
  constexpr std::size_t kPrefix = kMagicSize + 4;
  header.append(kHeaderAlignment - (kPrefix + header.size() + 1) % kHeaderAlignment, ' ');
  header += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());

  std::ofstream out(file, std::ios::binary);
  out.write(kMagic, kMagicSize);
  out.write("\x01\x00", 2);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << header;
  out.write(reinterpret_cast<const char*>(array.data.data()),
            static_cast<std::streamsize>(array.data.size()));
  if (!out.flush()) throw std::runtime_error(fmt::format("{}: cannot be written", file.string()));
}

}  // namespace isobit::lab
