# bloomery_add_plugin(<seat> SOURCES <file>… MANIFEST <file> [FIXTURE <file>] [FOLDER <file>]
#                     [MODELS <file>]
#                     [LIBRARIES <target>…] [OUTPUT <folder>] [NO_INSTALL])
#
# Adds the target plugin_<seat>: a shared object that exports `bloomery_plugin` alone and needs only the
# C library, libm and the loader. It lands in <folder>/<seat>/lib<seat>.so with its manifest <seat>.json
# beside it, and installs to plugins/<seat>/; the folder is ${CMAKE_BINARY_DIR}/plugins by default. The manifest passes through
# configure_file, so it may name CMake variables as @NAME@. LIBRARIES are linked in and must be static.
# FIXTURE, a recipe for `bloomery fixture`, goes beside the manifest as <seat>.fixture.json in the same way,
# FOLDER, a map by which the host reads safetensors folders as models (docs/tools.md), as <seat>.folder.json, MODELS, the
# models of a hub that `bloomery-serve --recommend` names, as <seat>.models.json.
function(bloomery_add_plugin seat)
  cmake_parse_arguments(A "NO_INSTALL" "MANIFEST;FIXTURE;FOLDER;MODELS;OUTPUT" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT A_SOURCES OR NOT A_MANIFEST)
    message(FATAL_ERROR "bloomery_add_plugin(${seat}): SOURCES and MANIFEST are needed")
  endif()
  set(target plugin_${seat})
  if(NOT A_OUTPUT)
    set(A_OUTPUT ${CMAKE_BINARY_DIR}/plugins)
  endif()
  set(folder ${A_OUTPUT}/${seat})

  add_library(${target} MODULE ${A_SOURCES})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${seat} PREFIX lib SUFFIX .so LIBRARY_OUTPUT_DIRECTORY ${folder}
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS ${BLOOMERY_PLUGIN_VERSION_SCRIPT})
  target_compile_features(${target} PRIVATE cxx_std_20)
  # Contraction would change bits between compilers (docs/design.md, numeric rule).
  target_compile_options(${target} PRIVATE -ffp-contract=off)
  target_link_libraries(${target} PRIVATE Bloomery::SDK ${A_LIBRARIES})
  if(TARGET bloomery_options)
    target_link_libraries(${target} PRIVATE bloomery_options)
  endif()
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc
    -Wl,--version-script=${BLOOMERY_PLUGIN_VERSION_SCRIPT} -Wl,--as-needed)
  # A sanitizer's symbols come from the host program, so nothing may insist on finding them here.
  if(NOT BLOOMERY_SANITIZE AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()

  configure_file(${A_MANIFEST} ${folder}/${seat}.json @ONLY)
  set(data ${folder}/${seat}.json)
  if(A_FIXTURE)
    configure_file(${A_FIXTURE} ${folder}/${seat}.fixture.json @ONLY)
    list(APPEND data ${folder}/${seat}.fixture.json)
  endif()
  if(A_FOLDER)
    configure_file(${A_FOLDER} ${folder}/${seat}.folder.json @ONLY)
    list(APPEND data ${folder}/${seat}.folder.json)
  endif()
  if(A_MODELS)
    configure_file(${A_MODELS} ${folder}/${seat}.models.json @ONLY)
    list(APPEND data ${folder}/${seat}.models.json)
  endif()
  if(NOT A_NO_INSTALL)
    install(TARGETS ${target} LIBRARY DESTINATION plugins/${seat} COMPONENT runtime)
    install(FILES ${data} DESTINATION plugins/${seat} COMPONENT runtime)
  endif()
endfunction()

# bloomery_test_plugin(<seat> ARCHITECTURE <name> [FIXTURE_OPTIONS <option>…])
#
# Two tests for ctest: a model of random weights is made by the plugin's recipe (two layers, F32, and the options of
# `bloomery fixture` that are given), and check-plugin holds the plugin to the ABI with it. They need the program
# bloomery, on PATH or in BLOOMERY_PROGRAM; without it there are none.
function(bloomery_test_plugin seat)
  cmake_parse_arguments(A "" "ARCHITECTURE" "FIXTURE_OPTIONS" ${ARGN})
  find_program(BLOOMERY_PROGRAM bloomery)
  if(NOT BLOOMERY_PROGRAM)
    message(STATUS "bloomery is not on PATH: plugin ${seat} gets no tests")
    return()
  endif()
  set(model ${CMAKE_CURRENT_BINARY_DIR}/${seat}.gguf)
  get_target_property(folder plugin_${seat} LIBRARY_OUTPUT_DIRECTORY)
  cmake_path(GET folder PARENT_PATH plugins)
  add_test(NAME ${seat}.fixture COMMAND ${BLOOMERY_PROGRAM} fixture --plugin-dir ${plugins}
    --arch ${A_ARCHITECTURE} --layers 2 --type F32 ${A_FIXTURE_OPTIONS} ${model})
  add_test(NAME ${seat}.check_plugin COMMAND ${BLOOMERY_PROGRAM} check-plugin $<TARGET_FILE:plugin_${seat}>
    --model ${model})
  set_tests_properties(${seat}.fixture PROPERTIES FIXTURES_SETUP ${seat}_model)
  set_tests_properties(${seat}.check_plugin PROPERTIES FIXTURES_REQUIRED ${seat}_model)
endfunction()
