// SPDX-License-Identifier: Apache-2.0
// `isobit parity`: one input, every configuration, one hash of each output.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "isobit/dispatch/device_library.h"
#include "isobit/lab/callers.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/devices.h"
#include "isobit/lab/output.h"
#include "isobit/lab/triton.h"

namespace isobit::lab {
namespace {

// A call on a part of the family's batch, of which the first few and the last few may not belong to
// the input.
struct Batch {
  std::int64_t first, count;
  std::int64_t skipped, kept;
};

// The input computed once: in which configuration, in which batches.
struct Computation {
  std::string name;
  Case c;
  Configuration configuration;
  std::vector<Batch> batches;
};

// Adds some indices of an output's batch dim, its first.
void add_part(BitHash& bits, const Array& array, std::int64_t first, std::int64_t count) {
  const Form& form = array.form();
  if (form.extents.size() == 1) return bits.add(array, 0, first, count);
  const std::int64_t lines = form.extents[0] == 0 ? 0 : form.lines() / form.extents[0];
  for (std::int64_t line = first * lines; line < (first + count) * lines; ++line)
    bits.add(array, line, 0, form.line_length());
}

// The case of one of a computation's calls.
Case case_of(const Computation& computation, const Batch& batch) {
  Case part = computation.c;
  part.first = batch.first;
  if (part.operation->batch() >= 0) part.extents[part.operation->batch()] = batch.count;
  return part;
}

// Of each output. Sums over a part of the batch are no sums over the input, so they are left out.
Hashes hashes_of(const Computation& computation) {
  const bool whole =
      computation.batches.size() == 1 && computation.batches[0].count == computation.c.batch();
  std::map<std::string_view, BitHash> bits;
  for (const Batch& batch : computation.batches) {
    Workload workload(case_of(computation, batch));
    workload.draw();
    run(workload, computation.configuration);
    for (const Argument* output : workload.outputs()) {
      const Array& array = *workload.find(output->name);
      if (computation.c.has_batch(*output))
        add_part(bits[output->name], array, batch.skipped, batch.kept);
      else if (whole)
        bits[output->name].add(array);
    }
  }
  Hashes hashes;
  for (const auto& [name, state] : bits) hashes.emplace(name, state.hex());
  return hashes;
}

std::vector<Batch> pieces(std::int64_t batch, std::int64_t size) {
  std::vector<Batch> batches;
  for (std::int64_t at = 0; at < batch; at += size) {
    const std::int64_t count = std::min(size, batch - at);
    batches.push_back({at, count, 0, count});
  }
  return batches;
}

// What an index of the batch dim stands for: one of them, and several: "row", "rows".
std::pair<std::string, std::string> batch_words(const Operation& operation) {
  std::string name(operation.dims[operation.batch()].name);
  if (name == "batch") return {"matrix", "matrices"};
  return {name.ends_with('s') ? name.substr(0, name.size() - 1) : name, name};
}

// What is dropped depends on a row's number, which is another one in another batch.
bool drops(const Case& c) {
  const auto dropout = c.options.find("dropout");
  return dropout != c.options.end() && dropout->second > 0;
}

// The computations of one variant beside its plain ones: other plans, batches and places in memory.
void add_variations(std::vector<Computation>& computations, const Case& c,
                    const Configuration& configuration) {
  const std::int64_t batch = c.batch();
  const std::vector<Batch> whole = pieces(batch, batch);
  const auto name = [&](std::string_view what) {
    return fmt::format("{} {}", name_and_place(configuration.info), what);
  };
  for (const Configuration& other : other_plans(configuration))
    computations.push_back({name(plan_text(other)), c, other, whole});
  if (c.operation->batch() >= 0 && c.has_free_batch() && !drops(c)) {
    const auto [row, rows] = batch_words(*c.operation);
    computations.push_back(
        {name(fmt::format("one {} per call", row)), c, configuration, pieces(batch, 1)});
    computations.push_back({name("batches of 5 " + rows), c, configuration, pieces(batch, 5)});
    computations.push_back(
        {name("within a larger batch"), c, configuration, {{-19, batch + 24, 19, batch}}});
  }
  Case misaligned = c, strided = c;
  misaligned.offset = c.offset + 1;
  strided.row_stride = std::max(c.row_stride, c.longest_line()) + 13;
  computations.push_back({name("misaligned by one element"), misaligned, configuration, whole});
  computations.push_back({name("with gaps between rows"), strided, configuration, whole});
  if (!takes_any_strides(*c.operation)) return;
  for (const Layout layout : {Layout::reversed, Layout::spread}) {
    Case otherwise = c;
    otherwise.layout = layout;
    computations.push_back({name(fmt::format("layout {}", kLayouts[static_cast<int>(layout)])),
                            otherwise, configuration, whole});
  }
}

// Where a variant may look at what is packed, or at which blocks there are, before it declines.
Workload contents_of(const Case& c) {
  Workload workload(c);
  if (!c.has_free_batch()) workload.draw();
  return workload;
}

bool is_on_cpu(const Configuration& configuration) {
  return configuration.info.place() == name_of(Device::cpu);
}

// All computations of one case; those that are impossible are told at once.
std::vector<Computation> computations_of(const Case& c, Flags flags, const auto& decline) {
  const std::set<int> threads = {1, 2, 3, Machine::here().threads};
  if (flags.threads.empty()) flags.threads.assign(threads.begin(), threads.end());
  if (flags.isa.empty())
    for (Isa isa : kIsas) flags.isa.emplace_back(name_of(isa));
  std::erase_if(flags.isa, [&](const std::string& name) {
    const std::optional<Isa> isa = isa_named(name);
    const bool lacking = isa && !contains(Machine::isas_here(), *isa);
    if (lacking) decline(name, "this processor does not support it");
    return lacking;
  });
  const Workload workload = contents_of(c);
  c.operation->check(workload.args());
  attach_devices();
  const bool any_device = flags.device.empty();
  if (any_device) {
    if (!flags.isa.empty()) flags.device.emplace_back("cpu");
    for (Device device : {Device::emu, Device::ptx, Device::sass, Device::cuda, Device::hip}) {
      if (attached(device) != nullptr)
        flags.device.emplace_back(name_of(device));
      else if (device == Device::emu || device == Device::cuda)  // few have the others
        decline(name_of(device), missing_device(device));
    }
  }
  Configurations configurations;
  if (!flags.device.empty()) configurations = configurations_of(workload, flags, Unnamed::all);
  // Tensor arithmetic has bits of the processor and others of GPUs, which are then to be named.
  const auto arithmetic = c.options.find("arithmetic");
  if (any_device && arithmetic != c.options.end() && arithmetic->second != 0 &&
      std::ranges::any_of(configurations.able, is_on_cpu))
    std::erase_if(configurations.able,
                  [](const Configuration& configuration) { return !is_on_cpu(configuration); });
  std::stable_sort(
      configurations.able.begin(), configurations.able.end(),
      [](const Configuration& a, const Configuration& b) { return a.variant < b.variant; });

  std::vector<Computation> computations;
  for (std::size_t i = 0; i < configurations.able.size(); ++i) {
    const Configuration& configuration = configurations.able[i];
    const std::string name = label(configuration);
    const bool is_new =
        std::none_of(computations.begin(), computations.end(),
                     [&](const Computation& computation) { return computation.name == name; });
    if (is_new) computations.push_back({name, c, configuration, pieces(c.batch(), c.batch())});
    const bool widest = i + 1 == configurations.able.size() ||
                        configurations.able[i + 1].variant != configuration.variant;
    if (widest) add_variations(computations, c, configuration);
  }
  std::erase_if(computations,
                [&](const Computation& computation) {  // another place in memory may suit it less
                  for (const Batch& batch : computation.batches) {
                    const std::string reason = declines(contents_of(case_of(computation, batch)),
                                                        computation.configuration);
                    if (reason.empty()) continue;
                    decline(computation.name, reason);
                    return true;
                  }
                  return false;
                });
  for (const auto& [configuration, reason] : configurations.declined)
    decline(label(configuration), reason);
  return computations;
}

// Callers from elsewhere choose no device, variant, instruction set or plan.
std::vector<Called> calls_from_elsewhere(const Case& c, const Flags& flags, Progress& progress) {
  if (!flags.device.empty() || !flags.variant.empty() || !flags.isa.empty() || !flags.plan.empty())
    return {};
  const int threads = flags.threads.empty() ? 0 : std::ranges::max(flags.threads);
  Workload workload(c);
  workload.draw();
  progress.step("C");
  std::vector<Called> calls = {call_from_c(workload, threads)};
  progress.step("Python");
  std::ranges::move(call_from_python(workload, threads), std::back_inserter(calls));
  return calls;
}

// The hashes of one case, by configuration.
class ParityReport {
 public:
  ParityReport(const Case& c, JsonLines& lines)
      : case_(c), lines_(lines), heads_(heads_of(c)), table_(heads_) {}

