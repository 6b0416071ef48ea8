// A connection to one origin, plain or TLS, that Boost.Beast reads and writes through: each wait
// ends by a time, certificates are checked against the machine's roots wherever its distribution
// keeps them, and the host's name against the certificate. Owns its socket; one thread, which
// another one can call off by a descriptor.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/error.h"
#include "runtime/hub/url.h"

namespace bloomery::hub {

// The network failed, not the hub's answer: no such host, no connection, TLS, silence, a cut. What
// is in the cache may stand in for it.
class NetworkError : public Error {
 public:
  using Error::Error;
};

struct StreamOptions {
  std::chrono::milliseconds connect_time_max{};
  std::chrono::milliseconds silence_max{};
  std::optional<Url> proxy;         // asked to CONNECT to a TLS origin
  std::string proxy_authorization;  // the header's value, or empty
  std::string ca_file;              // these roots instead of the machine's
  int interrupt_fd = -1;            // a wait ends with Interrupted once this can be read; -1: none
};

struct Interrupted {};

class Stream {
 public:
  // Connects. NetworkError saying what failed.
  Stream(const Url& url, const StreamOptions& options);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Beast's SyncReadStream, and the writing half. A failed read or write gives an error code, and
  // `failure()` says it in words.
  template <class Buffers>
  size_t read_some(const Buffers& buffers, boost::system::error_code& error) {
    for (auto it = boost::asio::buffer_sequence_begin(buffers);
         it != boost::asio::buffer_sequence_end(buffers); ++it) {
      const boost::asio::mutable_buffer buffer = *it;
      if (buffer.size() > 0) return Read(buffer.data(), buffer.size(), error);
    }
    return 0;
  }
  template <class Buffers>
  size_t read_some(const Buffers& buffers) {
    boost::system::error_code error;
    const size_t count = read_some(buffers, error);
    if (error) throw boost::system::system_error(error);
    return count;
  }
  template <class Buffers>
  size_t write_some(const Buffers& buffers, boost::system::error_code& error) {
    for (auto it = boost::asio::buffer_sequence_begin(buffers);
         it != boost::asio::buffer_sequence_end(buffers); ++it) {
      const boost::asio::const_buffer buffer = *it;
      if (buffer.size() > 0) return Write(buffer.data(), buffer.size(), error);
    }
    return 0;
  }
  const std::string& failure() const;

 private:
  class Impl;
  size_t Read(void* data, size_t bytes, boost::system::error_code& error);
  size_t Write(const void* data, size_t bytes, boost::system::error_code& error);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bloomery::hub
