# Compiles shaders/*.comp to SPIR-V in the build folder, as C initialisers that lib/vulkan/shader_code.cpp includes, and
# validates them. A shader that includes weight_type.glsl is compiled once for each line of lib/quant/quants.inc, one
# that includes common/step_rows.glsl for each line of lib/vulkan/int_quants.inc.
# A shader with cooperative matrices, *_coop.comp, needs a newer compiler: WEIR_GLSLANG names it, else it is left out.
# Defines the target weir_shaders and WEIR_SHADER_DIR; WEIR_GLSLC and WEIR_SPIRV_VAL must be set.

set(WEIR_SHADER_DIR "${PROJECT_BINARY_DIR}/shaders")
set(weir_shader_source "${PROJECT_SOURCE_DIR}/shaders")
set(weir_shader_outputs "")
set(weir_shader_list "// Made by WeirShaders.cmake: the SPIR-V of every shader.\n")

# weir_compile_shader(<name> <stem>.comp <folder of weight_type.glsl, or "">)
function(weir_compile_shader name source type_folder)
  set(code "${WEIR_SHADER_DIR}/${name}.inc")
  set(binary "${WEIR_SHADER_DIR}/${name}.spv")
  set(flags -O --target-env=vulkan1.3 -I "${weir_shader_source}" -I "${PROJECT_SOURCE_DIR}/lib")
  if(type_folder)
    list(APPEND flags -I "${type_folder}")
  endif()
  add_custom_command(
    OUTPUT "${code}"
    COMMAND "${WEIR_GLSLC}" ${flags} -MD -MF "${code}.d" -MT "${code}" "${weir_shader_source}/${source}" -o "${binary}"
    COMMAND "${WEIR_SPIRV_VAL}" --target-env vulkan1.3 "${binary}"
    COMMAND "${CMAKE_COMMAND}" "-DBINARY=${binary}" "-DCODE=${code}" -P "${PROJECT_SOURCE_DIR}/cmake/shader_words.cmake"
    DEPENDS "${weir_shader_source}/${source}" "${PROJECT_SOURCE_DIR}/cmake/shader_words.cmake"
    DEPFILE "${code}.d"
    COMMENT "Compiling shader ${name}"
    VERBATIM)
  list(APPEND weir_shader_outputs "${code}")
  string(APPEND weir_shader_list "alignas(4) constexpr uint32_t kCode_${name}[] =\n#include \"${name}.inc\"\n;\n")
  set(weir_shader_outputs "${weir_shader_outputs}" PARENT_SCOPE)
  set(weir_shader_list "${weir_shader_list}" PARENT_SCOPE)
endfunction()

# The same by WEIR_GLSLANG, which validates what it makes.
function(weir_compile_cooperative name source)
  set(code "${WEIR_SHADER_DIR}/${name}.inc")
  add_custom_command(
    OUTPUT "${code}"
    COMMAND "${WEIR_GLSLANG}" --quiet --spirv-val -V -x --target-env vulkan1.3 "-I${weir_shader_source}"
            "-I${PROJECT_SOURCE_DIR}/lib" --depfile "${code}.d" "${weir_shader_source}/${source}" -o "${code}"
    DEPENDS "${weir_shader_source}/${source}"
    DEPFILE "${code}.d"
    COMMENT "Compiling shader ${name}"
    VERBATIM)
  list(APPEND weir_shader_outputs "${code}")
  string(APPEND weir_shader_list "#define WEIR_HAS_COOPERATIVE_SHADERS\n"
                "alignas(4) constexpr uint32_t kCode_${name}[] = {\n#include \"${name}.inc\"\n};\n")
  set(weir_shader_outputs "${weir_shader_outputs}" PARENT_SCOPE)
  set(weir_shader_list "${weir_shader_list}" PARENT_SCOPE)
endfunction()

# weir_compile_typed(<stem> <stem>.comp <lines of types> <file that the shader includes> <folder of shaders/>)
function(weir_compile_typed stem source lines included folder)
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^WEIR_[A-Z_]+\\(([A-Za-z0-9_]+),.*" "\\1" type "${line}")
    string(TOLOWER "${type}" type_file)
    set(type_folder "${WEIR_SHADER_DIR}/types/${type_file}")
    file(CONFIGURE OUTPUT "${type_folder}/${included}" CONTENT "#include \"${folder}/${type_file}.glsl\"\n" @ONLY)
    weir_compile_shader("${stem}_${type}" "${source}" "${type_folder}")
  endforeach()
  set(weir_shader_outputs "${weir_shader_outputs}" PARENT_SCOPE)
  set(weir_shader_list "${weir_shader_list}" PARENT_SCOPE)
endfunction()

set(WEIR_GLSLANG "" CACHE FILEPATH "glslang 13.1 or newer, for shaders with cooperative matrices")
set(weir_has_glslang FALSE)
if(WEIR_GLSLANG)
  execute_process(COMMAND "${WEIR_GLSLANG}" --version OUTPUT_VARIABLE weir_glslang_text
                  RESULT_VARIABLE weir_glslang_failed ERROR_QUIET)
  if(NOT weir_glslang_failed AND weir_glslang_text MATCHES "Glslang Version: [0-9]+:([0-9.]+)"
     AND CMAKE_MATCH_1 VERSION_GREATER_EQUAL 13.1)
    set(weir_has_glslang TRUE)
  else()
    message(FATAL_ERROR "Weir: WEIR_GLSLANG=${WEIR_GLSLANG} is not glslang 13.1 or newer")
  endif()
else()
  message(STATUS "Weir: Vulkan without cooperative matrices: WEIR_GLSLANG names no glslang")
endif()

set(weir_quants_inc "${PROJECT_SOURCE_DIR}/lib/quant/quants.inc")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${weir_quants_inc}")
file(STRINGS "${weir_quants_inc}" weir_quant_lines REGEX "^WEIR_QUANT\\(")
set(weir_int_quants_inc "${PROJECT_SOURCE_DIR}/lib/vulkan/int_quants.inc")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${weir_int_quants_inc}")
file(STRINGS "${weir_int_quants_inc}" weir_int_quant_lines REGEX "^WEIR_INT_QUANT\\(")
file(GLOB weir_shader_files CONFIGURE_DEPENDS "${weir_shader_source}/*.comp")
foreach(file IN LISTS weir_shader_files)
  cmake_path(GET file STEM stem)
  cmake_path(GET file FILENAME source)
  if(stem MATCHES "_coop$")
    if(weir_has_glslang)
      weir_compile_cooperative("${stem}" "${source}")
    endif()
    continue()
  endif()
  # The line stands in the shader itself or in what it includes of common/.
  file(READ "${file}" text)
  if(text MATCHES "common/step_rows\\.glsl")
    weir_compile_typed("${stem}" "${source}" "${weir_int_quant_lines}" int_weight_type.glsl quant_int)
  elseif(text MATCHES "weight_type\\.glsl|common/dot_row\\.glsl")
    weir_compile_typed("${stem}" "${source}" "${weir_quant_lines}" weight_type.glsl quant)
  else()
    weir_compile_shader("${stem}" "${source}" "")
  endif()
endforeach()
file(CONFIGURE OUTPUT "${WEIR_SHADER_DIR}/shader_code.inc" CONTENT "${weir_shader_list}" @ONLY)
add_custom_target(weir_shaders DEPENDS ${weir_shader_outputs})
