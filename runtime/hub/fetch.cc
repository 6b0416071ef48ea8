#include "runtime/hub/fetch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/hub/digest.h"

namespace bloomery::hub {
namespace {

namespace fs = std::filesystem;

// Left free beside what is fetched: a disk filled to the last byte stops other programs.
constexpr uint64_t kDiskReserveBytes = uint64_t{64} << 20;

std::string Gigabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f GB", static_cast<double>(bytes) / 1e9);
  return text;
}

std::optional<uint64_t> SizeOf(const std::string& path) {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  return static_cast<uint64_t>(found.st_size);
}

// Thrown by a file's thread when another one has failed.
struct Abandoned {};

// The answer has no place in the part that is here: from the start again.
struct StartAgain {};

// The part of a file that is on the disk, written at its end, with the digest of all of it.
class Part {
 public:
  Part(std::string path, const HubFile& file) : path_(std::move(path)), file_(file) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) Fail("cannot create it");
    const uint64_t size = SizeOf(path_).value_or(0);
    if (size > file_.bytes) {
      Clear();
    } else {
      TakeIn(size);
    }
  }
  ~Part() { ::close(fd_); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  uint64_t size() const { return size_; }

  void Clear() {
    if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) Fail("cannot cut it");
    size_ = 0;
    digest_ = std::make_unique<Digest>(file_.digest, file_.bytes);
  }

  void Write(std::span<const std::byte> bytes) {
    digest_->Add(bytes);
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) Fail("writing at byte " + std::to_string(size_));
      size_ += static_cast<uint64_t>(n);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }

  // Ends the digest.
  std::string Finish() {
    if (::fsync(fd_) != 0) Fail("making it durable");
    return digest_->Finish();
  }

 private:
  // Reads what an earlier run left.
  void TakeIn(uint64_t size) {
    digest_ = std::make_unique<Digest>(file_.digest, file_.bytes);
    std::vector<std::byte> buffer(size_t{1} << 20);
    while (size_ < size) {
      const ssize_t n = ::read(fd_, buffer.data(), std::min<uint64_t>(buffer.size(), size - size_));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) Fail("reading at byte " + std::to_string(size_));
      digest_->Add({buffer.data(), static_cast<size_t>(n)});
      size_ += static_cast<uint64_t>(n);
    }
  }

  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(ErrorKind::kDownload, "'" + Printable(path_, 400) + "': " + what + ": " +
                                          std::generic_category().message(errno));
  }

  std::string path_;
  const HubFile& file_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::unique_ptr<Digest> digest_;
};

// What the threads of one call share.
class Fetch {
 public:
  Fetch(const Cache& cache, std::string repo, const std::vector<HubFile>& files,
        const FetchOptions& options, const HubObserver& observer)
      : cache_(cache),
        repo_(std::move(repo)),
        files_(files),
        options_(options),
        observer_(observer) {}

