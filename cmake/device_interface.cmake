# Makes device_interface.h with kDeviceInterface, the number by which the library and a device module know that they
# come from one tree of sources: a hash of lib/device/module.h, of the headers that define what it only names, of the
# arguments of all ops, and of everything of ours that these include. Where the folders lie does not matter.
# cmake -DSOURCE_DIR=<root> -DOUTPUT=<device_interface.h> -DDEPFILE=<its dependencies> -P device_interface.cmake
cmake_policy(VERSION 3.25)

set(contract device/module.h ops/ops.h)
set(name_pattern "^(class|struct) ([A-Za-z0-9_]+)")
file(STRINGS "${SOURCE_DIR}/lib/device/module.h" named REGEX "${name_pattern};")
list(TRANSFORM named REPLACE "${name_pattern};" "\\2")
file(GLOB headers RELATIVE "${SOURCE_DIR}/lib" "${SOURCE_DIR}/lib/core/*.h" "${SOURCE_DIR}/lib/kv/*.h"
     "${SOURCE_DIR}/lib/models/*.h" "${SOURCE_DIR}/lib/ops/*.h" "${SOURCE_DIR}/lib/policy/*.h"
     "${SOURCE_DIR}/lib/quant/*.h")
foreach(header IN LISTS headers)
  file(STRINGS "${SOURCE_DIR}/lib/${header}" defined REGEX "${name_pattern}[^;]*{")
  foreach(line IN LISTS defined)
    string(REGEX MATCH "${name_pattern}" line "${line}")
    if(CMAKE_MATCH_2 IN_LIST named)
      list(APPEND contract "${header}")
      list(REMOVE_ITEM named "${CMAKE_MATCH_2}")
    endif()
  endforeach()
endforeach()
if(named)
  message(FATAL_ERROR "lib/device/module.h names ${named}, which no header that it may include defines")
endif()

set(files "")
while(contract)
  list(POP_FRONT contract header)
  foreach(folder IN ITEMS lib include)
    if(EXISTS "${SOURCE_DIR}/${folder}/${header}" AND NOT "${folder}/${header}" IN_LIST files)
      list(APPEND files "${folder}/${header}")
      file(STRINGS "${SOURCE_DIR}/${folder}/${header}" includes REGEX "^#include \"")
      list(TRANSFORM includes REPLACE "^#include \"([^\"]+)\".*" "\\1")
      list(APPEND contract ${includes})
    endif()
  endforeach()
endwhile()

list(SORT files)
set(text "")
set(depends "")
foreach(file IN LISTS files)
  file(SHA256 "${SOURCE_DIR}/${file}" hash)
  string(APPEND text "${file} ${hash}\n")
  string(APPEND depends " ${SOURCE_DIR}/${file}")
endforeach()
string(SHA256 hash "${text}")
string(SUBSTRING "${hash}" 0 8 number)
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "// Made by cmake/device_interface.cmake.
#pragma once

#include <cstdint>

namespace weir {

inline constexpr uint32_t kDeviceInterface = 0x${number};

}  // namespace weir
" @ONLY)
file(WRITE "${DEPFILE}" "${OUTPUT}:${depends}\n")
