# The samples, one program per samples/0N_*.c, and the weir program from samples/cli. All of them use the public C API
# only.
file(GLOB weir_samples CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/samples/[0-9]*.c")
set(WEIR_SAMPLES "")  # names, for the tests that run them
foreach(file IN LISTS weir_samples)
  cmake_path(GET file STEM name)
  list(APPEND WEIR_SAMPLES ${name})
  add_executable(sample_${name} "${file}")
  set_target_properties(sample_${name} PROPERTIES OUTPUT_NAME ${name})
  target_link_libraries(sample_${name} PRIVATE weir::weir)
  weir_compile_options(sample_${name})
endforeach()

find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)

# Everything but main() is an archive, so that tests/cli can link the parts that they test.
file(GLOB weir_cli_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/samples/cli/*.cpp")
set(weir_cli_main "${PROJECT_SOURCE_DIR}/samples/cli/main.cpp")
list(REMOVE_ITEM weir_cli_sources "${weir_cli_main}")
add_library(weir_cli_parts STATIC ${weir_cli_sources})
target_include_directories(weir_cli_parts PUBLIC "${PROJECT_SOURCE_DIR}/samples/cli")
target_link_libraries(weir_cli_parts PUBLIC weir::weir CLI11::CLI11 nlohmann_json::nlohmann_json Threads::Threads)
# Where `weir demo` finds its model when both are installed, from the program's folder.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_DATADIR BASE_DIRECTORY "${CMAKE_INSTALL_FULL_BINDIR}"
           OUTPUT_VARIABLE weir_data_from_bin)
target_compile_definitions(weir_cli_parts PRIVATE "WEIR_MODEL_FOLDER=\"${weir_data_from_bin}/weir\"")
weir_compile_options(weir_cli_parts)
weir_optimise_little(weir_cli_parts)  # options and JSON
foreach(file IN ITEMS bench_bandwidth bench_model eval_prediction)  # but these have loops that take time
  set_source_files_properties("${PROJECT_SOURCE_DIR}/samples/cli/${file}.cpp" PROPERTIES
                              COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
endforeach()
# Files that a compiler reads together: the headers of options and JSON, which it would read and compile for each of
# them, take most of its time. Files outside of a group are compiled alone.
set(weir_cli_group_commands calibrate chat devices info input options plan run template tokenize)
set(weir_cli_group_demo demo demo_ask demo_lanes demo_model demo_pages demo_reason demo_story demo_svg demo_view)
set(weir_cli_group_parts bench conversation eval_text output plot session_file tools)
set(weir_cli_group_eval eval eval_forced eval_plots eval_progress eval_results eval_settings eval_table eval_trace
    eval_trace_command eval_waterfall problems)
set(weir_cli_group_text bench_plot eval_run eval_text_command eval_work gguf_write png_write)
set_target_properties(weir_cli_parts PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
foreach(group IN ITEMS commands demo parts eval text)
  foreach(name IN LISTS weir_cli_group_${group})
    set_source_files_properties("${PROJECT_SOURCE_DIR}/samples/cli/${name}.cpp" PROPERTIES UNITY_GROUP ${group})
  endforeach()
endforeach()
# Pictures of traces; without libpng they are SVG only. A self-contained program has it inside.
find_package(PNG)
set(weir_png "")
if(PNG_FOUND)
  set(weir_png PNG::PNG)
endif()
if(WEIR_SELF_CONTAINED)
  find_library(WEIR_PNG_ARCHIVE NAMES libpng.a libpng16.a)
  find_library(WEIR_ZLIB_ARCHIVE NAMES libz.a)
  mark_as_advanced(WEIR_PNG_ARCHIVE WEIR_ZLIB_ARCHIVE)
  set(weir_png "")
  if(PNG_FOUND AND WEIR_PNG_ARCHIVE AND WEIR_ZLIB_ARCHIVE)
    set(weir_png "${WEIR_PNG_ARCHIVE}" "${WEIR_ZLIB_ARCHIVE}" m)
  else()
    message(STATUS "Weir: pictures of traces are SVG only, no libpng.a and libz.a (Debian's package libpng-dev)")
  endif()
endif()
if(weir_png)
  target_link_libraries(weir_cli_parts PUBLIC ${weir_png})
  target_include_directories(weir_cli_parts PUBLIC ${PNG_INCLUDE_DIRS})
  target_compile_definitions(weir_cli_parts PUBLIC WEIR_HAVE_PNG)
endif()

# The server of weir serve. Without cpp-httplib the subcommand only says what is missing; a self-contained program goes
# without, because Debian's is a shared library that needs others.
target_sources(weir_cli_parts PRIVATE "${PROJECT_SOURCE_DIR}/samples/server/serve.cpp")
set_source_files_properties("${PROJECT_SOURCE_DIR}/samples/server/serve.cpp" PROPERTIES UNITY_GROUP commands)
target_include_directories(weir_cli_parts PUBLIC "${PROJECT_SOURCE_DIR}/samples")
pkg_check_modules(HTTPLIB IMPORTED_TARGET cpp-httplib)
if(HTTPLIB_FOUND AND NOT WEIR_SELF_CONTAINED)
  file(GLOB weir_server_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/samples/server/*.cpp")
  file(GLOB_RECURSE weir_page_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/samples/server/page/*")
  set(weir_page_source "${PROJECT_BINARY_DIR}/page_files.cpp")
  add_custom_command(OUTPUT "${weir_page_source}"
                     COMMAND ${CMAKE_COMMAND} "-DFOLDER=${PROJECT_SOURCE_DIR}/samples/server/page"
                             "-DOUT=${weir_page_source}" -P "${PROJECT_SOURCE_DIR}/cmake/page_files.cmake"
                     DEPENDS ${weir_page_files} "${PROJECT_SOURCE_DIR}/cmake/page_files.cmake" VERBATIM)
  target_sources(weir_cli_parts PRIVATE ${weir_server_sources} "${weir_page_source}")
  foreach(name IN ITEMS answer chat_response fields request responses routes saved text_response weir_routes)
    set_source_files_properties("${PROJECT_SOURCE_DIR}/samples/server/${name}.cpp" PROPERTIES UNITY_GROUP server)
  endforeach()
  target_compile_definitions(weir_cli_parts PRIVATE WEIR_HAVE_HTTPLIB)
  target_link_libraries(weir_cli_parts PRIVATE PkgConfig::HTTPLIB)
else()
  message(STATUS "Weir: no weir serve, which needs cpp-httplib (Debian's package libcpp-httplib-dev) and is left out "
                 "of self-contained programs")
endif()

add_executable(weir_cli "${weir_cli_main}")
# Relative in the build folder, too: the room that a path took there would stay in the installed file.
set_target_properties(weir_cli PROPERTIES OUTPUT_NAME weir BUILD_RPATH_USE_ORIGIN ON
                      INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
target_link_libraries(weir_cli PRIVATE weir_cli_parts ${WEIR_OWN_PROGRAM})
weir_compile_options(weir_cli)

# samples/desktop, where there is GTK 4; a project of its own elsewhere.
pkg_check_modules(WEIR_GTK4 QUIET "gtk4>=4.8")
if(WEIR_GTK4_FOUND AND PROJECT_IS_TOP_LEVEL)
  add_subdirectory("${PROJECT_SOURCE_DIR}/samples/desktop" "${PROJECT_BINARY_DIR}/desktop")
  weir_compile_options(weir_desktop)
endif()
