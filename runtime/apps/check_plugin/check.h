// What a conformance test is: a name, whether it needs a model, and a function that throws when the
// plugin fails it. The files *_checks.cc hold the tests by topic.
#pragma once

#include <bloomery/plugin.h>

#include <functional>
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
  uint64_t seed = 1;       // of everything a test chooses at random
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
std::vector<Check> FileChecks();
std::vector<Check> LifecycleChecks();
std::vector<Check> ThreadChecks();
std::vector<Check> ImportChecks();
std::vector<Check> StateChecks();
std::vector<Check> ChatChecks();
std::vector<Check> DraftChecks();

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

// Numbers of a test's own, the same for the same seed on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();                                   // any 64 bits
  uint64_t Below(uint64_t n) { return Next() % n; }  // n > 0
  std::string Word();                                // eight letters
  std::vector<int32_t> Tokens(int32_t n, int32_t vocabulary);

 private:
  uint64_t state_;
};

// Puts a table of a test's own before the host's, which outlives the instance.
using HostWrap = std::function<const bl_host&(const bl_host& inner)>;

// A bare instance: created without checks, destroyed at the end.
class RawInstance {
 public:
  RawInstance(const plugin::LoadedPlugin& plugin, const bl_model& model, uint64_t host_bytes_max,
              const HostWrap& wrap = {}, uint32_t features = BL_FEATURE_OBSERVE);
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
