#include "runtime/apps/http_address.h"

#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::apps {

hub::Url ParseServerUrl(const std::string& url) {
  constexpr std::string_view kPlain = "http://";
  constexpr std::string_view kTls = "https://";
  hub::Url address;
  address.tls = url.starts_with(kTls);
  if (!address.tls && !url.starts_with(kPlain)) {
    throw Error(ErrorKind::kUsage,
                "--url " + Printable(url) + ": must begin with http:// or https://");
  }
  std::string rest = url.substr((address.tls ? kTls : kPlain).size());
  address.port = address.tls ? "443" : "80";
  address.target.clear();
  if (const size_t slash = rest.find('/'); slash != std::string::npos) {
    address.target = rest.substr(slash);
    rest.resize(slash);
    while (address.target.ends_with("/")) address.target.pop_back();
  }
  const size_t bracket = rest.find(']');
  const size_t colon = rest.find(':', bracket == std::string::npos ? 0 : bracket);
  if (colon != std::string::npos) {
    address.port = rest.substr(colon + 1);
    rest.resize(colon);
  }
  if (rest.starts_with("[") && rest.ends_with("]")) rest = rest.substr(1, rest.size() - 2);
  address.host = rest;
  if (address.host.empty() || address.port.empty()) {
    throw Error(ErrorKind::kUsage, "--url " + Printable(url) + ": no host or port in it");
  }
  return address;
}

}  // namespace bloomery::apps
