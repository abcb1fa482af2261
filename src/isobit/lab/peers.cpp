// SPDX-License-Identifier: Apache-2.0
// The lab's side of the peers' ABI: a missing or broken peer becomes a line of text, not a failure.
#include "isobit/lab/peers.h"

#include <dlfcn.h>

#include <stdexcept>
#include <system_error>

#include "bench/peers/peer.h"
#include "isobit/lab/program_folder.h"

namespace isobit::lab {
namespace {

constexpr std::string_view kPeerNames[] = {"onednn", "openblas", "torch"};

// Local, so that peers do not see each other's symbols; yet all that use libgomp share one, by its
// soname, and so one pool of threads. Never closed again: that pool goes on running in their code.
const IsobitPeer& load(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file))
    throw std::runtime_error("not built: " + file.string() + " does not exist");
  void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) throw std::runtime_error(dlerror());
  const auto entry = reinterpret_cast<IsobitPeerEntry>(dlsym(module, ISOBIT_PEER_ENTRY));
  if (entry == nullptr) throw std::runtime_error(dlerror());
  const IsobitPeer* peer = entry();
  if (peer == nullptr) throw std::runtime_error(dlerror());
  if (peer->abi != ISOBIT_PEER_ABI)
    throw std::runtime_error("has ABI " + std::to_string(peer->abi) + "; the lab needs " +
                             std::to_string(ISOBIT_PEER_ABI));
  return *peer;
}

}  // namespace

void PreparedPeer::run() {
  if (const char* failure = peer_->run(handle_.get()))
    throw std::runtime_error(std::string(peer_->name) + ": " + failure);
}

std::optional<std::int64_t> PreparedPeer::most_allocated() {
  if (peer_->most_allocated == nullptr) return std::nullopt;
  const std::int64_t most = peer_->most_allocated(handle_.get());
  if (most < 0) return std::nullopt;
  return most;
}

std::string_view Peer::name() const { return peer_->name; }
std::string_view Peer::version() const { return peer_->version; }

std::optional<PreparedPeer> Peer::prepare(const PeerCase& c, std::string* reason) const {
  std::vector<IsobitPeerDim> dims;
  for (const auto& [dim, extent] : c.dims) dims.push_back({dim.c_str(), extent});
  std::vector<IsobitPeerOption> options;
  for (const PeerCase::Option& option : c.options)
    options.push_back({option.name.c_str(), option.text.c_str(), option.number, option.usual});
  std::vector<IsobitPeerArray> arrays;
  for (const PeerCase::Array& array : c.arrays)
    arrays.push_back({array.name.c_str(), array.data, array.transposed});

  IsobitPeerCase request{};
  request.op = c.op.c_str();
  request.pass = c.pass.c_str();
  request.dtype = name_of(c.types.x).data();  // a literal, hence terminated
  request.weight_dtype = name_of(c.types.weight).data();
  request.y_dtype = name_of(c.types.y).data();
  request.dim_count = static_cast<std::int32_t>(dims.size());
  request.dims = dims.data();
  request.option_count = static_cast<std::int32_t>(options.size());
  request.options = options.data();
  request.threads = c.threads;
  request.array_count = static_cast<std::int32_t>(arrays.size());
  request.arrays = arrays.data();

  const char* why = "";
  PreparedPeer::Handle handle(peer_->prepare(&request, &why), peer_->release);
  if (handle == nullptr) {
    if (reason != nullptr) *reason = why;
    return std::nullopt;
  }
  return PreparedPeer(*peer_, std::move(handle));
}

Peers load_peers(const std::filesystem::path& folder) {
  Peers peers;
  for (const std::string_view name : kPeerNames) {
    try {
      peers.available.emplace_back(load(folder / ("isobit_peer_" + std::string(name) + ".so")));
    } catch (const std::exception& error) {
      peers.unavailable.push_back(std::string(name) + ": " + error.what());
    }
  }
  return peers;
}

std::filesystem::path peer_folder() { return program_folder() / "peers"; }

}  // namespace isobit::lab
