// qwen35moe from safetensors folders, in both forms that hubs hold, against the goldens and against
// the model's GGUF file. The folders are written by tests/support/model_folder.py, which knows the
// published names and layouts and nothing of the code under test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/model/gguf.h"
#include "tests/oracle/golden.h"
#include "tests/support/oracle_path.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::test {
namespace {

using testing::HasSubstr;

std::string MiniFolder() { return SourceDir() + "/tests/data/mini/qwen35moe"; }

// A folder made of a GGUF file; `how`: more arguments of the script.
std::string MakeFolder(const TempDir& dir, const std::string& model, const std::string& config,
                       const std::string& how) {
  const std::string out = dir.File("hub");
  const std::string command = std::string(BLOOMERY_PYTHON) + " '" + SourceDir() +
                              "/tests/support/model_folder.py' '" + model + "' '" + config + "' '" +
                              out + "' " + how;
  // The command is this file's own.  NOLINTNEXTLINE(bugprone-command-processor,cert-env33-c)
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return out;
}

struct Form {
  const char* how;
};
constexpr Form kText{""};
constexpr Form kWrapped{"--wrapped --shards 3"};

model::ModelFile OpenFolder(const std::string& path) {
  exec::SeatOptions options = OracleOptions(BL_F32);
  LoadedSeat loaded = LoadThroughPlugin(path, options);
  return std::move(*loaded.model);
}

// What differs from the file: the one value that is computed differently there, ssm_a, by one bit
// in the last place at most.
void ExpectTensorsOf(const model::ModelFile& folder, const model::ModelFile& file) {
  ASSERT_EQ(folder.tensors().size(), file.tensors().size());
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const model::TensorInfo& want = file.tensors()[i];
    const size_t at = folder.GetTensorIndex(want.name);
    const model::TensorInfo& got = folder.tensors()[at];
    EXPECT_EQ(got.type, want.type) << want.name;
    ASSERT_EQ(got.ne, want.ne) << want.name;
    EXPECT_EQ(got.n_dims, want.n_dims) << want.name;
    const std::vector<std::byte> bytes = folder.ReadTensor(at), expected = file.ReadTensor(i);
    if (!want.name.ends_with("ssm_a")) {
      EXPECT_TRUE(bytes == expected) << want.name;
      continue;
    }
    for (size_t k = 0; k < bytes.size(); k += sizeof(float)) {
      float value = 0, other = 0;
      std::memcpy(&value, &bytes[k], sizeof(float));
      std::memcpy(&other, &expected[k], sizeof(float));
      EXPECT_LE(std::abs(std::bit_cast<int32_t>(value) - std::bit_cast<int32_t>(other)), 1)
          << want.name;
    }
  }
}

// Every key of the file that a folder can tell has its value; the file's own are its name, its
// licence and how it was made.
void ExpectKeysOf(const model::ModelFile& folder, const model::ModelFile& file) {
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    const std::string key(file.metadata().key(i));
    const bool of_file = (key.starts_with("general.") && key != "general.architecture") ||
                         key.ends_with("full_attention_interval");
    if (of_file) continue;
    ASSERT_TRUE(folder.metadata().Has(key)) << key;
    EXPECT_TRUE(folder.metadata().Find(key)->data == file.metadata().value(i).data) << key;
  }
}

