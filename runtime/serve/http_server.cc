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
#include <cerrno>
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

constexpr std::string_view kUnixMark = "unix:";

bool IsUnixPath(const std::string& host) {
  return host.starts_with(kUnixMark) || host.ends_with(".sock");
}

std::string UnixPath(const std::string& host) {
  return host.starts_with(kUnixMark) ? host.substr(kUnixMark.size()) : host;
}

void CheckHosts(const HttpOptions& options) {
  const auto tcp = std::count_if(options.hosts.begin(), options.hosts.end(),
                                 [](const std::string& h) { return !IsUnixPath(h); });
  if (options.hosts.empty()) throw Error(ErrorKind::kUsage, "--host: no host given");
  if (options.port == 0 && tcp > 1) {
    throw Error(ErrorKind::kUsage, "--port 0 cannot be used with several --host addresses");
  }
}

std::shared_ptr<TlsContext> TlsOf(const HttpOptions& options) {
  if (options.tls_certificates.empty() && options.tls_key.empty()) return nullptr;
  return MakeTlsContext(options.tls_certificates, options.tls_key);
}

asio::ip::tcp::endpoint Resolve(asio::io_context& io, const std::string& host, int port) {
  ErrorCode error;
  asio::ip::tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(host, std::to_string(port), asio::ip::tcp::resolver::passive, error);
  if (error || found.empty()) {
    throw BindError("--host " + host + ": cannot be resolved: " + error.message());
  }
  return found.begin()->endpoint();
}

asio::local::stream_protocol::endpoint UnixEndpoint(const std::string& path) {
  try {
    return asio::local::stream_protocol::endpoint(path);
  } catch (const boost::system::system_error&) {
    throw BindError("--host " + path + ": the socket's path is too long");
  }
}

[[noreturn]] void RefuseToListen(const std::string& what, const ErrorCode& error) {
  const bool taken = error == asio::error::address_in_use;
  throw BindError("cannot listen on " + what + ": " + error.message() +
                  (taken ? "; another program listens there: stop it, or give another --port or "
                           "--host"
                         : ""));
}

enum class UnixState { kFree, kStale, kTaken };

// A crash leaves its socket behind: nobody listens on it, and its name cannot be bound again. What
// is no socket is never taken for one.
UnixState StateOf(asio::io_context& io, const std::string& path) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) return UnixState::kFree;
  if (!S_ISSOCK(found.st_mode)) return UnixState::kTaken;
  asio::local::stream_protocol::socket probe(io);
  ErrorCode error;
  probe.connect(UnixEndpoint(path), error);
  return error == asio::error::connection_refused ? UnixState::kStale : UnixState::kTaken;
}

// Binds, without listening.
std::unique_ptr<Acceptor> Bind(asio::io_context& io, const HttpOptions& options,
                               const Protocol::endpoint& endpoint, const std::string& what) {
  auto acceptor = std::make_unique<Acceptor>(asio::make_strand(io));
  ErrorCode error;
  acceptor->open(Protocol(endpoint.protocol().family(), 0), error);
  if (!error) acceptor->set_option(asio::socket_base::reuse_address(true), error);
  if (!error && options.reuse_port) {
    using ReusePort = asio::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>;
    acceptor->set_option(ReusePort(true), error);
  }
  if (!error) acceptor->bind(endpoint, error);
  if (error) RefuseToListen(what, error);
  return acceptor;
}

std::string NameOf(const std::string& host, const asio::ip::tcp::endpoint& endpoint) {
  return host + " port " + std::to_string(endpoint.port());
}

