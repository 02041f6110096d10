# The Vulkan backend: libweir_vulkan.so, a module that libweir.so loads at run time. It is built when glslc, spirv-val
# and the headers of Vulkan 1.3 are found (WEIR_VULKAN=OFF leaves it out). The loader is opened when a session asks for
# the backend and never linked: a machine without Vulkan runs everything else.
option(WEIR_VULKAN "Build the Vulkan backend when glslc and the Vulkan headers are there" ON)
# Sanitizers do not get along with the compilers inside of drivers.
if(NOT WEIR_VULKAN OR WEIR_FUZZ OR WEIR_SANITIZE)
  return()
endif()
find_program(WEIR_GLSLC glslc)
find_program(WEIR_SPIRV_VAL spirv-val)
find_path(WEIR_VULKAN_INCLUDE vulkan/vulkan_core.h)
mark_as_advanced(WEIR_GLSLC WEIR_SPIRV_VAL WEIR_VULKAN_INCLUDE)
set(weir_vulkan_missing "")
foreach(part IN ITEMS WEIR_GLSLC WEIR_SPIRV_VAL WEIR_VULKAN_INCLUDE)
  if(NOT ${part})
    string(REPLACE "WEIR_GLSLC" "glslc" name "${part}")
    string(REPLACE "WEIR_SPIRV_VAL" "spirv-val" name "${name}")
    string(REPLACE "WEIR_VULKAN_INCLUDE" "vulkan/vulkan_core.h" name "${name}")
    list(APPEND weir_vulkan_missing "${name}")
  endif()
endforeach()
if(weir_vulkan_missing)
  list(JOIN weir_vulkan_missing ", " weir_vulkan_missing)
  message(STATUS "Weir: Vulkan backend left out, no ${weir_vulkan_missing}")
  return()
endif()
include(WeirShaders)

# One set of objects makes the module, and is linked with tests of its internals.
file(GLOB weir_vulkan_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lib/vulkan/*.cpp"
     "${PROJECT_SOURCE_DIR}/lib/device/*.cpp")
add_library(weir_vulkan_objects OBJECT ${weir_vulkan_sources})
add_dependencies(weir_vulkan_objects weir_shaders)
# Objects that include the code are compiled again when it changes.
set_source_files_properties("${PROJECT_SOURCE_DIR}/lib/vulkan/shader_code.cpp" PROPERTIES
                            OBJECT_DEPENDS "${weir_shader_outputs}")
target_include_directories(weir_vulkan_objects PUBLIC "${PROJECT_SOURCE_DIR}" PRIVATE "${WEIR_SHADER_DIR}")
target_include_directories(weir_vulkan_objects SYSTEM PUBLIC "${WEIR_VULKAN_INCLUDE}")
target_compile_definitions(weir_vulkan_objects PUBLIC VK_NO_PROTOTYPES)
target_link_libraries(weir_vulkan_objects PUBLIC weir_core)
set_target_properties(weir_vulkan_objects PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                      VISIBILITY_INLINES_HIDDEN ON)
weir_compile_options(weir_vulkan_objects)
target_compile_options(weir_vulkan_objects PRIVATE ${WEIR_LIBRARY_WARNINGS})
weir_precompile(weir_vulkan_objects)

# The module has its own copy of what it shares with the library; only its entry point is visible.
add_library(weir_vulkan MODULE $<TARGET_OBJECTS:weir_vulkan_objects>)
target_link_libraries(weir_vulkan PRIVATE weir_core ${CMAKE_DL_LIBS} ${WEIR_INSIDE})
target_link_options(weir_vulkan PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/lib/module.map"
                    "LINKER:--gc-sections" ${WEIR_NO_UNDEFINED})
set_target_properties(weir_vulkan PROPERTIES PREFIX "lib" OUTPUT_NAME weir_vulkan LINKER_LANGUAGE CXX)
