// SPDX-License-Identifier: Apache-2.0
// `isobit replay`: recorded calls once more, on another device or instruction set, with other
// threads; their results must have the recorded bits.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/dispatch/device_library.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/devices.h"
#include "isobit/lab/output.h"
#include "isobit/lab/recorded.h"
#include "isobit/lab/usage.h"

namespace isobit::lab {
namespace {

// Memory of the processor, or of a device that is not.
class Memory {
 public:
  Memory(std::size_t bytes, const DeviceLibrary* library)
      : library_(library), host_(std::max<std::size_t>(bytes, 1)) {
    if (library_ == nullptr) return;
    device_ = library_->memory.allocate(nullptr, host_.size());
    if (device_ == nullptr)
      throw DeviceError(text("cannot allocate ", bytes, " bytes of device memory for an array"));
  }
  ~Memory() {
    if (device_ != nullptr) library_->memory.release(nullptr, device_, host_.size());
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() { return library_ == nullptr ? host_.data() : device_; }
  void fill(std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, host_.begin());
    if (library_ != nullptr) library_->memory.upload(nullptr, device_, host_.data(), host_.size());
  }
  // What a device has written is asked for first.
  std::byte* fetched() {
    if (library_ != nullptr) {
      library_->memory.download(nullptr, host_.data(), device_, host_.size());
      library_->memory.synchronize(nullptr);
    }
    return host_.data();
  }

