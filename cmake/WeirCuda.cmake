# The CUDA backend: libweir_cuda.so, a module that libweir.so loads at run time. It is built when nvcc is found
# (WEIR_CUDA=OFF leaves it out); neither the toolkit nor a GPU is needed to run the rest. cudart is linked statically,
# so that the driver is all that a machine needs.
set(WEIR_CUDA_ARCH "" CACHE STRING
    "CUDA architectures as in CMake, such as 90-real; empty: one for development (90-real); `all`: for a release")
option(WEIR_CUDA "Build the CUDA backend when nvcc is there" ON)
# ThreadSanitizer is the only sanitizer that gets along with the driver; `./dev gpu-bundle --tsan` asks for both.
option(WEIR_CUDA_TSAN "Build the CUDA backend with WEIR_SANITIZE=thread" OFF)
mark_as_advanced(WEIR_CUDA_TSAN)
if(WEIR_CUDA_TSAN AND NOT WEIR_SANITIZE STREQUAL "thread")
  message(FATAL_ERROR "WEIR_CUDA_TSAN is for WEIR_SANITIZE=thread")
endif()
if(NOT WEIR_CUDA OR WEIR_FUZZ OR (WEIR_SANITIZE AND NOT WEIR_CUDA_TSAN))
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER)
  find_program(weir_nvcc nvcc HINTS /usr/local/cuda/bin /opt/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
  mark_as_advanced(weir_nvcc)
  if(NOT weir_nvcc)
    message(STATUS "Weir: CUDA backend left out, no nvcc")
    return()
  endif()
  set(CMAKE_CUDA_COMPILER "${weir_nvcc}")
endif()
# Machine code of every architecture that desktops and servers have, which runs on the later ones of the same number,
# too (8.6 on 8.7, 10.0 on 10.3, 12.0 on 12.1), and PTX of 9.0 for the rest: 11.0, and what comes. 90a and the like are
# not used.
if(WEIR_CUDA_ARCH STREQUAL "all")
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90 100-real 120-real)
elseif(WEIR_CUDA_ARCH)
  set(CMAKE_CUDA_ARCHITECTURES "${WEIR_CUDA_ARCH}")
else()
  set(CMAKE_CUDA_ARCHITECTURES 90-real)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
# CMake 3.25 speaks of this target whether or not the toolkit has the library, which CUDA 13 does not.
if(NOT TARGET CUDA::nvToolsExt)
  add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
endif()
find_package(CUDAToolkit REQUIRED)
# CMake 3.25 does not know that nvcc has C++20.
foreach(extension IN ITEMS STANDARD EXTENSION)
  if(NOT CMAKE_CUDA20_${extension}_COMPILE_OPTION)
    set(CMAKE_CUDA20_${extension}_COMPILE_OPTION "-std=c++20")
  endif()
endforeach()
message(STATUS "Weir: CUDA backend ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")

# GEMV kernels, a source for every four lines of quants.inc: all together take a compiler minutes, and a source for each
# would read the headers as often.
set(weir_gemv_sources "")
file(STRINGS "${PROJECT_SOURCE_DIR}/lib/quant/quants.inc" weir_quant_lines REGEX "^WEIR_QUANT\\(")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lib/quant/quants.inc")
while(weir_quant_lines)
  set(weir_gemv_instances "")
  foreach(i RANGE 1 4)
    list(POP_FRONT weir_quant_lines line)
    if(line MATCHES "^WEIR_QUANT\\(([A-Za-z0-9_]+),")
      string(APPEND weir_gemv_instances "template GemvOfType gemv_of_type<Format<WeightType::k${CMAKE_MATCH_1}>>();\n")
    endif()
  endforeach()
  list(LENGTH weir_gemv_sources number)
  set(source "${PROJECT_BINARY_DIR}/cuda/gemv_${number}.cu")
  configure_file("${CMAKE_CURRENT_LIST_DIR}/gemv_of_types.cu.in" "${source}" @ONLY)
  list(APPEND weir_gemv_sources "${source}")
endwhile()

file(GLOB weir_cuda_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cuda/*/*.cu"
     "${PROJECT_SOURCE_DIR}/lib/cuda/*.cpp" "${PROJECT_SOURCE_DIR}/lib/device/*.cpp")
add_library(weir_cuda MODULE ${weir_cuda_sources} ${weir_gemv_sources})
# The module has its own copy of what it shares with the library (statuses, tables); only its entry point is visible.
# Kernels are included by their path from the root: "cuda/attn/attn_decode.cuh".
target_include_directories(weir_cuda PRIVATE "${PROJECT_SOURCE_DIR}")
target_link_libraries(weir_cuda PRIVATE weir_core CUDA::cudart_static ${WEIR_INSIDE})
target_link_options(weir_cuda PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/lib/module.map"
                    "LINKER:--gc-sections" ${WEIR_NO_UNDEFINED})
if(WEIR_SELF_CONTAINED)
  # A quarter of the size; the driver unpacks what its GPU needs. nvcc names its temporary files in the objects, which
  # the build id would be made of.
  target_compile_options(weir_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>")
  target_link_options(weir_cuda PRIVATE "LINKER:--build-id=none")
  # What is in a namespace without a name gets one with a hash of the source's whole path, also in what is left of a
  # stripped module. Here that path is the same wherever this is built: nvcc's parsers take the last one that they get.
  foreach(source IN LISTS weir_cuda_sources weir_gemv_sources)
    if(source MATCHES "/(cuda/([a-z]+/)?[a-z0-9_]+\\.cu)$")
      set(place "${CMAKE_MATCH_1}")
      set_property(SOURCE "${source}" APPEND PROPERTY COMPILE_OPTIONS
                   "-Xcudafe=--orig_src_path_name,${place}" "-Xcicc=--orig_src_path_name,${place}")
    endif()
  endforeach()
endif()
set_target_properties(weir_cuda PROPERTIES PREFIX "lib" OUTPUT_NAME weir_cuda CXX_VISIBILITY_PRESET hidden
                      CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
target_compile_options(weir_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CXX>:${WEIR_WARNINGS} ${WEIR_LIBRARY_WARNINGS}>
  # No fast-math: scores decide which pages are kept. Contraction stays on, as GPUs expect.
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Werror=switch;--diag-suppress=186>"
  # Line numbers hold the paths of the sources, which an installation must not.
  "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<CONFIG:Debug,RelWithDebInfo>>:-lineinfo>")
