// SPDX-License-Identifier: Apache-2.0
// `isobit profile`: what kernels for GPUs do, counted as their PTX is executed; and what a model
// makes of that.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "isobit/core/error.h"
#include "isobit/dispatch/device_library.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/devices.h"
#include "isobit/lab/gpu_model.h"
#include "isobit/lab/output.h"
#include "isobit/lab/triton.h"
#include "isobit/lab/usage.h"
#include "isobit/lab/verdict.h"

namespace isobit::lab {
namespace {

std::string ratio(double value) { return value == 0 ? "-" : fmt::format("{:.2f}", value); }

// Full at 1: how much of a copy's speed is reached.
std::string bar(double fraction) {
  constexpr int kCells = 10;
  const int full = std::clamp(static_cast<int>(fraction * kCells + 0.5), 0, kCells);
  std::string text;
  for (int i = 0; i < kCells; ++i) text += i < full ? "#" : ".";
  return text;
}

// Of the largest array: a case may lack any argument, the first too.
double elements_of(const Workload& workload) {
  std::int64_t most = 0;
  for (const Argument& argument : workload.operation().arguments)
    if (const Array* array = workload.find(argument.name))
      most = std::max(most, array->form().elements());
  return static_cast<double>(most);
}

// What is told of a kernel in a call whose largest array has so many elements.
struct Figures {
  double instructions;          // of warps, for each 32 elements
  double loads, stores, banks;  // sectors and wavefronts over the least; 0 where there are none
  double wide;                  // share of requests of 16 bytes a lane
  double local, warps, kib_in_flight;
};
Figures figures_of(const KernelCounters& kernel, double elements, int multiprocessors) {
  const auto over = [](double a, double least) { return least == 0 ? 0 : a / least; };
  const GpuSpec& h100 = gpu_specs()[1];
  return {kernel.instructions * 32 / elements,
          over(kernel.load_sectors, kernel.least_load_sectors),
          over(kernel.store_sectors, kernel.least_store_sectors),
          over(kernel.wavefronts, kernel.least_wavefronts),
          over(kernel.wide_requests, kernel.requests),
          kernel.local_requests,
          kernel.resident(h100, multiprocessors) * kernel.threads / 32,
          kernel.in_flight(h100, multiprocessors) / 1024};
}

class Profile {
 public:
  Profile(const Flags& flags, int multiprocessors)
      : flags_(flags), lines_(flags, "profile"), multiprocessors_(multiprocessors) {}

  void count(const Case& c) {
    Workload workload(c);
    workload.draw();
    c.operation->check(workload.args());
    const Configurations configurations = configurations_of(workload, flags_, Unnamed::best);
    declined_ += configurations.reasons();
    for (const Configuration& configuration : configurations.able) {
      Json line = describe(c, configuration);
      const bool of_triton = in_triton(configuration.info);
      line["kernels"] =
          of_triton ? of_a_peer(workload, configuration, line) : of_ours(workload, configuration);
      std::vector<KernelCounters> kernels;
      for (const Json& each : line["kernels"])
        kernels.emplace_back(each, configuration.info.device == Device::sass);
      add(c, configuration, workload, kernels, line);
    }
  }

  int finish() {
    if (calls_.empty())
      throw Unsupported("no variant supports these cases; nothing was counted" + declined_);
    if (flags_.json) return status();
    fmt::print(
        "counted as kernels are executed, on {} multiprocessors; of PTX without moves of "
        "registers\n",
        multiprocessors_);
    print_kernels();
    fmt::print(
        "\na model, not a measurement: the time of a copy of the least bytes over the call's\n");
    print_model();
    if (peers_ > 0)
      fmt::print(
          "\nTriton {} compiled its kernels for sm_90, and the executor of PTX executed them: {} "
          "calls\nwith the library's bits, {} with others, {} of them wrong\n",
          Triton::here().version(), peers_ - others_, others_, wrong_);
    return status();
  }

 private:
  struct Call {
    std::string name;
    double elements;
    std::vector<KernelCounters> kernels;
    std::vector<double> fractions;  // of a copy, for each GPU
    std::vector<std::string> bounds;
  };

  int status() const { return wrong_ == 0 ? kPassed : kFailed; }

  static Json of_ours(const Workload& workload, const Configuration& configuration) {
    const Device device = configuration.info.device;
    take_counters(device);
    run(workload, configuration);
    Json kernels = Json::array();
    std::istringstream text(take_counters(device));
    for (std::string line; std::getline(text, line);) kernels.push_back(Json::parse(line));
    return kernels;
  }

  // Nobody else executes what Triton compiled: what it computes is checked here.
  Json of_a_peer(const Workload& workload, const Configuration& configuration, Json& line) {
    const std::vector<std::string> expected = canonical_bits(workload);
    Triton& triton = Triton::here();
    triton.take_counters();
    run(workload, configuration);
    const bool canonical = output_bits(workload) == expected;
    line["triton"] = triton.version();
    line["canonical"] = canonical;
    line["passed"] = canonical && workload.damage().empty();
    ++peers_;
    others_ += !canonical;
    if (!line["passed"]) {
      const Verdict verdict = Judge(workload)();
      line["passed"] = verdict.passed();
      wrong_ += !verdict.passed();
      if (!verdict.passed())
        fmt::print(stderr, "failed: {}\n{}", command("profile", workload.the_case(), configuration),
                   verdict.complaints());
    }
    return triton.take_counters();
  }

