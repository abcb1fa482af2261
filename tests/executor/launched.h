// SPDX-License-Identifier: Apache-2.0
// What the tests of both executors share: a launch over two arrays, and what it complains of.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "isobit/executor/launch.h"
#include "isobit/executor/memory.h"
#include "isobit/executor/program.h"

namespace isobit::executor {

using Words = std::vector<std::uint64_t>;

inline std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
inline std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

inline std::string hexadecimal(std::size_t number) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%zx", number);
  return text;
}

struct Circumstances {
  LaunchShape shape = {.threads = 32};
  Schedule schedule = {};
  Limits limits = {};
};

// What a kernel writes whose parameters are an array that it reads and one that it writes, a word a
// thread each.
inline Words launched(Function& kernel, Words input, const Circumstances& given,
                      Counters* counters = nullptr) {
  const auto threads = static_cast<std::size_t>(given.shape.threads * given.shape.blocks);
  input.resize(threads);
  auto* in = static_cast<std::uint64_t*>(memory().allocate(8 * threads));
  auto* out = static_cast<std::uint64_t*>(memory().allocate(8 * threads));
  std::copy(input.begin(), input.end(), in);
  const std::uint64_t parameters[] = {reinterpret_cast<std::uint64_t>(in),
                                      reinterpret_cast<std::uint64_t>(out)};
  Words result;
  const auto give_back = [&] {
    memory().release(in);
    memory().release(out);
  };
  try {
    Counters found;
    launch(kernel, given.shape, reinterpret_cast<const std::byte*>(parameters), found,
           given.schedule, given.limits);
    if (counters != nullptr) *counters = found;
    result.assign(out, out + threads);
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
  return result;
}

template <class Error>
std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) { return error.what(); }
  return "nothing";
}

}  // namespace isobit::executor