  // `line` is what is known of the configuration.
  void add(const std::string& configuration, Json line, const Hashes& hashes) {
    line["configuration"] = configuration;
    line["outputs"] = Json::object();
    std::vector<std::string> cells = {configuration};
    for (std::size_t i = 1; i < heads_.size(); ++i) {
      const auto hash = hashes.find(heads_[i]);
      if (hash == hashes.end()) {
        cells.emplace_back("");
        continue;
      }
      line["outputs"][hash->first]["bits"] = hash->second;
      const bool equal = expected_.insert(*hash).first->second == hash->second;
      cells.push_back(hash->second + (equal ? "" : " differs"));
      same_ &= equal;
    }
    lines_.add(line);
    table_.add(std::move(cells));
  }

  void decline(std::string_view configuration, std::string_view reason) {
    Json line = describe(case_);
    line["configuration"] = configuration;
    line["unavailable"] = reason;
    lines_.add(line);
    declined_.emplace_back(configuration, reason);
  }

  void print() const {
    fmt::print("{} {}  {}  {}  {}\n", case_.operation->op, case_.operation->pass,
               extents_text(case_), types_text(case_.types), case_.input);
    table_.print();
    for (const auto& [configuration, reason] : declined_)
      fmt::print("{}: unavailable: {}\n", configuration, reason);
    fmt::print("\n");
  }

