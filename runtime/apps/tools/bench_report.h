// Rows of measurements as a Markdown table or as JSON lines, with everything a reader needs to make
// them again: machine, file, build, settings. Values only.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/apps/tools/bench.h"
#include "runtime/apps/tools/build_info.h"
#include "runtime/apps/tools/machine.h"
#include "runtime/model/inventory.h"

namespace bloomery::apps {

struct BenchSetting {
  Machine machine;
  BuildInfo build;
  std::string file = {};    // its name without folders
  std::string model = {};   // general.name, or the architecture
  uint64_t file_bytes = 0;  // of tensors
  uint64_t parameters = 0;
  std::string types = {};    // "Q4_K 82 %, Q6_K 17 %, F32 1 %", by bytes
  std::string kernels = {};  // instruction set
  int32_t threads = 0;
  int64_t ubatch = 0;
  std::string type_k = {};
  std::string type_v = {};
};

// Names, sizes and types of a model, into the setting.
void DescribeFile(const model::ModelFile& model, BenchSetting& setting);

std::string MarkdownHeader(const BenchSetting& setting);
std::string MarkdownRow(const BenchSetting& setting, const BenchResult& result);
// One object on one line.
std::string JsonRow(const BenchSetting& setting, const BenchResult& result);

}  // namespace bloomery::apps
