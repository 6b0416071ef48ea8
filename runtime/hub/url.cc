#include "runtime/hub/url.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::hub {
namespace {

constexpr std::string_view kHttp = "http://";
constexpr std::string_view kHttps = "https://";

std::string_view DefaultPort(bool tls) { return tls ? "443" : "80"; }

[[noreturn]] void Refuse(std::string_view what, std::string_view text, const std::string& why) {
  throw Error(ErrorKind::kDownload, std::string(what) + " '" + Printable(text) + "': " + why);
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool IsPort(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool IsHost(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == ':' ||
           c == '_';
  });
}

// A space or a line break in a target would begin something else in the request.
bool IsTarget(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte <= 0x20 || byte >= 0x7F;
  });
}

void SplitAuthority(std::string_view authority, std::string_view text, std::string_view what,
                    Url& url) {
  if (authority.find('@') != std::string_view::npos) Refuse(what, "…", "has a user name in it");
  std::string_view host = authority;
  std::string_view port = DefaultPort(url.tls);
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    host = authority.substr(0, colon);
    port = authority.substr(colon + 1);
  }
  if (host.starts_with("[") && host.ends_with("]")) host = host.substr(1, host.size() - 2);
  url.host = host;
  std::transform(url.host.begin(), url.host.end(), url.host.begin(), Lower);
  url.port = port;
  if (!IsHost(url.host) || !IsPort(url.port)) Refuse(what, text, "has no host and port in it");
}

}  // namespace

std::string Url::Origin() const {
  const std::string shown = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return std::string(tls ? kHttps : kHttp) + shown + ":" + port;
}

std::string Url::HostHeader() const {
  const std::string shown = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == DefaultPort(tls) ? shown : shown + ":" + port;
}

std::string Url::Text() const { return std::string(tls ? kHttps : kHttp) + HostHeader() + target; }

Url ParseUrl(std::string_view text, std::string_view what) {
  Url url;
  std::string_view rest = text;
  if (text.starts_with(kHttps)) {
    rest.remove_prefix(kHttps.size());
  } else if (text.starts_with(kHttp)) {
    rest.remove_prefix(kHttp.size());
    url.tls = false;
  } else {
    Refuse(what, text, "must begin with https:// or http://");
  }
  rest = rest.substr(0, rest.find('#'));
  const size_t end = rest.find_first_of("/?");
  SplitAuthority(rest.substr(0, end), text, what, url);
  if (end != std::string_view::npos) {
    url.target = rest.substr(end);
    if (url.target.starts_with("?")) url.target.insert(0, 1, '/');
  }
  if (!IsTarget(url.target)) Refuse(what, text, "has a character that no address may have");
  return url;
}

Url ResolveUrl(const Url& from, std::string_view location) {
  constexpr std::string_view kWhat = "a redirect to";
  if (location.starts_with(kHttps) || location.starts_with(kHttp)) return ParseUrl(location, kWhat);
  const std::string scheme(from.tls ? "https:" : "http:");
  if (location.starts_with("//")) return ParseUrl(scheme + std::string(location), kWhat);
  Url to = from;
  const std::string_view kept = location.substr(0, location.find('#'));
  if (kept.starts_with("/")) {
    to.target = kept;
  } else {
    const std::string path = from.target.substr(0, from.target.find('?'));
    to.target = path.substr(0, path.rfind('/') + 1).append(kept);
  }
  if (!IsTarget(to.target)) Refuse(kWhat, location, "has a character that no address may have");
  return to;
}

std::string EscapePath(std::string_view path) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  constexpr std::string_view kPlain = "-._~/";
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       kPlain.find(c) != std::string_view::npos;
    if (plain) {
      out.push_back(c);
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out.append({'%', kDigits[byte >> 4U], kDigits[byte & 15U]});
  }
  return out;
}

}  // namespace bloomery::hub