  void add(const Case& c, const Configuration& configuration, const Workload& workload,
           const std::vector<KernelCounters>& kernels, Json& line) {
    const double bytes = c.operation->cost(workload.args()).bytes;
    std::string extents;
    for (std::size_t i = 0; i < c.operation->dims.size(); ++i)
      extents += fmt::format("{}{}", i == 0 ? "" : "x", c.extents[i]);
    Call call = {fmt::format("{} {} {} {} {} {}", c.operation->op, c.operation->pass, extents,
                             types_text(c.types), name_and_place(configuration.info),
                             plan_text(configuration)),
                 elements_of(workload),
                 kernels,
                 {},
                 {}};
    line["multiprocessors"] = multiprocessors_;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const Figures figures = figures_of(kernels[i], call.elements, multiprocessors_);
      line["kernels"][i]["figures"] = {{"name", kernels[i].name},
                                       {"instructions", figures.instructions},
                                       {"loads", figures.loads},
                                       {"stores", figures.stores},
                                       {"banks", figures.banks},
                                       {"wide", figures.wide},
                                       {"local", figures.local},
                                       {"warps", figures.warps},
                                       {"kib_in_flight", figures.kib_in_flight}};
    }
    for (const GpuSpec& gpu : gpu_specs()) {
      double seconds = 0, slowest = 0;
      std::string bound;
      for (const KernelCounters& kernel : kernels) {
        const ModelTime time = model_time(kernel, gpu, multiprocessors_);
        seconds += time.seconds;
        if (time.seconds > slowest) bound = fmt::format("{}: {}", kernel.name, time.bound);
        slowest = std::max(slowest, time.seconds);
      }
      call.fractions.push_back(model_copy_time(bytes, gpu, multiprocessors_) / seconds);
      call.bounds.push_back(bound);
      line["model"][std::string(gpu.name)] = {{"fraction_of_copy", call.fractions.back()},
                                              {"bound", bound}};
    }
    lines_.add(line);
    calls_.push_back(std::move(call));
  }

  void print_kernels() const {
    Table table({"call", "kernel", ">instructions", ">loads", ">stores", ">banks", ">16 bytes",
                 ">local", ">warps", ">KiB in flight"});
    for (const Call& call : calls_)
      for (const KernelCounters& kernel : call.kernels) {
        const Figures figures = figures_of(kernel, call.elements, multiprocessors_);
        table.add({&kernel == call.kernels.data() ? call.name : "", kernel.name,
                   fmt::format("{:.1f}", figures.instructions), ratio(figures.loads),
                   ratio(figures.stores), ratio(figures.banks), ratio(figures.wide),
                   fmt::format("{:.0f}", figures.local), fmt::format("{:.0f}", figures.warps),
                   fmt::format("{:.0f}", figures.kib_in_flight)});
      }
    table.print();
    fmt::print(
        "instructions: for each element of {}; loads, stores: sectors of global memory over the\n"
        "least; banks: wavefronts of shared memory over the least; 16 bytes: requests of as many "
        "a\n"
        "lane; local: requests to local memory; warps, in flight: in a multiprocessor of an {}\n",
        "the largest array", gpu_specs()[1].name);
  }

  void print_model() const {
    std::vector<std::string> heads = {"call"};
    for (const GpuSpec& gpu : gpu_specs()) heads.push_back(fmt::format(">{}", gpu.name));
    heads.emplace_back("on an H100");
    heads.emplace_back("what rules there");
    Table table(std::move(heads));
    for (const Call& call : calls_) {
      std::vector<std::string> cells = {call.name};
      for (const double fraction : call.fractions) cells.push_back(fmt::format("{:.2f}", fraction));
      cells.push_back(bar(call.fractions[1]));
      cells.push_back(call.bounds[1]);
      table.add(std::move(cells));
    }
    table.print();
  }

  const Flags& flags_;
  JsonLines lines_;
  const int multiprocessors_;
  std::vector<Call> calls_;
  std::string declined_;
  int peers_ = 0, others_ = 0, wrong_ = 0;  // calls of Triton's; with other bits; wrong
};

}  // namespace

int profile(const Flags& given) {
  Flags flags = given;
  if (flags.device.empty()) flags.device = {std::string(name_of(Device::ptx))};
  require_devices(flags);
  attach_devices();
  for (const std::string& name : flags.device) {
    const std::optional<Device> device = name == kTriton ? Device::ptx : device_named(name);
    if (!device || !is_executor(*device))
      throw UsageError(
          fmt::format("--device is {}; profile counts on ptx, sass or {}", name, kTriton));
    if (attached(*device) == nullptr) throw Unsupported(missing_device(*device));
    if (name == kTriton) Triton::execute_by(executor_file(*device));
  }
  const Device first = device_named(flags.device[0]).value_or(Device::ptx);
  Profile profile(flags, attached(first)->gpu().multiprocessors);
  for (const Operation* operation : operations_of(flags))
    for (const Case& c : cases_of(*operation, flags, "bench-quick")) profile.count(c);
  return profile.finish();
}

}  // namespace isobit::lab
