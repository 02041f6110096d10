# The weir program: tools/weir has what users run, with the server in tools/weir/server, and tools/lab what measures.
# All of it uses the public C API only.
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)

# Everything but main() is an archive, so that tests/cli can link the parts that they test.
set(weir_tools "${PROJECT_SOURCE_DIR}/tools")
file(GLOB weir_cli_sources CONFIGURE_DEPENDS "${weir_tools}/weir/*.cpp" "${weir_tools}/lab/*.cpp")
set(weir_cli_main "${weir_tools}/weir/main.cpp")
list(REMOVE_ITEM weir_cli_sources "${weir_cli_main}")
add_library(weir_cli_parts STATIC ${weir_cli_sources})
target_include_directories(weir_cli_parts PUBLIC "${weir_tools}/weir" "${weir_tools}/lab")
target_link_libraries(weir_cli_parts PUBLIC weir::weir CLI11::CLI11 nlohmann_json::nlohmann_json Threads::Threads)
# Where `weir demo` finds its model when both are installed, from the program's folder.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_DATADIR BASE_DIRECTORY "${CMAKE_INSTALL_FULL_BINDIR}"
           OUTPUT_VARIABLE weir_data_from_bin)
target_compile_definitions(weir_cli_parts PRIVATE "WEIR_MODEL_FOLDER=\"${weir_data_from_bin}/weir\"")
weir_compile_options(weir_cli_parts)
weir_optimise_little(weir_cli_parts)  # options and JSON
foreach(file IN ITEMS bench_bandwidth bench_model eval_prediction)  # but these have loops that take time
  set_source_files_properties("${weir_tools}/lab/${file}.cpp" PROPERTIES
                              COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
endforeach()
# Files that a compiler reads together: the headers of options and JSON, which it would read and compile for each of
# them, take most of its time. Files outside of a group are compiled alone.
set(weir_cli_commands chat devices info input options plan run template tokenize server/serve)
set(weir_cli_demo demo demo_ask demo_lanes demo_model demo_pages demo_reason demo_story demo_svg demo_view)
set(weir_cli_parts conversation output session_file tools)
set(weir_lab_bench bench bench_plot bench_shapes calibrate eval_text gguf_write plot png_write)
set(weir_lab_eval eval eval_forced eval_plots eval_progress eval_results eval_settings eval_table eval_trace
    eval_trace_command eval_waterfall problems)
set(weir_lab_runs eval_run eval_text_command eval_work)
set_target_properties(weir_cli_parts PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
function(weir_read_together folder)
  foreach(group IN LISTS ARGN)
    foreach(name IN LISTS ${group})
      set_source_files_properties("${weir_tools}/${folder}/${name}.cpp" PROPERTIES UNITY_GROUP ${group})
    endforeach()
  endforeach()
endfunction()
weir_read_together(weir weir_cli_commands weir_cli_demo weir_cli_parts)
weir_read_together(lab weir_lab_bench weir_lab_eval weir_lab_runs)
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
target_sources(weir_cli_parts PRIVATE "${weir_tools}/weir/server/serve.cpp")
pkg_check_modules(HTTPLIB IMPORTED_TARGET cpp-httplib)
if(HTTPLIB_FOUND AND NOT WEIR_SELF_CONTAINED)
  file(GLOB weir_server_sources CONFIGURE_DEPENDS "${weir_tools}/weir/server/*.cpp")
  file(GLOB_RECURSE weir_page_files CONFIGURE_DEPENDS "${weir_tools}/weir/server/page/*")
  set(weir_page_source "${PROJECT_BINARY_DIR}/page_files.cpp")
  add_custom_command(OUTPUT "${weir_page_source}"
                     COMMAND ${CMAKE_COMMAND} "-DFOLDER=${weir_tools}/weir/server/page"
                             "-DOUT=${weir_page_source}" -P "${PROJECT_SOURCE_DIR}/cmake/page_files.cmake"
                     DEPENDS ${weir_page_files} "${PROJECT_SOURCE_DIR}/cmake/page_files.cmake" VERBATIM)
  target_sources(weir_cli_parts PRIVATE ${weir_server_sources} "${weir_page_source}")
  set(weir_server answer chat_response fields request responses routes saved text_response weir_routes)
  weir_read_together(weir/server weir_server)
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
