#include "runtime/serve/page.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/trimmed.h"
#include "runtime/serve/errors.h"

namespace bloomery::serve {
namespace {

// Nothing inline and nothing from elsewhere: text of a model that got past the page's own cleaning
// could neither run nor call home. Markup reaches the document through DOMPurify's policy alone.
constexpr std::string_view kContentSecurity =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify";

// Calls `use` with each part of a list between commas, without the blanks around it, until it
// returns true; whether it did.
template <typename Use>
bool AnyPart(std::string_view list, const Use& use) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (use(Trimmed(list.substr(0, comma)))) return true;
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return false;
}

// The weight "q=0.5" of a part of a list: whether it is above 0, that is, has a digit but 0.
bool WeightIsPositive(std::string_view parameters) {
  const size_t at = parameters.find("q=");
  return at == std::string_view::npos ||
         parameters.substr(at + 2).find_first_of("123456789") != std::string_view::npos;
}

HttpResponse AnswerOf(const PageAsset& asset, const HttpRequest& request) {
  const bool gzip = !asset.gzip.empty() && AcceptsGzip(request.Header("Accept-Encoding"));
  if (!gzip && asset.plain.empty()) {
    return ErrorResponse(MakeApiError(415, "this file is held compressed: accept gzip"));
  }
  HttpResponse response;
  response.content_type = asset.content_type;
  const std::string etag = '"' + std::string(asset.hash) + (gzip ? "-gz\"" : "\"");
  response.headers = {
      {"ETag", etag},
      {"Cache-Control", asset.hashed_path ? "public, max-age=31536000, immutable" : "no-cache"},
      {"Vary", "Accept-Encoding"},
      {"X-Content-Type-Options", "nosniff"},
      {"Content-Security-Policy", std::string(kContentSecurity)},
      {"Referrer-Policy", "no-referrer"},
      {"X-Frame-Options", "DENY"},
  };
  if (NamesEtag(request.Header("If-None-Match"), etag)) {
    response.status = 304;
    response.content_type.clear();
    return response;
  }
  if (gzip) response.headers.push_back({"Content-Encoding", "gzip"});
  response.body = gzip ? asset.gzip : asset.plain;
  return response;
}

}  // namespace

std::string_view ContentTypeOf(std::string_view path) {
  using Type = std::pair<std::string_view, std::string_view>;
  static constexpr std::array<Type, 14> kTypes{{
      {".html", "text/html; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".mjs", "text/javascript; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".json", "application/json; charset=utf-8"},
      {".txt", "text/plain; charset=utf-8"},
      {".webmanifest", "application/manifest+json"},
      {".svg", "image/svg+xml"},
      {".png", "image/png"},
      {".jpg", "image/jpeg"},
      {".webp", "image/webp"},
      {".ico", "image/x-icon"},
      {".woff2", "font/woff2"},
      {".wasm", "application/wasm"},
  }};
  for (const auto& [ending, type] : kTypes) {
    if (path.ends_with(ending)) return type;
  }
  return "application/octet-stream";
}

bool AcceptsGzip(std::string_view accept_encoding) {
  bool any = false;
  bool refused = false;
  const bool named = AnyPart(accept_encoding, [&](std::string_view part) {
    const size_t semicolon = part.find(';');
    const std::string_view name = Trimmed(part.substr(0, semicolon));
    const bool taken = semicolon == std::string_view::npos || WeightIsPositive(part);
    if (EqualNoCase(name, "gzip") || EqualNoCase(name, "x-gzip")) {
      refused = refused || !taken;
      return taken;
    }
    any = any || (name == "*" && taken);
    return false;
  });
  return named || (any && !refused);
}

bool NamesEtag(std::string_view if_none_match, std::string_view etag) {
  return AnyPart(if_none_match, [&](std::string_view part) {
    if (part == "*") return true;
    if (part.starts_with("W/")) part.remove_prefix(2);  // here the weak comparison is asked for
    return part == etag;
  });
}

std::optional<HttpResponse> PageAnswer(const ServeSettings& settings, const HttpRequest& request,
                                       std::string_view path) {
  if (!settings.page || (request.method != "GET" && request.method != "HEAD")) return std::nullopt;
  if (path.empty() && !settings.api_prefix.empty()) {
    // The page's links are relative to its folder, which the prefix is.
    HttpResponse response;
    response.status = 308;
    response.content_type.clear();
    response.headers.push_back({"Location", settings.api_prefix + "/"});
    return response;
  }
  if (path == "/") path = "/index.html";
  if (!settings.page_folder.empty()) return FolderAnswer(settings.page_folder, request, path);
  const auto assets = PageAssets();
  const auto found = std::find_if(assets.begin(), assets.end(),
                                  [&](const PageAsset& asset) { return asset.path == path; });
  if (found == assets.end()) return std::nullopt;
  return AnswerOf(*found, request);
}

}  // namespace bloomery::serve
