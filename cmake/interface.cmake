# SPDX-License-Identifier: Apache-2.0
# A fingerprint of what the library and those for devices agree on: the structs of the headers below,
# comments aside. Libraries with another one are refused (dispatch/gpu_library.cpp), since they would
# read other memory for the same argument.
#
#     cmake -DFILE=fingerprint.h -P cmake/interface.cmake
#
# writes a header that defines ISOBIT_INTERFACE, unless it is there already.
get_filename_component(interface_root "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
if(CMAKE_SCRIPT_MODE_FILE)
  set(depends "")
else()
  set(depends CONFIGURE_DEPENDS)
endif()
# All that operators, what they share, and the layers below them say to others. What is one back
# end's own, or the references', no other library reads.
file(GLOB_RECURSE interface_headers LIST_DIRECTORIES false ${depends}
  "${interface_root}/src/isobit/core/*.h" "${interface_root}/src/isobit/dispatch/*.h"
  "${interface_root}/src/isobit/norms/*.h" "${interface_root}/src/isobit/norm_linear/*.h"
  "${interface_root}/src/isobit/optimizers/*.h"
  "${interface_root}/src/isobit/ops/*.h")
list(FILTER interface_headers EXCLUDE REGEX "/(cpu|cuda|reference|cases|formula)[^/]*$")
# A formula whose parts a problem holds.
list(APPEND interface_headers "${interface_root}/src/isobit/ops/interpolate/formula.h")
list(SORT interface_headers)
if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()

set(said "")
foreach(header IN LISTS interface_headers)
  file(READ "${header}" text)
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "[ \t\r\n]+" " " text "${text}")
  file(RELATIVE_PATH name "${interface_root}" "${header}")
  string(APPEND said "${name}\n${text}\n")
endforeach()
string(SHA256 fingerprint "${said}")
string(SUBSTRING "${fingerprint}" 0 16 fingerprint)
set(text "#define ISOBIT_INTERFACE \"${fingerprint}\"\n")
set(there "")
if(EXISTS "${FILE}")
  file(READ "${FILE}" there)
endif()
if(NOT there STREQUAL text)
  file(WRITE "${FILE}" "${text}")
endif()
