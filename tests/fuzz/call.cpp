// SPDX-License-Identifier: Apache-2.0
// From bytes to a call. Storage is never promised that is not there: that is the one thing which
// the library cannot check.
#include "call.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace isobit::fuzz {
namespace {

constexpr std::int64_t kMostElements = 2048;  // of a tensor that is accepted: calls stay short
constexpr std::int64_t kMostBytes = 64 * kMostElements;  // of one that has memory
constexpr int kPlenty = 1000;                            // allocations
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

constexpr std::int64_t kNumbers[] = {
    0,       1,         2,          3,         7,         8,         63,         64,
    65,      512,       513,        1024,      -1,        -2,        -64,        1ll << 15,
    1 << 16, 1ll << 31, 1ll << 32,  1ll << 47, 1ll << 48, 1ll << 61, 1ll << 62,  kMost,
    kLeast,  kMost - 1, kLeast + 1, kMost / 2, kMost / 4, kMost / 8, kLeast / 2, -(1ll << 32)};
constexpr std::uintptr_t kNowhere[] = {0, 64, 1, ~std::uintptr_t{63}, ~std::uintptr_t{4095}};
constexpr double kReals[] = {1e-5, 0,      1,    -0.5,  1e-12, 1e30,  -0.0, 1e-300,
                             1e39, 5e-324, -1e9, 1e308, 0.5,   0.999, 2,    1e-40};

std::int64_t strange(Bytes& bytes) {
  const std::size_t choice = bytes.below(std::size(kNumbers) + 1);
  return choice < std::size(kNumbers) ? kNumbers[choice] : bytes.value<std::int64_t>();
}

// Adds without wrapping.
std::int64_t plus(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? (a < 0 ? kLeast : kMost) : sum;
}

// A caller's memory and threads, in the thinnest form.
struct Lender {
  int left = 0;  // allocations that succeed
  bool denied = false;
  std::int64_t bytes = 0;  // now lent

  static void* allocate(void* self, std::size_t bytes) {
    auto& lender = *static_cast<Lender*>(self);
    void* memory = nullptr;
    lender.denied |= lender.left-- <= 0;
    if (lender.denied || posix_memalign(&memory, 64, bytes) != 0) return nullptr;
    lender.bytes += static_cast<std::int64_t>(bytes);
    return memory;
  }
  static void release(void* self, void* memory, std::size_t bytes) {
    static_cast<Lender*>(self)->bytes -= static_cast<std::int64_t>(bytes);
    std::free(memory);
  }
  static void run_last_first(void*, std::int64_t tasks, isobit_task task, void* context) {
    while (tasks > 0) task(context, --tasks);
  }
};

// The batch is the leading dimensions; of other dims "cols" are the trailing ones, as they are
// where arrays are rows, and any other has an extent that depends on both.
std::vector<std::int64_t> shape_of(const Argument& argument,
                                   const std::vector<std::int64_t>& leading,
                                   const std::vector<std::int64_t>& trailing) {
  const std::string_view dims = argument.dims;
  const bool of_rows = dims == "rows cols" || dims == "rows" || dims == "cols";
  std::vector<std::int64_t> shape;
  for (std::size_t begin = 0; begin < dims.size();) {
    const std::size_t end = std::min(dims.find(' ', begin), dims.size());
    const std::string_view dim = dims.substr(begin, end - begin);
    if (dim == "cols" && of_rows)
      shape.insert(shape.end(), trailing.begin(), trailing.end());
    else if (dim == "cols")
      shape.push_back(trailing.back());
    else if (dim == "batch" || of_rows)
      shape.insert(shape.end(), leading.begin(), leading.end());
    else
      shape.push_back(1 + static_cast<std::int64_t>(2 * leading.size() + trailing.size()));
    begin = end + 1;
  }
  if (shape.empty()) shape = {1};
  return shape;
}

}  // namespace

Call::Call(const Entry& entry, Bytes& bytes) : entry_(entry) {
  make_right(bytes);
  constexpr int kChanges[] = {0, 0, 0, 1, 1, 1, 2, 3};
  for (int changes = bytes.one_of(kChanges); changes > 0; --changes) change(bytes);
  place(bytes);
  fill(bytes);
  write_args(bytes);
}

bool Call::moves_bytes() const {
  const Operation& operation = operation_of(entry_);
  const Arguments args = operation.make_arguments();
  for (const Array& array : arrays_) {
    TensorView& view = args[*array.argument];
    view.rank = 1;
    view.dtype = kDTypes[std::clamp<std::int32_t>(array.tensor.dtype, 1, std::size(kDTypes)) - 1];
  }
  return operation.moves_bytes(args);
}

