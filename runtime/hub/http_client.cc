#include "runtime/hub/http_client.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <charconv>
#include <utility>
#include <vector>

#include "runtime/base/utf8.h"

namespace bloomery::hub {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using Parser = http::response_parser<http::buffer_body>;

constexpr size_t kPieceBytes = size_t{256} << 10;

std::optional<uint64_t> NumberOf(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view FieldOf(const http::fields& head, http::field name) {
  const auto found = head.find(name);
  return found == head.end() ? std::string_view()
                             : std::string_view(found->value().data(), found->value().size());
}

// "bytes 100-199/200"
void ReadRange(std::string_view text, HttpAnswer& answer) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return;
  text.remove_prefix(kUnit.size());
  const size_t dash = text.find('-');
  const size_t slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos) return;
  answer.range_begin = NumberOf(text.substr(0, dash));
  answer.range_total = NumberOf(text.substr(slash + 1));
}

HttpAnswer AnswerOf(const Parser& parser, const Url& url) {
  const auto& head = parser.get();
  HttpAnswer answer;
  answer.status = head.result_int();
  if (parser.content_length()) answer.length = *parser.content_length();
  ReadRange(FieldOf(head, http::field::content_range), answer);
  if (const auto seconds = NumberOf(FieldOf(head, http::field::retry_after))) {
    answer.retry_after_s = static_cast<int>(
        std::min<uint64_t>(*seconds, static_cast<uint64_t>(limits::kHubRetrySecondsMax)));
  }
  answer.link = FieldOf(head, http::field::link);
  answer.url = url;
  return answer;
}

bool IsRedirect(int status) {
  constexpr std::array<int, 5> kStatuses{301, 302, 303, 307, 308};
  return std::find(kStatuses.begin(), kStatuses.end(), status) != kStatuses.end();
}

std::string RequestOf(const HttpGet& get, const Url& url, bool with_token,
                      const std::string& user_agent) {
  std::string text = "GET " + url.target + " HTTP/1.1\r\nHost: " + url.HostHeader() +
                     "\r\nUser-Agent: " + user_agent +
                     "\r\nAccept: */*\r\nAccept-Encoding: identity\r\nConnection: close\r\n";
  if (with_token && !get.token.empty()) text += "Authorization: Bearer " + get.token + "\r\n";
  if (get.from > 0) text += "Range: bytes=" + std::to_string(get.from) + "-\r\n";
  return text + "\r\n";
}

// One connection, one request, one answer.
class Exchange {
 public:
  Exchange(const Url& url, const StreamOptions& options) : url_(url), stream_(url, options) {
    parser_.header_limit(static_cast<uint32_t>(limits::kHubHeadBytesMax));
    parser_.body_limit(boost::none);
  }

  void Send(const std::string& request) {
    beast::error_code error;
    for (size_t at = 0; at < request.size();) {
      at += stream_.write_some(boost::asio::const_buffer(request.data() + at, request.size() - at),
                               error);
      if (error) Fail(error);
    }
  }

  HttpAnswer ReadHead() {
    beast::error_code error;
    http::read_header(stream_, buffer_, parser_, error);
    if (error) Fail(error);
    return AnswerOf(parser_, url_);
  }

  std::string Location() const {
    return std::string(FieldOf(parser_.get(), http::field::location));
  }

  // False where `take` has had enough.
  void ReadBody(const std::function<bool(std::span<const std::byte>)>& take) {
    std::vector<std::byte> piece(kPieceBytes);
    while (!parser_.is_done()) {
      parser_.get().body().data = piece.data();
      parser_.get().body().size = piece.size();
      parser_.get().body().more = true;
      beast::error_code error;
      http::read_some(stream_, buffer_, parser_, error);
      if (error == http::error::need_buffer) error = {};
      const size_t got = piece.size() - parser_.get().body().size;
      if (got > 0 && !take({piece.data(), got})) return;
      if (error) Fail(error);
    }
  }

