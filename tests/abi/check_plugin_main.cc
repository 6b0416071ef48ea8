// check-plugin as a program of its own, for tests of the ABI that should not wait for the server.
#include <iostream>
#include <string>
#include <vector>

#include "runtime/apps/check_plugin/check_plugin.h"

int main(int argc, char** argv) {
  const std::vector<std::string> self = {"/proc/self/exe"};
  const std::vector<std::string> args(argv + 1, argv + argc);
  return bloomery::apps::CheckPluginMain(self, args, std::cout, std::cerr);
}
