// SPDX-License-Identifier: Apache-2.0
// Writes calls with their inputs, and hashes of their results, for `isobit replay`.
#include "isobit/dispatch/recording.h"

#include <cmath>
#include <cstdio>
#include <mutex>
#include <string>

#include "isobit/capi/call.h"
#include "isobit/capi/observing.h"

namespace isobit::capi {
namespace {

using recording::Part;
using recording::Value;

template <class Number>
void put(std::string& to, Number number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void put(std::string& to, std::string_view text) {
  put(to, static_cast<std::uint32_t>(text.size()));
  to.append(text);
}

void put_option(std::string& to, const Option& option, const Observed& call) {
  put(to, option.name);
  const double value = option.get(call.args.get());
  for (const WholeOption& whole : call.wholes)
    if (whole.name == option.name) {
      put(to, Value::whole);
      return put(to, whole.value);
    }
  if (option.is_integer() && std::fabs(value) < 0x1p53) {
    put(to, Value::whole);
    return put(to, static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  }
  put(to, Value::real);
  put(to, value);
}

void put_head(std::string& to, const Argument& argument, const TensorView& view) {
  put(to, argument.name);
  put(to, static_cast<std::uint8_t>(argument.role == Role::output));
  put(to, static_cast<std::uint8_t>(view.dtype));
  put(to, static_cast<std::uint32_t>(view.rank));
  for (int i = 0; i < view.rank; ++i) put(to, view.shape[static_cast<std::size_t>(i)]);
}

class Recorder final : public Observer {
 public:
  explicit Recorder(const char* path) : file_(std::fopen(path, "wb")) {
    if (file_ == nullptr) throw InvalidArgument(text("isobit_record: cannot write ", path));
    std::string head(recording::kMagic);
    put(head, recording::kVersion);
    put(head, std::string_view(ISOBIT_VERSION));
    write(head);
  }
  ~Recorder() override {
    if (file_ != nullptr) std::fclose(file_);
  }

  // An output may lie where an input does: inputs are written down before they are gone.
  std::shared_ptr<void> before(const Observed& call) override {
    if (call.device != Device::cpu) return nullptr;
    call.operation.check(call.args);
    auto inputs = std::make_shared<std::string>();
    for (const Argument& argument : call.operation.arguments) {
      const TensorView& view = call.args[argument];
      if (!view.given() || argument.role == Role::output) continue;
      put_head(*inputs, argument, view);
      put(*inputs, static_cast<std::uint64_t>(recording::elements_of(view) * size_of(view.dtype)));
      recording::for_elements(view, [&](std::span<const std::byte> bytes) {
        inputs->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      });
    }
    return inputs;
  }

  void after(const Observed& call, std::int64_t, std::int64_t,
             const std::shared_ptr<void>& before) override {
    const std::lock_guard lock(mutex_);
    if (before == nullptr) {
      ++left_out_;
      return;
    }
    const Operation& operation = call.operation;
    std::string part, outputs;
    std::uint32_t arrays = 0;
    for (const Argument& argument : operation.arguments) {
      const TensorView& view = call.args[argument];
      if (!view.given()) continue;
      ++arrays;
      if (argument.role == Role::input) continue;
      put_head(outputs, argument, view);
      put(outputs, recording::hash_of(view));
    }
    put(part, operation.op);
    put(part, operation.pass);
    put(part, static_cast<std::uint32_t>(operation.version));
    put(part, static_cast<std::uint32_t>(operation.options.size()));
    for (const Option& option : operation.options) put_option(part, option, call);
    put(part, arrays);
    part += *static_cast<const std::string*>(before.get());
    part += outputs;
    write(Part::call, part);
    ++calls_;
  }

  // Throws where something was not recorded or not written.
  void end() {
    std::string part;
    put(part, calls_);
    put(part, left_out_);
    write(Part::end, part);
    const bool closed = std::fclose(file_) == 0;
    file_ = nullptr;
    if (failed_ || !closed) throw Error("isobit_record: the file could not be written");
    if (left_out_ > 0)
      throw Unsupported(text("isobit_record: ", left_out_,
                             " calls on a GPU were left out: only the processor's are recorded"));
  }

 private:
  void write(Part kind, const std::string& part) {
    std::string head;
    put(head, kind);
    put(head, static_cast<std::uint64_t>(part.size()));
    write(head);
    write(part);
    std::string hash;
    put(hash, recording::hash_of(std::as_bytes(std::span(part))));
    write(hash);
  }

  void write(const std::string& bytes) {
    failed_ |= std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size();
  }

  std::mutex mutex_;
  std::FILE* file_;
  std::uint64_t calls_ = 0, left_out_ = 0;
  bool failed_ = false;
};

}  // namespace
}  // namespace isobit::capi

using namespace isobit;

isobit_status isobit_record(const char* path) {
  return capi::guarded("isobit_record", [&] {
    auto next = path == nullptr ? nullptr : std::make_unique<capi::Recorder>(path);
    const auto last = capi::exchange_observer(capi::Watch::recorder, std::move(next));
    if (last != nullptr) static_cast<capi::Recorder&>(*last).end();
  });
}