void Call::make_right(Bytes& bytes) {
  constexpr std::int64_t kCols[] = {8, 1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 130, 511, 513};
  constexpr std::int64_t kFewRows[] = {3, 1, 2, 4, 5, 8, 17, 0};
  constexpr isobit_dtype kDTypes[] = {ISOBIT_F32, ISOBIT_BF16, ISOBIT_F16, ISOBIT_F64,
                                      ISOBIT_I32, ISOBIT_F32,  ISOBIT_I64};
  isobit_dtype dtypes[8];  // of each kind of elements
  dtypes[0] = bytes.one_of(kDTypes);
  for (isobit_dtype& dtype : dtypes) {
    const std::size_t choice = bytes.below(8);
    if (&dtype != dtypes)
      dtype = choice < 5 ? dtypes[0] : choice < 7 ? ISOBIT_F32 : bytes.one_of(kDTypes);
  }
  const bool wide_statistics = dtypes[0] == ISOBIT_F64;

  // The last dimensions hold the columns, the others the rows.
  std::vector<std::int64_t> leading, trailing = {bytes.one_of(kCols)};
  std::int64_t elements = trailing[0];
  constexpr int kLeading[] = {1, 1, 1, 2, 3, 0};
  for (int dims = bytes.one_of(kLeading); dims > 0; --dims) {
    leading.push_back(
        std::min(bytes.one_of(kFewRows), kMostElements / std::max<std::int64_t>(1, elements)));
    elements *= leading.back();
  }
  if (bytes.below(8) == 7)
    trailing.insert(trailing.begin(),
                    std::min<std::int64_t>(2, kMostElements / std::max<std::int64_t>(1, elements)));
  if (bytes.below(16) == 15) trailing.back() = 0;

  constexpr std::int64_t kGaps[] = {0, 0, 1, 3, 64, -1, -2, 0};
  for (const Argument* argument : entry_.arrays) {
    Array array{argument};
    isobit_tensor& tensor = array.tensor;
    switch (argument->elements) {
      case Elements::statistic: tensor.dtype = wide_statistics ? ISOBIT_F64 : ISOBIT_F32; break;
      case Elements::index:     tensor.dtype = ISOBIT_I64; break;
      case Elements::mask:      tensor.dtype = bytes.yes() ? ISOBIT_BOOL : ISOBIT_U8; break;
      default:                  tensor.dtype = dtypes[static_cast<std::size_t>(argument->elements)];
    }
    std::vector<std::int64_t> shape = shape_of(*argument, leading, trailing);
    if (argument->name == entry_.copied) shape.erase(shape.begin(), shape.end() - 2);  // no batch
    const bool matrix = argument->dims.find(' ') != std::string_view::npos;
    tensor.rank = static_cast<std::int32_t>(shape.size());
    std::ranges::copy(shape, tensor.shape);

    std::int64_t gap = bytes.one_of(kGaps);  // behind each row
    const std::int64_t cols = matrix ? shape.back() : 0;
    if (gap == -1) gap = cols;  // another array may lie there
    std::int64_t stride = 1;
    for (int i = tensor.rank - 1; i >= 0; --i) {
      tensor.strides[i] = stride;
      stride *= tensor.shape[i];
      if (i == tensor.rank - 1 && matrix && gap > 0) stride += gap;
    }
    if (gap == 3 && argument->strides == Strides::any)  // the first dimension is the nearest
      for (int i = 0; i < tensor.rank; ++i)
        tensor.strides[i] =
            i == 0 ? 1 : tensor.strides[i - 1] * std::max<std::int64_t>(shape[i - 1], 1);
    if (gap == -2 && !array.is_output() && matrix)
      std::fill_n(tensor.strides, tensor.rank - 1, 0);  // one row for all
    constexpr std::int64_t kLead[] = {0, 1, 4, 7};
    array.begin = bytes.one_of(kLead) * array.element_size();
    array.block = arrays_.size();
    const bool fourth = bytes.below(4) == 3;
    array.given = argument->presence == Presence::required ||
                  fourth == (argument->presence == Presence::extra);
    arrays_.push_back(array);
  }

  has_context_ = bytes.yes();
  own_threads_ = bytes.yes();
  own_memory_ = bytes.yes();
  allocations_ = bytes.below(4) < 3 ? kPlenty : static_cast<int>(bytes.below(4));
  constexpr int kThreads[] = {0, 1, 2, 3, 7, 64, 1024, 2};
  context_.threads = bytes.one_of(kThreads);
}

