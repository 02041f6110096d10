# Which instruction sets lib/cpu is compiled for. A package has all of them; a build that stays on this machine can do
# without those that it cannot run, and a first look with the best one alone: each takes a compiler as long as the next.
# Defines WEIR_CPU_TARGETS_DIR, whose cpu_targets.h lib/cpu/simd_targets.h includes.
set(WEIR_CPU_TARGETS "all" CACHE STRING
    "Instruction sets of the CPU kernels: all; host: those that this machine runs; best: the best of them")
set_property(CACHE WEIR_CPU_TARGETS PROPERTY STRINGS all host best)
if(NOT WEIR_CPU_TARGETS MATCHES "^(all|host|best)$")
  message(FATAL_ERROR "WEIR_CPU_TARGETS is '${WEIR_CPU_TARGETS}'; it must be all, host or best")
endif()

set(weir_cpu_targets "~0LL")
set(weir_cpu_targets_text "All of them.")
if(NOT WEIR_CPU_TARGETS STREQUAL "all" AND NOT CMAKE_CROSSCOMPILING)
  # Asked once for each build folder, from Highway, which asks the processor.
  if(NOT DEFINED WEIR_CPU_SUPPORTED)
    try_run(weir_cpu_run weir_cpu_compiled "${PROJECT_BINARY_DIR}/cpu_targets"
            "${CMAKE_CURRENT_LIST_DIR}/cpu_targets.cpp" LINK_LIBRARIES PkgConfig::HWY CXX_STANDARD 20
            RUN_OUTPUT_VARIABLE weir_cpu_output)
    if(weir_cpu_compiled AND weir_cpu_run EQUAL 0)
      string(STRIP "${weir_cpu_output}" weir_cpu_output)  # a line's end is no part of a cache entry
      set(WEIR_CPU_SUPPORTED "${weir_cpu_output}" CACHE INTERNAL
          "This machine's instruction sets: a mask, and the best")
    endif()
  endif()
  if(WEIR_CPU_SUPPORTED MATCHES "^([0-9]+) ([0-9]+) ([A-Za-z0-9_]+)")
    if(WEIR_CPU_TARGETS STREQUAL "best")
      set(weir_cpu_targets "${CMAKE_MATCH_2}LL")
      set(weir_cpu_targets_text "Only ${CMAKE_MATCH_3}, the best of this machine.")
    else()
      set(weir_cpu_targets "${CMAKE_MATCH_1}LL")
      set(weir_cpu_targets_text "Those of this machine, up to ${CMAKE_MATCH_3}.")
    endif()
  else()
    message(STATUS "Weir: this machine's instruction sets are not known; CPU kernels for all of them")
  endif()
endif()
set(WEIR_CPU_TARGETS_DIR "${PROJECT_BINARY_DIR}/cpu_targets")
configure_file("${CMAKE_CURRENT_LIST_DIR}/cpu_targets.h.in" "${WEIR_CPU_TARGETS_DIR}/cpu_targets.h" @ONLY)
message(STATUS "Weir: instruction sets of the CPU kernels: ${WEIR_CPU_TARGETS}")
