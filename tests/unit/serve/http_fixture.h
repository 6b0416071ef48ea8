// A server whose handler is the test's.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "runtime/serve/http_server.h"
#include "tests/unit/serve/client.h"

namespace bloomery::serve {

class HttpServerTest : public ::testing::Test {
 protected:
  using Handler = std::function<void(std::shared_ptr<HttpExchange>)>;

  HttpServerTest() {
    options_.threads = 2;
    handler_ = [](const std::shared_ptr<HttpExchange>& exchange) {
      HttpResponse response;
      response.content_type = "text/plain";
      response.body = exchange->request().method + " " + exchange->request().path + " " +
                      exchange->request().body;
      exchange->Reply(response);
    };
  }

  int Start() {
    HttpCallbacks callbacks;
    callbacks.admit = [](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (request.path != "/refused") return std::nullopt;
      HttpResponse response;
      response.status = 401;
      return response;
    };
    callbacks.handle = [this](std::shared_ptr<HttpExchange> e) { handler_(std::move(e)); };
    callbacks.reserved = [](const HttpRequest& request) { return request.path == "/health"; };
    callbacks.refuse = [](int status, const std::string& message, const HttpRequest&) {
      HttpResponse response;
      response.status = status;
      response.body = message;
      return response;
    };
    callbacks.done = done_;
    server_ = std::make_unique<HttpServer>(options_, callbacks);
    server_->Start();
    return server_->port();
  }

  // Streams 64 MiB to a client that reads nothing; whether it is gone within 10 s.
  bool UnreadStreamIsCutOff() {
    std::promise<void> gone;
    handler_ = [&](const std::shared_ptr<HttpExchange>& exchange) {
      exchange->OnGone([&] { gone.set_value(); });
      exchange->BeginStream({}, 0);
      for (int i = 0; i < 64; ++i) exchange->Write(std::string(1 << 20, 'x'));
    };
    test::Client client(Start());
    client.Send(test::RequestText("GET", "/"));
    return gone.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  }

  HttpOptions options_;
  Handler handler_;
  std::function<void(const HttpRequest&, const HttpOutcome&)> done_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace bloomery::serve
