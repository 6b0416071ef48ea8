#include "runtime/hub/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/output_file.h"
#include "runtime/base/utf8.h"
#include "runtime/hub/digest.h"

namespace bloomery::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMarker = ".verified";
constexpr std::string_view kPart = ".part";
constexpr const char* kLockName = ".lock";
constexpr uint64_t kMarkerBytesMax = 4096;

std::string ValueOf(const std::map<std::string, std::string>& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

struct Written {
  uint64_t bytes = 0;
  int64_t time_ns = 0;
};

// Through links: a file may lie in the cache of another program.
std::optional<Written> StatOf(const std::string& path) {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  return Written{static_cast<uint64_t>(found.st_size),
                 int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec};
}

// The digest that a file was checked against, where the marker is good and still of this file.
std::optional<std::string> DigestOf(const std::string& path) {
  const auto now = StatOf(path);
  if (!now || !StatOf(path + std::string(kMarker))) return std::nullopt;
  try {
    const std::string text =
        ReadWholeFile(RealFileSystem(), path + std::string(kMarker), kMarkerBytesMax);
    const rapidjson::Document marker = ParseJson(text, "marker", {.kind = ErrorKind::kNoInput});
    if (!marker.IsObject()) return std::nullopt;
    const rapidjson::Value* digest = FindNonNull(marker, "digest");
    const rapidjson::Value* bytes = FindNonNull(marker, "bytes");
    const rapidjson::Value* time = FindNonNull(marker, "mtime_ns");
    if (digest == nullptr || bytes == nullptr || time == nullptr || !digest->IsString() ||
        !bytes->IsUint64() || !time->IsInt64() || !IsDigest(digest->GetString()) ||
        bytes->GetUint64() != now->bytes || time->GetInt64() != now->time_ns) {
      return std::nullopt;
    }
    return digest->GetString();
  } catch (const Error&) {
    return std::nullopt;  // unreadable: as good as none, the file is checked again
  }
}

class FlockLock final : public RepoLock {
 public:
  explicit FlockLock(int fd) : fd_(fd) {}
  ~FlockLock() override { ::close(fd_); }
  FlockLock(const FlockLock&) = delete;
  FlockLock& operator=(const FlockLock&) = delete;

 private:
  int fd_;
};

int OpenLock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    throw Error(ErrorKind::kNoInput, "cannot write '" + Printable(path) +
                                         "': " + std::generic_category().message(errno) +
                                         "; BLOOMERY_CACHE names another folder");
  }
  return fd;
}

std::vector<std::string> FoldersIn(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored)) names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Regular files and links below `base`, relative to it.
std::vector<std::string> FilesBelow(const std::string& base) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator it(base, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (!it->is_directory(ignored)) {
      paths.push_back(it->path().lexically_relative(base).generic_string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string WithoutEnding(const std::string& path, std::string_view ending) {
  return path.substr(0, path.size() - ending.size());
}

// Folders that removing left empty, from the deepest.
void RemoveEmptyFolders(const std::string& base) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::recursive_directory_iterator it(base, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) && !it->is_symlink(ignored)) folders.push_back(it->path());
  }
  std::sort(folders.rbegin(), folders.rend());
  for (const fs::path& folder : folders) fs::remove(folder, error);
}

}  // namespace

