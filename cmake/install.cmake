# SPDX-License-Identifier: Apache-2.0
# What is installed: for C and C++ by `cmake --install`, for Python by the wheel, which has it all in one folder.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(isobit_cuda_file ${CMAKE_BINARY_DIR}/libisobit_cuda.so) # made by tools/kernels.py

if(SKBUILD)
  set(native isobit/native)
  file(GLOB python_in_ops RELATIVE ${CMAKE_SOURCE_DIR}/src/isobit CONFIGURE_DEPENDS src/isobit/ops/*/*.py)
  foreach(file IN LISTS python_in_ops)
    get_filename_component(folder ${file} DIRECTORY)
    install(FILES src/isobit/${file} DESTINATION isobit/${folder})
  endforeach()
  # Wheels hold no links: one file, by the name that the adapters ask for.
  set_property(TARGET isobit PROPERTY VERSION)
  set_property(TARGET isobit_command PROPERTY INSTALL_RPATH $ORIGIN)
  install(TARGETS isobit isobit_command RUNTIME DESTINATION ${native} LIBRARY DESTINATION ${native} NAMELINK_SKIP)
  foreach(module IN ITEMS isobit_torch_cpu isobit_torch_cuda isobit_fast)
    if(TARGET ${module})
      install(TARGETS ${module} LIBRARY DESTINATION ${native})
    endif()
  endforeach()
  set(ISOBIT_CUDA_ARCHITECTURES auto CACHE STRING
    "GPUs to compile kernels for, such as 90a,100; or all; or none; or auto, which is all where there is nvcc")
  find_program(nvcc nvcc HINTS /usr/local/cuda/bin)
  if(ISOBIT_CUDA_ARCHITECTURES STREQUAL none OR (ISOBIT_CUDA_ARCHITECTURES STREQUAL auto AND NOT nvcc))
    message(STATUS "kernels for GPUs: left out")
  else()
    if(NOT ISOBIT_CUDA_ARCHITECTURES MATCHES "^(all|auto)$")
      set(named --arch ${ISOBIT_CUDA_ARCHITECTURES})
    endif()
    add_custom_command(OUTPUT ${isobit_cuda_file} DEPENDS isobit_all ${cuda_sources} VERBATIM
      COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/kernels.py ${named} --library ${isobit_cuda_file})
    add_custom_target(isobit_cuda ALL DEPENDS ${isobit_cuda_file})
    install(FILES ${isobit_cuda_file} DESTINATION ${native})
  endif()
  get_target_property(fmt_type fmt::fmt TYPE)
  if(fmt_type STREQUAL SHARED_LIBRARY) # the one library that another machine may lack
    install(FILES $<TARGET_FILE:fmt::fmt> DESTINATION ${native} RENAME $<TARGET_SONAME_FILE_NAME:fmt::fmt>)
  endif()
  return()
endif()

install(TARGETS isobit EXPORT isobit LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS isobit_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/isobit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${isobit_cuda_file} DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/isobit)
install(EXPORT isobit NAMESPACE isobit:: FILE isobitTargets.cmake DESTINATION ${package})
configure_package_config_file(cmake/package/isobitConfig.cmake.in ${CMAKE_BINARY_DIR}/package/isobitConfig.cmake
  INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_LIBDIR NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# As the ABI's: until version 1 every minor version may change it.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/isobitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/isobitConfig.cmake ${CMAKE_BINARY_DIR}/package/isobitConfigVersion.cmake
  DESTINATION ${package})

file(RELATIVE_PATH prefix_from_pkgconfig /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/package/isobit.pc.in ${CMAKE_BINARY_DIR}/package/isobit.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/isobit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
