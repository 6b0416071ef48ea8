#include "runtime/serve/http_server.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <cstring>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/serve/http_connection.h"

namespace bloomery::serve {
namespace {

namespace asio = boost::asio;
using internal::Connection;
using internal::ErrorCode;
using internal::Shared;
using internal::Socket;
using internal::Strand;
using Protocol = asio::generic::stream_protocol;
using Acceptor = asio::basic_socket_acceptor<Protocol, Strand>;

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<HttpServer::Impl> {
 public:
  Impl(HttpOptions options, HttpCallbacks callbacks)
      : shared_(std::make_shared<Shared>()), work_(asio::make_work_guard(shared_->io)) {
    shared_->options = std::move(options);
    shared_->callbacks = std::move(callbacks);
    const HttpOptions& o = shared_->options;
    waiting_max_ = WaitingMax();
    const auto tcp = static_cast<size_t>(std::count_if(
        o.hosts.begin(), o.hosts.end(), [](const std::string& h) { return !IsUnixPath(h); }));
    if (o.hosts.empty()) throw Error(ErrorKind::kUsage, "--host: no host given");
    if (o.port == 0 && tcp > 1) {
      throw Error(ErrorKind::kUsage, "--port 0 cannot be used with several --host addresses");
    }
    for (const std::string& host : o.hosts) {
      if (IsUnixPath(host)) {
        ListenUnix(host);
      } else {
        ListenTcp(host);
      }
    }
  }

  void Start() {
    for (auto& acceptor : acceptors_) {
      asio::post(acceptor->get_executor(),
                 [self = shared_from_this(), &acceptor] { self->Accept(*acceptor); });
    }
    for (int i = 0; i < std::max(1, shared_->options.threads); ++i) {
      threads_.emplace_back([shared = shared_] { shared->io.run(); });
    }
  }

  void Stop(std::chrono::milliseconds drain) {
    if (stopped_.exchange(true)) return;
    std::vector<std::shared_ptr<Connection>> open;
    {
      std::lock_guard lock(shared_->mutex);
      shared_->stopping = true;
      open.assign(shared_->open.begin(), shared_->open.end());
    }
    for (auto& acceptor : acceptors_) {
      asio::post(acceptor->get_executor(), [self = shared_from_this(), &acceptor] {
        ErrorCode ignored;
        acceptor->close(ignored);
      });
    }
    for (auto& connection : open) connection->BeginStop();
    {
      std::unique_lock lock(shared_->mutex);
      if (!threads_.empty()) {
        shared_->changed.wait_for(lock, drain, [this] { return shared_->open.empty(); });
      }
      open.assign(shared_->open.begin(), shared_->open.end());
    }
    for (auto& connection : open) connection->Close();
    open.clear();
    work_.reset();
    // Connections closed above run down by themselves; the wait is for their last handlers.
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    shared_->finished.store(true);
    // What came in between the threads' end and now.
    shared_->io.restart();
    shared_->io.poll();
    for (const std::string& path : unix_paths_) ::unlink(path.c_str());
  }

  const std::vector<std::string>& urls() const { return urls_; }
  int port() const { return port_; }
  size_t connections() const {
    std::lock_guard lock(shared_->mutex);
    return shared_->places_taken;
  }

 private:
  static bool IsUnixPath(const std::string& host) { return host.ends_with(".sock"); }

  void ListenTcp(const std::string& host) {
    ErrorCode error;
    asio::ip::tcp::resolver resolver(shared_->io);
    const auto found = resolver.resolve(host, std::to_string(shared_->options.port),
                                        asio::ip::tcp::resolver::passive, error);
    if (error || found.empty()) {
      throw BindError("--host " + host + ": cannot be resolved: " + error.message());
    }
    const asio::ip::tcp::endpoint endpoint = found.begin()->endpoint();
    auto acceptor = Bind(endpoint, host + " port " + std::to_string(endpoint.port()));
    const auto bound = acceptor->local_endpoint();
    asio::ip::tcp::endpoint local;
    std::memcpy(local.data(), bound.data(), bound.size());
    const std::string address = local.address().to_string();
    const std::string shown = local.address().is_v6() ? "[" + address + "]" : address;
    if (port_ == 0) port_ = local.port();
    urls_.push_back("http://" + shown + ":" + std::to_string(local.port()));
    acceptors_.push_back(std::move(acceptor));
  }

  void ListenUnix(const std::string& path) {
    asio::local::stream_protocol::endpoint endpoint;
    try {
      endpoint.path(path);
    } catch (const boost::system::system_error&) {
      throw BindError("--host " + path + ": the socket's path is too long");
    }
    RemoveIfStale(path);
    acceptors_.push_back(Bind(endpoint, path));
    unix_paths_.push_back(path);
    urls_.push_back("unix:" + path);
  }

  // A crash leaves its socket behind, and the name could not be bound again. Nothing but a socket
  // that refuses connections is removed: nobody listens on that one.
  void RemoveIfStale(const std::string& path) {
    struct stat found{};
    if (::lstat(path.c_str(), &found) != 0 || !S_ISSOCK(found.st_mode)) return;
    asio::local::stream_protocol::socket probe(shared_->io);
    ErrorCode error;
    probe.connect(asio::local::stream_protocol::endpoint(path), error);
    if (error != asio::error::connection_refused || ::unlink(path.c_str()) != 0) return;
    LOG(WARNING) << path << ": removed a socket that nobody listens on";
  }

  std::unique_ptr<Acceptor> Bind(const Protocol::endpoint& endpoint, const std::string& what) {
    auto acceptor = std::make_unique<Acceptor>(asio::make_strand(shared_->io));
    ErrorCode error;
    acceptor->open(Protocol(endpoint.protocol().family(), 0), error);
    if (!error) acceptor->set_option(asio::socket_base::reuse_address(true), error);
    if (!error && shared_->options.reuse_port) {
      using ReusePort = asio::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>;
      acceptor->set_option(ReusePort(true), error);
    }
    if (!error) acceptor->bind(endpoint, error);
    if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      throw BindError(
          "cannot listen on " + what + ": " + error.message() +
          (error == asio::error::address_in_use
               ? "; another program listens there: stop it, or give another --port or --host"
               : ""));
    }
    return acceptor;
  }

