# Files that need nothing but the C library: libstdc++, libgcc, PCRE2, Zstandard and Highway's functions are linked in,
# and nothing of them is exported. What is linked with a new glibc runs with one from 2.28 on (x86-64). For packages of
# applications; a system's package shares the system's libraries.
#
# WEIR_SELF_CONTAINED=ON makes libweir.so, the backend modules and the weir program so. OFF, the target
# weir_self_contained still makes such a libweir.so of the same objects, in self_contained/ of the build folder, where
# nothing is missing for it (WEIR_SELF_CONTAINED_MISSING).
option(WEIR_SELF_CONTAINED "Link all that Weir is made of into its files, so that they need the C library alone" OFF)

# weir_find_archive(<variable> <file> <package> <folder>...): a static library, or a line in
# WEIR_SELF_CONTAINED_MISSING.
set(WEIR_SELF_CONTAINED_MISSING "")
macro(weir_find_archive variable file package)
  find_library(${variable} NAMES ${file} HINTS ${ARGN})
  mark_as_advanced(${variable})
  if(NOT ${variable})
    list(APPEND WEIR_SELF_CONTAINED_MISSING "${file} (Debian's package ${package})")
  endif()
endmacro()
# Those of the compiler; it knows where they are.
string(REGEX MATCH "^[0-9]+" weir_gcc "${CMAKE_CXX_COMPILER_VERSION}")
foreach(file IN ITEMS libstdc++.a libgcc_eh.a)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${file} OUTPUT_VARIABLE weir_path
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT IS_ABSOLUTE "${weir_path}" OR NOT EXISTS "${weir_path}")
    list(APPEND WEIR_SELF_CONTAINED_MISSING
         "${file} of ${CMAKE_CXX_COMPILER} (Debian's package libstdc++-${weir_gcc}-dev)")
  endif()
endforeach()
weir_find_archive(WEIR_PCRE2_ARCHIVE libpcre2-8.a libpcre2-dev ${PCRE2_LIBDIR} ${PCRE2_LIBRARY_DIRS})
weir_find_archive(WEIR_ZSTD_ARCHIVE libzstd.a libzstd-dev ${ZSTD_LIBDIR} ${ZSTD_LIBRARY_DIRS})
# Debian has no archive of Highway; lib/self_contained has its two functions for x86-64.
find_library(WEIR_HWY_ARCHIVE NAMES libhwy.a HINTS ${HWY_LIBDIR} ${HWY_LIBRARY_DIRS})
mark_as_advanced(WEIR_HWY_ARCHIVE)
set(weir_is_x86_64 FALSE)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(weir_is_x86_64 TRUE)
endif()
if(WEIR_HWY_ARCHIVE)
  set(weir_highway "${WEIR_HWY_ARCHIVE}")
elseif(weir_is_x86_64)
  set(weir_highway weir_highway)
else()
  list(APPEND WEIR_SELF_CONTAINED_MISSING "libhwy.a (Highway built with BUILD_SHARED_LIBS=OFF)")
endif()
if(WEIR_ZSTD STREQUAL "system")
  list(APPEND WEIR_SELF_CONTAINED_MISSING "libzstd.a, which WEIR_ZSTD=system does without")
endif()
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  list(APPEND WEIR_SELF_CONTAINED_MISSING "a linker and a C library of Linux")
endif()
if(WEIR_SANITIZE)
  list(APPEND WEIR_SELF_CONTAINED_MISSING "a build without WEIR_SANITIZE")
endif()
list(JOIN WEIR_SELF_CONTAINED_MISSING ", " WEIR_SELF_CONTAINED_MISSING)
if(WEIR_SELF_CONTAINED AND WEIR_SELF_CONTAINED_MISSING)
  message(FATAL_ERROR "WEIR_SELF_CONTAINED needs what is not there: ${WEIR_SELF_CONTAINED_MISSING}. Install it, or "
                      "configure with -DWEIR_SELF_CONTAINED=OFF")
