// SPDX-License-Identifier: Apache-2.0
// Trusts nothing that stands in a file: every length is held to what is left of it.
#include "isobit/lab/recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "isobit/core/error.h"
#include "isobit/ops/catalog.h"

namespace isobit::lab {
namespace {

// Reads what a part holds; `refuse` throws.
template <class Refuse>
class Fields {
 public:
  Fields(std::span<const std::byte> bytes, Refuse refuse) : bytes_(bytes), refuse_(refuse) {}

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > bytes_.size()) refuse_("a length goes beyond its part");
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string word() {
    const auto letters = take(number<std::uint32_t>());
    return {reinterpret_cast<const char*>(letters.data()), letters.size()};
  }
  bool empty() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  Refuse refuse_;
};

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 60;

}  // namespace

Recorded::Recorded(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  size_ = std::filesystem::is_regular_file(path_, error) ? file_size(path_, error) : 0;
  file_.open(path_, std::ios::binary);
  if (error || !file_ || !std::filesystem::is_regular_file(path_))
    throw InvalidArgument(fmt::format("cannot read {}", path_.string()));
  const std::size_t length = recording::kMagic.size();
  const auto magic = size_ < length ? std::vector<std::byte>() : bytes(length);
  if (magic.empty() || std::memcmp(magic.data(), recording::kMagic.data(), length) != 0)
    refuse("is no recording");
  if (const auto version = number<std::uint32_t>(); version != recording::kVersion)
    refuse(
        fmt::format("has format {}; this program reads format {}", version, recording::kVersion));
  bytes(number<std::uint32_t>());  // the version of the library that wrote it
}

void Recorded::refuse(const std::string& what) const {
  throw InvalidArgument(fmt::format("{}: {}", path_.string(), what));
}

std::vector<std::byte> Recorded::bytes(std::uint64_t count) {
  if (count > size_ - at_) refuse("was cut off");
  std::vector<std::byte> found(count);
  file_.read(reinterpret_cast<char*>(found.data()), static_cast<std::streamsize>(count));
  if (!file_) refuse("cannot be read");
  at_ += count;
  return found;
}

template <class Number>
Number Recorded::number() {
  const auto found = bytes(sizeof(Number));
  Number value;
  std::memcpy(&value, found.data(), sizeof value);
  return value;
}

Recorded::Part Recorded::next_part() {
  const auto kind = number<std::uint32_t>();
  auto part = bytes(number<std::uint64_t>());
  if (number<std::uint64_t>() != recording::hash_of(part)) refuse("is damaged");
  return {static_cast<recording::Part>(kind), std::move(part)};
}

std::optional<RecordedCall> Recorded::next() {
  const Part part = next_part();
  const auto complain = [this](const std::string& what) { refuse(what); };
  Fields fields(part.bytes, complain);
  if (part.kind == recording::Part::end) {
    if (fields.number<std::uint64_t>() != calls_) refuse("lacks calls");
    left_out_ = fields.number<std::uint64_t>();
    if (!fields.empty() || at_ != size_) refuse("goes on behind its end");
    return std::nullopt;
  }
  if (part.kind != recording::Part::call) refuse("has a part of an unknown kind");
  ++calls_;
  const std::string op = fields.word(), pass = fields.word();
  const auto all = catalog();
  const auto operation = std::ranges::find_if(
      all, [&](const Operation* one) { return one->op == op && one->pass == pass; });
  if (operation == all.end()) refuse(fmt::format("has a call of {} {}, unknown here", op, pass));
  if (const auto version = fields.number<std::uint32_t>();
      static_cast<int>(version) != (*operation)->version)
    refuse(fmt::format("has {} {} of version {}; here it has version {}, and other bits", op, pass,
                       version, (*operation)->version));
  RecordedCall call{*operation, {}, {}};
  for (auto left = fields.number<std::uint32_t>(); left > 0; --left) {
    const std::string name = fields.word();
    const Option* option = call.operation->find_option(name);
    if (option == nullptr) refuse(fmt::format("{} {} has no option {}", op, pass, name));
    const auto kind = fields.number<std::uint8_t>();
    if (kind > 1) refuse(fmt::format("option {} is of an unknown kind", name));
    const auto bits = fields.number<std::uint64_t>();
    if (!option->choices.empty() &&
        (kind != 0 || !(std::bit_cast<double>(bits) >= 0 &&
                        std::bit_cast<double>(bits) < static_cast<double>(option->choices.size()))))
      refuse(fmt::format("option {} is none of its choices", name));
    call.options.push_back({option, static_cast<recording::Value>(kind), bits});
  }
  for (auto left = fields.number<std::uint32_t>(); left > 0; --left) {
    const std::string name = fields.word();
    const Argument* argument = call.operation->find(name);
    if (argument == nullptr) refuse(fmt::format("{} {} has no argument {}", op, pass, name));
    const bool twice = std::ranges::any_of(
        call.arrays, [&](const RecordedArray& one) { return one.argument == argument; });
    if (twice) refuse(fmt::format("has {} twice in a call", name));
    const bool is_output = fields.number<std::uint8_t>() != 0;
    if (is_output != (argument->role == Role::output))
      refuse(fmt::format("{} of {} {} is no {}", name, op, pass, is_output ? "output" : "input"));
    const auto dtype = fields.number<std::uint8_t>();
    if (dtype >= std::size(kDTypes)) refuse(fmt::format("{} is of an unknown dtype", name));
    const auto rank = fields.number<std::uint32_t>();
    if (rank < 1 || rank > kMaxRank)
      refuse(fmt::format("{} has {} dimensions; allowed: 1 to {}", name, rank, kMaxRank));
    RecordedArray array{argument, kDTypes[dtype], {}, {}, 0};
    std::uint64_t elements = 1;
    for (std::uint32_t i = 0; i < rank; ++i) {
      const auto extent = fields.number<std::uint64_t>();
      if (extent > kMostElements || (extent > 0 && elements > kMostElements / extent))
        refuse(fmt::format("{} is too large", name));
      elements *= extent;
      array.shape.push_back(static_cast<std::int64_t>(extent));
    }
    if (is_output) {
      array.hash = fields.number<std::uint64_t>();
    } else {
      const auto size = fields.number<std::uint64_t>();
      if (size != elements * static_cast<std::uint64_t>(size_of(array.dtype)))
        refuse(fmt::format("{} has {} bytes, which its shape does not", name, size));
      const auto data = fields.take(size);
      array.data.assign(data.begin(), data.end());
    }
    call.arrays.push_back(std::move(array));
  }
  if (!fields.empty()) refuse("has a call with more than it says");
  return call;
}

}  // namespace isobit::lab