 private:
  [[noreturn]] void Fail(const beast::error_code& error) {
    const std::string where = url_.host + ":" + url_.port;
    if (error == http::error::header_limit) {
      throw Error(ErrorKind::kDownload, where + ": the head of its answer is too large");
    }
    if (error == http::error::end_of_stream || error == http::error::partial_message) {
      throw NetworkError(ErrorKind::kDownload, where + ": the connection was cut");
    }
    if (error.category() == make_error_code(http::error::bad_version).category()) {
      throw Error(ErrorKind::kDownload, where + ": its answer is no HTTP: " + error.message());
    }
    throw NetworkError(ErrorKind::kDownload, where + ": " + stream_.failure());
  }

  Url url_;
  Stream stream_;
  beast::flat_buffer buffer_;
  Parser parser_;
};

std::string Base64(const std::string& text) {
  std::vector<unsigned char> out(4 * ((text.size() + 2) / 3) + 1);
  const int size = EVP_EncodeBlock(out.data(), reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  return {reinterpret_cast<const char*>(out.data()), static_cast<size_t>(size)};
}

// Whether a NO_PROXY list has the host or a domain above it.
bool IsListed(std::string_view list, std::string_view host) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view entry = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    while (entry.starts_with(" ")) entry.remove_prefix(1);
    while (entry.ends_with(" ")) entry.remove_suffix(1);
    if (entry == "*" || entry == host) return true;
    if (entry.starts_with(".")) entry.remove_prefix(1);
    if (!entry.empty() && host.ends_with(entry) && host.size() > entry.size() &&
        host[host.size() - entry.size() - 1] == '.') {
      return true;
    }
  }
  return false;
}

}  // namespace

HttpClient::HttpClient(HttpClientOptions options) : options_(std::move(options)) {}

std::string HttpClient::Variable(const char* lower, const char* upper) const {
  for (const char* name : {lower, upper}) {
    const auto found = options_.environment.find(name);
    if (found != options_.environment.end() && !found->second.empty()) return found->second;
  }
  return "";
}

StreamOptions HttpClient::OptionsFor(const Url& url) const {
  StreamOptions options;
  options.connect_time_max = options_.connect_time_max;
  options.silence_max = options_.silence_max;
  options.ca_file = Variable("SSL_CERT_FILE", "SSL_CERT_FILE");
  std::string proxy = Variable("https_proxy", "HTTPS_PROXY");
  if (proxy.empty() || !url.tls || IsListed(Variable("no_proxy", "NO_PROXY"), url.host)) {
    return options;
  }
  const size_t scheme = proxy.find("://");
  if (scheme == std::string::npos) proxy.insert(0, "http://");
  const size_t begin = proxy.find("://") + 3;
  if (const size_t at = proxy.rfind('@'); at != std::string::npos) {
    options.proxy_authorization = "Basic " + Base64(proxy.substr(begin, at - begin));
    proxy.erase(begin, at + 1 - begin);
  }
  options.proxy = ParseUrl(proxy, "HTTPS_PROXY");
  return options;
}

HttpAnswer HttpClient::Get(const HttpGet& get, const std::function<void(const HttpAnswer&)>& begin,
                           const std::function<void(std::span<const std::byte>)>& sink) {
  Url url = get.url;
  for (int hop = 0; hop <= limits::kHubRedirectsMax; ++hop) {
    Exchange exchange(url, OptionsFor(url));
    // Another host may be anybody's: signed addresses need no token.
    const bool own = url.Origin() == get.url.Origin();
    exchange.Send(RequestOf(get, url, own, options_.user_agent));
    HttpAnswer answer = exchange.ReadHead();
    if (IsRedirect(answer.status)) {
      const Url to = ResolveUrl(url, exchange.Location());
      if (url.tls && !to.tls) {
        throw Error(ErrorKind::kDownload, url.host + " redirects from https to http: refused");
      }
      url = to;
      continue;
    }
    if (answer.status / 100 == 2) {
      begin(answer);
      exchange.ReadBody([&](std::span<const std::byte> bytes) {
        sink(bytes);
        return true;
      });
    } else {
      exchange.ReadBody([&](std::span<const std::byte> bytes) {
        answer.error.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return answer.error.size() < limits::kHubErrorBytesMax;
      });
      answer.error = Printable(answer.error, 200);
    }
    return answer;
  }
  throw Error(ErrorKind::kDownload, get.url.host + ": more than " +
                                        std::to_string(limits::kHubRedirectsMax) + " redirects");
}

}  // namespace bloomery::hub
