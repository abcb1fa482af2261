// SPDX-License-Identifier: Apache-2.0
// `isobit bench`: our time beside that of a plain copy of as many bytes, and beside other
// libraries.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "isobit/core/error.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/copy.h"
#include "isobit/lab/output.h"
#include "isobit/lab/peers.h"
#include "isobit/lab/race.h"
#include "isobit/lab/triton.h"
#include "isobit/lab/ways.h"

namespace isobit::lab {
namespace {

// What a peer is told; only rows without gaps can be told.
std::optional<PeerCase> peer_case(const Workload& workload, int threads) {
  const Case& c = workload.the_case();
  if (c.stride() != c.cols || c.types.y != c.types.x) return std::nullopt;
  PeerCase request;
  request.op = c.operation->op;
  request.pass = c.operation->pass;
  request.dtype = c.types.x;
  request.weight_dtype = c.types.weight;
  request.rows = c.rows;
  request.cols = c.cols;
  request.threads = threads;
  for (const Option& option : c.operation->options) {
    const Json value = value_of(option, c.options.at(option.name));
    if (option.name == "eps") request.eps = value.get<double>();
    if (option.name == "kind") request.kind = value.get<std::string>();
    const bool unknown_to_peers = option.name == "zero_centred" || option.name == "dropout";
    if (unknown_to_peers && c.options.at(option.name) != 0) return std::nullopt;
  }
  for (const Argument& argument : c.operation->arguments)
    if (const Array* array = workload.find(argument.name))
      request.arrays.emplace_back(argument.name, array->row(0));
  return request;
}

// So many more turns than others have: one of a graph is short.
constexpr int kRoundsOfGraphs = 3;

struct Rival {
  const Peer* peer;
  PreparedPeer prepared;
};

std::vector<Rival> rivals_of(const Peers& peers, const Workload& workload, int threads) {
  std::vector<Rival> rivals;
  const std::optional<PeerCase> request = peer_case(workload, threads);
  if (!request) return rivals;
  for (const Peer& peer : peers.available)
    if (auto prepared = peer.prepare(*request)) rivals.push_back({&peer, std::move(*prepared)});
  return rivals;
}

// Peers are given statistics always; so where the case has them computed, a workload of their own.
std::optional<Workload> given_to_peers(Case c) {
  if (c.given_statistics || !takes_statistics(*c.operation)) return std::nullopt;
  c.given_statistics = true;
  Workload workload(c);
  workload.draw();
  workload.poison();
  return workload;
}

class Bench {
 public:
  explicit Bench(const Flags& flags)
      : flags_(flags),
        length_(flags.quick ? RaceLength{.seconds = 0.06, .rounds = 5} : RaceLength{}),
        lines_(flags, "bench"),
        peers_(load_peers(peer_folder())) {}

  // Times the selected ways, plain copies and the peers in one race.
  void time(const Case& c, int threads) {
    Workload workload(c);
    workload.draw();
    c.operation->check(workload.args());
    Flags flags = flags_;
    flags.threads = {threads};
    const Ways ways = ways_of(workload, flags, Unnamed::best);
    require_real_time(ways.able);
    if (ways.able.empty()) {
      declined_ += ways.reasons();
      return;
    }
    workload.poison();
    std::vector<Way> in_python;
    std::ranges::copy_if(ways.able, std::back_inserter(in_python),
                         [](const Way& way) { return in_triton(way.info); });
    if (!in_python.empty()) time_triton(workload, in_python);
    // A GPU's ways race against its own copy, and against nobody who computes here.
    for (const Device device : {Device::cpu, Device::cuda}) {
      std::vector<Way> able;
      for (const Way& way : ways.able)
        if (way.info.place() == name_of(device)) able.push_back(way);
      if (!able.empty()) time(workload, able, threads);
    }
  }

  int finish() {
    if (rows_.empty())
      throw Unsupported("nothing was timed: no variant can run these cases" + declined_);
    if (flags_.json) return kPassed;
    std::vector<std::string> heads = {"op",         "pass",       ">rows", ">cols", "dtype",
                                      "options",    "variant",    "plan",  "from",  "isa",
                                      ">threads",   ">median us", ">p20",  ">p80",  ">GB/s",
                                      ">of a copy", ">GFLOP/s"};
    for (const Peer& peer : peers_.available) heads.push_back(fmt::format(">{}", peer.name()));
    Table table(std::move(heads));
    for (auto& row : rows_) table.add(std::move(row));
    table.print();
    for (const Peer& peer : peers_.available)
      fmt::print("{} {}: its time over ours, above 1 we are faster\n", peer.name(), peer.version());
    for (const std::string& reason : peers_.unavailable)
      fmt::print("not compared with {}\n", reason);
    return kPassed;
  }

