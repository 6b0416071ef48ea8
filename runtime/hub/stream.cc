#include "runtime/hub/stream.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/error.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace bloomery::hub {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Where distributions keep the roots: Debian, Ubuntu, Arch, Gentoo; Fedora, RHEL; their newer
// place; openSUSE; Alpine. A bundle runs on any of them.
constexpr std::array<const char*, 5> kRootFiles{"/etc/ssl/certs/ca-certificates.crt",
                                                "/etc/pki/tls/certs/ca-bundle.crt",
                                                "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                                "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

[[noreturn]] void Fail(const std::string& what) { throw NetworkError(ErrorKind::kDownload, what); }

std::string ErrnoText(int number) { return std::generic_category().message(number); }

std::string TlsReason() {
  const unsigned long code = ERR_get_error();  // NOLINT(google-runtime-int): OpenSSL's type
  ERR_clear_error();
  if (code == 0) return "the other side closed the connection";
  const char* reason = ERR_reason_error_string(code);
  return reason == nullptr ? "TLS error " + std::to_string(code) : reason;
}

struct ContextDeleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using Context = std::unique_ptr<SSL_CTX, ContextDeleter>;

struct SslDeleter {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

void LoadRoots(SSL_CTX* context, const std::string& ca_file) {
  if (!ca_file.empty()) {
    if (SSL_CTX_load_verify_file(context, ca_file.c_str()) != 1) {
      throw Error(ErrorKind::kNoInput, "SSL_CERT_FILE " + Printable(ca_file) + ": " + TlsReason());
    }
    return;
  }
  SSL_CTX_set_default_verify_paths(context);
  for (const char* path : kRootFiles) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;
    if (SSL_CTX_load_verify_file(context, path) == 1) break;
  }
  ERR_clear_error();
}

Context MakeContext(const std::string& ca_file) {
  Context context(SSL_CTX_new(TLS_client_method()));
  if (!context) throw Error(ErrorKind::kInternal, "no TLS context: " + TlsReason());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context.get(), SSL_MODE_AUTO_RETRY | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  LoadRoots(context.get(), ca_file);
  return context;
}

bool IsAddress(const std::string& host) {
  in6_addr parsed{};
  return ::inet_pton(AF_INET, host.c_str(), &parsed) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

}  // namespace

class Stream::Impl {
 public:
  Impl(const Url& url, StreamOptions options) : options_(std::move(options)), url_(url) {
    const bool tunnel = url.tls && options_.proxy.has_value();
    const Url& peer = tunnel ? *options_.proxy : url;
    try {
      Connect(peer);
      if (tunnel) OpenTunnel();
      if (url.tls) Handshake();
    } catch (...) {
      Close();
      throw;
    }
  }
  ~Impl() { Close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  size_t Read(void* data, size_t bytes, boost::system::error_code& error) {
    while (true) {
      size_t got = 0;
      const Step step = ssl_ ? TlsStep(SSL_read_ex(ssl_.get(), data, bytes, &got))
                             : PlainStep(::recv(fd_, data, bytes, 0), POLLIN, got);
      if (step == Step::kDone) return got;
      if (step == Step::kEnd) {
        error = boost::asio::error::eof;
        return 0;
      }
      if (!GoOn(step, error)) return 0;
    }
  }

  size_t Write(const void* data, size_t bytes, boost::system::error_code& error) {
    while (true) {
      size_t sent = 0;
      const Step step = ssl_ ? TlsStep(SSL_write_ex(ssl_.get(), data, bytes, &sent))
                             : PlainStep(::send(fd_, data, bytes, MSG_NOSIGNAL), POLLOUT, sent);
      if (step == Step::kDone) return sent;
      if (!GoOn(step, error)) return 0;
    }
  }

  const std::string& failure() const { return failure_; }

 private:
  enum class Step { kDone, kEnd, kRead, kWrite, kFailed };

  void Connect(const Url& peer) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int failed = ::getaddrinfo(peer.host.c_str(), peer.port.c_str(), &hints, &found);
    if (failed != 0) Fail("cannot resolve " + peer.host + ": " + ::gai_strerror(failed));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
    int error = 0;
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      error = ConnectTo(*at);
      if (error == 0) return;
    }
    Fail("cannot connect to " + peer.host + ":" + peer.port + ": " + ErrnoText(error));
  }

  int ConnectTo(const addrinfo& at) {
    Close();
    fd_ = ::socket(at.ai_family, at.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at.ai_protocol);
    if (fd_ < 0) return errno;
    int error = ::connect(fd_, at.ai_addr, at.ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      if (!Wait(POLLOUT, options_.connect_time_max)) return ETIMEDOUT;
      socklen_t size = sizeof(error);
      ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    return error;
  }

  void OpenTunnel() {
    const std::string to = url_.host + ":" + url_.port;
    std::string request = "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n";
    if (!options_.proxy_authorization.empty()) {
      request += "Proxy-Authorization: " + options_.proxy_authorization + "\r\n";
    }
    request += "\r\n";
    boost::system::error_code error;
    for (size_t at = 0; at < request.size();) {
      at += Write(request.data() + at, request.size() - at, error);
      if (error) Fail("the proxy " + options_.proxy->host + ": " + failure_);
    }
    // One byte a read: what follows the head is the origin's.
    std::string head;
    while (!head.ends_with("\r\n\r\n")) {
      char byte = 0;
      if (Read(&byte, 1, error) == 0) {
        Fail("the proxy " + options_.proxy->host + " closed the connection");
      }
      head.push_back(byte);
      if (head.size() > limits::kHubHeadBytesMax) break;
    }
    const std::string status = head.substr(0, head.find('\r'));
    if (!status.starts_with("HTTP/1.") || status.substr(8, 4) != " 200") {
      Fail("the proxy " + options_.proxy->host + " answered: " + Printable(status));
    }
  }

  void Handshake() {
    context_ = MakeContext(options_.ca_file);
    ssl_.reset(SSL_new(context_.get()));
    if (!ssl_) throw Error(ErrorKind::kInternal, "no TLS connection: " + TlsReason());
    bool set = false;
    if (IsAddress(url_.host)) {
      X509_VERIFY_PARAM* param = SSL_get0_param(ssl_.get());
      set = X509_VERIFY_PARAM_set1_ip_asc(param, url_.host.c_str()) == 1;
    } else {
      set = SSL_set1_host(ssl_.get(), url_.host.c_str()) == 1 &&
            SSL_set_tlsext_host_name(ssl_.get(), url_.host.c_str()) == 1;
    }
    if (!set || SSL_set_fd(ssl_.get(), fd_) != 1) Fail("TLS for " + url_.host + ": " + TlsReason());
    while (true) {
      const Step step = TlsStep(SSL_connect(ssl_.get()));
      if (step == Step::kDone) return;
      if (step == Step::kFailed || step == Step::kEnd) {
        Fail("TLS with " + url_.host + " failed: " + HandshakeReason());
      }
      if (!Wait(step == Step::kRead ? POLLIN : POLLOUT, options_.connect_time_max)) {
        Fail("TLS with " + url_.host + " failed: it does not answer");
      }
    }
  }

  std::string HandshakeReason() const {
    const auto verdict = SSL_get_verify_result(ssl_.get());
    if (verdict == X509_V_OK) return failure_;
    return std::string("its certificate is not trusted (") +
           X509_verify_cert_error_string(verdict) +
           "); SSL_CERT_FILE names other roots than the machine's";
  }

  // Of a call of OpenSSL that gave `result`.
  Step TlsStep(int result) {
    if (result > 0) return Step::kDone;
    const int saved = errno;
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return Step::kRead;
      case SSL_ERROR_WANT_WRITE:
        return Step::kWrite;
      case SSL_ERROR_ZERO_RETURN:
        return Step::kEnd;
      case SSL_ERROR_SYSCALL:
        failure_ = saved == 0 ? "the connection was cut" : ErrnoText(saved);
        ERR_clear_error();
        return Step::kFailed;
      default:
        failure_ = TlsReason();
        return Step::kFailed;
    }
  }

  Step PlainStep(ssize_t count, short events, size_t& moved) {
    if (count > 0) {
      moved = static_cast<size_t>(count);
      return Step::kDone;
    }
    if (count == 0) return Step::kEnd;
    if (errno == EAGAIN || errno == EINTR) return events == POLLIN ? Step::kRead : Step::kWrite;
    failure_ = ErrnoText(errno);
    return Step::kFailed;
  }

  // Waits for what a step wants; false where the stream is over.
  bool GoOn(Step step, boost::system::error_code& error) {
    if (step == Step::kRead || step == Step::kWrite) {
      if (Wait(step == Step::kRead ? POLLIN : POLLOUT, options_.silence_max)) return true;
      const auto seconds = std::chrono::ceil<std::chrono::seconds>(options_.silence_max).count();
      failure_ = "silent for " + std::to_string(seconds) + " s";
      error = boost::asio::error::timed_out;
      return false;
    }
    error = boost::asio::error::connection_reset;
    return false;
  }

  bool Wait(short events, std::chrono::milliseconds time) const {
    const auto end = SteadyClock::now() + time;
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - SteadyClock::now());
      std::array<pollfd, 2> polled{{{fd_, events, 0}, {options_.interrupt_fd, POLLIN, 0}}};
      const int ready = ::poll(polled.data(), polled.size(),
                               static_cast<int>(std::max<int64_t>(0, int64_t{left.count()})));
      if (ready < 0 && errno == EINTR) continue;
      if (ready > 0 && polled[1].revents != 0) throw Interrupted();
      return ready > 0;
    }
  }

  void Close() {
    ssl_.reset();
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  StreamOptions options_;
  Url url_;
  int fd_ = -1;
  Context context_;
  std::unique_ptr<SSL, SslDeleter> ssl_;
  std::string failure_ = "the connection was cut";
};

Stream::Stream(const Url& url, const StreamOptions& options)
    : impl_(std::make_unique<Impl>(url, options)) {}
Stream::~Stream() = default;

size_t Stream::Read(void* data, size_t bytes, boost::system::error_code& error) {
  error = {};
  return impl_->Read(data, bytes, error);
}

size_t Stream::Write(const void* data, size_t bytes, boost::system::error_code& error) {
  error = {};
  return impl_->Write(data, bytes, error);
}

const std::string& Stream::failure() const { return impl_->failure(); }

}  // namespace bloomery::hub
