// SPDX-License-Identifier: Apache-2.0
// Makes keys on the way of every call, once plans are stored: without memory, in tens of
// nanoseconds.
#include "isobit/dispatch/plan_key.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <type_traits>

namespace isobit {
namespace {

char digit(int value) { return static_cast<char>('0' + value); }
char digit(DType dtype) { return digit(static_cast<int>(dtype)); }

char given(bool is) { return is ? '+' : '-'; }

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
  // A digit as it is; what is longer or negative between commas.
  void add(std::int64_t number) {
    if (number >= 0 && number < 10) return add(digit(static_cast<int>(number)));
    std::array<char, 20> digits;
    const auto end = std::to_chars(digits.begin(), digits.end(), number).ptr;
    add(',');
    add(std::string_view(digits.begin(), end));
    add(',');
  }

 private:
  char *next_, *end_;
};

// Of an argument's dims: whether the batch is the first, and whether there are others.
struct Kind {
  bool batch, others;

  Kind(std::string_view dims, std::string_view batch_name)
      : batch(!batch_name.empty() && dims.substr(0, dims.find(' ')) == batch_name),
        others(!batch || dims.size() > batch_name.size()) {}
};

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

PlanKey plan_key(std::string_view op, std::string_view pass, std::span<const Dim> dims,
                 std::span<const Argument> arguments, std::span<const Option> options,
                 const Extents& extents, const void* args, const Machine& machine) {
  PlanKey key;
  key.dims = std::ssize(dims);
  std::string_view batch;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    key.extents[i] = dims[i].batch ? nearest_power_of_two(extents[i]) : extents[i];
    if (dims[i].batch) batch = dims[i].name;
  }

  Letters call(key.call);
  call.add(op);
  call.add(' ');
  call.add(pass);
  call.add(' ');
  const bool on_cpu = machine.device == Device::cpu;
  call.add(on_cpu ? name_of(machine.isa) : name_of(machine.device));
  const int model = machine.device == Device::hip ? machine.gpu.gfx : machine.gpu.capability;
  for (int tens = 100; tens > 0 && !on_cpu; tens /= 10) call.add(digit(model / tens % 10));
  call.add(' ');
  const TensorView *x = nullptr, *weights = nullptr;
  bool sums = false;
  for (const Argument& argument : arguments) {
    // `view` serves writers too; here it is only read.
    const TensorView& view = argument.view(const_cast<void*>(args));
    const Kind kind(argument.dims, batch);
    if (batch.empty() || (kind.batch && kind.others)) {
      if (x == nullptr) x = &view;
      call.add(view.given() ? digit(view.dtype) : '-');
    } else if (kind.batch) {
      if (argument.role == Role::input) call.add(given(view.given()));
    } else {
      if (view.given() && weights == nullptr) weights = &view;
      sums |= view.given() && argument.role == Role::output;
    }
  }
  if (!batch.empty()) {
    call.add(digit(weights != nullptr ? weights->dtype : x->dtype));
    call.add(given(sums));
  }
  for (const Option& option : options) {
    if (option.plan == PlanDependence::none) continue;
    const double value = option.get(args);
    if (option.plan == PlanDependence::presence)
      call.add(given(value != 0));
    else
      call.add(static_cast<std::int64_t>(value));
  }
  key.threads = on_cpu ? machine.threads : machine.gpu.multiprocessors;
  return key;
}

}  // namespace isobit
