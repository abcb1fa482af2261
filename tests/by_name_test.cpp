// SPDX-License-Identifier: Apache-2.0
// The call by name: every operator through one function, with the bits of its own.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "isobit/isobit.h"
#include "isobit/lab/callers.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

class ByName : public testing::TestWithParam<const Operation*> {};

TEST_P(ByName, GivesTheBitsOfTheLibrary) {
  for (const Case& c : cases_of_every_type(*GetParam(), 5, 70)) {
    Workload workload(c);
    workload.draw();
    run(workload, default_configuration(workload));
    Hashes expected;
    for (const Argument* output : workload.outputs())
      expected.emplace(output->name, bits(*workload.find(output->name)));
    const Called called = call_from_c(workload, 2);
    EXPECT_EQ(called.declined, "");
    EXPECT_EQ(called.outputs, expected) << types_text(c.types) << " " << choices_text(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, ByName, testing::ValuesIn(catalog().begin(), catalog().end()),
                         name_of_pass);

struct Call {
  float data[6] = {1, 2, 3, 4, 5, 9}, result[6] = {};
  isobit_tensor x{data, sizeof data, ISOBIT_F32, 2, {2, 3}, {3, 1}};
  isobit_tensor y{result, sizeof result, ISOBIT_F32, 2, {2, 3}, {3, 1}};
  const char *op = "layernorm", *pass = "fwd";
  std::vector<isobit_named_tensor> tensors = {{"x", &x}, {"y", &y}};
  std::vector<isobit_option> options = {};

  isobit_status operator()() const {
    return isobit_call(op, pass, tensors.data(), static_cast<int>(tensors.size()), options.data(),
                       static_cast<int>(options.size()), nullptr);
  }
};

isobit_option number(const char* name, double value) {
  isobit_option option{name, ISOBIT_NUMBER, {}};
  option.value.number = value;
  return option;
}
isobit_option integer(const char* name, std::int64_t value) {
  isobit_option option{name, ISOBIT_INTEGER, {}};
  option.value.integer = value;
  return option;
}
isobit_option word(const char* name, const char* value) {
  isobit_option option{name, ISOBIT_TEXT, {}};
  option.value.text = value;
  return option;
}

TEST(CallByName, RefusesWhatItDoesNotKnowByItsName) {
  const std::vector<std::pair<void (*)(Call&), std::string>> bad = {
      {[](Call& c) { c.op = "layernrom"; },
       "isobit_call: no operator 'layernrom'; known: elementwise"},
      {[](Call& c) { c.op = nullptr; }, "isobit_call: op is null"},
      {[](Call& c) { c.pass = "sideways"; }, "layernorm: no pass 'sideways'; known: fwd, bwd"},
      {[](Call& c) { c.tensors[0].name = "input"; },
       "layernorm: no argument 'input'; known: x, weight"},
      {[](Call& c) { c.tensors[0].name = nullptr; }, "layernorm: a tensor's name is null"},
      {[](Call& c) { c.tensors.push_back({"x", &c.x}); }, "layernorm: x is given twice"},
      {[](Call& c) { c.tensors.pop_back(); }, "layernorm: y is missing"},
      {[](Call& c) { c.options = {number("epsilon", 1)}; },
       "layernorm: no option 'epsilon'; known: eps"},
      {[](Call& c) { c.options = {number("eps", 0), number("eps", 1)}; },
       "layernorm: eps is given twice"},
      {[](Call& c) { c.options = {word("eps", "small")}; }, "layernorm: eps must be a number"},
      {[](Call& c) { c.options = {word("zero_centered", "perhaps")}; },
       "layernorm: zero_centered is 'perhaps'; allowed: no, yes"},
      {[](Call& c) { c.options = {number("dropout_seed", 0.5)}; },
       "layernorm: dropout_seed must be an integer"},
      {[](Call& c) { c.options = {number("dropout_seed", -1)}; },
       "layernorm: dropout_seed must be a whole number"},
      {[](Call& c) {
         c.options = {number("eps", 0)};
         c.options[0].type = 9;
       },
       "layernorm: eps has type code 9; allowed: 1 to 3"},
      {[](Call& c) { c.x.rank = 9; }, "layernorm: x has 9 dimensions"},
  };
  for (const auto& [change, says] : bad) {
    Call call;
    change(call);
    EXPECT_EQ(call(), ISOBIT_INVALID_ARGUMENT) << says;
    EXPECT_EQ(std::string(isobit_last_error()).find(says), 0u) << isobit_last_error();
    for (float value : call.result) EXPECT_EQ(value, 0) << says;
  }
  EXPECT_EQ(Call()(), ISOBIT_OK) << isobit_last_error();
}

// A double holds 53 bits.
TEST(CallByName, HandsOnEveryBitOfASeed) {
  std::vector<std::string> results;
  for (const std::int64_t seed : {INT64_MIN + 1, INT64_MIN + 2, std::int64_t{1}}) {
    Call call;
    call.options = {integer("dropout_seed", seed), number("dropout", 0.5)};
    ASSERT_EQ(call(), ISOBIT_OK) << isobit_last_error();
    isobit_layernorm_forward_args args{};
    args.struct_size = sizeof args;
    args.x = &call.x;
    float expected[6] = {};
    isobit_tensor y = call.y;
    y.data = expected;
    args.y = &y;
    args.eps = 1e-5;
    args.dropout = 0.5;
    args.dropout_seed = static_cast<std::uint64_t>(seed);
    ASSERT_EQ(isobit_layernorm_forward(&args, nullptr), ISOBIT_OK);
    EXPECT_TRUE(std::equal(expected, expected + 6, call.result)) << seed;
  }
}

TEST(CallByName, TakesYesInEveryForm) {
  for (const isobit_option& yes :
       {word("zero_centered", "yes"), integer("zero_centered", 1), number("zero_centered", 2)}) {
    Call call;
    float zero[3] = {};
    const isobit_tensor weight{zero, sizeof zero, ISOBIT_F32, 1, {3}, {1}};
    call.tensors.push_back({"weight", &weight});
    call.options = {yes};
    ASSERT_EQ(call(), ISOBIT_OK) << isobit_last_error();
    EXPECT_NE(call.result[0], 0);
  }
}

TEST(Operators, DescribeThemselvesInJson) {
  const Json all = Json::parse(isobit_operators());
  ASSERT_EQ(all.size(), catalog().size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Operation& operation = *catalog()[i];
    EXPECT_EQ(all[i].at("op"), operation.op);
    EXPECT_EQ(all[i].at("pass"), operation.pass);
    EXPECT_FALSE(all[i].at("summary").get<std::string>().empty()) << operation.title();
    ASSERT_EQ(all[i].at("arguments").size(), operation.arguments.size());
    for (const Json& argument : all[i].at("arguments"))
      EXPECT_FALSE(argument.at("meaning").get<std::string>().empty())
          << operation.title() << " " << argument.at("name");
  }
}

}  // namespace
}  // namespace isobit::lab