// Whether a socket could be made in the folder of `path`.
void CheckUnix(asio::io_context& io, const std::string& path) {
  UnixEndpoint(path);
  if (StateOf(io, path) == UnixState::kTaken) {
    RefuseToListen(path, make_error_code(asio::error::address_in_use));
  }
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    RefuseToListen(path, ErrorCode(errno, boost::system::system_category()));
  }
}

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<HttpServer::Impl> {
 public:
  Impl(HttpOptions options, HttpCallbacks callbacks)
      : shared_(std::make_shared<Shared>()), work_(asio::make_work_guard(shared_->io)) {
    shared_->options = std::move(options);
    shared_->callbacks = std::move(callbacks);
    const HttpOptions& o = shared_->options;
    waiting_max_ = WaitingMax();
    CheckHosts(o);
    shared_->tls = TlsOf(o);
    for (const std::string& host : o.hosts) {
      if (IsUnixPath(host)) {
        ListenUnix(UnixPath(host));
      } else {
        ListenTcp(host);
      }
    }
  }

  void Start() {
    for (Listener& listener : listeners_) {
      asio::post(listener.acceptor->get_executor(),
                 [self = shared_from_this(), &listener] { self->Accept(listener); });
    }
    const int threads = std::max(1, shared_->options.threads);
    const auto few = static_cast<size_t>(threads);
    shared_->small_lane.Start(few, few + shared_->options.slow_handlers_max);
    shared_->long_lane.Start(1, 1 + shared_->options.slow_long_handlers_max);
    shared_->large_lane.Start(1, 1);
    for (int i = 0; i < threads; ++i) {
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
    for (Listener& listener : listeners_) {
      asio::post(listener.acceptor->get_executor(), [self = shared_from_this(), &listener] {
        ErrorCode ignored;
        listener.acceptor->close(ignored);
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
    // Before the pool: what their handlers answer goes through it.
    shared_->small_lane.Stop();
    shared_->long_lane.Stop();
    shared_->large_lane.Stop();
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
  struct Listener {
    std::unique_ptr<Acceptor> acceptor;
    std::shared_ptr<TlsContext> tls;  // null: plain
  };

  void ListenTcp(const std::string& host) {
    const auto endpoint = Resolve(shared_->io, host, shared_->options.port);
    Listen(endpoint, NameOf(host, endpoint), shared_->tls);
    const auto bound = listeners_.back().acceptor->local_endpoint();
    asio::ip::tcp::endpoint local;
    std::memcpy(local.data(), bound.data(), bound.size());
    const std::string address = local.address().to_string();
    const std::string shown = local.address().is_v6() ? "[" + address + "]" : address;
    if (port_ == 0) port_ = local.port();
    urls_.push_back((shared_->tls ? "https://" : "http://") + shown + ":" +
                    std::to_string(local.port()));
  }

  void ListenUnix(const std::string& path) {
    if (StateOf(shared_->io, path) == UnixState::kStale && ::unlink(path.c_str()) == 0) {
      LOG(WARNING) << path << ": removed a socket that nobody listens on";
    }
    Listen(UnixEndpoint(path), path, nullptr);
    unix_paths_.push_back(path);
    urls_.push_back("unix:" + path);
  }

  void Listen(const Protocol::endpoint& endpoint, const std::string& what,
              std::shared_ptr<TlsContext> tls) {
    auto acceptor = Bind(shared_->io, shared_->options, endpoint, what);
    ErrorCode error;
    acceptor->listen(asio::socket_base::max_listen_connections, error);
    if (error) RefuseToListen(what, error);
    listeners_.push_back({std::move(acceptor), std::move(tls)});
  }

  void Accept(Listener& listener) {
    listener.acceptor->async_accept(
        asio::make_strand(shared_->io),
        [self = shared_from_this(), &listener](const ErrorCode& error, Socket socket) {
          self->OnAccept(listener, error, std::move(socket));
        });
  }

  void OnAccept(Listener& listener, const ErrorCode& error, Socket socket) {
    Acceptor& acceptor = *listener.acceptor;
    if (!acceptor.is_open() || shared_->Stopping()) return;
    if (error) {
      auto pause = std::make_shared<asio::steady_timer>(
          acceptor.get_executor(), std::chrono::milliseconds(limits::kAcceptRetryMilliseconds));
      pause->async_wait([self = shared_from_this(), &listener, pause](const ErrorCode&) {
        if (listener.acceptor->is_open()) self->Accept(listener);
      });
      return;
    }
    Take(std::move(socket), listener.tls);
    Accept(listener);
  }

  void Take(Socket socket, const std::shared_ptr<TlsContext>& tls) {
    ErrorCode ignored;
    socket.set_option(asio::ip::tcp::no_delay(true), ignored);  // fails on UNIX sockets: no matter
    const auto connection = std::make_shared<Connection>(shared_, std::move(socket), tls);
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
  std::vector<Listener> listeners_;  // does not change once the threads run
  std::vector<std::thread> threads_;
  std::vector<std::string> urls_;
  std::vector<std::string> unix_paths_;
  int port_ = 0;
  std::atomic<bool> stopped_{false};
};

HttpServer::HttpServer(HttpOptions options, HttpCallbacks callbacks)
    : impl_(std::make_shared<Impl>(std::move(options), std::move(callbacks))) {}
HttpServer::~HttpServer() { impl_->Stop(std::chrono::milliseconds(0)); }
void HttpServer::Check(const HttpOptions& options) {
  CheckHosts(options);
  TlsOf(options);
  asio::io_context io;
  for (const std::string& host : options.hosts) {
    if (IsUnixPath(host)) {
      CheckUnix(io, UnixPath(host));
    } else {
      const auto endpoint = Resolve(io, host, options.port);
      Bind(io, options, endpoint, NameOf(host, endpoint));
    }
  }
}

void HttpServer::Start() { impl_->Start(); }
const std::vector<std::string>& HttpServer::urls() const { return impl_->urls(); }
int HttpServer::port() const { return impl_->port(); }
void HttpServer::Stop(std::chrono::milliseconds drain) { impl_->Stop(drain); }
size_t HttpServer::connections() const { return impl_->connections(); }

}  // namespace bloomery::serve
