// SPDX-License-Identifier: Apache-2.0
// Makes keys on the way of every call, once plans are stored: without memory, in tens of
// nanoseconds.
#include "isobit/dispatch/plan_key.h"

#include <algorithm>
#include <bit>
#include <type_traits>

namespace isobit {
namespace {

// Appends to PlanKey::call; what does not fit is dropped, and with it only a distinction.
class Letters {
 public:
  explicit Letters(std::array<char, 64>& to) : next_(to.data()), end_(to.data() + to.size()) {}

  void add(std::string_view text) {
    next_ =
        std::copy_n(text.data(), std::min<std::ptrdiff_t>(std::ssize(text), end_ - next_), next_);
  }
  void add(char letter) {
    if (next_ != end_) *next_++ = letter;
  }

 private:
  char *next_, *end_;
};

char digit(int value) { return static_cast<char>('0' + value); }
char digit(DType dtype) { return digit(static_cast<int>(dtype)); }

char given(bool is) { return is ? '+' : '-'; }

// Of an argument that was checked: where this would overflow, an extent is 0.
std::int64_t elements(const TensorView& view) {
  std::uint64_t count = 1;
  for (int i = 0; i < view.rank; ++i)
    count *= static_cast<std::uint64_t>(view.shape[static_cast<std::size_t>(i)]);
  return static_cast<std::int64_t>(count);
}

}  // namespace

std::string_view PlanKey::text() const {
  return {call.data(),
          static_cast<std::size_t>(std::find(call.begin(), call.end(), '\0') - call.begin())};
}

std::size_t PlanKeyHash::operator()(const PlanKey& key) const {
  static_assert(std::has_unique_object_representations_v<PlanKey>);
  using Words = std::array<std::uint64_t, sizeof(PlanKey) / sizeof(std::uint64_t)>;
  std::uint64_t hash = 0, factor = 0x9e3779b97f4a7c15;
  for (const std::uint64_t word : std::bit_cast<Words>(key)) {
    hash += word * factor;  // a sum, so that no product waits for another
    factor *= 0xd1342543de82ef95;
  }
  return hash ^ hash >> 32;
}

std::int64_t nearest_power_of_two(std::int64_t count) {
  if (count < 1) return 0;
  const auto most = std::uint64_t{1} << 31;
  const std::uint64_t n = std::min(static_cast<std::uint64_t>(count), most);
  return std::int64_t{1} << std::bit_width(n * n) / 2;  // nearest by ratio: 6 is nearer to 8
}

PlanKey plan_key(std::string_view op, std::string_view pass, std::span<const Argument> arguments,
                 std::span<const Option> options, const void* args, const Machine& machine) {
  PlanKey key;
  Letters call(key.call);
  call.add(op);
  call.add(' ');
  call.add(pass);
  call.add(' ');
  const bool on_cpu = machine.device == Device::cpu;
  call.add(on_cpu ? name_of(machine.isa) : name_of(machine.device));
  for (int tens = 100; tens > 0 && !on_cpu; tens /= 10)
    call.add(digit(machine.gpu.capability / tens % 10));
  call.add(' ');
  const TensorView *x = nullptr, *weights = nullptr;
  bool sums = false;
  for (const Argument& argument : arguments) {
    // `view` serves writers too; here it is only read.
    const TensorView& view = argument.view(const_cast<void*>(args));
    switch (argument.extent) {
      case Extent::matrix:
        if (x == nullptr) x = &view;
        call.add(view.given() ? digit(view.dtype) : '-');
        break;
      case Extent::row_vector:
        if (view.given() && weights == nullptr) weights = &view;
        sums |= view.given() && argument.role == Role::output;
        break;
      case Extent::row_statistic:
        if (argument.role == Role::input) call.add(given(view.given()));
        break;
    }
  }
  call.add(digit(weights != nullptr ? weights->dtype : x->dtype));
  call.add(given(sums));
  for (const Option& option : options) {
    if (!option.choices.empty()) call.add(digit(static_cast<int>(option.get(args))));
    if (option.adds_work) call.add(given(option.get(args) != 0));
  }

  // A row may be several dimensions long; what has an element a column says how long.
  const std::int64_t last = x->shape[static_cast<std::size_t>(x->rank - 1)];
  key.cols = weights != nullptr ? elements(*weights) : last;
  key.rows = key.cols == 0 ? 0 : nearest_power_of_two(elements(*x) / key.cols);
  key.threads = on_cpu ? machine.threads : machine.gpu.multiprocessors;
  return key;
}

}  // namespace isobit
