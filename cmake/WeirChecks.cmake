# Tests that are not cmocka programs: the samples, style checks of .ci/check, headers, exported symbols, ABI
# description, declarations of bindings, installation, mutants of the library. They look at a normal build; sanitized
# builds leave them out.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
set(weir_abi "${PROJECT_SOURCE_DIR}/tests/abi")
set(weir_install_test "${PROJECT_SOURCE_DIR}/tests/install")
set(weir_tiny_model "${PROJECT_SOURCE_DIR}/samples/models/weir-tiny-reasoner-q8_0.gguf")

string(CONCAT weir_check_environment "CC=${CMAKE_C_COMPILER};CXX=${CMAKE_CXX_COMPILER};NM=${CMAKE_NM};"
                                     "PYTHON=${Python3_EXECUTABLE};STRIP=${CMAKE_STRIP}")
# weir_add_check(<name> <label> <command>...): exit status 0 is a pass, 77 means that a tool is missing, and the output
# says which.
function(weir_add_check name label)
  add_test(NAME "${name}" COMMAND ${ARGN})
  set_tests_properties("${name}" PROPERTIES LABELS "${label}" TIMEOUT 300 SKIP_RETURN_CODE 77
                       ENVIRONMENT "${weir_check_environment}")
endfunction()

weir_add_check(runtime/device_interface runtime sh "${PROJECT_SOURCE_DIR}/tests/runtime/device_interface.sh"
               "${CMAKE_COMMAND}" "${PROJECT_SOURCE_DIR}" "${WEIR_CPU_TARGETS_DIR}/device_interface.h")
weir_test_target(runtime/device_interface weir)
weir_add_check(gpu/run gpu sh "${PROJECT_SOURCE_DIR}/tests/gpu/test_run.sh")
foreach(check docs includes size spread lists)
  weir_add_check("style/${check}" style Python3::Interpreter "${PROJECT_SOURCE_DIR}/.ci/check" ${check})
  weir_test_target("style/${check}" weir)
