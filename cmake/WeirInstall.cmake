# What `cmake --install` puts where: public headers, libweir.so, the modules that were built, weir.pc,
# weirConfig.cmake, the weir program and the model of weir demo. Nothing installed holds an absolute path, so the whole
# tree can be moved. `--strip` removes the debug information of lib/api.
include(CMakePackageConfigHelpers)
set(weir_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weir")
set(weir_pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

install(FILES ${WEIR_PUBLIC_HEADERS} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/weir")
install(TARGETS weir EXPORT weir LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET weir_cuda)  # libweir.so looks for it beside itself
  install(TARGETS weir_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(TARGET weir_vulkan)
  install(TARGETS weir_vulkan LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(TARGET weir_cli)
  install(TARGETS weir_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  if(WEIR_INSTALL_MODEL)  # 14 MB, for weir demo
    install(FILES "${PROJECT_SOURCE_DIR}/samples/models/weir-tiny-reasoner-q8_0.gguf"
            DESTINATION "${CMAKE_INSTALL_DATADIR}/weir")
  endif()
endif()

install(EXPORT weir NAMESPACE weir:: FILE weirTargets.cmake DESTINATION "${weir_cmake_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/weirConfig.cmake.in" "${PROJECT_BINARY_DIR}/weirConfig.cmake"
                              INSTALL_DESTINATION "${weir_cmake_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/weirConfigVersion.cmake" COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/weirConfig.cmake" "${PROJECT_BINARY_DIR}/weirConfigVersion.cmake"
        DESTINATION "${weir_cmake_dir}")

cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}/${weir_pkgconfig_dir}"
           OUTPUT_VARIABLE weir_pc_prefix)
set(weir_pc_zstd "")
if(weir_zstd_kind STREQUAL "shared")
  set(weir_pc_zstd " libzstd")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/weir.pc.in" "${PROJECT_BINARY_DIR}/weir.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/weir.pc" DESTINATION "${weir_pkgconfig_dir}")
