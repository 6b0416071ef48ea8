// The web page at `/`: files made from runtime/assets/page and held by the program, or one small
// page that says how to get them where the build left them out, or a folder of the user's (--path).
// Answers need no key and no model. Owns nothing; any thread. Never runs what a file holds, never
// reads outside the folder, and never lists one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/serve/http.h"
#include "runtime/serve/settings.h"

namespace bloomery::serve {

// One file of the page. What has a hash of its bytes in its path never changes under it.
struct PageAsset {
  std::string_view path;  // "/index.html", "/assets/page-1f2e3d4c.js"
  std::string_view content_type;
  std::string_view hash;   // of the bytes, for its ETag
  std::string_view plain;  // empty where only the compressed form is held
  std::string_view gzip;   // empty where only the plain form is held
  bool hashed_path = false;
};

// What the build put in: runtime/assets/page by page.cmake, or no_page.cc.
std::span<const PageAsset> PageAssets();
// Whether that is the page itself.
bool PageIsBuilt();

// The answer to a request for `path` (behind --api-prefix): the page's file, 304 where the client
// has it already, 415 where it does not take gzip and there is nothing else. Nothing where the page
// is switched off, has no such file, or the method is not GET or HEAD.
std::optional<HttpResponse> PageAnswer(const ServeSettings& settings, const HttpRequest& request,
                                       std::string_view path);

// A file of `folder` (--path) for a path below `/`, for PageAnswer. Nothing for what is no regular
// file inside it, links followed.
std::optional<HttpResponse> FolderAnswer(const std::string& folder, const HttpRequest& request,
                                         std::string_view path);

// By a file's ending; "application/octet-stream" for one not listed.
std::string_view ContentTypeOf(std::string_view path);
// Whether an Accept-Encoding header takes gzip (RFC 9110, 12.5.3).
bool AcceptsGzip(std::string_view accept_encoding);
// Whether an If-None-Match header names `etag` (with its quotes), or any ("*").
bool NamesEtag(std::string_view if_none_match, std::string_view etag);

}  // namespace bloomery::serve