std::string CacheRoot(const std::map<std::string, std::string>& environment) {
  if (auto own = ValueOf(environment, "BLOOMERY_CACHE"); !own.empty()) return own;
  if (auto xdg = ValueOf(environment, "XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/bloomery/hf";
  const std::string home = ValueOf(environment, "HOME");
  if (home.empty()) {
    throw Error(ErrorKind::kUsage,
                "no folder for models: set BLOOMERY_CACHE, XDG_CACHE_HOME or HOME");
  }
  return home + "/.cache/bloomery/hf";
}

std::string OtherCacheRoot(const std::map<std::string, std::string>& environment) {
  const auto value = [&](const char* name) { return ValueOf(environment, name); };
  std::string root = value("HF_HUB_CACHE");
  if (root.empty()) root = value("HUGGINGFACE_HUB_CACHE");
  if (root.empty() && !value("HF_HOME").empty()) root = value("HF_HOME") + "/hub";
  if (root.empty() && !value("XDG_CACHE_HOME").empty()) {
    root = value("XDG_CACHE_HOME") + "/huggingface/hub";
  }
  if (root.empty() && !value("HOME").empty()) root = value("HOME") + "/.cache/huggingface/hub";
  std::error_code ignored;
  return fs::is_directory(root, ignored) ? root : "";
}

std::string Cache::PathOf(const std::string& repo, const std::string& path) const {
  return root_ + "/" + repo + "/" + path;
}

bool Cache::Has(const std::string& repo, const HubFile& file) const {
  return DigestOf(PathOf(repo, file.path)) == file.digest;
}

void Cache::Mark(const std::string& repo, const HubFile& file) const {
  const std::string path = PathOf(repo, file.path);
  const auto now = StatOf(path);
  if (!now) throw Error(ErrorKind::kNoInput, "'" + Printable(path) + "' has gone");
  const std::string text = "{\"digest\":\"" + file.digest +
                           "\",\"bytes\":" + std::to_string(now->bytes) +
                           ",\"mtime_ns\":" + std::to_string(now->time_ns) + "}\n";
  OutputFile marker(path + std::string(kMarker));
  marker.Write(std::as_bytes(std::span(text)));
  marker.Commit();
}

void Cache::Unmark(const std::string& repo, const HubFile& file) const {
  ::unlink((PathOf(repo, file.path) + std::string(kMarker)).c_str());
}

std::vector<CachedSet> Cache::List(const std::string& repo) const {
  std::vector<std::string> repos;
  if (repo.empty()) {
    for (const std::string& owner : FoldersIn(root_)) {
      for (const std::string& name : FoldersIn(root_ + "/" + owner)) {
        repos.push_back(owner + "/" + name);
      }
    }
  } else {
    repos.push_back(repo);
  }
  std::vector<CachedSet> found;
  for (const std::string& one : repos) {
    std::vector<HubFile> whole;
    uint64_t part_bytes = 0;
    for (const std::string& path : FilesBelow(root_ + "/" + one)) {
      if (path.ends_with(kPart)) {
        part_bytes += StatOf(PathOf(one, path)).value_or(Written{}).bytes;
      }
      if (!path.ends_with(kMarker)) continue;
      HubFile file{.path = WithoutEnding(path, kMarker)};
      const auto digest = DigestOf(PathOf(one, file.path));
      if (!digest) continue;
      file.bytes = StatOf(PathOf(one, file.path)).value_or(Written{}).bytes;
      file.digest = *digest;
      whole.push_back(std::move(file));
    }
    for (ModelSet& set : SetsOf(whole)) found.push_back({one, std::move(set), 0});
    if (part_bytes > 0) found.push_back({one, {}, part_bytes});
  }
  return found;
}

uint64_t Cache::Remove(const Reference& reference) const {
  const std::string base = root_ + "/" + reference.Repo();
  std::error_code ignored;
  if (!fs::is_directory(base, ignored)) {
    throw Error(ErrorKind::kNoInput, reference.Repo() + ": nothing of it is in " + root_,
                "bloomery models list");
  }
  const std::string lock_path = base + "/" + kLockName;
  const int fd = OpenLock(lock_path);
  const FlockLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    throw Error(ErrorKind::kUnavailable, reference.Repo() + ": another process is fetching it");
  }
  uint64_t freed = 0;
  size_t removed = 0;
  for (const std::string& path : FilesBelow(base)) {
    if (path == kLockName) continue;
    std::string model = path;
    for (const std::string_view ending : {kMarker, kPart}) {
      if (model.ends_with(ending)) model = WithoutEnding(model, ending);
    }
    const std::vector<ModelSet> sets = SetsOf(std::vector<HubFile>{{.path = model}});
    const bool wanted =
        reference.quant.empty() || (!sets.empty() && MatchesQuant(sets.front(), reference.quant));
    if (!wanted) continue;
    struct stat own{};
    const std::string whole = PathOf(reference.Repo(), path);
    if (::lstat(whole.c_str(), &own) == 0 && S_ISREG(own.st_mode)) {
      freed += static_cast<uint64_t>(own.st_size);
    }
    if (::unlink(whole.c_str()) == 0) ++removed;
  }
  if (removed == 0) {
    throw Error(ErrorKind::kNoInput, reference.Text() + ": nothing of it is in " + root_,
                "bloomery models list");
  }
  RemoveEmptyFolders(base);
  if (FilesBelow(base).size() <= 1) {
    ::unlink(lock_path.c_str());
    fs::remove(base, ignored);
    fs::remove(fs::path(base).parent_path(), ignored);  // the owner's, where it was the last
  }
  return freed;
}

std::unique_ptr<RepoLock> Cache::Lock(const std::string& repo,
                                      const std::function<void()>& waiting) const {
  const std::string base = root_ + "/" + repo;
  std::error_code error;
  fs::create_directories(base, error);
  if (error) {
    throw Error(ErrorKind::kNoInput, "cannot make the folder '" + Printable(base) + "': " +
                                         error.message() + "; BLOOMERY_CACHE names another one");
  }
  const std::string path = base + "/" + kLockName;
  for (bool told = false;;) {
    fs::create_directories(base, error);
    const int fd = OpenLock(path);
    auto lock = std::make_unique<FlockLock>(fd);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (!told) waiting();
      told = true;
      while (::flock(fd, LOCK_EX) != 0 && errno == EINTR) {
      }
    }
    // Whoever removed the models meanwhile removed the lock's file, too: then it is another one.
    struct stat locked{};
    struct stat named{};
    if (::fstat(fd, &locked) == 0 && ::stat(path.c_str(), &named) == 0 &&
        locked.st_ino == named.st_ino) {
      return lock;
    }
  }
}

}  // namespace bloomery::hub
