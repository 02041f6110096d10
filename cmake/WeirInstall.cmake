# What `cmake --install` puts where, by component:
#   runtime      libweir.so.1, the licences
#   development  public headers, libweir.so, libweir.a, weir.pc, weirConfig.cmake
#   program      the weir program and the model of weir demo
#   cuda vulkan  the backend modules
# The library must have been built; of the rest, what was built is installed and what was not is named. A component that
# is asked for (`--component cuda`) must be there. Nothing installed holds an absolute path, so the whole tree can be
# moved. `--strip` removes the debug information of lib/api.
include(CMakePackageConfigHelpers)
set(weir_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weir")
set(weir_pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
set(weir_licence_dir "${CMAKE_INSTALL_DATADIR}/licenses/weir")

# weir_install_check(<target> <component>): what is said where the component is to be installed but was not built.
# Runs when installing, before anything is written.
function(weir_install_check target component)
  set(how "this build leaves it out; what it needs is in docs/gpu.md and docs/vulkan.md")
  set(file "")
  if(TARGET ${target})
    set(how "build it with: cmake --build ${PROJECT_BINARY_DIR} --target ${target}")
    set(file "$<TARGET_FILE:${target}>")
  endif()
  set(is_needed "\${CMAKE_INSTALL_COMPONENT}")  # what was asked for; empty: all components
  if(target STREQUAL "weir")
    set(is_needed "always")
  endif()
  install(CODE "
    set(weir_file \"${file}\")
    set(weir_is_needed \"${is_needed}\")
    if(NOT EXISTS \"\${weir_file}\")
      if(weir_is_needed)
        message(FATAL_ERROR \"Weir's component ${component} is not built: ${how}\")
      elseif(weir_file)
        message(STATUS \"Left out: component ${component} is not built\")
      endif()
    endif()" COMPONENT ${component})
endfunction()
weir_install_check(weir runtime)
weir_install_check(weir development)
weir_install_check(weir_cli program)
weir_install_check(weir_cuda cuda)
weir_install_check(weir_vulkan vulkan)
# `cmake --build build --target install_parts` builds all of them that this build has.
add_custom_target(install_parts)
foreach(target IN ITEMS weir weir_static weir_cli weir_cuda weir_vulkan)
  if(TARGET ${target})
    add_dependencies(install_parts ${target})
  endif()
endforeach()

install(FILES ${WEIR_PUBLIC_HEADERS} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/weir" COMPONENT development)
install(TARGETS weir EXPORT weir LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime
        NAMELINK_COMPONENT development)
if(TARGET weir_static)
  install(FILES "${weir_static_archive}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development OPTIONAL)
endif()
foreach(module IN ITEMS cuda vulkan)
  if(TARGET weir_${module})  # libweir.so looks for it beside itself
    install(TARGETS weir_${module} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT ${module} OPTIONAL)
  endif()
endforeach()
if(TARGET weir_cli)
  install(TARGETS weir_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program OPTIONAL)
endif()

# weir_install_with(<target or file> <component> <folder> <file> <name>): a file that is of use only with one that was
# built.
function(weir_install_with target component folder file name)
  set(built "${target}")
  if(TARGET ${target})
    set(built "$<TARGET_FILE:${target}>")
  endif()
  install(CODE "
    if(EXISTS \"${built}\")
      file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${folder}\" TYPE FILE RENAME \"${name}\" FILES \"${file}\")
    endif()" COMPONENT ${component})
endfunction()
if(TARGET weir_cli AND WEIR_INSTALL_MODEL)  # 14 MB, for weir demo
  set(weir_demo_model weir-tiny-reasoner-q8_0.gguf)
  weir_install_with(weir_cli program "${CMAKE_INSTALL_DATADIR}/weir"
                    "${PROJECT_SOURCE_DIR}/samples/models/${weir_demo_model}" ${weir_demo_model})
endif()

# Licences: ours, and those of what becomes a part of our files, archives and headers, in whose place Debian puts them.
# weir_install_licence(<name> <target or file> <component> <package>...)
function(weir_install_licence name target component)
  list(TRANSFORM ARGN PREPEND "/usr/share/doc/" OUTPUT_VARIABLE folders)
  string(TOUPPER "WEIR_LICENCE_${name}" variable)
  find_file(${variable} NAMES copyright LICENSE LICENSE.txt COPYING EULA.txt PATHS ${folders} ${weir_licence_hints}
            NO_DEFAULT_PATH DOC "The text of the licence of ${name}")
  mark_as_advanced(${variable})
  if(${variable})
    weir_install_with(${target} ${component} "${weir_licence_dir}" "${${variable}}" "${name}.txt")
  else()
    message(STATUS "Weir: no licence text of ${name} to install; ${variable}=FILE names one")
  endif()
endfunction()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${weir_licence_dir}" COMPONENT runtime)
weir_install_licence(highway weir runtime libhwy-dev)
weir_install_licence(xxhash weir runtime libxxhash-dev)
if(weir_zstd_kind STREQUAL "static")
  weir_install_licence(zstandard weir runtime libzstd-dev)
endif()
# Licences of what self-contained files and libweir.a have inside besides.
if(WEIR_SELF_CONTAINED)
  weir_install_licence(pcre2 weir runtime libpcre2-dev)
  weir_install_licence(libstdc++ weir runtime libstdc++-${weir_gcc}-dev gcc-${weir_gcc}-base)
elseif(TARGET weir_static)
  weir_install_licence(pcre2 "${weir_static_archive}" development libpcre2-dev)
  weir_install_licence(libstdc++ "${weir_static_archive}" development libstdc++-${weir_gcc}-dev gcc-${weir_gcc}-base)
endif()
if(TARGET weir_cli)
  weir_install_licence(cli11 weir_cli program libcli11-dev)
  weir_install_licence(nlohmann-json weir_cli program nlohmann-json3-dev)
  if(HTTPLIB_FOUND AND NOT WEIR_SELF_CONTAINED)
    weir_install_licence(cpp-httplib weir_cli program libcpp-httplib-dev)
  endif()
  if(WEIR_SELF_CONTAINED AND weir_png)
    weir_install_licence(libpng weir_cli program libpng-dev)
    weir_install_licence(zlib weir_cli program zlib1g-dev)
  endif()
endif()
if(TARGET weir_cuda)
  # cudart_static. NVIDIA's own packages have the text in the toolkit's folder, ./dev puts its wheels' there.
  cmake_path(GET CMAKE_CUDA_COMPILER PARENT_PATH weir_licence_hints)
  list(TRANSFORM weir_licence_hints APPEND "/.." OUTPUT_VARIABLE weir_licence_hints)
  weir_install_licence(cuda-runtime weir_cuda cuda nvidia-cuda-toolkit libcudart-static)
endif()

install(EXPORT weir NAMESPACE weir:: FILE weirTargets.cmake DESTINATION "${weir_cmake_dir}" COMPONENT development)
string(REPLACE " " ";" weir_static_flags "${WEIR_STATIC_FLAGS}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/weirConfig.cmake.in" "${PROJECT_BINARY_DIR}/weirConfig.cmake"
                              INSTALL_DESTINATION "${weir_cmake_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/weirConfigVersion.cmake" COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/weirConfig.cmake" "${PROJECT_BINARY_DIR}/weirConfigVersion.cmake"
        DESTINATION "${weir_cmake_dir}" COMPONENT development)

# No Requires.private: whoever links with libweir.so needs neither the packages of what it is made of nor their flags,
# and libweir.a has all of that inside.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}/${weir_pkgconfig_dir}"
           OUTPUT_VARIABLE weir_pc_prefix)
set(weir_pc_static "")
if(TARGET weir_static)
  set(weir_pc_static "Libs.private: ${WEIR_STATIC_FLAGS}\nCflags.private: -DWEIR_STATIC\n")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/weir.pc.in" "${PROJECT_BINARY_DIR}/weir.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/weir.pc" DESTINATION "${weir_pkgconfig_dir}" COMPONENT development)
