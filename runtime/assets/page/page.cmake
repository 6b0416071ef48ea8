# Decides whether the program gets the web page, and how it is made: npm fetches what package-lock.json
# names into the build folder when CMake configures, esbuild bundles sources when one changes. Sets
# page_source (the file with the assets) and BLOOMERY_WITH_PAGE.
set(BLOOMERY_PAGE AUTO CACHE STRING
  "The web page: ON, OFF, or AUTO: where npm is found and its packages can be fetched (or are there)")
set_property(CACHE BLOOMERY_PAGE PROPERTY STRINGS AUTO ON OFF)

set(page_folder ${CMAKE_CURRENT_LIST_DIR})
set(page_build ${CMAKE_BINARY_DIR}/page)
set(page_source no_page.cc)
set(BLOOMERY_WITH_PAGE OFF)
set(page_missing "")

if(NOT BLOOMERY_PAGE STREQUAL OFF)
  find_program(BLOOMERY_NODE node)
  find_program(BLOOMERY_NPM npm)
  mark_as_advanced(BLOOMERY_NODE BLOOMERY_NPM)
  if(NOT BLOOMERY_NODE OR NOT BLOOMERY_NPM)
    set(page_missing "node and npm are not on PATH")
  else()
    # An installation of exactly this lock file is kept, so that building again needs no network.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
      ${page_folder}/package.json ${page_folder}/package-lock.json)
    # A network that answers nothing must not hold configuring up for long.
    execute_process(
      COMMAND ${CMAKE_COMMAND} -E env npm_config_fetch_retries=1 npm_config_fetch_timeout=60000
        bash ${PROJECT_SOURCE_DIR}/tests/e2e/npm_install.sh ${page_folder} ${page_build}
      RESULT_VARIABLE page_status OUTPUT_VARIABLE page_output ERROR_VARIABLE page_output TIMEOUT 180)
    if(NOT page_status EQUAL 0)
      set(page_missing "npm could not fetch the packages of ${page_folder}/package-lock.json: ${page_output}")
    endif()
  endif()
  if(page_missing STREQUAL "")
    set(BLOOMERY_WITH_PAGE ON)
  elseif(BLOOMERY_PAGE STREQUAL ON)
    message(FATAL_ERROR "The web page cannot be built: ${page_missing}")
  else()
    message(STATUS "Building without the web page: ${page_missing}")
  endif()
endif()

if(BLOOMERY_WITH_PAGE)
  set(page_source ${page_build}/page_assets.cc)
  file(GLOB_RECURSE page_sources CONFIGURE_DEPENDS ${page_folder}/src/*)
  add_custom_command(OUTPUT ${page_source}
    COMMAND ${BLOOMERY_NODE} ${page_folder}/build.mjs ${page_folder} ${page_build}
    DEPENDS ${page_sources} ${page_folder}/build.mjs ${page_folder}/package-lock.json
    COMMENT "Bundling the web page"
    VERBATIM)
endif()
