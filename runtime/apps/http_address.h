// Where a server of plain HTTP is, as --url names it.
#pragma once

#include <string>

namespace bloomery::apps {

struct HttpAddress {
  std::string host;  // an IPv6 address without its brackets
  std::string port = "80";
  std::string path;  // in front of the routes, without a slash at its end
};

// "http://host", "http://host:port", "http://[::1]:8080/prefix". Error(kUsage) for another scheme,
// and where host or port is empty.
HttpAddress ParseUrl(const std::string& url);

}  // namespace bloomery::apps