endforeach()
weir_add_check(style/mutants style Python3::Interpreter "${PROJECT_SOURCE_DIR}/tests/mutation/run" --fits)
weir_test_target(style/mutants weir)
weir_add_check(bindings/headers bindings Python3::Interpreter "${PROJECT_SOURCE_DIR}/bindings/check")
weir_add_check(bindings/check bindings Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/bindings/test_check.py")
weir_test_target(bindings/headers weir)
weir_test_target(bindings/check weir)
weir_add_check(abi/headers abi sh "${weir_abi}/headers.sh" "${PROJECT_SOURCE_DIR}/include")
weir_add_check(abi/symbols abi sh "${weir_abi}/symbols.sh" "$<TARGET_FILE:weir>"
               "${PROJECT_SOURCE_DIR}/docs/abi/symbols.txt" "${PROJECT_SOURCE_DIR}/include/weir")
weir_add_check(abi/description abi sh "${weir_abi}/description.sh" "$<TARGET_FILE:weir>" "${PROJECT_SOURCE_DIR}")
set(weir_forbidden_calls "$<TARGET_FILE:weir>")
if(WEIR_SELF_CONTAINED)
  list(APPEND weir_forbidden_calls "$<TARGET_FILE:weir_core>")
endif()
weir_add_check(abi/forbidden_calls abi sh "${weir_abi}/forbidden_calls.sh" ${weir_forbidden_calls})
if(WEIR_BUILD_SAMPLES AND PROJECT_IS_TOP_LEVEL)
  weir_add_check(install/outside_project install sh "${weir_install_test}/outside_project.sh" "${PROJECT_BINARY_DIR}"
                 "${PROJECT_SOURCE_DIR}" "${CMAKE_COMMAND}" "${weir_tiny_model}")
  weir_add_check(install/package install sh "${weir_install_test}/package.sh" "${PROJECT_BINARY_DIR}"
                 "${PROJECT_SOURCE_DIR}" "${CMAKE_COMMAND}")
  weir_add_check(install/package_twice slow sh "${weir_install_test}/package_twice.sh" "${PROJECT_SOURCE_DIR}")
  set_tests_properties(install/package_twice PROPERTIES TIMEOUT 7200 RUN_SERIAL ON)
endif()
weir_add_check(install/size install sh "${weir_install_test}/size.sh" "$<TARGET_FILE:weir>"
               "${CMAKE_CURRENT_BINARY_DIR}")
weir_add_check(install/missing_archives install sh "${weir_install_test}/missing_archives.sh" "${PROJECT_SOURCE_DIR}"
               "${CMAKE_COMMAND}")
weir_test_target(install/missing_archives weir)
# A libweir.so with all that it is made of; in a build without, one of the same objects.
set(weir_alone weir_self_contained)
if(WEIR_SELF_CONTAINED)
  set(weir_alone weir)
endif()
if(TARGET ${weir_alone})
  weir_add_check(install/self_contained install sh "${weir_install_test}/self_contained.sh"
                 "$<TARGET_FILE:${weir_alone}>" "${PROJECT_SOURCE_DIR}" "$<TARGET_FILE:weir_core>"
                 "$<TARGET_FILE:abi_test_unload>" "${weir_tiny_model}")
  weir_test_target(install/self_contained ${weir_alone})
  weir_test_target(install/self_contained abi_test_unload)
  weir_add_check(install/static install sh "${weir_install_test}/static.sh" "${PROJECT_BINARY_DIR}/lib/libweir.a"
                 "${PROJECT_SOURCE_DIR}" "${weir_tiny_model}")
  weir_test_target(install/static weir_static)
  add_custom_target(self_contained_tests ALL DEPENDS ${weir_alone} weir_static)
else()
  weir_add_check(install/self_contained install sh -c
                 "echo 'skipped, not there: ${WEIR_SELF_CONTAINED_MISSING}' && exit 77")
endif()
# All mutants, with this build's objects; on all processors, so nothing else runs meanwhile. They are some 7,700 seconds
# of one, which two take more than an hour for.
weir_add_check(mutation/run slow Python3::Interpreter "${PROJECT_SOURCE_DIR}/tests/mutation/run" --built
               --build "${PROJECT_BINARY_DIR}")
set_tests_properties(mutation/run PROPERTIES RUN_SERIAL ON TIMEOUT 14400)
foreach(sample IN LISTS WEIR_SAMPLES)
  weir_add_check("samples/${sample}" samples sh "${weir_install_test}/sample.sh" "$<TARGET_FILE:sample_${sample}>"
                 "${weir_tiny_model}")
endforeach()
# The server, with Python's standard library; server/test_openai is skipped without the package openai.
function(weir_server_check name label file)
  weir_add_check(server/${name} ${label} Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/tests/server/${file}" ${ARGN})
  set_property(TEST server/${name} APPEND PROPERTY ENVIRONMENT "WEIR_PROGRAM=$<TARGET_FILE:weir_cli>")
  weir_test_target(server/${name} weir_cli)
endfunction()
if(TARGET weir_cli)
  foreach(name IN ITEMS test_http test_hostile test_openai test_load test_attacks)
    weir_server_check(${name} server ${name}.py)
    set_property(TEST server/${name} PROPERTY COST 15)
  endforeach()
  weir_server_check(slow_attacks slow test_attacks.py --slow)
  weir_server_check(load_of_a_minute slow test_load.py --seconds 60)
endif()
# The chat page of `weir serve`: its files, and in a browser, where there is one.
weir_add_check(app/test_page app Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/tests/app/test_page.py")
weir_test_target(app/test_page weir)
if(TARGET weir_cli)
  weir_add_check(app/test_app slow Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/tests/app/test_app.py"
                 --program "$<TARGET_FILE:weir_cli>" --model "${weir_tiny_model}")
  set_property(TEST app/test_app APPEND PROPERTY LABELS app)
  set_tests_properties(app/test_app PROPERTIES TIMEOUT 3600 RUN_SERIAL ON)
  weir_test_target(app/test_app weir_cli)
endif()
if(TARGET weir_desktop)
  weir_add_check(desktop/window slow Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/tests/desktop/test_desktop.py"
                 "$<TARGET_FILE:weir_desktop>" "${weir_tiny_model}" "$<TARGET_FILE:weir>")
  set_property(TEST desktop/window APPEND PROPERTY LABELS app)
  weir_test_target(desktop/window weir_desktop)
else()
  weir_add_check(desktop/window slow sh -c "echo 'skipped, not there: GTK 4.8 (libgtk-4-dev)' && exit 77")
  set_property(TEST desktop/window APPEND PROPERTY LABELS app)
  weir_test_target(desktop/window weir)
endif()
