# device_interface.h, by which the library and its device modules know each other. It lies beside
# cpu_targets.h, where everything of lib/ looks. Defines the target weir_device_interface.
set(weir_interface_header "${WEIR_CPU_TARGETS_DIR}/device_interface.h")
add_custom_command(
  OUTPUT "${weir_interface_header}"
  COMMAND "${CMAKE_COMMAND}" "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${weir_interface_header}"
          "-DDEPFILE=${weir_interface_header}.d" -P "${CMAKE_CURRENT_LIST_DIR}/device_interface.cmake"
  DEPENDS "${CMAKE_CURRENT_LIST_DIR}/device_interface.cmake"
  DEPFILE "${weir_interface_header}.d"
  COMMENT "Numbering the interface of device modules"
  VERBATIM)
add_custom_target(weir_device_interface DEPENDS "${weir_interface_header}")
