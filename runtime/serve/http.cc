#include "runtime/serve/http.h"

#include <algorithm>
#include <random>

namespace bloomery::serve {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char l = Lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

// In a query '+' stands for a space; in a path it is itself.
bool PercentDecode(std::string_view text, bool plus_is_space, std::string& out) {
  out.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return false;
      const int high = HexDigit(text[i + 1]);
      const int low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    if (c == '\0') return false;
    out.push_back(c);
  }
  return true;
}

// The absolute form of a target, as clients of proxies write it, without its scheme and host.
std::string_view WithoutHost(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!EqualNoCase(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
    return target;
  }
  return target;
}

}  // namespace

std::string RequestIdOf(std::string_view given) {
  static constexpr std::string_view kAllowed =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.:";
  if (!given.empty() && given.size() <= kRequestIdBytesMax &&
      given.find_first_not_of(kAllowed) == std::string_view::npos) {
    return std::string(given);
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device random;
  std::string id;
  for (int word = 0; word < 4; ++word) {
    uint32_t bits = random();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4) id.push_back(kDigits[bits & 15]);
  }
  return id;
}

bool EqualNoCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return Lower(x) == Lower(y); });
}

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const HttpHeader& header : headers) {
    if (EqualNoCase(header.name, name)) return header.value;
  }
  return {};
}

std::optional<std::string_view> HttpRequest::Query(std::string_view name) const {
  for (const auto& [key, value] : query) {
    if (key == name) return value;
  }
  return std::nullopt;
}

bool IsLocalOrigin(std::string_view origin) {
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos) return false;
  const std::string_view rest = origin.substr(scheme + 3);
  for (std::string_view host : {"localhost", "127.0.0.1", "[::1]"}) {
    if (rest == host) return true;
    // Only a port may follow: behind "localhost:" could also come "x@elsewhere".
    if (!rest.starts_with(host) || rest[host.size()] != ':') continue;
    const std::string_view port = rest.substr(host.size() + 1);
    return !port.empty() && port.find_first_not_of("0123456789") == std::string_view::npos;
  }
  return false;
}

std::string AnswerTooLarge(size_t bytes_max) {
  return "the answer would be larger than " + std::to_string(bytes_max) +
         " bytes, the most that is given at once; ask for less, or for a stream";
}

bool ParseTarget(std::string_view target, HttpRequest& request) {
  target = WithoutHost(target);
  const size_t mark = target.find('?');
  if (!PercentDecode(target.substr(0, mark), false, request.path)) return false;
  if (request.path.empty()) request.path = "/";
  request.query.clear();
  if (mark == std::string_view::npos) return true;
  std::string_view rest = target.substr(mark + 1);
  while (!rest.empty()) {
    const size_t end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    std::string key;
    std::string value;
    if (!PercentDecode(pair.substr(0, equals), true, key)) return false;
    if (equals != std::string_view::npos && !PercentDecode(pair.substr(equals + 1), true, value)) {
      return false;
    }
    request.query.emplace_back(std::move(key), std::move(value));
  }
  return true;
}

std::string_view ReasonPhrase(int status) {
  struct Reason {
    int status;
    std::string_view phrase;
  };
  static constexpr Reason kReasons[] = {
      {100, "Continue"},
      {200, "OK"},
      {204, "No Content"},
      {304, "Not Modified"},
      {308, "Permanent Redirect"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {408, "Request Timeout"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
  };
  for (const Reason& reason : kReasons) {
    if (reason.status == status) return reason.phrase;
  }
  return "Status";
}

}  // namespace bloomery::serve