 private:
  const DeviceLibrary* library_;
  std::vector<std::byte> host_;
  void* device_ = nullptr;
};

struct Way {
  std::string name;
  Execution execution;
  const DeviceLibrary* library;  // null: the processor
};

// What became of the calls in one way.
struct Outcome {
  std::uint64_t calls = 0, results = 0, different = 0, declined = 0;
  recording::Hash hash;                 // of the hashes of all results
  std::vector<std::string> complaints;  // the first few
};

constexpr std::size_t kMostComplaints = 8;
// Of one array: what a small file may ask for has an end.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;

void complain(Outcome& outcome, std::string what) {
  if (outcome.complaints.size() < kMostComplaints) outcome.complaints.push_back(std::move(what));
}

TensorView view_of(const RecordedArray& array, void* data) {
  TensorView view{.data = data, .dtype = array.dtype, .rank = static_cast<int>(array.shape.size())};
  std::int64_t step = 1;
  for (std::size_t i = array.shape.size(); i-- > 0;) {
    view.shape[i] = array.shape[i];
    view.strides[i] = step;
    step *= std::max<std::int64_t>(array.shape[i], 1);
  }
  view.bytes = recording::elements_of(view) * size_of(array.dtype);
  return view;
}

void set(const RecordedOption& given, void* args) {
  if (given.kind == recording::Value::whole && given.option->is_integer())
    given.option->set_whole(args, given.bits);
  else if (given.kind == recording::Value::real)
    given.option->set(args, std::bit_cast<double>(given.bits));
  else
    throw InvalidArgument(fmt::format("option {} is no whole number", given.option->name));
}

void repeat(const RecordedCall& call, const Way& way, std::uint64_t number, Outcome& outcome) {
  const Operation& operation = *call.operation;
  const Arguments args = operation.make_arguments();
  for (const RecordedOption& option : call.options) set(option, args.get());
  // Before there is memory for results: whether their shapes are those of the inputs. Where arrays
  // lie is checked too, so they are given places apart.
  std::uintptr_t place = 1 << 12;
  for (const RecordedArray& array : call.arrays) {
    TensorView view = view_of(array, nullptr);
    if (view.bytes > kMostBytes)
      throw InvalidArgument(fmt::format("{}: {} would have {} bytes", operation.title(),
                                        array.argument->name, view.bytes));
    view.data = reinterpret_cast<void*>(place);
    place += static_cast<std::uintptr_t>(view.bytes + (1 << 12)) & ~std::uintptr_t{0xfff};
    args[*array.argument] = view;
  }
  operation.check(args);
  std::vector<std::unique_ptr<Memory>> memories;
  std::vector<TensorView> views;
  for (const RecordedArray& array : call.arrays) {
    const auto bytes = static_cast<std::size_t>(args[*array.argument].bytes);
    memories.push_back(std::make_unique<Memory>(bytes, way.library));
    memories.back()->fill(array.data);
    views.push_back(view_of(array, memories.back()->data()));
    args[*array.argument] = views.back();
  }
  try {
    operation.call(args, way.execution);
  } catch (const Unsupported& reason) {
    ++outcome.declined;
    return complain(outcome, fmt::format("call {}: {}", number, reason.what()));
  }
  ++outcome.calls;
  for (std::size_t i = 0; i < call.arrays.size(); ++i) {
    const RecordedArray& array = call.arrays[i];
    if (array.argument->role == Role::input) continue;
    TensorView view = views[i];
    view.data = memories[i]->fetched();
    const std::uint64_t hash = recording::hash_of(view);
    ++outcome.results;
    outcome.hash.add(std::as_bytes(std::span(&hash, 1)));
    if (hash == array.hash) continue;
    ++outcome.different;
    complain(outcome, fmt::format("call {}, {}: {} has the hash {:016x}; recorded: {:016x}", number,
                                  operation.title(), array.argument->name, hash, array.hash));
  }
}

std::vector<Way> ways_of(const Flags& flags) {
  attach_devices();
  require_devices(flags);
  std::vector<std::string> devices = flags.device;
  if (devices.empty()) devices = {"cpu"};
  std::vector<std::string> isas = flags.isa;
  if (contains(isas, std::string("all"))) isas = isas_here();
  if (isas.empty()) isas = {"auto"};
  std::vector<int> threads = flags.threads;
  if (threads.empty()) threads = {Machine::here().threads};
  std::vector<Way> ways;
  for (const std::string& name : devices) {
    const std::optional<Device> device = device_named(name);
    if (!device) throw UsageError(fmt::format("replay has no device '{}'", name));
    if (*device != Device::cpu) {
      const DeviceLibrary* library = attached(*device);
      if (library == nullptr)
        throw Unsupported(
            fmt::format("device {} is unavailable: {}", name, missing_device(*device)));
      ways.push_back({name, execution_for(*device), library});
      continue;
    }
    for (const std::string& isa : isas)
      for (const int count : threads) {
        if (count < 1) throw UsageError(fmt::format("--threads is {}; must be at least 1", count));
        const Isa chosen = isa_of(isa);
        ways.push_back(
            {fmt::format("{} {} thread{}", name_of(chosen), count, count == 1 ? "" : "s"),
             execution_for(chosen, count), nullptr});
      }
  }
  return ways;
}

}  // namespace

int replay(const Flags& flags) {
  const std::vector<Way> ways = ways_of(flags);
  std::vector<Outcome> outcomes(ways.size());
  Recorded file(flags.out);
  std::uint64_t number = 0;
  while (const auto call = file.next()) {
    ++number;
    for (std::size_t i = 0; i < ways.size(); ++i) repeat(*call, ways[i], number, outcomes[i]);
  }
  Table table({"configuration", ">calls", ">results", ">different", ">unavailable"});
  bool same = true;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    same &= outcome.different == 0;
    if (flags.json)
      fmt::print("{}\n", Json{{"configuration", ways[i].name},
                              {"calls", outcome.calls},
                              {"results", outcome.results},
                              {"different", outcome.different},
                              {"unavailable", outcome.declined},
                              {"hash", fmt::format("{:016x}", outcome.hash.value())},
                              {"complaints", outcome.complaints}}
                             .dump());
    table.add({ways[i].name, std::to_string(outcome.calls), std::to_string(outcome.results),
               std::to_string(outcome.different), std::to_string(outcome.declined)});
  }
  if (!flags.json) {
    table.print();
    for (std::size_t i = 0; i < ways.size(); ++i)
      for (const std::string& complaint : outcomes[i].complaints)
        fmt::print("{}: {}\n", ways[i].name, complaint);
    if (file.left_out() > 0) fmt::print("the recording lacks {} calls on a GPU\n", file.left_out());
    fmt::print("{}\n", same ? "all results have the recorded bits" : "the bits differ");
  }
  return same ? kPassed : kFailed;
}

}  // namespace isobit::lab