void Call::change(Bytes& bytes) {
  Array& array = arrays_[bytes.below(arrays_.size())];
  isobit_tensor& tensor = array.tensor;
  const auto dimension = [&] { return bytes.below(std::clamp(tensor.rank, 1, ISOBIT_MAX_RANK)); };
  switch (bytes.below(16)) {
    case 0:  tensor.dtype = static_cast<std::int32_t>(bytes.below(10)); break;
    case 1:  tensor.dtype = static_cast<std::int32_t>(strange(bytes)); break;
    case 2:  tensor.rank = static_cast<std::int32_t>(bytes.below(11)) - 1; break;
    case 3:  tensor.shape[dimension()] = strange(bytes); break;
    case 4:  tensor.strides[dimension()] = strange(bytes); break;
    case 5:  tensor.bytes = strange(bytes); break;  // added to what is needed
    case 6:  tensor.bytes = -static_cast<std::int64_t>(bytes.below(9)); break;
    case 7:  array.address = bytes.one_of(kNowhere); break;
    case 8:  array.begin += static_cast<std::int64_t>(bytes.below(9)); break;
    case 9:
    case 10:
    case 11: {  // in the memory of another: the same view of it, the next columns, anything
      const Array& other = arrays_[bytes.below(arrays_.size())];
      array.block = other.block;
      array.begin = other.begin;
      switch (bytes.below(4)) {
        case 0: std::ranges::copy(other.tensor.strides, tensor.strides); break;
        case 1:
          std::ranges::copy(other.tensor.strides, tensor.strides);
          array.begin += other.tensor.shape[std::clamp(other.tensor.rank, 1, 8) - 1] %
                         kMostElements * other.element_size();
          break;
        case 2: array.begin += bytes.value<std::int8_t>() * array.element_size(); break;
        case 3: array.begin += bytes.value<std::int8_t>(); break;
      }
      array.begin = std::max<std::int64_t>(0, array.begin);
      break;
    }
    case 12: array.given = !array.given; break;
    case 13: strange_numbers_ = true; break;
    case 14:
      switch (bytes.below(4)) {
        case 0: no_args_ = true; break;
        case 1: struct_size_error_ = strange(bytes); break;
        case 2: context_.threads = static_cast<std::int32_t>(strange(bytes)); break;
        case 3: context_.struct_size = static_cast<std::size_t>(strange(bytes)); break;
      }
      break;
    case 15: {  // dimensions exchanged
      const std::size_t a = dimension(), b = dimension();
      std::swap(tensor.shape[a], tensor.shape[b]);
      std::swap(tensor.strides[a], tensor.strides[b]);
      break;
    }
  }
}

// A tensor that fits has its memory, whatever larger or smaller storage it names. One that would
// have too many elements names less storage than it needs.
void Call::place(Bytes& bytes) {
  std::vector<std::size_t> sizes(arrays_.size());
  for (Array& array : arrays_) {
    const std::optional<__int128> reach = array.reach();
    const bool fits =
        reach && !array.address && *reach <= kMostBytes && array.elements() <= kMostElements;
    const auto needed = static_cast<std::int64_t>(std::min<__int128>(reach.value_or(64), kMost));
    array.tensor.bytes = plus(needed, array.tensor.bytes);
    const bool null = array.address == 0;  // is refused before it is looked at
    if (!fits && !null && reach && needed > 0)
      array.tensor.bytes = std::min(array.tensor.bytes, needed - 1);
    constexpr std::size_t kBehind[] = {0, 0, 1, 64};
    const std::size_t end = array.begin + (fits ? needed : 0) + bytes.one_of(kBehind);
    sizes[array.block] = std::max(sizes[array.block], end);
  }
  for (std::size_t size : sizes) blocks_.emplace_back(size);
  for (Array& array : arrays_)
    array.tensor.data = array.address ? reinterpret_cast<void*>(*array.address)
                                      : blocks_[array.block].data() + array.begin;
}

void Call::fill(Bytes& bytes) {
  // For elements of f64, f32, f16 and bf16, as many as a word holds.
  constexpr std::uint64_t kFractions[] = {0x800fffffffffffff, 0x807fffff807fffff,
                                          0x83ff83ff83ff83ff, 0x807f807f807f807f};
  constexpr std::uint64_t kOnes[] = {0x3ff0000000000000, 0x3f8000003f800000, 0x3c003c003c003c00,
                                     0x3f803f803f803f80};
  constexpr std::uint64_t kLargest[] = {0x7fe0000000000000, 0x7f0000007f000000, 0x7800780078007800,
                                        0x7f007f007f007f00};
  enum Content { kNearOne, kAnyBits, kNearLargest, kSubnormal, kAllOne, kZero };
  std::uint64_t state = bytes.value<std::uint8_t>() + 1;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const auto content = static_cast<Content>(bytes.below(8) % 6);
    const std::int32_t dtype = arrays_[i].tensor.dtype;
    const int kind = dtype == ISOBIT_F64    ? 0
                     : dtype == ISOBIT_F16  ? 2
                     : dtype == ISOBIT_BF16 ? 3
                                            : 1;
    const std::uint64_t drawn = content == kAnyBits                      ? ~0ull
                                : content == kAllOne || content == kZero ? 0
                                                                         : kFractions[kind];
    const std::uint64_t set = content == kNearOne || content == kAllOne ? kOnes[kind]
                              : content == kNearLargest                 ? kLargest[kind]
                                                                        : 0;
    Block& block = blocks_[i];
    const std::size_t first = static_cast<std::size_t>(arrays_[i].begin) % 8;
    for (std::size_t at = 0; at < block.size();) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      const std::uint64_t word = (state & drawn) | set;
      const std::size_t count = std::min(block.size() - at, at == 0 && first > 0 ? first : 8);
      std::memcpy(block.data() + at, &word, count);
      at += count;
    }
  }
}

