# The samples, one program per samples/0N_*.c. They use the public C API only.
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

# samples/desktop, where there is GTK 4; a project of its own elsewhere.
pkg_check_modules(WEIR_GTK4 QUIET "gtk4>=4.8")
if(WEIR_GTK4_FOUND AND PROJECT_IS_TOP_LEVEL)
  add_subdirectory("${PROJECT_SOURCE_DIR}/samples/desktop" "${PROJECT_BINARY_DIR}/desktop")
  weir_compile_options(weir_desktop)
endif()
