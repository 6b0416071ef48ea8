#include "runtime/plugin/library.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>
#include <cstring>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/foreign_call.h"
#include "runtime/base/limits.h"
#include "runtime/plugin/elf_file.h"
#include "runtime/plugin/sized.h"

namespace bloomery::plugin {
namespace {

[[noreturn]] void Refuse(const std::string& path, const std::string& problem) {
  throw Error(ErrorKind::kBadModel, "plugin " + path + ": " + problem);
}

// Unloading is never safe: kernels and graphs may point into a library, and even one that is
// refused below has run its initialisers (a static libstdc++ takes memory it never gives back). The
// second open marks the library as resident, so that closing handles does not unload it.
void KeepForEver(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE);
  if (handle == nullptr) Refuse(path, "cannot be kept loaded: " + std::string(::dlerror()));
  ::dlclose(handle);
}

boost::dll::shared_library Open(const std::string& path) {
  CheckElfIsWhole(path);
  boost::dll::fs::error_code error;
  boost::dll::shared_library library;
  library.load(boost::dll::fs::path(path), boost::dll::load_mode::rtld_now, error);
  if (error) {
    // Boost keeps a code only; the loader's own words say which symbol or library is missing.
    const char* reason = ::dlerror();
    Refuse(path,
           "cannot be loaded: " + (reason != nullptr ? std::string(reason) : error.message()));
  }
  KeepForEver(path);
  return library;
}

// The table's address: a data symbol, defined by this very file and not by one it links.
const void* FindTable(const boost::dll::shared_library& library, const std::string& path) {
  void* address = ::dlsym(library.native(), BL_PLUGIN_SYMBOL);
  if (address == nullptr) {
    Refuse(path, "does not export the symbol " BL_PLUGIN_SYMBOL "; it is no Bloomery plugin");
  }
  Dl_info info{};
  void* entry = nullptr;
  const int found = ::dladdr1(address, &info, &entry, RTLD_DL_SYMENT);
  const auto* symbol = static_cast<const ElfW(Sym)*>(entry);
  if (found == 0 || symbol == nullptr) {
    Refuse(path, "the symbol " BL_PLUGIN_SYMBOL " lies outside every library");
  }
  std::error_code error;
  if (!std::filesystem::equivalent(info.dli_fname, path, error)) {
    Refuse(path, "the symbol " BL_PLUGIN_SYMBOL " comes from " + std::string(info.dli_fname));
  }
  if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT) {
    Refuse(path, "the symbol " BL_PLUGIN_SYMBOL " is not data");
  }
  if (symbol->st_size < offsetof(bl_plugin, name)) {
    Refuse(path, "the symbol " BL_PLUGIN_SYMBOL " is too small: " +
                     std::to_string(symbol->st_size) + " bytes");
  }
  return address;
}

std::string Text(const std::string& path, const char* text, const char* field) {
  if (text == nullptr) Refuse(path, std::string("bl_plugin.") + field + " is null");
  const size_t bytes = ::strnlen(text, limits::kPluginTextBytesMax + 1);
  if (bytes == 0 || bytes > limits::kPluginTextBytesMax) {
    Refuse(path, std::string("bl_plugin.") + field + " is empty or longer than " +
                     std::to_string(limits::kPluginTextBytesMax) + " bytes");
  }
  return std::string(text, bytes);
}

}  // namespace

bool AbiFits(bl_abi host, bl_abi plugin) {
  if (host.major != plugin.major) return false;
  return host.major == 0 ? host.minor == plugin.minor : host.minor >= plugin.minor;
}

std::string AbiRefusal(const std::string& path, bl_abi plugin) {
  const auto text = [](bl_abi abi) {
    return std::to_string(abi.major) + "." + std::to_string(abi.minor);
  };
  const bl_abi host = {BL_ABI_MAJOR, BL_ABI_MINOR};
  return "plugin " + path + " was built for plugin ABI " + text(plugin) + ", this host has " +
         text(host) + "; rebuild the plugin with SDK " + text(host) +
         ", or use a host that has ABI " + text(plugin);
}

LoadedPlugin LoadPlugin(const std::string& path) {
  const boost::dll::shared_library library = [&] {
    const ForeignCallNote note(path.c_str(), "load");  // its initialisers run
    return Open(path);
  }();
  const void* address = FindTable(library, path);

  // The gate first: only size and abi may be read of a table that another version made.
  struct Head {
    uint32_t size;
    bl_abi abi;
  } head{};
  std::memcpy(&head, address, sizeof(head));
  if (!AbiFits({BL_ABI_MAJOR, BL_ABI_MINOR}, head.abi)) {
    throw Error(ErrorKind::kBadModel, AbiRefusal(path, head.abi));
  }
  const auto* table = static_cast<const bl_plugin*>(address);
  const bl_plugin copy = CopySized(table, "plugin " + path + ": bl_plugin");
  const auto need = [&](bool present, const char* member) {
    if (!present) Refuse(path, std::string("bl_plugin.") + member + " is null");
  };
  need(copy.get_extension != nullptr, "get_extension");
  need(copy.probe != nullptr, "probe");
  need(copy.create != nullptr, "create");
  need(copy.describe != nullptr, "describe");
  need(copy.destroy != nullptr, "destroy");

  LoadedPlugin plugin{
      table, path, Text(path, copy.name, "name"), Text(path, copy.version, "version"), {}};
  const auto version = ParseVersion(plugin.version);
  if (!version) {
    Refuse(path, "bl_plugin.version '" + plugin.version + "' is not three numbers such as 0.1.0");
  }
  plugin.version_parts = *version;
  return plugin;
}

}  // namespace bloomery::plugin
