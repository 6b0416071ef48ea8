// A connection's socket, plain or under TLS, behind the one interface that Beast and asio read and
// write through. Owns the socket and the TLS session. Used on the connection's strand only;
// internal to the HTTP core, as http_connection.h is.
#pragma once

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/strand.hpp>
#include <memory>
#include <utility>

#include "runtime/serve/tls.h"

namespace bloomery::serve::internal {

using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;
using Socket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol, Strand>;
using ErrorCode = boost::system::error_code;

class Transport {
 public:
  using executor_type = Strand;

  // `tls` null: plain.
  Transport(Socket socket, std::shared_ptr<TlsContext> tls)
      : socket_(std::move(socket)), context_(std::move(tls)) {
    if (context_) tls_ = std::make_unique<Tls>(socket_, *context_);
  }
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  Strand get_executor() { return socket_.get_executor(); }
  // Below TLS: for what concerns the connection and not its bytes.
  Socket& socket() { return socket_; }
  bool tls() const { return tls_ != nullptr; }

  template <class Handler>
  void AsyncHandshake(Handler handler) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::move(handler));
  }
  // Tells the other end that nothing more will come, and waits until it says the same.
  template <class Handler>
  void AsyncShutdown(Handler handler) {
    tls_->async_shutdown(std::move(handler));
  }
  // From now on plain: of a client that speaks no TLS, and of a session that is over.
  void DropTls() { tls_.reset(); }

  // asio's AsyncReadStream and AsyncWriteStream.
  template <class Buffers, class Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Handler>(handler));
    socket_.async_read_some(buffers, std::forward<Handler>(handler));
  }
  template <class Buffers, class Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Handler>(handler));
    socket_.async_write_some(buffers, std::forward<Handler>(handler));
  }

 private:
  using Tls = boost::asio::ssl::stream<Socket&>;

  Socket socket_;
  std::shared_ptr<TlsContext> context_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace bloomery::serve::internal
