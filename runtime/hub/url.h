// Web addresses as a hub uses them: http and https, taken apart, joined with where a redirect
// leads, and compared by origin, which decides who may see the token. Pure values; Error(kDownload)
// for what cannot be read.
#pragma once

#include <string>
#include <string_view>

namespace bloomery::hub {

struct Url {
  bool tls = true;
  std::string host;          // lower case; an IPv6 address without its brackets
  std::string port;          // always there: the scheme's where none was written
  std::string target = "/";  // path and query

  // "https://host:port", equal exactly where scheme, host and port are.
  std::string Origin() const;
  // What a request's Host header holds: the port only where it is not the scheme's.
  std::string HostHeader() const;
  std::string Text() const;
};

// A whole address. `what` names it in the error ("HF_ENDPOINT"). User names in it are refused, a
// fragment is dropped.
Url ParseUrl(std::string_view text, std::string_view what);

// Where `location`, whole or relative, leads from `from`.
Url ResolveUrl(const Url& from, std::string_view location);

// A path with everything but letters, digits, "-._~" and "/" percent-encoded.
std::string EscapePath(std::string_view path);

}  // namespace bloomery::hub
