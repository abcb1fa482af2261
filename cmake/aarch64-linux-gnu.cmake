# SPDX-License-Identifier: Apache-2.0
# Builds for 64-bit ARM with Debian's cross compiler and runs what it built under QEMU. Of the target only the C and
# C++ libraries are needed; all others come as headers or sources, from cmake/headers/.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
set(CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR}/headers)
set(CMAKE_CXX_FLAGS_INIT -Wno-restrict) # GCC 12 suspects the operator + of std::string