 private:
  // In Python, which captures them and a copy in graphs of the GPU.
  void time_triton(const Workload& workload, const std::vector<Way>& ways) {
    const Case& c = workload.the_case();
    const Cost cost = c.operation->cost(workload.args());
    const std::vector<Times> times =
        Triton::here().race(workload, ways, cost.bytes, kRoundsOfGraphs * length_.rounds);
    for (std::size_t i = 0; i < ways.size(); ++i)
      add(c, ways[i], cost, times[i], times.back().median, {}, {});
  }

  // Ways of one device.
  void time(const Workload& workload, const std::vector<Way>& ways, int threads) {
    const Case& c = workload.the_case();
    const Device device = ways[0].info.device;
    std::vector<Runner> runners;
    for (const Way& way : ways) runners.push_back(runner(workload, way));
    const Cost cost = c.operation->cost(workload.args());
    std::optional<Copy> copy;
    std::optional<DeviceCopy> device_copy;
    std::optional<Workload> given;
    std::vector<Rival> rivals;
    std::vector<Runner> copies;
    if (device == Device::cpu) {
      copies = copy.emplace(cost.bytes).runners(threads);
      if (!peers_.available.empty()) given = given_to_peers(c);
      rivals = rivals_of(peers_, given ? *given : workload, threads);
    } else {
      copies = {device_copy.emplace(cost.bytes, *attached(device)).runner()};
    }
    runners.insert(runners.end(), copies.begin(), copies.end());
    for (Rival& rival : rivals) runners.push_back({[&] { rival.prepared.run(); }});

    const std::vector<Times> times = race(runners, length_);
    const std::span<const Times> theirs = std::span(times).subspan(ways.size() + copies.size());
    double copied = times[ways.size()].median;
    for (std::size_t i = 0; i < copies.size(); ++i)
      copied = std::min(copied, times[ways.size() + i].median);
    for (std::size_t i = 0; i < ways.size(); ++i)
      add(c, ways[i], cost, times[i], copied, rivals, theirs);
  }

  void add(const Case& c, const Way& way, const Cost& cost, const Times& time, double copied,
           const std::vector<Rival>& rivals, std::span<const Times> theirs) {
    constexpr double kMicro = 1e6, kGiga = 1e-9;
    Json line = describe(c, way);
    line["plan_from"] = name_of(way.plan_from);
    line["median_us"] = time.median * kMicro;
    line["p20_us"] = time.p20 * kMicro;
    line["p80_us"] = time.p80 * kMicro;
    line["gbps"] = cost.bytes / time.median * kGiga;
    line["copy_fraction"] = copied / time.median;
    line["gflops"] = cost.flops / time.median * kGiga;
    line["peers"] = Json::array();
    for (std::size_t i = 0; i < rivals.size(); ++i)
      line["peers"].push_back({{"name", rivals[i].peer->name()},
                               {"version", rivals[i].peer->version()},
                               {"median_us", theirs[i].median * kMicro},
                               {"ratio", theirs[i].median / time.median}});
    lines_.add(line);

    std::vector<std::string> row = {std::string(c.operation->op),
                                    std::string(c.operation->pass),
                                    std::to_string(c.rows),
                                    std::to_string(c.cols),
                                    types_text(c.types),
                                    choices_text(c),
                                    name_and_place(way.info),
                                    plan_text(way),
                                    std::string(name_of(way.plan_from)),
                                    line.value("isa", ""),
                                    line.contains("threads") ? line["threads"].dump() : ""};
    for (const char* figure : {"median_us", "p20_us", "p80_us", "gbps", "copy_fraction", "gflops"})
      row.push_back(short_number(line[figure].get<double>()));
    for (const Peer& peer : peers_.available) {
      std::string ratio;
      for (const Json& entry : line["peers"])
        if (entry["name"].get<std::string_view>() == peer.name())
          ratio = fmt::format("{:.2f}", entry["ratio"].get<double>());
      row.push_back(std::move(ratio));
    }
    rows_.push_back(std::move(row));
  }

  const Flags& flags_;
  RaceLength length_;
  JsonLines lines_;
  Peers peers_;
  std::string declined_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace

int bench(const Flags& given) {
  Flags flags = given;
  if (flags.statistics.empty()) flags.statistics = {"given"};  // as frameworks call backward
  std::vector<std::pair<Case, int>> points;
  std::vector<int> threads = flags.threads;
  if (threads.empty()) threads = {Machine::here().threads};
  for (const Operation* operation : operations_of(flags))
    for (const Case& c : cases_of(*operation, flags, flags.quick ? "bench-quick" : "bench"))
      for (int count : threads) points.emplace_back(c, count);
  Bench bench(flags);
  Progress progress(points.size());
  for (const auto& [c, count] : points) {
    progress.step(fmt::format("{} {} {} x {}", c.operation->op, c.operation->pass, c.rows, c.cols));
    bench.time(c, count);
  }
  progress.clear();
  return bench.finish();
}

}  // namespace isobit::lab
