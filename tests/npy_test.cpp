// SPDX-License-Identifier: Apache-2.0
// .npy files survive a round trip, look as NumPy writes them, and are refused when they are broken.
#include "isobit/lab/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace isobit::lab {
namespace {

class Npy : public testing::Test {
 protected:
  ~Npy() override { std::filesystem::remove(file_); }

  void write(const std::string& bytes) const { std::ofstream(file_, std::ios::binary) << bytes; }

  std::string bytes() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string refusal() const {
    try {
      read_npy(file_);
    } catch (const std::runtime_error& error) { return error.what(); }
    return "";
  }

  const std::filesystem::path file_ =
      std::filesystem::temp_directory_path() / ("isobit_npy_test_" + std::to_string(getpid()));
};

// As NumPy writes version 1, with what the test wants to be different.
std::string file_of(const std::string& dictionary, const std::string& data) {
  std::string header = dictionary;
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() % 256);
  file += static_cast<char>(header.size() / 256);
  return file + header + data;
}

TEST_F(Npy, SurvivesARoundTrip) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64,
                      DType::boolean, DType::u8})
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{}, {0}, {3}, {2, 3}, {2, 0, 5}, {1, 2, 3, 4}}) {
      NpyArray array{dtype, shape, {}};
      array.data.resize(static_cast<std::size_t>(array.elements() * size_of(dtype)), std::byte{7});
      write_npy(file_, array);
      const NpyArray again = read_npy(file_);
      EXPECT_EQ(again.dtype, dtype);
      EXPECT_EQ(again.shape, shape);
      EXPECT_EQ(again.data, array.data);
      EXPECT_EQ((bytes().size() - array.data.size()) % 64, 0u);
    }
}

TEST_F(Npy, LooksAsNumpyWritesIt) {
  write_npy(file_, {DType::i32, {1}, std::vector<std::byte>(4, std::byte{'a'})});
  EXPECT_EQ(bytes(), file_of("{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }", "aaaa"));
}

TEST_F(Npy, ReadsVersionTwo) {
  std::string file = file_of("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", "12345678");
  file[6] = 2;
  file.insert(10, 2, '\0');
  write(file);
  EXPECT_EQ(read_npy(file_).elements(), 1);
}

TEST_F(Npy, RefusesBrokenFiles) {
  EXPECT_NE(refusal().find("cannot be opened"), std::string::npos);
  write("");
  EXPECT_NE(refusal().find("ends too early"), std::string::npos);
  write("not an array");
  EXPECT_NE(refusal().find("is not a .npy file"), std::string::npos);
  write(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234"));
  EXPECT_NE(refusal().find("ends too early"), std::string::npos);
  write(file_of("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "1234"));
  EXPECT_NE(refusal().find("has elements '>f4'"), std::string::npos);
  write(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }", "1234"));
  EXPECT_NE(refusal().find("Fortran order"), std::string::npos);
  write(file_of("{'descr': '<f4', 'fortran_order': False, }", "1234"));
  EXPECT_NE(refusal().find("'shape'"), std::string::npos);
  write(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }",
                ""));
  EXPECT_NE(refusal().find("is too large"), std::string::npos);
}

}  // namespace
}  // namespace isobit::lab
