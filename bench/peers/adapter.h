// SPDX-License-Identifier: Apache-2.0
// Makes a peer of one C++ function from a case to a call, and keeps exceptions inside it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bench/peers/peer.h"

namespace isobit::peers {

using Call = std::function<void()>;

// Thrown by a peer's prepare function; the lab shows the text.
struct Declined : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Null where the case has no such array.
inline void* find(const IsobitPeerCase& c, std::string_view name) {
  for (int i = 0; i < c.array_count; ++i)
    if (c.arrays[i].name == name) return c.arrays[i].data;
  return nullptr;
}

inline void* array(const IsobitPeerCase& c, std::string_view name) {
  if (void* data = find(c, name)) return data;
  throw Declined("the case has no " + std::string(name));
}

inline bool is_transposed(const IsobitPeerCase& c, std::string_view name) {
  for (int i = 0; i < c.array_count; ++i)
    if (c.arrays[i].name == name) return c.arrays[i].transposed != 0;
  return false;
}

// 0 where the operator has no such dimension.
inline std::int64_t dim(const IsobitPeerCase& c, std::string_view name) {
  for (int i = 0; i < c.dim_count; ++i)
    if (c.dims[i].name == name) return c.dims[i].extent;
  return 0;
}

inline const IsobitPeerOption& option(const IsobitPeerCase& c, std::string_view name) {
  for (int i = 0; i < c.option_count; ++i)
    if (c.options[i].name == name) return c.options[i];
  throw Declined("the case has no " + std::string(name));
}

// Declines an option unless it is one of these or as usual.
inline void decline_unless_known(const IsobitPeerCase& c,
                                 std::initializer_list<std::string_view> options) {
  for (int i = 0; i < c.option_count; ++i) {
    const IsobitPeerOption& given = c.options[i];
    if (!given.usual && std::find(options.begin(), options.end(), given.name) == options.end())
      throw Declined("no " + std::string(given.name) + " here");
  }
}

// What only some peers can add to a norm.
inline void decline_residual(const IsobitPeerCase& c) {
  for (const char* name : {"residual", "grad_sum"})
    if (find(c, name) != nullptr) throw Declined("no " + std::string(name) + " here");
}

// The first line only: some libraries append a stack trace.
inline const char* reason_of(const std::exception& error) {
  thread_local std::string reason;
  reason = error.what();
  reason.resize(std::min(reason.size(), reason.find('\n')));
  return reason.c_str();
}

template <Call (*kPrepare)(const IsobitPeerCase&)>
IsobitPeer adapt(const char* name, const char* version) {
  IsobitPeer peer{ISOBIT_PEER_ABI, name, version, nullptr, nullptr, nullptr, nullptr};
  peer.prepare = [](const IsobitPeerCase* c, const char** reason) -> void* {
    try {
      return new Call(kPrepare(*c));
    } catch (const std::exception& error) {
      *reason = reason_of(error);
      return nullptr;
    }
  };
  peer.run = [](void* handle) -> const char* {
    try {
      (*static_cast<Call*>(handle))();
      return nullptr;
    } catch (const std::exception& error) { return reason_of(error); }
  };
  peer.release = [](void* handle) { delete static_cast<Call*>(handle); };
  return peer;
}

}  // namespace isobit::peers
