# SPDX-License-Identifier: Apache-2.0
# GoogleTest built from its sources, which Debian's package googletest brings.
if(NOT TARGET GTest::gtest_main)
  set(BUILD_GMOCK OFF)
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
endif()
set(GTest_FOUND TRUE)
