#include "runtime/apps/check_plugin/check.h"

#include <filesystem>
#include <utility>

#include "runtime/base/file.h"
#include "runtime/base/limits.h"
#include "runtime/model/gguf.h"

namespace bloomery::apps::check {

std::string ManifestPath(const std::string& binary) {
  const std::filesystem::path path(binary);
  std::string seat = path.stem().string();
  if (seat.starts_with("lib")) seat.erase(0, 3);
  return (path.parent_path() / (seat + ".json")).string();
}

plugin::Manifest ReadManifest(const Subject& subject) {
  const std::string path = ManifestPath(subject.path);
  return plugin::ParseManifest(ReadWholeFile(RealFileSystem(), path, limits::kManifestBytesMax),
                               path);
}

model::ModelFile OpenModel(const Subject& subject) {
  return model::OpenGguf(RealFileSystem(), subject.model_path);
}

model::ModelFile BareModel(const std::string& architecture) {
  model::Metadata metadata("a model made by check-plugin");
  if (!architecture.empty()) {
    metadata.Add("general.architecture", {model::ValueKind::kString, architecture, 0});
  }
  return {"made", std::move(metadata), {}, {MakeMemoryFile("a model made by check-plugin", {})}};
}

void ExpectReasoned(const Answer& answer, const std::string& call) {
  Expect(answer.status >= BL_OK && answer.status < BL_STATUS_END,
         call + " returned " + std::to_string(answer.status) + ", which is no bl_status");
  Expect(answer.status == BL_OK || !answer.reason.empty(),
         call + " failed with status " + std::to_string(answer.status) + " and gave no reason");
}

Answer AskProbe(const plugin::LoadedPlugin& plugin, const bl_model& model, bl_claim& claim) {
  plugin::Reason reason;
  const bl_sink sink = plugin::SinkInto(reason);
  claim = {sizeof(bl_claim), 0};
  const bl_status status = plugin.table->probe(&model, &sink, &claim);
  return {status, reason.text};
}

// Sebastiano Vigna's splitmix64: every seed is a good one.
uint64_t Random::Next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::string Random::Word() {
  std::string word;
  while (word.size() < 8) word += static_cast<char>('a' + Below(26));
  return word;
}

std::vector<int32_t> Random::Tokens(int32_t n, int32_t vocabulary) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(Below(static_cast<uint64_t>(vocabulary)));
  }
  return tokens;
}

RawInstance::RawInstance(const plugin::LoadedPlugin& plugin, const bl_model& model,
                         uint64_t host_bytes_max, const HostWrap& wrap, uint32_t features)
    : plugin_(plugin), host_(plugin.name, host_bytes_max, {}) {
  params_.size = sizeof(params_);
  params_.n_slots = 2;
  params_.n_ctx = 4096;
  params_.rows_max = 512;
  params_.features = features;
  const bl_host& lent = wrap ? wrap(host_.raw()) : host_.raw();
  const bl_status status = plugin_.table->create(&lent, &model, &params_, &instance_);
  created_ = {status, host_.reason().text};
  Expect(status != BL_OK || instance_ != nullptr, "create returned BL_OK without an instance");
  if (status != BL_OK) {
    Expect(std::exchange(instance_, nullptr) == nullptr, "create failed and left an instance");
  }
}

Answer RawInstance::TryDescribe(const bl_seat** seat) {
  host_.reason() = {};
  *seat = nullptr;
  const bl_status status = plugin_.table->describe(instance_, seat);
  Expect(status != BL_OK || *seat != nullptr, "describe returned BL_OK without a seat");
  return {status, host_.reason().text};
}

const bl_seat& RawInstance::Describe() {
  Expect(created_.status == BL_OK, "create refused the model: " + created_.reason);
  const bl_seat* seat = nullptr;
  const Answer answer = TryDescribe(&seat);
  Expect(answer.status == BL_OK, "describe failed: " + answer.reason);
  return *seat;
}

void RawInstance::Destroy() {
  if (instance_ != nullptr) plugin_.table->destroy(std::exchange(instance_, nullptr));
}

}  // namespace bloomery::apps::check
