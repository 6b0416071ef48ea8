#include <algorithm>
#include <string_view>

#include "runtime/apps/check_plugin/check.h"
#include "runtime/plugin/elf_file.h"

namespace bloomery::apps::check {
namespace {

// The C library, libm and the loader; a sanitizer's run time where this program has one, too.
constexpr std::string_view kLibrariesAllowed[] = {
    "libc.so.6",       "libm.so.6",     "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
    "linux-vdso.so.1",
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    "libasan.so.8",    "libubsan.so.1", "libtsan.so.2",
#endif
};

void ExportsOneSymbol(const Subject& subject) {
  const plugin::ElfFile elf = plugin::ReadElf(subject.path);
  std::string others;
  bool found = false;
  for (const std::string& name : elf.exported) {
    if (name == BL_PLUGIN_SYMBOL) {
      found = true;
    } else {
      others += (others.empty() ? "" : ", ") + name;
    }
  }
  Expect(found, "does not export " BL_PLUGIN_SYMBOL);
  Expect(others.empty(), "exports more than " BL_PLUGIN_SYMBOL ": " + others +
                             "; link with the SDK's version script");
}

void NeedsTheCLibraryOnly(const Subject& subject) {
  const plugin::ElfFile elf = plugin::ReadElf(subject.path);
  for (const std::string& name : elf.needed) {
    Expect(std::ranges::find(kLibrariesAllowed, name) != std::end(kLibrariesAllowed),
           "needs " + name + "; link it statically, or look its functions up at run time");
  }
}

void HasNoRunPath(const Subject& subject) {
  const plugin::ElfFile elf = plugin::ReadElf(subject.path);
  Expect(elf.run_path.empty(),
         "carries a run path: " + (elf.run_path.empty() ? "" : elf.run_path.front()));
}

void ManifestReads(const Subject& subject) { ReadManifest(subject); }

void ManifestAgrees(const Subject& subject) {
  const plugin::Manifest manifest = ReadManifest(subject);
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const auto same = [](const char* field, const std::string& beside, const std::string& binary) {
    Expect(beside == binary, std::string(field) + " is '" + binary + "' in the binary and '" +
                                 beside + "' in the manifest");
  };
  same("name", manifest.name, plugin.name);
  same("version", manifest.version, plugin.version);
  const auto text = [](bl_abi abi) {
    return std::to_string(abi.major) + "." + std::to_string(abi.minor);
  };
  same("abi", text(manifest.abi), text(plugin.table->abi));
}

}  // namespace

std::vector<Check> BinaryChecks() {
  return {{"binary.exports_one_symbol", false, ExportsOneSymbol},
          {"binary.needs_the_c_library_only", false, NeedsTheCLibraryOnly},
          {"binary.has_no_run_path", false, HasNoRunPath},
          {"manifest.reads", false, ManifestReads},
          {"manifest.agrees_with_the_binary", false, ManifestAgrees}};
}

}  // namespace bloomery::apps::check