endif()
if(WEIR_SELF_CONTAINED_MISSING)
  message(STATUS "Weir: self-contained files left out, no ${WEIR_SELF_CONTAINED_MISSING}")
  return()
endif()

# weir_alone_library(<target> <kind> <source>): a source of lib/self_contained.
function(weir_alone_library target kind source)
  add_library(${target} ${kind} EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/lib/self_contained/${source}.cpp")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/lib"
                             ${HWY_INCLUDE_DIRS})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
  weir_compile_options(${target})
  target_compile_options(${target} PRIVATE ${WEIR_LIBRARY_WARNINGS} "$<$<CONFIG:Release>:-Os>")
endfunction()
# weir_wrap(<target> <function>...): calls of these go to __wrap_<function>, those of archives, too.
function(weir_wrap target)
  list(TRANSFORM ARGN PREPEND "LINKER:--wrap=" OUTPUT_VARIABLE options)
  target_link_options(${target} INTERFACE ${options})
endfunction()

# What every file gets: a C++ runtime of its own, and the old names of the C library's functions.
add_library(weir_own_runtime INTERFACE)
target_link_options(weir_own_runtime INTERFACE -static-libstdc++ -static-libgcc)
weir_alone_library(weir_new_glibc_objects OBJECT new_glibc)
target_sources(weir_own_runtime INTERFACE $<TARGET_OBJECTS:weir_new_glibc_objects>)
weir_wrap(weir_own_runtime __libc_single_threaded arc4random _dl_find_object)
if(weir_is_x86_64)
  set(weir_old_glibc "${PROJECT_SOURCE_DIR}/lib/self_contained/old_glibc.cpp")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${weir_old_glibc}")
  file(STRINGS "${weir_old_glibc}" weir_old_functions REGEX "^OLD_[A-Z]+\\(")
  list(TRANSFORM weir_old_functions REPLACE "^OLD_[A-Z]+\\(([a-z_0-9]+), .*" "\\1")
  weir_alone_library(weir_old_glibc_objects OBJECT old_glibc)
  target_sources(weir_own_runtime INTERFACE $<TARGET_OBJECTS:weir_old_glibc_objects>)
  weir_wrap(weir_own_runtime ${weir_old_functions})
  # What nothing calls goes, though the table as a whole is asked for.
  target_link_options(weir_own_runtime INTERFACE LINKER:--gc-sections LINKER:-z,start-stop-gc)
endif()
# What libraries get besides.
if(weir_highway STREQUAL "weir_highway")
  weir_alone_library(weir_highway STATIC highway_targets)
endif()
set(weir_alone_archives "${WEIR_PCRE2_ARCHIVE}" "${WEIR_ZSTD_ARCHIVE}" ${weir_highway})
weir_alone_library(weir_inside_objects OBJECT cpp_runtime)
add_library(weir_inside INTERFACE)
target_link_libraries(weir_inside INTERFACE weir_own_runtime ${weir_alone_archives})
target_sources(weir_inside INTERFACE $<TARGET_OBJECTS:weir_inside_objects>)
weir_wrap(weir_inside __gxx_personality_v0 _Unwind_RaiseException)
# What programs get besides.
add_library(weir_own_program INTERFACE)
target_link_libraries(weir_own_program INTERFACE weir_own_runtime)
if(weir_is_x86_64)
  weir_alone_library(weir_old_start_objects OBJECT old_start)
  target_sources(weir_own_program INTERFACE $<TARGET_OBJECTS:weir_old_start_objects>)
  weir_wrap(weir_own_program __libc_start_main)
endif()
# What modules and programs link; empty where they share the system's libraries.
if(WEIR_SELF_CONTAINED)
  set(WEIR_INSIDE weir_inside)
  set(WEIR_OWN_PROGRAM weir_own_program)
endif()
