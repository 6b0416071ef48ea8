#include "runtime/hub/hub.h"

#include <sys/stat.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/hub/model_set.h"

namespace bloomery::hub {
namespace {

constexpr const char* kPublicHub = "https://huggingface.co";
constexpr int kListingAttempts = 3;

std::string ValueOf(const std::map<std::string, std::string>& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

// What may stand in a header.
bool IsToken(const std::string& text) {
  return !text.empty() && text.size() <= limits::kHubTokenBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

std::string Trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

// The one that the hub's own client keeps, where there is one.
std::string SavedToken(const std::map<std::string, std::string>& environment) {
  std::string path = ValueOf(environment, "HF_TOKEN_PATH");
  if (path.empty()) {
    const std::string hub_home = ValueOf(environment, "HF_HOME");
    const std::string home = ValueOf(environment, "HOME");
    if (!hub_home.empty()) {
      path = hub_home + "/token";
    } else if (!home.empty()) {
      path = home + "/.cache/huggingface/token";
    }
  }
  if (path.empty() || !RealFileSystem().Exists(path)) return "";
  try {
    return Trimmed(ReadWholeFile(RealFileSystem(), path, limits::kHubTokenBytesMax * 2));
  } catch (const Error&) {
    return "";
  }
}

Url PageUrl(const Url& endpoint, const std::string& target) {
  Url url = endpoint;
  url.target = (endpoint.target == "/" ? "" : endpoint.target) + target;
  return url;
}

// One page; tried again where network or hub stumble.
HttpAnswer GetPage(const Url& url, const FetchOptions& options, std::string& body) {
  auto wait = options.retry_wait;
  for (int attempt = 1;; ++attempt) {
    body.clear();
    try {
      HttpClient client(options.http);
      HttpAnswer answer = client.Get(
          {.url = url, .token = options.token}, [](const HttpAnswer&) {},
          [&](std::span<const std::byte> bytes) {
            if (body.size() + bytes.size() > limits::kHubListingBytesMax) {
              throw Error(ErrorKind::kDownload, url.host + ": its listing is too large");
            }
            body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          });
      const bool stumbles = answer.status == 429 || answer.status / 100 == 5;
      if (!stumbles || attempt == kListingAttempts) return answer;
      if (answer.retry_after_s) wait = std::chrono::seconds(*answer.retry_after_s);
    } catch (const NetworkError&) {
      if (attempt == kListingAttempts) throw;
    }
    std::this_thread::sleep_for(wait);
    wait *= 2;
  }
}

std::vector<HubFile> ListFiles(const Reference& reference, const FetchOptions& options) {
  const Url first =
      PageUrl(options.endpoint, "/api/models/" + reference.Repo() + "/tree/main?recursive=true");
  std::vector<HubFile> files;
  Url url = first;
  for (int page = 0; page < limits::kHubPagesMax; ++page) {
    std::string body;
    const HttpAnswer answer = GetPage(url, options, body);
    if (answer.status / 100 != 2) {
      ThrowStatus(answer, reference.Repo(),
                  PageUrl(options.endpoint, "/" + reference.Repo()).Text(), !options.token.empty());
    }
    for (HubFile& file : ParseListing(body, "listing of " + reference.Repo())) {
      files.push_back(std::move(file));
    }
    if (files.size() > limits::kHubFilesMax) break;
    const std::string next = NextPage(answer.link);
    if (next.empty()) return files;
    url = ResolveUrl(url, next);
    if (url.Origin() != first.Origin()) {
      throw Error(ErrorKind::kDownload, reference.Repo() + ": the listing goes on at another host");
    }
  }
  throw Error(ErrorKind::kDownload, reference.Repo() + ": its listing does not end");
}

uint64_t SizeOf(const std::string& path) {
  struct stat found{};
  return ::stat(path.c_str(), &found) == 0 ? static_cast<uint64_t>(found.st_size) : 0;
}

Model Describe(const ModelSet& set, const std::string& repo, const Cache& cache) {
  Model model;
  model.repo = repo;
  model.name = set.name;
  model.path = cache.PathOf(repo, set.files.front().path);
  model.bytes = set.Bytes();
  for (const HubFile& file : set.files) {
    ModelFileState state{.file = file, .path = cache.PathOf(repo, file.path)};
    if (cache.Has(repo, file)) {
      state.state = "cached";
      state.have = file.bytes;
    } else {
      state.have = std::min(SizeOf(state.path + ".part"), file.bytes);
      state.state = state.have > 0 ? "part" : "missing";
    }
    model.files.push_back(std::move(state));
  }
  return model;
}

// The one checked set of the cache that the request can mean.
Model FromCache(const ModelRequest& request, const Cache& cache, const std::string& why) {
  std::vector<ModelSet> sets;
  for (CachedSet& cached : cache.List(request.reference.Repo())) {
    if (!cached.set.files.empty()) sets.push_back(std::move(cached.set));
  }
  if (sets.empty()) {
    throw Error(ErrorKind::kDownload, why + ", and nothing whole of " + request.reference.Repo() +
                                          " is in " + cache.root());
  }
  try {
    Model model =
        Describe(PickSet(sets, request.reference, request.file), request.reference.Repo(), cache);
    model.offline = true;
    return model;
  } catch (const Error& error) {
    throw Error(ErrorKind::kDownload, why + "; in the cache: " + error.what(), error.next());
  }
}

Model FindOnline(const ModelRequest& request, const HubOptions& options) {
  const std::vector<ModelSet> sets = SetsOf(ListFiles(request.reference, options.fetch));
  return Describe(PickSet(sets, request.reference, request.file), request.reference.Repo(),
                  options.cache);
}

}  // namespace

bool Model::Complete() const {
  return std::all_of(files.begin(), files.end(),
                     [](const ModelFileState& file) { return file.state == "cached"; });
}

HubOptions OptionsFrom(const std::map<std::string, std::string>& environment,
                       const std::string& token) {
  HubOptions options;
  options.cache = Cache(CacheRoot(environment));
  std::string endpoint = ValueOf(environment, "MODEL_ENDPOINT");
  if (endpoint.empty()) endpoint = ValueOf(environment, "HF_ENDPOINT");
  if (endpoint.empty()) endpoint = kPublicHub;
  while (endpoint.ends_with("/")) endpoint.pop_back();
  options.fetch.endpoint = ParseUrl(endpoint, "the hub's address");
  options.fetch.other_cache = OtherCacheRoot(environment);
  options.fetch.http.environment = environment;
  options.fetch.free_bytes = FreeDiskBytes;
  std::string found = token;
  if (found.empty()) found = ValueOf(environment, "HF_TOKEN");
  if (found.empty()) found = SavedToken(environment);
  if (IsToken(found)) {
    options.fetch.token = found;
  } else if (!found.empty()) {
    options.warning = "the hub's token has characters that no token has: it is not sent";
  }
  return options;
}

Model Find(const ModelRequest& request, const HubOptions& options, const HubObserver& observer) {
  if (request.offline) {
    Model model = FromCache(request, options.cache, "--offline was given");
    observer({.kind = HubEvent::Kind::kOffline, .name = model.name, .text = "--offline"});
    return model;
  }
  try {
    return FindOnline(request, options);
  } catch (const NetworkError& error) {
    Model model = FromCache(request, options.cache, error.what());
    observer({.kind = HubEvent::Kind::kOffline, .name = model.name, .text = error.what()});
    return model;
  }
}

Model Get(const ModelRequest& request, const HubOptions& options, const HubObserver& observer) {
  Model model = Find(request, options, observer);
  uint64_t have = 0;
  for (const ModelFileState& file : model.files) have += file.have;
  observer({.kind = HubEvent::Kind::kSet,
            .name = model.name,
            .bytes = model.bytes,
            .have = have,
            .text = model.offline ? "cache" : options.fetch.endpoint.host});
  if (model.offline) return model;
  const auto lock = options.cache.Lock(
      model.repo, [&] { observer({.kind = HubEvent::Kind::kWaiting, .name = model.repo}); });
  std::vector<HubFile> files;
  for (const ModelFileState& file : model.files) files.push_back(file.file);
  FetchFiles(options.cache, model.repo, files, options.fetch, observer);
  for (ModelFileState& file : model.files) {
    file.state = "cached";
    file.have = file.file.bytes;
  }
  return model;
}

}  // namespace bloomery::hub