// The model file with the folder's ssm_a in place of its own.
std::string WithDecaysOf(const TempDir& dir, const model::ModelFile& folder,
                         const std::string& path) {
  std::string copy = dir.File("same.gguf");
  std::filesystem::copy_file(path, copy);
  std::filesystem::permissions(copy, std::filesystem::perms::owner_all);
  const model::ModelFile file = model::OpenGguf(RealFileSystem(), path);
  std::fstream out(copy, std::ios::in | std::ios::out | std::ios::binary);
  for (const model::TensorInfo& tensor : file.tensors()) {
    if (!tensor.name.ends_with("ssm_a")) continue;
    const std::vector<std::byte> bytes = folder.ReadTensor(folder.GetTensorIndex(tensor.name));
    out.seekp(static_cast<std::streamoff>(tensor.offset));
    out.write(std::bit_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  return copy;
}

void ExpectSameBits(const TempDir& dir, const std::string& folder, const std::string& file,
                    const std::vector<int32_t>& ids) {
  const LoadedSeat hub = LoadThroughPlugin(folder, OracleOptions(BL_F16));
  const LoadedSeat gguf =
      LoadThroughPlugin(WithDecaysOf(dir, *hub.model, file), OracleOptions(BL_F16));
  EXPECT_EQ(RunAll(*hub.seat, ids, 64), RunAll(*gguf.seat, ids, 64));
}

void ExpectFolderIsTheModel(const std::string& model_folder, const Form& form, double worst) {
  const TempDir dir;
  const std::string file = model_folder + "/model.gguf";
  const std::string folder = MakeFolder(dir, file, model_folder + "/config.json", form.how);
  const model::ModelFile opened = OpenFolder(folder);
  ExpectTensorsOf(opened, model::OpenGguf(RealFileSystem(), file));
  Subject subject{.model = folder, .golden_folder = model_folder, .exact = {.worst = worst}};
  ExpectPromptsExact(subject, OracleOptions(BL_F32), {3, 512});
  ExpectEval(Evaluate(subject, OracleOptions(BL_F32)), subject.eval_row_exact,
             subject.eval_row_exact);
  ExpectSameBits(dir, folder, file, subject.Golden().Get("long.ids").ints);
}

TEST(MiniQwen35moeFolder, IsTheModelOfItsFileInTheFormOfTextModels) {
  ExpectFolderIsTheModel(MiniFolder(), kText, 2e-4);
}

TEST(MiniQwen35moeFolder, IsTheModelOfItsFileInTheFormOfMultimodalModels) {
  ExpectFolderIsTheModel(MiniFolder(), kWrapped, 2e-4);
}

TEST(MiniQwen35moeFolder, HiddenStatesAndRoutingMeetTheFloat32Column) {
  const TempDir dir;
  const std::string mini = MiniFolder();
  ExpectInnerValues({.model = MakeFolder(dir, mini + "/model.gguf", mini + "/config.json", ""),
                     .golden_folder = mini,
                     .exact = {.worst = 2e-4}});
}

TEST(MiniQwen35moeFolder, KeysAndTokenizerAreThoseOfTheFile) {
  const TempDir dir;
  const std::string mini = MiniFolder();
  const model::ModelFile opened =
      OpenFolder(MakeFolder(dir, mini + "/model.gguf", mini + "/config.json", ""));
  ExpectKeysOf(opened, model::OpenGguf(RealFileSystem(), mini + "/model.gguf"));
}

TEST(MiniQwen35moeFolder, ADraftBlockComesWithItsKeysAndTensors) {
  for (const Form& form : {kText, kWrapped}) {
    const TempDir dir;
    const std::string mini = MiniFolder();
    const std::string file = mini + "/model-mtp.gguf";
    // Text models have no such block: their config does not count it, and its tensors are unknown.
    if (form.how == kText.how) {
      const std::string folder = MakeFolder(dir, file, mini + "/config.json", form.how);
      EXPECT_THAT(RefusalOf([&] { OpenFolder(folder); }).message, HasSubstr("'mtp."));
      continue;
    }
    const model::ModelFile opened =
        OpenFolder(MakeFolder(dir, file, mini + "/config.json", form.how));
    const model::ModelFile want = model::OpenGguf(RealFileSystem(), file);
    ExpectTensorsOf(opened, want);
    ExpectKeysOf(opened, want);
  }
}

// Reads that begin and end anywhere give what whole reads give.
TEST(MiniQwen35moeFolder, AnyPartOfATensorIsReadAlike) {
  const TempDir dir;
  const std::string mini = MiniFolder();
  const model::ModelFile opened =
      OpenFolder(MakeFolder(dir, mini + "/model.gguf", mini + "/config.json", kWrapped.how));
  for (const char* name : {"blk.0.attn_qkv.weight", "blk.1.ssm_out.weight", "blk.2.ssm_a",
                           "blk.0.ffn_up_exps.weight", "blk.3.ffn_gate_inp.weight"}) {
    const size_t index = opened.GetTensorIndex(name);
    const std::vector<std::byte> whole = opened.ReadTensor(index);
    for (const uint64_t first : {uint64_t{1}, uint64_t{7}, whole.size() / 2 + 1}) {
      if (first >= whole.size()) continue;
      std::vector<std::byte> part((whole.size() - first) / 2 + 1);
      opened.ReadTensor(index, first, part);
      EXPECT_TRUE(std::memcmp(part.data(), &whole[first], part.size()) == 0) << name;
    }
    EXPECT_EQ(opened.MapTensor(index), nullptr);
  }
}

// The set's own folder, as transformers wrote it.
TEST(OracleQwen35moeFolder, IsTheModelOfItsFile) {
  if (OraclePath().empty()) GTEST_SKIP() << "the large oracle set is not here";
  const std::string mini = OraclePath() + "/mini/qwen35moe";
  const model::ModelFile opened = OpenFolder(mini + "/hf");
  const model::ModelFile file = model::OpenGguf(RealFileSystem(), mini + "/model.gguf");
  ExpectTensorsOf(opened, file);
  EXPECT_TRUE(opened.metadata().Find("tokenizer.ggml.pre")->data ==
              file.metadata().Find("tokenizer.ggml.pre")->data);
  ExpectPromptsExact({.model = mini + "/hf", .golden_folder = mini, .exact = {.worst = 2e-4}},
                     OracleOptions(BL_F32), {64});
}

// Two key heads and four value heads: here grouped and tiled heads differ.
TEST(LargeQwen35moeFolder, IsTheModelOfItsFile) {
  if (OraclePath().empty()) GTEST_SKIP() << "the large oracle set is not here";
  ExpectFolderIsTheModel(OraclePath() + "/models/qwen35moe", kWrapped, 1e-4);
}

}  // namespace
}  // namespace bloomery::test
