// What a conformance test is: a name, whether it needs a model, and a function that throws when the
// plugin fails it. The files *_checks.cc hold the tests by topic.
#pragma once

#include <bloomery/plugin.h>

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/model/inventory.h"
#include "runtime/plugin/call.h"
#include "runtime/plugin/host_model.h"
#include "runtime/plugin/host_services.h"
#include "runtime/plugin/library.h"
#include "runtime/plugin/manifest.h"

namespace bloomery::apps::check {

// What is tested.
struct Subject {
  std::string path;        // the binary
  std::string model_path;  // a model it serves; empty: none given
};

struct Check {
  const char* name;  // "topic.behaviour"
  bool needs_model;
  void (*run)(const Subject& subject);
};

// The plugin does not do what the ABI asks.
class Failed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// The test does not apply to this plugin; the text says why.
class NotApplicable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void Expect(bool holds, const std::string& otherwise) {
  if (!holds) throw Failed(otherwise);
}

std::vector<Check> BinaryChecks();
std::vector<Check> LoadChecks();
std::vector<Check> ProbeChecks();
std::vector<Check> InstanceChecks();
std::vector<Check> BuildChecks();
std::vector<Check> KernelChecks();

// Helpers of the checks.
std::string ManifestPath(const std::string& binary);
plugin::Manifest ReadManifest(const Subject& subject);
model::ModelFile OpenModel(const Subject& subject);
// A model without tensors; `architecture` empty: without metadata, too.
model::ModelFile BareModel(const std::string& architecture);

// What one call into the plugin came to.
struct Answer {
  bl_status status = BL_OK;
  std::string reason;
};
// A failure must have a known status and say why.
void ExpectReasoned(const Answer& answer, const std::string& call);

// probe through a sink of its own.
Answer AskProbe(const plugin::LoadedPlugin& plugin, const bl_model& model, bl_claim& claim);

// A bare instance: created without checks, destroyed at the end.
class RawInstance {
 public:
  RawInstance(const plugin::LoadedPlugin& plugin, const bl_model& model, uint64_t host_bytes_max);
  ~RawInstance() { Destroy(); }
  RawInstance(const RawInstance&) = delete;
  RawInstance& operator=(const RawInstance&) = delete;

  const Answer& created() const { return created_; }
  bl_instance* raw() const { return instance_; }
  plugin::HostServices& host() { return host_; }
  // Throws Failed where describe fails.
  const bl_seat& Describe();
  Answer TryDescribe(const bl_seat** seat);
  void Destroy();

 private:
  const plugin::LoadedPlugin& plugin_;
  plugin::HostServices host_;
  bl_params params_{};
  bl_instance* instance_ = nullptr;
  Answer created_;
};

}  // namespace bloomery::apps::check
