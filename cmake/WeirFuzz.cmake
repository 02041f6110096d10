# tests/fuzz/fuzz_<name>.cpp defines LLVMFuzzerTestOneInput; its seeds are the files of tests/fuzz/corpus/<name>/. With
# WEIR_FUZZ (clang) each is a libFuzzer program, and its test runs for WEIR_FUZZ_SECONDS. Without, every compiler builds
# it with fuzz_replay.cpp, and its test runs the seeds and a fixed set of changed copies, so that the quick tier sees
# old findings come back.
set(WEIR_FUZZ_SECONDS 60 CACHE STRING "Seconds that each fuzz test runs")
add_custom_target(fuzz_tests)  # builds the fuzz targets alone
file(GLOB weir_fuzz_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.cpp")
foreach(file IN LISTS weir_fuzz_files)
  cmake_path(GET file STEM target)
  string(REGEX REPLACE "^fuzz_" "" name "${target}")
  set(seeds "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
  if(NOT IS_DIRECTORY "${seeds}")
    message(FATAL_ERROR "${target}.cpp needs a folder with seeds, tests/fuzz/corpus/${name}")
  endif()
  add_executable(${target} "${file}")
  target_link_libraries(${target} PRIVATE weir_core)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${target} PRIVATE "WEIR_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
  weir_compile_options(${target})
  add_dependencies(fuzz_tests ${target})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/fuzz")
  if(WEIR_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    set(grown "${CMAKE_CURRENT_BINARY_DIR}/fuzz/corpus_${name}")
    file(MAKE_DIRECTORY "${grown}")
    add_test(NAME "fuzz/${name}"
             COMMAND ${target} -max_total_time=${WEIR_FUZZ_SECONDS} -timeout=20 -rss_limit_mb=2048 -print_final_stats=1
                     "-artifact_prefix=${CMAKE_CURRENT_BINARY_DIR}/fuzz/${name}-" "${grown}" "${seeds}")
    math(EXPR limit "${WEIR_FUZZ_SECONDS} + 120")
    set_tests_properties("fuzz/${name}" PROPERTIES LABELS fuzz TIMEOUT ${limit})
  else()
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/fuzz_replay.cpp")
    add_test(NAME "fuzz/${name}" COMMAND ${target} "${seeds}")
    math(EXPR limit "${weir_test_seconds} * ${weir_test_slowdown}")
    set_tests_properties("fuzz/${name}" PROPERTIES LABELS "cmocka;fuzz" TIMEOUT ${limit})
  endif()
endforeach()
