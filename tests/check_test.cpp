// SPDX-License-Identifier: Apache-2.0
// Every argument of every operation, spoiled in every way.
#include "isobit/core/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "isobit/core/error.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

// A way to spoil an argument, and what its complaint says beside the argument's name.
struct Spoil {
  const char* says;
  void (*change)(TensorView& view);
  bool of_rows = false;  // where strides may be any, it is right
};

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

constexpr const char* kMisplaced = "starts 1 bytes past";
constexpr const char* kSmaller = "has ";
constexpr Spoil kSpoils[] = {
    {"has 9 dimensions; allowed: 1 to 8", [](TensorView& view) { view.rank = 9; }},
    {"has -1 dimensions", [](TensorView& view) { view.rank = -1; }},
    {"dtype", [](TensorView& view) { view.dtype = static_cast<DType>(99); }},
    {"has dtype f128",
     [](TensorView& view) {
       view.dtype = DType::f128;
       view.bytes *= 8;
     }},
    {"is null", [](TensorView& view) { view.data = nullptr; }},
    {"has a storage of -1 bytes", [](TensorView& view) { view.bytes = -1; }},
    {" bytes; its storage has ", [](TensorView& view) { --view.bytes; }},
    {"has a negative extent", [](TensorView& view) { view.shape[0] = -1; }},
    {"has negative stride -1 in", [](TensorView& view) { view.strides[view.rank - 1] = -1; }},
    {"has stride 2 in",
     [](TensorView& view) {
       view.strides[view.rank - 1] = 2;
       view.bytes *= 2;
     },
     true},
    {"reaches beyond 2^63 bytes", [](TensorView& view) { view.strides[0] = kMost; }},
    {"reaches beyond 2^63 bytes", [](TensorView& view) { view.shape[0] = kMost; }},
    {kMisplaced, [](TensorView& view) { view.data = static_cast<std::byte*>(view.data) + 1; }},
    {"wraps around the address space",
     [](TensorView& view) {
       view.data = reinterpret_cast<void*>(~std::uintptr_t{4095});
       view.bytes = kMost;
     }},
    {kSmaller, [](TensorView& view) { --view.shape[view.rank - 1]; }},
    {kSmaller, [](TensorView& view) { --view.shape[0]; }},
};

class SpoiledArguments : public testing::TestWithParam<const Operation*> {
 protected:
  // Right calls that between them have every argument.
  static std::vector<Case> right_calls() {
    std::vector<Case> cases;
    for (Case c : cases_of_every_type(*GetParam(), 3, 24)) {
      c.given_statistics = true;
      for (std::int64_t& extent : c.extents)
        if (extent == 1) extent = 5;  // the stride of a single index is never looked at
      const Arguments args = GetParam()->make_arguments();
      set_options(*GetParam(), c, args);
      GetParam()->derive(c.extents, args);
      cases.push_back(c);
    }
    return cases;
  }

  // Whether a call is right with an array of another shape: one that alone has the dims that
  // changed, and from which no others follow. Windows may leave out the last elements of an image.
  static bool right_beside(const Case& c, const Workload& call, const Argument& changed) {
    const TensorView& view = call.args()[changed];
    const auto dims = GetParam()->dims_of(changed);
    Extents extents = c.extents;
    for (std::size_t i = 0; i < dims.size(); ++i)
      extents[static_cast<std::size_t>(dims[i])] = view.shape[i];
    const Extents given = extents;
    const Arguments args = GetParam()->make_arguments();
    set_options(*GetParam(), c, args);
    GetParam()->derive(extents, args);
    for (const Argument& argument : GetParam()->arguments)
      for (const int dim : GetParam()->dims_of(argument)) {
        if (call.find(argument.name) == nullptr) continue;
        const auto place = static_cast<std::size_t>(dim);
        if (extents[place] != (&argument == &changed ? given : c.extents)[place]) return false;
      }
    return true;
  }

  static std::string complaint(const Workload& call) {
    try {
      GetParam()->check(call.args());
    } catch (const InvalidArgument& error) { return error.what(); }
    return "accepted";
  }

  static void expect_complaint(const Workload& call, std::string_view name, std::string_view says) {
    const std::string told = complaint(call);
    const auto tells = [&](std::string_view what) { return told.find(what) != std::string::npos; };
    EXPECT_TRUE(told.starts_with(GetParam()->op) && tells(text(' ', name)) && tells(says))
        << "not of " << name << " that it " << says << ":\n  " << told;
  }
};

// Whether all that changed is the stride of a single index.
bool steps_from_one_element(const TensorView& before, const TensorView& after) {
  if (after.shape != before.shape || after.strides == before.strides) return false;
  for (int i = 0; i < before.rank; ++i)
    if (before.shape[i] != 1 && after.strides[i] != before.strides[i]) return false;
  return true;
}

TEST_P(SpoiledArguments, AreRefusedByName) {
  for (const Case& c : right_calls()) {
    ASSERT_EQ(complaint(Workload(c)), "accepted");
    for (const Argument& argument : GetParam()->arguments)
      for (const Spoil& spoil : kSpoils) {
        const Workload call(c);
        if (call.find(argument.name) == nullptr) continue;
        if (spoil.of_rows && argument.strides == Strides::any) continue;
        // Single bytes lie everywhere.
        if (std::string_view(spoil.says) == kMisplaced && size_of(call.args()[argument].dtype) == 1)
          continue;
        const TensorView before = call.args()[argument];
        spoil.change(call.args()[argument]);
        if (spoil.says == kSmaller && right_beside(c, call, argument)) continue;
        if (steps_from_one_element(before, call.args()[argument])) continue;
        expect_complaint(call, argument.name, spoil.says);
      }
  }
}

TEST_P(SpoiledArguments, AreRefusedWhereTheyAreMissing) {
  for (const Case& c : right_calls())
    for (const Argument& argument : GetParam()->arguments) {
      const Workload call(c);
      if (!call.find(argument.name) || argument.presence != Presence::required) continue;
      call.args()[argument] = {};
      expect_complaint(call, argument.name, "is missing");
    }
}

// One element past the start of another argument: no output may lie there, whatever may be in
// place.
TEST_P(SpoiledArguments, AreRefusedWhereOutputsOverlapHalfway) {
  for (const Case& c : right_calls())
    for (const Argument& output : GetParam()->arguments)
      for (const Argument& other : GetParam()->arguments) {
        const Workload call(c);
        if (output.role == Role::input || &output == &other) continue;
        if (!call.find(output.name) || !call.find(other.name)) continue;
        SCOPED_TRACE(other.name);
        TensorView& view = call.args()[output];
        if (call.args()[other].bytes <= size_of(view.dtype)) continue;
        view.data = static_cast<std::byte*>(call.args()[other].data) + size_of(view.dtype);
        expect_complaint(call, output.name, "overlaps");
      }
}

INSTANTIATE_TEST_SUITE_P(Operations, SpoiledArguments,
                         testing::ValuesIn(catalog().begin(), catalog().end()), name_of_pass);

}  // namespace
}  // namespace isobit::lab
