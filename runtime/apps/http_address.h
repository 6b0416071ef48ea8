// Where a server is, as --url names it. Pure.
#pragma once

#include <string>

#include "runtime/hub/url.h"

namespace bloomery::apps {

// "http://host", "https://host:port", "http://[::1]:8080/prefix". The target is what stands in
// front of the routes, without a slash at its end. Error(kUsage) for another scheme, and where host
// or port is empty.
hub::Url ParseServerUrl(const std::string& url);

// Where nobody listens at such an address: what to run next.
inline constexpr const char* kStartServer = "bloomery-serve";

}  // namespace bloomery::apps
