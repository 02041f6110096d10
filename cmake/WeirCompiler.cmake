# How everything is compiled: build type, language level, output folders, warnings, sanitizers, ccache. Code is compiled
# for the plain architecture: Highway picks the instruction set at run time, so one file runs everywhere.

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

find_program(WEIR_CCACHE ccache)
mark_as_advanced(WEIR_CCACHE)
if(WEIR_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What ccache must be told to be of use with precompiled headers.
  set(CMAKE_C_COMPILER_LAUNCHER "${WEIR_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_SLOPPINESS=pch_defines,time_macros"
      "${WEIR_CCACHE}")
  add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess>")
endif()

set(WEIR_WARNINGS -Wall -Wextra -Wpedantic)
# A switch over an enumeration has a case for each value and no default: a new value does not compile until it is
# handled everywhere.
set(WEIR_LIBRARY_WARNINGS -Wshadow -Wconversion -Werror=switch)
# GCC 12 sees overlaps and overflows in inlined std::string operations that are not there (its bugs 105329 and 105651),
# and GCC 13 an overflow in VulkanQueue::gemv that is not there either.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    list(APPEND WEIR_WARNINGS -Wno-restrict)
  endif()
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
    list(APPEND WEIR_WARNINGS -Wno-stringop-overflow)
  endif()
endif()

if(WEIR_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "WEIR_FUZZ needs clang (libFuzzer); use `cmake --preset fuzz`")
  endif()
  if(NOT WEIR_SANITIZE)
    set(WEIR_SANITIZE "address,undefined")
  endif()
endif()

set(WEIR_SANITIZE_OPTIONS "")
if(WEIR_SANITIZE)
  string(REPLACE ";" "," weir_sanitizers "${WEIR_SANITIZE}")
  # Instrumented vector code takes compilers minutes a file at higher levels; lib/cpu/simd_targets.h leaves out the
  # widest instruction sets.
  set(WEIR_SANITIZE_OPTIONS "-fsanitize=${weir_sanitizers}" -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g1)
  add_compile_definitions(WEIR_INTERNAL_SANITIZED)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # C programs get the part of the runtime that the library's C++ needs.
    add_link_options("$<$<LINK_LANGUAGE:C>:-fsanitize-link-c++-runtime>")
    link_libraries("$<$<LINK_LANGUAGE:C>:stdc++>")
  endif()
endif()
if(WEIR_FUZZ)
  list(APPEND WEIR_SANITIZE_OPTIONS -fsanitize=fuzzer-no-link)
endif()
# The host code of CUDA files is not instrumented: it launches kernels and nothing else.
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${WEIR_SANITIZE_OPTIONS}>")
add_link_options(${WEIR_SANITIZE_OPTIONS})

# Clang leaves the sanitizer's runtime to the program, so its libraries have undefined symbols on purpose.
set(WEIR_NO_UNDEFINED "LINKER:--no-undefined")
if(WEIR_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(WEIR_NO_UNDEFINED "")
endif()

# Options of every target of the project. No contraction of a * b + c: results must not depend on the compiler's taste;
# vector code asks for fused operations by name. Sections let the linker drop what nothing uses.
function(weir_compile_options target)
  target_compile_options(${target} PRIVATE ${WEIR_WARNINGS} $<$<BOOL:${WEIR_WERROR}>:-Werror>
                         -ffp-contract=off -ffunction-sections -fdata-sections)
  target_link_options(${target} PRIVATE LINKER:--gc-sections)
endfunction()

# Headers of the standard library, precompiled: reading them takes a compiler twice as long as most files of the
# project. Each file still includes what it uses; the debug build, which has no precompiled headers, shows what is
# missing. weir_precompile(<target> [<header>...])
function(weir_precompile target)
  set(headers algorithm array atomic bit cmath condition_variable cstddef cstdint cstdio cstdlib cstring functional
      limits map memory memory_resource mutex new optional set span string string_view thread utility vector ${ARGN})
  list(TRANSFORM headers REPLACE "(.+)" "<\\1>")
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

# For code that takes far longer to compile than it ever runs: a third less of a compiler's time in release builds, half
# in instrumented ones.
function(weir_optimise_little target)
  if(WEIR_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()