  void Run() {
    std::vector<const HubFile*> missing;
    uint64_t needed = 0;
    for (const HubFile& file : files_) {
      total_ += file.bytes;
      if (TakeWhatIsHere(file)) {
        have_ += file.bytes;
        continue;
      }
      missing.push_back(&file);
      const uint64_t part = std::min(SizeOf(PartOf(file)).value_or(0), file.bytes);
      have_ += part;
      needed += file.bytes - part;
    }
    if (missing.empty()) return;
    CheckDisk(needed);
    std::vector<std::thread> threads;
    const size_t count = std::min<size_t>(missing.size(), limits::kHubFilesAtOnce);
    for (size_t i = 0; i < count; ++i) threads.emplace_back([&] { Work(missing); });
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::string PathOf(const HubFile& file) const { return cache_.PathOf(repo_, file.path); }
  std::string PartOf(const HubFile& file) const { return PathOf(file) + ".part"; }

  void Tell(const HubEvent& event) {
    std::lock_guard lock(mutex_);
    observer_(event);
  }

  // Whether the file is here already, or lies whole where another program keeps it.
  bool TakeWhatIsHere(const HubFile& file) {
    HubEvent event{.kind = HubEvent::Kind::kFile, .name = file.path, .bytes = file.bytes};
    event.have = file.bytes;
    if (cache_.Has(repo_, file)) {
      event.state = "cached";
      Tell(event);
      return true;
    }
    if (SizeOf(PathOf(file)) == file.bytes &&
        DigestOfFile(PathOf(file), file.digest, file.bytes) == file.digest) {
      cache_.Mark(repo_, file);  // a run that ended between name and marker
      event.state = "cached";
      Tell(event);
      return true;
    }
    if (!LinkFromOtherCache(file)) return false;
    event.state = "other-cache";
    Tell(event);
    return true;
  }

  bool LinkFromOtherCache(const HubFile& file) {
    if (options_.other_cache.empty()) return false;
    std::string folder = "models--" + repo_;
    folder.replace(folder.find('/'), 1, "--");
    const std::string blob = options_.other_cache + "/" + folder + "/blobs/" +
                             file.digest.substr(file.digest.find(':') + 1);
    if (SizeOf(blob) != file.bytes) return false;
    if (DigestOfFile(blob, file.digest, file.bytes) != file.digest) return false;
    MakeFolder(file);
    cache_.Unmark(repo_, file);
    ::unlink(PathOf(file).c_str());
    if (::symlink(blob.c_str(), PathOf(file).c_str()) != 0) return false;
    cache_.Mark(repo_, file);
    return true;
  }

  void MakeFolder(const HubFile& file) const {
    std::error_code error;
    fs::create_directories(fs::path(PathOf(file)).parent_path(), error);
    if (error) {
      throw Error(ErrorKind::kDownload, "cannot make the folder of '" +
                                            Printable(PathOf(file), 400) + "': " + error.message());
    }
  }

  void CheckDisk(uint64_t needed) const {
    const uint64_t free = options_.free_bytes(cache_.root());
    if (free >= kDiskReserveBytes && needed <= free - kDiskReserveBytes) return;
    throw Error(ErrorKind::kDownload,
                repo_ + ": " + Gigabytes(needed) + " are still to fetch, and " + cache_.root() +
                    " has " + Gigabytes(free) +
                    " free; make room (bloomery models rm), or name another folder with "
                    "BLOOMERY_CACHE",
                "bloomery models list");
  }

  void Work(const std::vector<const HubFile*>& missing) {
    try {
      while (true) {
        const size_t index = next_.fetch_add(1);
        if (index >= missing.size() || failed_.load()) return;
        FetchOne(*missing[index]);
      }
    } catch (const Abandoned&) {
      return;  // the first failure is the one told
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      failed_.store(true);
    }
  }

  void FetchOne(const HubFile& file) {
    MakeFolder(file);
    Part part(PartOf(file), file);
    HubEvent event{.kind = HubEvent::Kind::kFile, .name = file.path, .bytes = file.bytes};
    event.have = part.size();
    event.state = part.size() > 0 ? "resume" : SizeOf(PathOf(file)) ? "stale" : "fetch";
    Tell(event);
    Download(file, part);
    const std::string digest = part.Finish();
    if (digest != file.digest) {
      ::unlink(PartOf(file).c_str());
      throw Error(ErrorKind::kDownload, repo_ + "/" + file.path + ": what came has the digest " +
                                            digest + ", and the hub lists " + file.digest +
                                            "; it was removed");
    }
    cache_.Unmark(repo_, file);
    if (::rename(PartOf(file).c_str(), PathOf(file).c_str()) != 0) {
      throw Error(ErrorKind::kDownload,
                  "'" + Printable(PathOf(file), 400) +
                      "': giving it its name: " + std::generic_category().message(errno));
    }
    cache_.Mark(repo_, file);
    Tell({.kind = HubEvent::Kind::kDone, .name = file.path, .bytes = file.bytes, .text = digest});
  }

  // Until the part is whole, or nothing helps.
  void Download(const HubFile& file, Part& part) {
    int vain = 0;
    auto wait = options_.retry_wait;
    while (part.size() < file.bytes) {
      const uint64_t before = part.size();
      std::string why;
      std::optional<int> asked;
      try {
        const HttpAnswer answer = Try(file, part);
        if (answer.status / 100 == 2) continue;
        if (answer.status == 416 && part.size() > 0) throw StartAgain();
        if (answer.status != 429 && answer.status / 100 != 5) {
          ThrowStatus(answer, repo_ + "/" + file.path, Page(), !options_.token.empty());
        }
        why = answer.url.host + " answered " + std::to_string(answer.status);
        asked = answer.retry_after_s;
      } catch (const StartAgain&) {
        Retreat(part);
        why = "the hub cannot go on where the part ends";
      } catch (const NetworkError& error) {
        why = error.what();
      }
      vain = part.size() > before ? 0 : vain + 1;
      if (vain == 0) wait = options_.retry_wait;
      if (vain >= limits::kHubAttemptsMax) {
        throw NetworkError(ErrorKind::kDownload,
                           repo_ + "/" + file.path + ": given up after " + std::to_string(vain) +
                               " tries without a byte: " + why +
                               "; what is here is kept, and the next run goes on from there");
      }
      Tell({.kind = HubEvent::Kind::kRetry, .name = file.path, .have = part.size(), .text = why});
      Pause(asked ? std::chrono::milliseconds(std::chrono::seconds(*asked)) : wait);
      wait *= 2;
    }
  }

  std::string Page() const {
    Url page = options_.endpoint;
    page.target = "/" + repo_;
    return page.Text();
  }

  void Pause(std::chrono::milliseconds time) const {
    constexpr std::chrono::milliseconds kStep{50};
    for (; time.count() > 0 && !failed_.load(); time -= kStep) {
      std::this_thread::sleep_for(std::min(time, kStep));
    }
    if (failed_.load()) throw Abandoned();
  }

  void Retreat(Part& part) {
    have_ -= part.size();
    part.Clear();
  }

  HttpAnswer Try(const HubFile& file, Part& part) {
    HttpGet get;
    get.url = options_.endpoint;
    get.url.target = (get.url.target == "/" ? "" : get.url.target) + "/" + repo_ +
                     "/resolve/main/" + EscapePath(file.path);
    get.token = options_.token;
    get.from = part.size();
    HttpClient client(options_.http);
    return client.Get(
        get, [&](const HttpAnswer& answer) { Begin(answer, file, part); },
        [&](std::span<const std::byte> bytes) { Take(bytes, file, part); });
  }

  // Holds a success's head against the listing, before its body.
  void Begin(const HttpAnswer& answer, const HubFile& file, Part& part) {
    std::optional<uint64_t> total;
    if (answer.status == 206) {
      if (answer.range_begin != part.size()) throw StartAgain();
      total = answer.range_total;
    } else {
      if (part.size() > 0) Retreat(part);  // the whole file, whatever was asked
      total = answer.length;
    }
    if (total && *total != file.bytes) {
      throw Error(ErrorKind::kDownload, repo_ + "/" + file.path + ": the hub lists " +
                                            std::to_string(file.bytes) + " bytes and " +
                                            answer.url.host + " sends " + std::to_string(*total));
    }
  }

  void Take(std::span<const std::byte> bytes, const HubFile& file, Part& part) {
    if (failed_.load()) throw Abandoned();
    if (bytes.size() > file.bytes - part.size()) {
      ::unlink(PartOf(file).c_str());
      throw Error(ErrorKind::kDownload, repo_ + "/" + file.path + ": more than the " +
                                            std::to_string(file.bytes) +
                                            " bytes that the hub lists were sent");
    }
    part.Write(bytes);
    const uint64_t have = have_ += bytes.size();
    Tell({.kind = HubEvent::Kind::kProgress, .bytes = total_, .have = have});
  }

  const Cache& cache_;
  std::string repo_;
  const std::vector<HubFile>& files_;
  const FetchOptions& options_;
  const HubObserver& observer_;
  uint64_t total_ = 0;
  std::atomic<uint64_t> have_{0};
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // observer_, failure_
  std::exception_ptr failure_;
};

}  // namespace

