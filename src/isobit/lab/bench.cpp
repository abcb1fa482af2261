// SPDX-License-Identifier: Apache-2.0
// `isobit bench`: our time beside that of a plain copy of as many bytes, and beside other
// libraries.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "isobit/core/error.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/fma_roof.h"
#include "isobit/lab/memory_roof.h"
#include "isobit/lab/output.h"
#include "isobit/lab/peers.h"
#include "isobit/lab/timing.h"
#include "isobit/lab/triton.h"

namespace isobit::lab {
namespace {

// What a peer is told; only rows without gaps and transposed matrices can be told.
std::optional<PeerCase> peer_case(const Workload& workload, int threads) {
  const Case& c = workload.the_case();
  const bool in_order = c.layout != Layout::reversed && c.layout != Layout::spread;
  if (c.row_stride != 0 || !in_order) return std::nullopt;
  PeerCase request;
  request.op = c.operation->op;
  request.pass = c.operation->pass;
  request.types = c.types;
  request.threads = threads;
  for (std::size_t i = 0; i < c.operation->dims.size(); ++i)
    request.dims.emplace_back(c.operation->dims[i].name, c.extents[i]);
  for (const Option& option : c.operation->options) {
    const double value = c.options.at(option.name);
    const std::string_view text =
        option.choices.empty() ? "" : option.choices[static_cast<std::size_t>(value)];
    request.options.push_back(
        {std::string(option.name), std::string(text), value, value == option.fallback});
  }
  for (const Argument& argument : c.operation->arguments)
    if (const Array* array = workload.find(argument.name))
      request.arrays.push_back(
          {std::string(argument.name), array->line(0), transposes(c.layout, argument.name)});
  return request;
}

// So many more turns than others have: one of a graph is short.
constexpr int kRoundsOfGraphs = 3;

struct TimedPeer {
  const Peer* peer;
  PreparedPeer prepared;
  std::optional<std::int64_t> most_allocated = {};
};

std::vector<TimedPeer> peers_of(const Peers& peers, const Workload& workload, int threads) {
  std::vector<TimedPeer> prepared;
  const std::optional<PeerCase> request = peer_case(workload, threads);
  if (!request) return prepared;
  for (const Peer& peer : peers.available)
    if (auto ready = peer.prepare(*request)) prepared.push_back({&peer, std::move(*ready)});
  return prepared;
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

// Whether hardly anything is written, so that what bounds a call is a sweep and not a copy.
bool hardly_writes(const Workload& workload, const Cost& cost) {
  double written = 0;
  for (const Argument* output : workload.outputs()) {
    const Form& form = workload.find(output->name)->form();
    written += static_cast<double>(form.elements() * size_of(form.dtype));
  }
  return written <= cost.bytes / 16;
}

std::vector<std::span<const std::byte>> inputs_of(const Workload& workload) {
  std::vector<std::span<const std::byte>> inputs;
  for (const Argument& argument : workload.operation().arguments)
    if (const Array* array = workload.find(argument.name); array && argument.role == Role::input)
      inputs.push_back(array->storage());
  return inputs;
}

constexpr double kMicro = 1e6, kGiga = 1e-9, kMebi = 0x1p-20;

// Calls on a GPU have them beside the time of the kernels alone.
constexpr const char* kHeadsOfGpus[] = {">transfer us", ">end to end us", ">speed-up over the CPU"};

class Bench {
 public:
  explicit Bench(const Flags& flags)
      : flags_(flags),
        length_(flags.quick ? TimingLength{.seconds = 0.06, .rounds = 5} : TimingLength{}),
        lines_(flags, "bench"),
        peers_(load_peers(peer_folder())) {}

  // Times the selected configurations, plain copies and the peers in turns.
  void time(const Case& c, int threads) {
    Workload workload(c);
    workload.draw();
    c.operation->check(workload.args());
    Flags flags = flags_;
    flags.threads = {threads};
    const Configurations configurations = configurations_of(workload, flags, Unnamed::best);
    require_real_time(configurations.able);
    if (configurations.able.empty()) {
      declined_ += configurations.reasons();
      return;
    }
    workload.poison();
    std::vector<Configuration> in_python;
    std::ranges::copy_if(
        configurations.able, std::back_inserter(in_python),
        [](const Configuration& configuration) { return in_triton(configuration.info); });
    if (!in_python.empty()) time_triton(workload, in_python);
    // A GPU's configurations are timed beside its own copy, and beside no peer that computes here.
    for (const Device device : {Device::cpu, Device::cuda, Device::hip}) {
      std::vector<Configuration> able;
      for (const Configuration& configuration : configurations.able)
        if (configuration.info.place() == name_of(device)) able.push_back(configuration);
      if (!able.empty()) time(workload, able, threads);
    }
  }

  int finish() {
    if (rows_.empty())
      throw Unsupported("no variant supports these cases; nothing was timed" + declined_);
    if (flags_.json) return kPassed;
    std::vector<std::string> heads = {"op",
                                      "pass",
                                      ">shape",
                                      "dtype",
                                      "options",
                                      "variant",
                                      "plan",
                                      "from",
                                      "isa",
                                      ">threads",
                                      ">median us",
                                      ">p20",
                                      ">p80",
                                      ">GB/s",
                                      ">fraction of copy",
                                      ">GFLOP/s",
                                      ">fraction of roof",
                                      "roof",
                                      ">workspace MiB"};
    const bool on_gpu = std::ranges::any_of(
        rows_, [](const Row& row) { return row.line.contains("end_to_end_us"); });
    if (on_gpu) std::ranges::copy(kHeadsOfGpus, std::back_inserter(heads));
    for (const Peer& peer : peers_.available) heads.push_back(fmt::format(">{}", peer.name()));
    Table table(std::move(heads));
    for (Row& row : rows_) table.add(cells(std::move(row), on_gpu));
    table.print();
    for (const Peer& peer : peers_.available)
      fmt::print("{}: speed-up over {} {} (its time / Isobit's time)\n", peer.name(), peer.name(),
                 peer.version());
    for (const std::string& reason : peers_.unavailable)
      fmt::print("peer unavailable: {}\n", reason);
    return kPassed;
  }

 private:
  // In Python, which captures them and a copy in graphs of the GPU.
  void time_triton(const Workload& workload, const std::vector<Configuration>& configurations) {
    const Case& c = workload.the_case();
    const Cost cost = c.operation->cost(workload.args());
    const std::vector<Times> times = Triton::here().time_interleaved(
        workload, configurations, cost.bytes, kRoundsOfGraphs * length_.rounds);
    for (std::size_t i = 0; i < configurations.size(); ++i)
      add(c, configurations[i], cost, times[i], {times.back().median, 0, 0}, {}, {},
          Json::object());
  }

  // Configurations of one device.
  void time(const Workload& workload, const std::vector<Configuration>& configurations,
            int threads) {
    const Case& c = workload.the_case();
    const Device device = configurations[0].info.device;
    std::vector<TimedCall> timed_calls;
    for (const Configuration& configuration : configurations)
      timed_calls.push_back(timed_call(workload, configuration));
    const Cost cost = c.operation->cost(workload.args());
    std::optional<Copy> copy;
    std::optional<Sweep> sweep;
    std::optional<DeviceCopy> device_copy;
    std::optional<Workload> given;
    std::vector<TimedPeer> peers;
    std::vector<TimedCall> copies, sweeps;
    std::map<Isa, FmaChains> chains;  // of the configurations' instruction sets
    if (device == Device::cpu) {
      copies = copy.emplace(cost.bytes).timed_calls(threads);
      if (hardly_writes(workload, cost))
        sweeps = sweep.emplace(inputs_of(workload)).timed_calls(threads);
      if (cost.flops > 0)
        for (const Configuration& configuration : configurations)
          chains.try_emplace(configuration.isa, configuration.isa, c.types.x, threads);
      if (!peers_.available.empty()) given = given_to_peers(c);
      peers = peers_of(peers_, given ? *given : workload, threads);
    } else {
      copies = {device_copy.emplace(cost.bytes, *attached(device)).timed_call()};
    }
    timed_calls.insert(timed_calls.end(), copies.begin(), copies.end());
    timed_calls.insert(timed_calls.end(), sweeps.begin(), sweeps.end());
    for (const auto& [isa, of_isa] : chains) timed_calls.push_back(of_isa.timed_call());
    for (TimedPeer& peer : peers) timed_calls.push_back({[&] { peer.prepared.run(); }});
    const std::size_t whole = timed_calls.size();
    if (device != Device::cpu) {
      for (const Configuration& configuration : configurations)
        timed_calls.push_back(timed_end_to_end(workload, configuration));
      timed_calls.push_back(timed_transfer(workload, device));
      timed_calls.push_back(timed_call(workload, on_cpu(workload)));
    }

    const std::vector<Times> times = time_interleaved(timed_calls, length_);
    for (TimedPeer& peer : peers) peer.most_allocated = peer.prepared.most_allocated();
    std::span<const Times> rest = std::span(times).subspan(configurations.size());
    const auto next = [&](std::size_t count) {
      const std::span<const Times> first = rest.first(count);
      rest = rest.subspan(count);
      return first;
    };
    const double copied = fastest(next(copies.size()));
    const double swept =
        sweeps.empty() ? 0 : fastest(next(sweeps.size())) * cost.bytes / sweep->bytes();
    std::map<Isa, double> computed;  // seconds that the operations take at least
    for (const auto& [isa, of_isa] : chains)
      computed[isa] = next(1)[0].median * cost.flops / of_isa.operations();
    const std::span<const Times> theirs = next(peers.size());
    for (std::size_t i = 0; i < configurations.size(); ++i) {
      const Floor floor{copied, swept, computed[configurations[i].isa]};
      Json more = Json::object();
      if (device == Device::cpu)
        more = {{"workspace_bytes", most_workspace(workload, configurations[i])}};
      else
        more = {{"end_to_end_us", times[whole + i].median * kMicro},
                {"transfer_us", times[whole + configurations.size()].median * kMicro},
                {"over_cpu", times.back().median / times[i].median}};
      add(c, configurations[i], cost, times[i], floor, peers, theirs, more);
    }
  }

  // The default on all of the processor, which a GPU is compared with.
  static Configuration on_cpu(const Workload& workload) {
    Flags flags;
    flags.device = {std::string(name_of(Device::cpu))};
    return configurations_of(workload, flags, Unnamed::best).able.at(0);
  }

  static double fastest(std::span<const Times> times) {
    return std::ranges::min(times, {}, &Times::median).median;
  }

  // What no implementation can be faster than: seconds to copy the bytes, to read them (0 where
  // many are written), and for the operations (0 where their rate is unknown).
  struct Floor {
    double copied, swept, computed;

    double moved() const { return swept > 0 ? swept : copied; }
    std::string_view name() const {
      return computed > moved() ? "fma" : swept > 0 ? "sweep" : "copy";
    }
  };

  void add(const Case& c, const Configuration& configuration, const Cost& cost, const Times& time,
           const Floor& floor, const std::vector<TimedPeer>& peers, std::span<const Times> theirs,
           const Json& more) {
    Json line = describe(c, configuration);
    line["plan_from"] = name_of(configuration.plan_from);
    line["median_us"] = time.median * kMicro;
    line["p20_us"] = time.p20 * kMicro;
    line["p80_us"] = time.p80 * kMicro;
    line["gbps"] = cost.bytes / time.median * kGiga;
    line["copy_fraction"] = floor.copied / time.median;
    line["gflops"] = cost.flops / time.median * kGiga;
    line["roof"] = floor.name();
    line["roof_fraction"] = std::max(floor.moved(), floor.computed) / time.median;
    line["peers"] = Json::array();
    for (std::size_t i = 0; i < peers.size(); ++i) {
      Json peer = {{"name", peers[i].peer->name()},
                   {"version", peers[i].peer->version()},
                   {"median_us", theirs[i].median * kMicro},
                   {"ratio", theirs[i].median / time.median}};
      if (peers[i].most_allocated) peer["workspace_bytes"] = *peers[i].most_allocated;
      line["peers"].push_back(std::move(peer));
    }
    line.update(more);
    lines_.add(line);

    std::vector<std::string> begin = {std::string(c.operation->op),
                                      std::string(c.operation->pass),
                                      extents_text(c),
                                      types_text(c.types),
                                      choices_text(c),
                                      name_and_place(configuration.info),
                                      plan_text(configuration),
                                      std::string(name_of(configuration.plan_from)),
                                      line.value("isa", ""),
                                      line.contains("threads") ? line["threads"].dump() : ""};
    rows_.push_back({std::move(begin), std::move(line)});
  }

  // What is known of a configuration before it is timed, and its line.
  struct Row {
    std::vector<std::string> begin;
    Json line;
  };

  std::vector<std::string> cells(Row row, bool on_gpu) const {
    std::vector<std::string> cells = std::move(row.begin);
    const auto figure = [&](const char* name) {
      cells.push_back(row.line.contains(name) ? short_number(row.line[name].get<double>()) : "");
    };
    for (const char* name :
         {"median_us", "p20_us", "p80_us", "gbps", "copy_fraction", "gflops", "roof_fraction"})
      figure(name);
    cells.push_back(row.line["roof"]);
    cells.push_back(row.line.contains("workspace_bytes")
                        ? short_number(row.line["workspace_bytes"].get<double>() * kMebi)
                        : "");
    if (on_gpu)
      for (const char* name : {"transfer_us", "end_to_end_us", "over_cpu"}) figure(name);
    for (const Peer& peer : peers_.available) {
      std::string ratio;
      for (const Json& entry : row.line["peers"])
        if (entry["name"].get<std::string_view>() == peer.name())
          ratio = fmt::format("{:.2f}", entry["ratio"].get<double>());
      cells.push_back(std::move(ratio));
    }
    return cells;
  }

  const Flags& flags_;
  TimingLength length_;
  JsonLines lines_;
  Peers peers_;
  std::string declined_;
  std::vector<Row> rows_;
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
    progress.step(fmt::format("{} {} {}", c.operation->op, c.operation->pass, extents_text(c)));
    bench.time(c, count);
  }
  progress.clear();
  return bench.finish();
}

}  // namespace isobit::lab
