// SPDX-License-Identifier: Apache-2.0
#include "isobit/executor/totals.h"

#include <cxxabi.h>

#include <cstdlib>
#include <sstream>
#include <utility>

namespace isobit::executor {

std::string readable(const std::string& name) {
  int status = 0;
  char* plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string text = plain != nullptr ? plain : name;
  std::free(plain);
  return text;
}

std::string json(const std::string& name, const Total& total) {
  const Counters& c = total.counters;
  std::ostringstream line;
  const auto field = [&](const char* key, std::uint64_t value) {
    line << ",\"" << key << "\":" << value;
  };
  line << "{\"kernel\":\"" << readable(name) << '"';
  field("launches", total.launches);
  field("blocks", total.blocks);
  field("threads", static_cast<std::uint64_t>(total.shape.threads));
  field("cluster", static_cast<std::uint64_t>(total.shape.cluster));
  field("shared_bytes", static_cast<std::uint64_t>(total.shape.shared_bytes));
  field("registers", static_cast<std::uint64_t>(total.registers));
  field("instructions", c.instructions);
  field("lanes", c.lanes);
  static constexpr const char* kNames[kKinds] = {"integer", "f32",  "f64",   "half",    "move",
                                                 "convert", "load", "store", "control", "sync",
                                                 "shuffle", "copy", "tensor"};
  line << ",\"by_kind\":{";
  for (int i = 0; i < kKinds; ++i)
    line << (i == 0 ? "\"" : ",\"") << kNames[i] << "\":" << c.by_kind[i];
  line << '}';
  for (const auto& [key, traffic] : {std::pair("loads", c.loads), std::pair("stores", c.stores)})
    line << ",\"" << key << "\":{\"requests\":" << traffic.requests
         << ",\"sectors\":" << traffic.sectors << ",\"least\":" << traffic.least
         << ",\"distinct\":" << traffic.distinct << ",\"bytes\":" << traffic.bytes
         << ",\"wide\":" << traffic.wide << '}';
  field("shared_requests", c.shared_requests);
  field("shared_wavefronts", c.shared_wavefronts);
  field("shared_least", c.shared_least);
  field("local_requests", c.local_requests);
  field("copies", c.copies);
  field("copied_bytes", c.copied_bytes);
  field("barriers", c.barriers);
  field("shuffles", c.shuffles);
  field("divergent_branches", c.divergent_branches);
  field("waits", c.waits);
  field("awaited_bytes", c.awaited_bytes);
  field("most_awaited", c.most_awaited);
  field("bulk_waits", c.bulk_waits);
  field("awaited_bulk_bytes", c.awaited_bulk_bytes);
  line << '}';
  return line.str();
}

}  // namespace isobit::executor
