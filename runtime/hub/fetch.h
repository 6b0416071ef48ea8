// Fetches the files of a set: several at once, each continued where an earlier try stopped, its
// size held against the listing at every byte and its digest at the end; only then it gets its
// name and its marker. A network that fails is tried again, an answer that refuses is not. Nothing
// half-written ever has a model's name. Its threads end with the call.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "runtime/hub/cache.h"
#include "runtime/hub/http_client.h"
#include "runtime/hub/listing.h"

namespace bloomery::hub {

// What happens, for whoever watches. One at a time, from the threads that fetch.
struct HubEvent {
  enum class Kind {
    kSet,       // name, bytes of all files, `have` of them here; text: where from
    kFile,      // name, bytes, state: "cached", "other-cache", "fetch", "resume", "stale"; have
    kProgress,  // have of bytes, of the set
    kDone,      // name; text: its digest
    kRetry,     // name; text: why
    kOffline,   // text: why the cache stands in
    kWaiting,   // for another process that fetches the same repository
  };
  Kind kind = Kind::kSet;
  std::string name{};
  uint64_t bytes = 0;
  uint64_t have = 0;
  std::string state{};
  std::string text{};
};
using HubObserver = std::function<void(const HubEvent&)>;

struct FetchOptions {
  Url endpoint{};
  std::string token{};
  std::string other_cache{};  // root of a cache to look into first; or empty
  HttpClientOptions http{};
  std::chrono::milliseconds retry_wait{1000};  // doubled with each try in vain
  // Free bytes on the disk of a folder.
  std::function<uint64_t(const std::string& folder)> free_bytes;
};

// What statvfs says of the folder, or of the nearest one above that is there.
uint64_t FreeDiskBytes(const std::string& folder);

// What a status that is no success means for the user: Error(kDownload), with what to do.
[[noreturn]] void ThrowStatus(const HttpAnswer& answer, const std::string& what,
                              const std::string& page, bool has_token);

// Brings every file of `files` into the cache; the caller holds the repository's lock.
void FetchFiles(const Cache& cache, const std::string& repo, const std::vector<HubFile>& files,
                const FetchOptions& options, const HubObserver& observer);

}  // namespace bloomery::hub
