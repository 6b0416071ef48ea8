# find_package(BloomerySDK 0.1 CONFIG): the target Bloomery::SDK and the functions bloomery_add_plugin and
# bloomery_test_plugin, whose tests ctest finds.
enable_testing()
include(${CMAKE_CURRENT_LIST_DIR}/BloomerySDKTargets.cmake)
set(BLOOMERY_PLUGIN_VERSION_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/bloomery_plugin.map
  CACHE INTERNAL "Exports of a plugin")
include(${CMAKE_CURRENT_LIST_DIR}/BloomeryPlugin.cmake)