  void Accept(Acceptor& acceptor) {
    acceptor.async_accept(
        asio::make_strand(shared_->io),
        [self = shared_from_this(), &acceptor](const ErrorCode& error, Socket socket) {
          self->OnAccept(acceptor, error, std::move(socket));
        });
  }

  void OnAccept(Acceptor& acceptor, const ErrorCode& error, Socket socket) {
    if (!acceptor.is_open() || shared_->Stopping()) return;
    if (error) {
      auto pause = std::make_shared<asio::steady_timer>(
          acceptor.get_executor(), std::chrono::milliseconds(limits::kAcceptRetryMilliseconds));
      pause->async_wait([self = shared_from_this(), &acceptor, pause](const ErrorCode&) {
        if (acceptor.is_open()) self->Accept(acceptor);
      });
      return;
    }
    Take(std::move(socket));
    Accept(acceptor);
  }

  void Take(Socket socket) {
    ErrorCode ignored;
    socket.set_option(asio::ip::tcp::no_delay(true), ignored);  // fails on UNIX sockets: no matter
    const auto connection = std::make_shared<Connection>(shared_, std::move(socket));
    std::shared_ptr<Connection> longest;
    {
      std::lock_guard lock(shared_->mutex);
      if (shared_->waiting.size() >= waiting_max_) {
        longest = shared_->waiting.front()->shared_from_this();
        longest->LeaveWaiting();
      }
      shared_->open.insert(connection);
      connection->JoinWaiting();
    }
    if (longest) longest->Close();
    connection->Start();
  }

  // Some descriptors stay for the model, files and the hub.
  size_t WaitingMax() const {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return shared_->options.waiting_max;
    return std::clamp<size_t>(limit.rlim_cur / 2, 1, shared_->options.waiting_max);
  }

  std::shared_ptr<Shared> shared_;
  size_t waiting_max_ = 1;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  std::vector<std::thread> threads_;
  std::vector<std::string> urls_;
  std::vector<std::string> unix_paths_;
  int port_ = 0;
  std::atomic<bool> stopped_{false};
};

HttpServer::HttpServer(HttpOptions options, HttpCallbacks callbacks)
    : impl_(std::make_shared<Impl>(std::move(options), std::move(callbacks))) {}
HttpServer::~HttpServer() { impl_->Stop(std::chrono::milliseconds(0)); }
void HttpServer::Start() { impl_->Start(); }
const std::vector<std::string>& HttpServer::urls() const { return impl_->urls(); }
int HttpServer::port() const { return impl_->port(); }
void HttpServer::Stop(std::chrono::milliseconds drain) { impl_->Stop(drain); }
size_t HttpServer::connections() const { return impl_->connections(); }

}  // namespace bloomery::serve
