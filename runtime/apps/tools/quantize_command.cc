// bloomery quantize: a model file in another mix of types.
#include <filesystem>
#include <iostream>

#include "runtime/apps/commands.h"
#include "runtime/apps/program.h"
#include "runtime/apps/tools/arguments.h"
#include "runtime/apps/tools/parallel.h"
#include "runtime/apps/tools/progress.h"
#include "runtime/apps/tools/quantise_file.h"
#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/memory/plan.h"
#include "runtime/model/gguf.h"

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
void CheckPaths(const model::ModelFile& source, const std::string& out) {
  std::error_code missing;
  for (const auto& file : source.files()) {
    if (std::filesystem::equivalent(file->path(), out, missing)) {
      throw Error(ErrorKind::kUsage, "OUT is a file of IN: " + Printable(out));
    }
  }
}

}  // namespace

int QuantizeCommand(const std::vector<std::string>& argv) {
  std::string in, out, type;
  int64_t threads = 0;
  Arguments arguments(
      "bloomery quantize",
      "Writes a GGUF model again with its matrices in another type. Norms, routers and\n"
      "1-D tensors stay as they are. Types: " +
          KnownMixes() + ".");
  arguments.Positional("IN", "the model, a GGUF file or the first of a set", &in)
      .Required()
      .Positional("OUT", "the file to write", &out)
      .Required()
      .Positional("TYPE", "what to write", &type)
      .Required()
      .Number({"-t", "--threads"}, "N", "threads; 0: one a physical core", 0, 1024, &threads);
  if (!arguments.Parse(argv)) return kExitOk;
  if (std::filesystem::is_directory(in)) {
    throw Error(ErrorKind::kUnsupported,
                "'" + Printable(in) + "' is a folder: only GGUF files are read here");
  }
  const model::QuantMix& mix = model::GetQuantMix(type);
  const model::ModelFile source = model::OpenGguf(RealFileSystem(), in);
  CheckPaths(source, out);
  TypeCounts counts;
  {
    Progress progress("quantize");
    counts = QuantiseFile(source, out, mix, ThreadsOf(threads),
                          [&](uint64_t done, uint64_t all) { progress.Show(done, all); });
  }
  const uint64_t bytes = model::OpenGguf(RealFileSystem(), out).tensor_bytes();
  std::cout << Printable(out) << ": " << memory::FormatBytes(bytes) << " from "
            << memory::FormatBytes(source.tensor_bytes()) << "; tensors";
  for (const auto& [tensor_type, count] : counts) {
    std::cout << ' ' << model::Info(tensor_type).name << ' ' << count;
  }
  std::cout << std::endl;
  return kExitOk;
}

}  // namespace bloomery::apps
