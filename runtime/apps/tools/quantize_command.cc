// bloomery quantize: a model file, or a safetensors folder, as a model file of another mix of
// types.
#include <filesystem>
#include <iostream>

#include "runtime/apps/commands.h"
#include "runtime/apps/folder/folder_map.h"
#include "runtime/apps/folder/folder_source.h"
#include "runtime/apps/program.h"
#include "runtime/apps/tools/arguments.h"
#include "runtime/apps/tools/parallel.h"
#include "runtime/apps/tools/progress.h"
#include "runtime/apps/tools/quantise_file.h"
#include "runtime/apps/tools/seat_flags.h"
#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/memory/plan.h"
#include "runtime/model/gguf.h"
#include "runtime/model/safetensors_folder.h"

namespace bloomery::apps {
namespace {

std::string KnownMixes() {
  std::string names;
  for (const model::QuantMix& mix : model::QuantMixes()) {
    names += (names.empty() ? "" : ", ") + std::string(mix.name);
  }
  return names;
}

// The output is renamed onto its name at the end, so it must not be a file that is read.
void CheckPath(const std::string& in, const std::string& out) {
  std::error_code missing;
  if (std::filesystem::equivalent(in, out, missing)) {
    throw Error(ErrorKind::kUsage, "OUT is a file of IN: " + Printable(out));
  }
}

struct Result {
  TypeCounts counts;
  uint64_t source_bytes = 0;
};

Result Quantise(const TensorSource& source, const std::string& out, const model::QuantMix& mix,
                int64_t threads) {
  Result result;
  for (const SourceTensor& tensor : source.tensors()) result.source_bytes += tensor.bytes();
  Progress progress("quantize");
  result.counts = QuantiseFile(source, out, mix, ThreadsOf(threads),
                               [&](uint64_t done, uint64_t all) { progress.Show(done, all); });
  return result;
}

Result QuantiseModelFile(const std::string& in, const std::string& out, const model::QuantMix& mix,
                         int64_t threads) {
  const model::ModelFile file = model::OpenGguf(RealFileSystem(), in);
  for (const auto& part : file.files()) CheckPath(part->path(), out);
  return Quantise(ModelFileSource(file), out, mix, threads);
}

Result QuantiseFolder(const std::string& in, const std::string& out, const model::QuantMix& mix,
                      int64_t threads, const std::vector<std::string>& plugin_dirs) {
  const model::SafetensorsFolder folder(RealFileSystem(), in);
  for (const auto& file : folder.files()) CheckPath(file.path(), out);
  const std::string model_type(folder.config().GetString("model_type"));
  const FolderMap map = FindFolderMap(DiscoverPlugins(plugin_dirs), model_type);
  return Quantise(FolderSource(folder, map), out, mix, threads);
}

}  // namespace

int QuantizeCommand(const std::vector<std::string>& argv) {
  std::string in, out, type;
  std::vector<std::string> plugin_dirs;
  int64_t threads = 0;
  Arguments arguments(
      "bloomery quantize",
      "Writes a model as GGUF with its matrices in another type. Norms, routers and 1-D\n"
      "tensors stay as they are. A safetensors folder is read by the map that the plugin\n"
      "of its architecture ships. Types: " +
          KnownMixes() + ".");
  arguments.Positional("IN", "a GGUF file, the first of a set, or a safetensors folder", &in)
      .Required()
      .Positional("OUT", "the file to write", &out)
      .Required()
      .Positional("TYPE", "what to write", &type)
      .Required()
      .Texts({"--plugin-dir"}, "DIR", "where plugins are looked for first; may be repeated",
             &plugin_dirs)
      .Number({"-t", "--threads"}, "N", "threads; 0: one a physical core", 0, 1024, &threads);
  if (!arguments.Parse(argv)) return kExitOk;
  const model::QuantMix& mix = model::GetQuantMix(type);
  const Result result = std::filesystem::is_directory(in)
                            ? QuantiseFolder(in, out, mix, threads, plugin_dirs)
                            : QuantiseModelFile(in, out, mix, threads);
  const uint64_t bytes = model::OpenGguf(RealFileSystem(), out).tensor_bytes();
  std::cout << Printable(out) << ": " << memory::FormatBytes(bytes) << " from "
            << memory::FormatBytes(result.source_bytes) << "; tensors";
  for (const auto& [tensor_type, count] : result.counts) {
    std::cout << ' ' << model::Info(tensor_type).name << ' ' << count;
  }
  std::cout << std::endl;
  return kExitOk;
}

}  // namespace bloomery::apps
