// SPDX-License-Identifier: Apache-2.0
// Loads other libraries to time beside ours at run time, so that the lab itself needs none of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isobit/core/case.h"

struct IsobitPeer;

namespace isobit::lab {

// One call, by the vocabulary's names. Arrays are contiguous and outlive what is prepared for them.
struct PeerCase {
  struct Option {
    std::string name, text;  // text: of a choice
    double number = 0;
    bool usual = true;
  };

  std::string op;
  std::string pass;
  Types types{DType::f32, DType::f32};
  std::vector<std::pair<std::string, std::int64_t>> dims;
  std::vector<Option> options;
  int threads = 1;
  struct Array {
    std::string name;
    void* data;
    bool transposed = false;
  };
  std::vector<Array> arrays;
};

// A peer made ready for one case: what it can do once is done, run() is what one times.
class PreparedPeer {
 public:
  // Throws std::runtime_error. OpenMP's other threads spin for up to 10 ms afterwards [measured
  // with libgomp on 2 cores], at the cost of whatever is timed next.
  void run();
  // The most bytes that it allocates at once, by one more run; empty where the peer cannot know.
  std::optional<std::int64_t> most_allocated();

 private:
  friend class Peer;
  using Handle = std::unique_ptr<void, void (*)(void*)>;
  PreparedPeer(const IsobitPeer& peer, Handle handle) : peer_(&peer), handle_(std::move(handle)) {}

  const IsobitPeer* peer_;
  Handle handle_;
};

class Peer {
 public:
  explicit Peer(const IsobitPeer& peer) : peer_(&peer) {}

  std::string_view name() const;
  std::string_view version() const;
  // Empty when the peer declines the case; then `reason`, if given, tells why.
  std::optional<PreparedPeer> prepare(const PeerCase& c, std::string* reason = nullptr) const;

 private:
  const IsobitPeer* peer_;
};

struct Peers {
  std::vector<Peer> available;
  std::vector<std::string> unavailable;  // "name: reason"
};

// Loads every peer of a folder. A peer costs up to a second and its threads, so only commands that
// want peers call this.
Peers load_peers(const std::filesystem::path& folder);

// peers/ beside the running program.
std::filesystem::path peer_folder();

}  // namespace isobit::lab