// Numbers that were added behind the arrays that were added at the end of the struct: one at most,
// in as many bytes as a pointer has.
std::int64_t Call::numbers_at_the_end() const {
  const bool added =
      std::ranges::any_of(arrays_, [](const Array& array) { return array.argument->added; });
  return added && std::ranges::any_of(entry_.numbers, [&](const Number& number) {
           return number.offset >= entry_.struct_size - sizeof(void*);
         });
}

// Of what was added at the end of the struct, how many members a shorter one leaves out. A size
// that leaves out anything else is wrong.
std::int64_t Call::left_out() const {
  const std::int64_t added =
      std::ranges::count_if(arrays_, [](const Array& array) { return array.argument->added; }) +
      numbers_at_the_end();
  constexpr auto kPointer = static_cast<std::int64_t>(sizeof(void*));
  const bool right = struct_size_error_ < 0 && struct_size_error_ % kPointer == 0 &&
                     struct_size_error_ >= -added * kPointer;
  return right ? -struct_size_error_ / kPointer : 0;
}

void Call::write_args(Bytes& bytes) {
  const std::int64_t numbers = numbers_at_the_end();
  for (std::int64_t i = left_out() - numbers; i > 0; --i)
    arrays_[arrays_.size() - static_cast<std::size_t>(i)].given = false;
  args_.resize(entry_.struct_size);
  const std::size_t size = entry_.struct_size + static_cast<std::size_t>(struct_size_error_);
  std::memcpy(args_.data(), &size, sizeof size);
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const isobit_tensor* tensor = arrays_[i].given ? &arrays_[i].tensor : nullptr;
    const std::size_t offset =
        arrays_[i].argument->added
            ? args_.size() -
                  (arrays_.size() - i + static_cast<std::size_t>(numbers)) * sizeof tensor
            : sizeof size + i * sizeof tensor;
    std::memcpy(args_.data() + offset, &tensor, sizeof tensor);
  }
  for (const Number& number : entry_.numbers) {
    const auto put = [&](auto value) {
      std::memcpy(args_.data() + number.offset, &value, sizeof value);
    };
    const std::size_t choice = bytes.below(8);
    switch (number.type) {
      case Number::Type::real:
        put(strange_numbers_ ? bytes.value<double>() : bytes.one_of(kReals));
        break;
      case Number::Type::i32:
        put(static_cast<std::int32_t>(strange_numbers_ ? strange(bytes)
                                                       : static_cast<std::int64_t>(choice % 3)));
        break;
      case Number::Type::i64:
        put(strange_numbers_ ? strange(bytes) : static_cast<std::int64_t>(choice % 3));
        break;
    }
  }
}

std::string Call::fault_beside_arrays() const {
  if (no_args_) return "args is null";
  if (struct_size_error_ != 0 && left_out() == 0) return "struct_size is wrong";
  if (has_context_ && (context_.struct_size != sizeof context_ || context_.threads < 0 ||
                       context_.threads > ISOBIT_MAX_THREADS))
    return "context is wrong";
  for (const Array& array : arrays_)
    if (!array.given && array.argument->presence == Presence::required &&
        array.argument->applies == nullptr)  // with all options
      return "a required array is missing";
  return "";
}

Outcome Call::run(Lent lent) {
  const bool chosen = lent == Lent::chosen;
  Lender lender{chosen ? allocations_ : kPlenty};
  isobit_context context = context_;
  if (own_threads_ == chosen) context.parallel_for = {Lender::run_last_first, nullptr};
  if (own_memory_ == chosen) context.allocator = {Lender::allocate, Lender::release, &lender};
  const isobit_status status =
      entry_.call(no_args_ ? nullptr : args_.data(), has_context_ ? &context : nullptr);
  return {status, isobit_last_error(), lender.denied, lender.bytes != 0};
}

}  // namespace isobit::fuzz
