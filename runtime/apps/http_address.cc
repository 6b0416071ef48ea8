#include "runtime/apps/http_address.h"

#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::apps {

HttpAddress ParseUrl(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) {
    throw Error(ErrorKind::kUsage, "--url " + Printable(url) + ": must begin with http://");
  }
  std::string rest = url.substr(kScheme.size());
  HttpAddress address;
  if (const size_t slash = rest.find('/'); slash != std::string::npos) {
    address.path = rest.substr(slash);
    rest.resize(slash);
    while (address.path.ends_with("/")) address.path.pop_back();
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