  bool same() const { return same_; }

 private:
  static std::vector<std::string> heads_of(const Case& c) {
    std::vector<std::string> heads = {"configuration"};
    for (const Argument& argument : c.operation->arguments)
      if (argument.role == Role::output) heads.emplace_back(argument.name);
    return heads;
  }

  const Case& case_;
  JsonLines& lines_;
  std::vector<std::string> heads_;
  Table table_;
  Hashes expected_;  // of the first configuration that has the output
  std::vector<std::pair<std::string, std::string>> declined_;
  bool same_ = true;
};

// Returns whether all configurations gave the same bits.
bool compare_ways(const Case& c, const Flags& flags, JsonLines& lines) {
  ParityReport report(c, lines);
  const std::vector<Computation> computations = computations_of(
      c, flags, [&](auto configuration, auto reason) { report.decline(configuration, reason); });
  Progress progress(computations.size() + 2);
  for (const Computation& computation : computations) {
    progress.step(computation.name);
    report.add(computation.name, describe(computation.c, computation.configuration),
               hashes_of(computation));
  }
  for (const Called& called : calls_from_elsewhere(c, flags, progress)) {
    if (called.declined.empty())
      report.add(called.configuration, describe(c), called.outputs);
    else
      report.decline(called.configuration, called.declined);
  }
  progress.clear();
  if (!flags.json) report.print();
  return report.same();
}

}  // namespace

int parity(const Flags& given) {
  const auto parity_extent = +[](const Dim& dim) -> std::int64_t { return dim.in_parity; };
  const bool small = contains(given.device, kTriton);
  JsonLines lines(given, "parity");
  bool same = true;
  for (const Operation* operation : operations_of(given)) {
    const Flags flags = with_extents(*operation, given, small ? small_extent : parity_extent);
    for (const Case& c : cases_of(*operation, flags, "quick"))
      same &= compare_ways(c, flags, lines);
  }
  if (!given.json)
    fmt::print("{}\n", same ? "all configurations give the same bits" : "the bits differ");
  return same ? kPassed : kFailed;
}

}  // namespace isobit::lab
