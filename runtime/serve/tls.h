// The server's side of TLS: a certificate and its key, and what is spoken with them (TLS 1.2 and
// 1.3, forward secrecy, no renegotiation). Reads no file; keeps no socket. A context may be shared
// by threads once it is made.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace boost::asio::ssl {
class context;
}

namespace bloomery::serve {

using TlsContext = boost::asio::ssl::context;

// Of PEM texts: the server's certificate with those that lead to its root behind it, and its key,
// which must have no passphrase. Error(kUsage) naming --ssl-cert-file or --ssl-key-file for what is
// no PEM, for a key of another certificate, and for what is too weak for the library's rules. A
// certificate that is out of date is logged and taken.
std::shared_ptr<TlsContext> MakeTlsContext(const std::string& certificates, const std::string& key);

}  // namespace bloomery::serve
