// Files of --path: read when they are asked for, so that whoever writes a page sees each change.
#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/limits.h"
#include "runtime/serve/page.h"

namespace bloomery::serve {
namespace {

namespace fs = std::filesystem;

// The file that a path below `/` names inside `root`; nothing where it leaves it, by ".." or by a
// link, or is no regular file.
std::optional<fs::path> FileIn(const fs::path& root, std::string_view path) {
  if (!path.starts_with('/') || path.find('\0') != std::string_view::npos) return std::nullopt;
  std::error_code error;
  const fs::path base = fs::canonical(root, error);
  if (error) return std::nullopt;
  fs::path file = fs::canonical(base / fs::path(path.substr(1)), error);
  if (error || !fs::is_regular_file(file, error)) return std::nullopt;
  const auto [end, rest] = std::mismatch(base.begin(), base.end(), file.begin(), file.end());
  if (end != base.end() || rest == file.end()) return std::nullopt;
  return file;
}

}  // namespace

std::optional<HttpResponse> FolderAnswer(const std::string& folder, const HttpRequest& request,
                                         std::string_view path) {
  const auto name = FileIn(folder, path);
  if (!name) return std::nullopt;
  std::error_code error;
  const auto written = fs::last_write_time(*name, error).time_since_epoch().count();
  if (error) return std::nullopt;
  HttpResponse response;
  try {
    const auto file = RealFileSystem().Open(name->string());
    if (file->size() > limits::kAnswerBytesMax) return std::nullopt;
    response.content_type = ContentTypeOf(path);
    const std::string etag =
        '"' + std::to_string(file->size()) + '-' + std::to_string(written) + '"';
    response.headers = {
        {"ETag", etag}, {"Cache-Control", "no-cache"}, {"X-Content-Type-Options", "nosniff"}};
    if (NamesEtag(request.Header("If-None-Match"), etag)) {
      response.status = 304;
      response.content_type.clear();
      return response;
    }
    response.body.resize(file->size());
    file->ReadAt(0, std::as_writable_bytes(std::span(response.body)));
  } catch (const Error&) {
    return std::nullopt;  // it went away, or may not be read: not there for a client
  }
  return response;
}

}  // namespace bloomery::serve
