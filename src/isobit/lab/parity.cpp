// SPDX-License-Identifier: Apache-2.0
// `isobit parity`: one input, every way to compute it, one hash of each output.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "isobit/dispatch/device_library.h"
#include "isobit/lab/callers.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/devices.h"
#include "isobit/lab/output.h"
#include "isobit/lab/triton.h"
#include "isobit/lab/ways.h"

namespace isobit::lab {
namespace {

// A call on some rows of the family, of which the first few and the last few may not belong to the
// input.
struct Batch {
  std::int64_t first_row, rows;
  std::int64_t skipped, kept;
};

// One way to compute the input's rows.
struct Route {
  std::string name;
  Case c;
  Way way;
  std::vector<Batch> batches;
};

void add_rows(Bits& bits, const Array& array, Extent extent, std::int64_t first,
              std::int64_t count) {
  if (extent == Extent::row_statistic) return bits.add(array, 0, first, count);
  for (std::int64_t row = first; row < first + count; ++row)
    bits.add(array, row, 0, array.form().cols);
}

// Of each output. Sums over the rows of a batch are no sums over the input's rows, so they are left
// out.
Hashes hashes_of(const Route& route) {
  const bool whole = route.batches.size() == 1 && route.batches[0].rows == route.c.rows;
  std::map<std::string_view, Bits> bits;
  for (const Batch& batch : route.batches) {
    Case part = route.c;
    part.first_row = batch.first_row;
    part.rows = batch.rows;
    Workload workload(part);
    workload.draw();
    run(workload, route.way);
    for (const Argument* output : workload.outputs()) {
      const Array& array = *workload.find(output->name);
      if (output->extent != Extent::row_vector)
        add_rows(bits[output->name], array, output->extent, batch.skipped, batch.kept);
      else if (whole)
        bits[output->name].add(array, 0, 0, array.form().cols);
    }
  }
  Hashes hashes;
  for (const auto& [name, state] : bits) hashes.emplace(name, state.hex());
  return hashes;
}

std::vector<Batch> pieces(std::int64_t rows, std::int64_t size) {
  std::vector<Batch> batches;
  for (std::int64_t row = 0; row < rows; row += size) {
    const std::int64_t count = std::min(size, rows - row);
    batches.push_back({row, count, 0, count});
  }
  return batches;
}

// What is dropped depends on a row's number, which is another one in another batch.
bool drops(const Case& c) {
  const auto dropout = c.options.find("dropout");
  return dropout != c.options.end() && dropout->second > 0;
}

// The routes of one variant beside its plain ones: other plans, batches and places in memory.
void add_variations(std::vector<Route>& routes, const Case& c, const Way& way) {
  const std::vector<Batch> whole = pieces(c.rows, c.rows);
  const auto name = [&](std::string_view what) {
    return fmt::format("{} {}", name_and_place(way.info), what);
  };
  for (const Way& other : other_plans(way))
    routes.push_back({name(plan_text(other)), c, other, whole});
  if (!drops(c)) {
    routes.push_back({name("rows one at a time"), c, way, pieces(c.rows, 1)});
    routes.push_back({name("rows in pieces of 5"), c, way, pieces(c.rows, 5)});
    routes.push_back({name("rows among others"), c, way, {{-19, c.rows + 24, 19, c.rows}}});
  }
  Case misaligned = c, strided = c;
  misaligned.offset = c.offset + 1;
  strided.row_stride = c.stride() + 13;
  routes.push_back({name("misaligned by an element"), misaligned, way, whole});
  routes.push_back({name("rows far apart"), strided, way, whole});
}

// All routes of one case; those that cannot be gone are told at once.
std::vector<Route> routes_of(const Case& c, Flags flags, const auto& decline) {
  const std::set<int> threads = {1, 2, 3, Machine::here().threads};
  if (flags.threads.empty()) flags.threads.assign(threads.begin(), threads.end());
  if (flags.isa.empty())
    for (Isa isa : kIsas) flags.isa.emplace_back(name_of(isa));
  std::erase_if(flags.isa, [&](const std::string& name) {
    const std::optional<Isa> isa = isa_named(name);
    const bool lacking = isa && !contains(Machine::isas_here(), *isa);
    if (lacking) decline(name, "this processor lacks it");
    return lacking;
  });
  const Workload workload(c);
  c.operation->check(workload.args());
  attach_devices();
  if (flags.device.empty()) {
    if (!flags.isa.empty()) flags.device.emplace_back("cpu");
    for (Device device : {Device::emu, Device::cuda}) {
      if (attached(device) != nullptr)
        flags.device.emplace_back(name_of(device));
      else
        decline(name_of(device), missing_device(device));
    }
  }
  Ways ways;
  if (!flags.device.empty()) ways = ways_of(workload, flags, Unnamed::all);
  std::stable_sort(ways.able.begin(), ways.able.end(),
                   [](const Way& a, const Way& b) { return a.variant < b.variant; });

  std::vector<Route> routes;
  for (std::size_t i = 0; i < ways.able.size(); ++i) {
    const Way& way = ways.able[i];
    const std::string name = label(way);
    const bool new_route = std::none_of(routes.begin(), routes.end(),
                                        [&](const Route& route) { return route.name == name; });
    if (new_route) routes.push_back({name, c, way, pieces(c.rows, c.rows)});
    const bool widest = i + 1 == ways.able.size() || ways.able[i + 1].variant != way.variant;
    if (widest) add_variations(routes, c, way);
  }
  std::erase_if(routes, [&](const Route& route) {  // another place in memory may suit it less
    const std::string reason = declines(Workload(route.c), route.way);
    if (!reason.empty()) decline(route.name, reason);
    return !reason.empty();
  });
  for (const auto& [way, reason] : ways.declined) decline(label(way), reason);
  return routes;
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

// The hashes of one case, way by way.
class Comparison {
 public:
  Comparison(const Case& c, JsonLines& lines)
      : case_(c), lines_(lines), heads_(heads_of(c)), table_(heads_) {}

  // `line` is what is known of the way.
  void add(const std::string& way, Json line, const Hashes& hashes) {
    line["way"] = way;
    line["outputs"] = Json::object();
    std::vector<std::string> cells = {way};
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

  void decline(std::string_view way, std::string_view reason) {
    Json line = describe(case_);
    line["way"] = way;
    line["declined"] = reason;
    lines_.add(line);
    declined_.emplace_back(way, reason);
  }

  void print() const {
    fmt::print("{} {}  {} x {}  {}  {}\n", case_.operation->op, case_.operation->pass, case_.rows,
               case_.cols, types_text(case_.types), case_.input);
    table_.print();
    for (const auto& [way, reason] : declined_) fmt::print("{}: declined, {}\n", way, reason);
    fmt::print("\n");
  }

  bool same() const { return same_; }

 private:
  static std::vector<std::string> heads_of(const Case& c) {
    std::vector<std::string> heads = {"way"};
    for (const Argument& argument : c.operation->arguments)
      if (argument.role == Role::output) heads.emplace_back(argument.name);
    return heads;
  }

  const Case& case_;
  JsonLines& lines_;
  std::vector<std::string> heads_;
  Table table_;
  Hashes expected_;  // what the first way that has an output says of it
  std::vector<std::pair<std::string, std::string>> declined_;
  bool same_ = true;
};

// Returns whether all ways to compute the case gave the same bits.
bool compare_ways(const Case& c, const Flags& flags, JsonLines& lines) {
  Comparison comparison(c, lines);
  const std::vector<Route> routes =
      routes_of(c, flags, [&](auto way, auto reason) { comparison.decline(way, reason); });
  Progress progress(routes.size() + 2);
  for (const Route& route : routes) {
    progress.step(route.name);
    comparison.add(route.name, describe(route.c, route.way), hashes_of(route));
  }
  for (const Called& called : calls_from_elsewhere(c, flags, progress)) {
    if (called.declined.empty())
      comparison.add(called.way, describe(c), called.outputs);
    else
      comparison.decline(called.way, called.declined);
  }
  progress.clear();
  if (!flags.json) comparison.print();
  return comparison.same();
}

}  // namespace

int parity(const Flags& given) {
  Flags flags = given;
  const bool small = contains(flags.device, kTriton);
  if (flags.rows.empty()) flags.rows = {small ? kSmallRows : 37};
  if (flags.cols.empty()) flags.cols = {small ? kSmallCols : 1000};
  JsonLines lines(flags, "parity");
  bool same = true;
  for (const Operation* operation : operations_of(flags))
    for (const Case& c : cases_of(*operation, flags, "quick"))
      same &= compare_ways(c, flags, lines);
  if (!flags.json) fmt::print("{}\n", same ? "the same bits in every way" : "the bits differ");
  return same ? kPassed : kFailed;
}

}  // namespace isobit::lab
