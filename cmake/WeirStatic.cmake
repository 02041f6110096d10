# libweir.a, of one object: Weir and all that it is made of, with the public functions as its only global symbols. A
# program needs no flag for it but those of the C library, and may contain other versions of the same parts.
#   1. ld -r puts together what is used, and sends calls as weir_make_library does.
#   2. plain_symbols and objcopy make all other symbols local.
# The target weir_static; without weir_inside there is none.
if(NOT TARGET weir_inside)
  return()
endif()
# What a link with it needs: the C library's parts, and the table of unwind information, which GCC leaves out of
# programs without any shared library.
set(WEIR_STATIC_FLAGS "-lm -ldl -lpthread -Wl,--eh-frame-hdr")

add_executable(weir_plain_symbols EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/plain_symbols.cpp")
weir_compile_options(weir_plain_symbols)

set(weir_static_dir "${PROJECT_BINARY_DIR}/static")
set(weir_static_archive "${PROJECT_BINARY_DIR}/lib/libweir.a")
set(weir_symbols "${PROJECT_SOURCE_DIR}/docs/abi/symbols.txt")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${weir_symbols}")
file(STRINGS "${weir_symbols}" weir_public REGEX "^weir_")
list(JOIN weir_public "\n" weir_public_lines)
file(CONFIGURE OUTPUT "${weir_static_dir}/public.txt" CONTENT "${weir_public_lines}\n")
list(TRANSFORM weir_public PREPEND "--undefined=" OUTPUT_VARIABLE weir_public_options)
set(weir_static_wraps calloc __gxx_personality_v0 _Unwind_RaiseException __libc_single_threaded arc4random
    _dl_find_object)
list(TRANSFORM weir_static_wraps PREPEND "--wrap=")

set(weir_static_archives "${WEIR_PCRE2_ARCHIVE}" "${WEIR_ZSTD_ARCHIVE}")
if(TARGET weir_highway)
  list(APPEND weir_static_archives "$<TARGET_FILE:weir_highway>")
else()
  list(APPEND weir_static_archives "${WEIR_HWY_ARCHIVE}")
endif()
foreach(file IN ITEMS libstdc++.a libgcc.a libgcc_eh.a)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${file} OUTPUT_VARIABLE weir_path
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND weir_static_archives "${weir_path}")
endforeach()

set(weir_static_objects "")
foreach(target IN ITEMS weir_objects weir_tiny_objects weir_inside_objects weir_new_glibc_objects)
  # Without precompiled headers, which CMake counts among them.
  list(APPEND weir_static_objects "$<FILTER:$<TARGET_OBJECTS:${target}>,EXCLUDE,\\.[gp]ch$>")
endforeach()
add_custom_command(OUTPUT "${weir_static_archive}"
  COMMAND "${CMAKE_COMMAND}" -E rm -f "${weir_static_archive}"
  COMMAND "${CMAKE_LINKER}" -r --gc-sections --force-group-allocation ${weir_public_options} ${weir_static_wraps}
          -o "${weir_static_dir}/weir.o" ${weir_static_objects} ${weir_static_archives}
  COMMAND weir_plain_symbols "${weir_static_dir}/weir.o"
  COMMAND "${CMAKE_OBJCOPY}" "--keep-global-symbols=${weir_static_dir}/public.txt" --strip-unneeded
          "${weir_static_dir}/weir.o"
  COMMAND "${CMAKE_AR}" rcsD "${weir_static_archive}" "${weir_static_dir}/weir.o"
  DEPENDS ${weir_static_objects} ${weir_static_archives} "${weir_static_dir}/public.txt"
  COMMENT "Making lib/libweir.a" VERBATIM COMMAND_EXPAND_LISTS)
add_custom_target(weir_static DEPENDS "${weir_static_archive}")
