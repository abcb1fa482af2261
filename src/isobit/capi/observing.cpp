// SPDX-License-Identifier: Apache-2.0
// Shows calls to those who watch, and tells the caller's function of them.
#include "isobit/capi/observing.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>

#include "isobit/capi/call.h"
#include "isobit/ops/catalog.h"

namespace isobit::capi {
namespace {

// Calls hold it shared while somebody watches, so that nobody who ends is called afterwards.
std::shared_mutex watching;
std::array<std::unique_ptr<Observer>, 2> watchers;

std::int64_t now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

class Function final : public Observer {
 public:
  Function(isobit_observer function, void* self) : function_(function), self_(self) {}

  void after(const Observed& call, std::int64_t begin, std::int64_t end,
             const std::shared_ptr<void>&) override {
    const Cost cost = call.operation.cost(call.args);
    const isobit_event event = {.struct_size = sizeof event,
                                .op = call.operation.op.data(),
                                .pass = call.operation.pass.data(),
                                .device = call.device == Device::cpu ? ISOBIT_CPU : ISOBIT_CUDA,
                                .begin = begin,
                                .end = end,
                                .bytes = cost.bytes,
                                .operations = cost.flops};
    function_(self_, &event);
  }

 private:
  isobit_observer function_;
  void* self_;
};

}  // namespace

std::unique_ptr<Observer> exchange_observer(Watch watch, std::unique_ptr<Observer> next) {
  const std::unique_lock lock(watching);
  auto& place = watchers[static_cast<std::size_t>(watch)];
  observers += (next != nullptr ? 1 : 0) - (place != nullptr ? 1 : 0);
  std::swap(place, next);
  return next;
}

void observe(const Operation& operation, const Arguments& args, std::span<const WholeOption> wholes,
             Device device, const std::function<void()>& call) {
  const std::shared_lock lock(watching);
  const Observed seen{operation, args, wholes, device};
  std::array<std::shared_ptr<void>, 2> before;
  for (std::size_t i = 0; i < watchers.size(); ++i)
    if (watchers[i] != nullptr) before[i] = watchers[i]->before(seen);
  const std::int64_t begin = now();
  call();
  const std::int64_t end = now();
  for (std::size_t i = 0; i < watchers.size(); ++i)
    if (watchers[i] != nullptr) watchers[i]->after(seen, begin, end, before[i]);
}

const Operation& operation_titled(std::string_view title) {
  for (const Operation* one : catalog())
    if (one->title() == title) return *one;
  throw std::logic_error(text("no operation has the title ", title));
}

}  // namespace isobit::capi

using namespace isobit;

isobit_status isobit_observe(isobit_observer observer, void* self) {
  return capi::guarded("isobit_observe", [&] {
    capi::exchange_observer(
        capi::Watch::observer,
        observer == nullptr ? nullptr : std::make_unique<capi::Function>(observer, self));
  });
}
