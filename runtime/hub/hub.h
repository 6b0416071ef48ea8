// From "owner/name:quant" to the path of a whole, checked model file on this disk: lists the
// repository, picks the set, fetches what is missing. With `offline`, or where the network fails
// before the listing, exactly one checked set of the cache stands in. The only header programs
// need.
//
//   hub::Model model = hub::Get({.reference = hub::ParseReference("owner/name:Q4_K_M")}, options);
//   model.path  // first file of the set
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/hub/cache.h"
#include "runtime/hub/fetch.h"
#include "runtime/hub/listing.h"

namespace bloomery::hub {

struct ModelRequest {
  Reference reference{};
  std::string file{};    // --hf-file: the exact path of one of the set's files; or empty
  bool offline = false;  // the cache only
};

struct ModelFileState {
  HubFile file{};
  std::string path{};   // on this disk
  std::string state{};  // "cached", "part", "missing"
  uint64_t have = 0;    // bytes of it that are here
};

struct Model {
  std::string repo{};
  std::string name{};  // of the set
  std::string path{};  // of its first file
  uint64_t bytes = 0;
  std::vector<ModelFileState> files{};
  bool offline = false;  // the cache stood in

  bool Complete() const;
};

// What environment and flags say: MODEL_ENDPOINT or HF_ENDPOINT (else the public hub), `token`, or
// HF_TOKEN, HF_TOKEN_PATH, or the token that the hub's own client saved; the caches; proxies. A
// token that cannot be one is left out and named in `warning`.
struct HubOptions {
  Cache cache{""};
  FetchOptions fetch{};
  std::string warning{};
};
HubOptions OptionsFrom(const std::map<std::string, std::string>& environment,
                       const std::string& token);

// Lists and picks without fetching. Throws as Get.
Model Find(const ModelRequest& request, const HubOptions& options, const HubObserver& observer);

// Lists, picks and fetches. Error(kDownload) for everything that keeps the model from being here
// whole.
Model Get(const ModelRequest& request, const HubOptions& options, const HubObserver& observer);

}  // namespace bloomery::hub
