#include "runtime/plugin/select.h"

#include <algorithm>
#include <tuple>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "runtime/plugin/call.h"
#include "runtime/plugin/host_model.h"

namespace bloomery::plugin {
namespace {

constexpr size_t kPathBytes = 4096;  // of a path in messages: all of it

struct Claim {
  LoadedPlugin plugin;
  int32_t score;
  bool named;

  auto rank() const { return std::tuple(named, score, plugin.version_parts); }
};

std::string Lines(const std::vector<Verdict>& verdicts) {
  std::string text;
  for (const Verdict& v : verdicts) text += "\n  " + v.path + ": " + v.text;
  return text;
}

// The manifest speaks for the binary; where they differ one of them is another build's.
void CheckAgrees(const LoadedPlugin& plugin, const Manifest& manifest) {
  const auto check = [&](const char* field, const std::string& binary, const std::string& beside) {
    if (binary == beside) return;
    throw Error(ErrorKind::kBadModel, std::string("binary and manifest disagree in ") + field +
                                          ": '" + binary + "' and '" + beside + "'");
  };
  check("name", plugin.name, manifest.name);
  check("version", plugin.version, manifest.version);
}

// Loads one candidate and asks it; throws Error with the verdict.
Claim Ask(const Candidate& candidate, const model::ModelFile& model, const bl_model& host_model,
          const TrialOptions* trial) {
  if (!AbiFits({BL_ABI_MAJOR, BL_ABI_MINOR}, candidate.manifest.abi)) {
    throw Error(ErrorKind::kBadModel, AbiRefusal(candidate.binary, candidate.manifest.abi));
  }
  if (trial != nullptr) TryPlugin(candidate.binary, model, *trial);
  LoadedPlugin plugin = LoadPlugin(candidate.binary);
  CheckAgrees(plugin, candidate.manifest);
  const int32_t score = Probe(plugin, host_model);
  return {std::move(plugin), score, candidate.named};
}

}  // namespace

int32_t Probe(const LoadedPlugin& plugin, const bl_model& model) {
  Reason reason;
  const bl_sink sink = SinkInto(reason);
  bl_claim claim{sizeof(bl_claim), 0};
  CallPlugin(plugin.path, "probe", reason,
             [&] { return plugin.table->probe(&model, &sink, &claim); });
  if (claim.score < 1 || claim.score > 100) {
    throw Error(ErrorKind::kInternal, "plugin " + plugin.path + ", probe: score " +
                                          std::to_string(claim.score) + " is outside 1 … 100");
  }
  return claim.score;
}

Selection Select(const model::ModelFile& model, const Discovery& discovery,
                 const TrialOptions* trial) {
  const HostModel host_model(model);
  const std::string& arch = host_model.architecture();
  const std::string subject =
      Printable(model.path(), kPathBytes) + ", architecture '" + Printable(arch) + "'";

  std::vector<Claim> claims;
  std::vector<Verdict> verdicts;
  bool shortlisted = false;
  for (const Candidate& candidate : discovery.candidates) {
    const auto& names = candidate.manifest.architectures;
    if (std::ranges::find(names, arch) == names.end()) continue;
    shortlisted = true;
    try {
      claims.push_back(Ask(candidate, model, host_model.raw(), trial));
    } catch (const Error& e) {
      LOG(WARNING) << "plugin not used: " << e.what();
      verdicts.push_back({candidate.binary, e.what()});
    }
  }
  if (discovery.candidates.empty()) {
    throw NoPluginError(ErrorKind::kBadModel,
                        "no plugin claims " + subject +
                            "; install one, or name its folder with --plugin-dir\n" +
                            Describe(discovery));
  }
  if (!shortlisted) {
    throw Error(ErrorKind::kBadModel, "no plugin claims " + subject +
                                          "; install one, or name its folder with --plugin-dir\n" +
                                          Describe(discovery));
  }
  if (claims.empty()) {
    throw Error(ErrorKind::kBadModel,
                "no plugin serves " + subject + ":" + Lines(verdicts) + "\n" + Describe(discovery));
  }

  std::ranges::sort(claims, std::ranges::greater(), &Claim::rank);
  if (claims.size() > 1 && claims[0].rank() == claims[1].rank()) {
    throw Error(ErrorKind::kBadModel,
                "two plugins claim " + subject + " with the same score and version: " +
                    claims[0].plugin.path + " and " + claims[1].plugin.path + "; remove one");
  }
  for (size_t i = 1; i < claims.size(); ++i) {
    verdicts.push_back({claims[i].plugin.path, "claims it with score " +
                                                   std::to_string(claims[i].score) + ", version " +
                                                   claims[i].plugin.version + ": outranked"});
  }
  return {std::move(claims[0].plugin), claims[0].score, std::move(verdicts)};
}

}  // namespace bloomery::plugin