uint64_t FreeDiskBytes(const std::string& folder) {
  fs::path path = fs::absolute(folder);
  struct statvfs found{};
  while (::statvfs(path.c_str(), &found) != 0) {
    if (!path.has_relative_path()) return UINT64_MAX;  // it cannot be told
    path = path.parent_path();
  }
  return static_cast<uint64_t>(found.f_bavail) * found.f_frsize;
}

void ThrowStatus(const HttpAnswer& answer, const std::string& what, const std::string& page,
                 bool has_token) {
  std::string text = what + ": " + answer.url.host + " answered " + std::to_string(answer.status);
  if (answer.status == 401 || answer.status == 403) {
    text += has_token
                ? ": the token given has no access; a gated model's terms are accepted at " + page
                : ": the model is gated or private, or there is none of that name; a gated "
                  "model's terms are accepted at " +
                      page + ", and the token goes into HF_TOKEN";
  } else if (answer.status == 404) {
    text += ": there is nothing of that name; compare it with " + page;
  } else if (answer.status == 429) {
    text += ": too many requests; a token in HF_TOKEN raises the limit, or try later";
  } else if (!answer.error.empty()) {
    text += ": " + answer.error;
  }
  throw Error(ErrorKind::kDownload, text);
}

void FetchFiles(const Cache& cache, const std::string& repo, const std::vector<HubFile>& files,
                const FetchOptions& options, const HubObserver& observer) {
  Fetch(cache, repo, files, options, observer).Run();
}

}  // namespace bloomery::hub
