// What the server adds to the engine: time to the first token, time between tokens, and what a
// grammar costs a token. Server, engine and clients are in this process, on the demo model (or -m
// FILE); engine and HTTP take turns, so that the machine's other work meets both.
//
//   serve_overhead [-m FILE] [--rounds 100] [--tokens 64] [--max-ms 1.0]
//
// Ends with 1 where the server adds more than --max-ms at a median.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/apps/program.h"
#include "runtime/apps/seat_loading.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/serve/server.h"

namespace bloomery {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double Quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<size_t>(at)];
}

// When each piece of text of one answer arrived, from the sending on.
struct Arrivals {
  double first = 0;
  double between = 0;  // the mean of this answer
};

Arrivals From(const std::vector<Clock::time_point>& at, Clock::time_point sent, int tokens) {
  if (at.size() < 2) throw std::runtime_error("fewer than two pieces of text");
  return {Milliseconds(at.front() - sent),
          Milliseconds(at.back() - at.front()) / static_cast<double>(tokens - 1)};
}

struct Series {
  std::vector<double> first;
  std::vector<double> between;
  void Add(const Arrivals& arrivals) {
    first.push_back(arrivals.first);
    between.push_back(arrivals.between);
  }
};

Arrivals OfEngine(engine::Engine& engine, engine::GenerateRequest request) {
  const int tokens = request.n_predict;
  std::vector<Clock::time_point> at;
  const auto sent = Clock::now();
  const auto generation = engine.Submit(std::move(request));
  while (const auto event = generation->Pop()) {
    if (std::holds_alternative<engine::Text>(*event)) at.push_back(Clock::now());
    if (std::holds_alternative<engine::Failed>(*event)) throw std::runtime_error("failed");
  }
  return From(at, sent, tokens);
}

// A keep-alive connection whose streams are timed by event.
class HttpClient {
 public:
  explicit HttpClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      throw std::runtime_error("cannot connect");
    }
  }
  ~HttpClient() { ::close(fd_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // `mark`: what an event with text has.
  Arrivals Stream(const std::string& path, const std::string& body, const std::string& mark,
                  int tokens) {
    const std::string bytes =
        "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body;
    std::vector<Clock::time_point> at;
    std::string answer;
    size_t seen = 0;
    const auto sent = Clock::now();
    Send(bytes);
    while (answer.find("\r\n0\r\n\r\n") == std::string::npos) {
      answer += Receive();
      const auto now = Clock::now();
      for (size_t next = 0; (next = answer.find(mark, seen)) != std::string::npos;) {
        seen = next + mark.size();
        at.push_back(now);
      }
      if (answer.starts_with("HTTP/1.1 2") || answer.size() < 12) continue;
      throw std::runtime_error(answer);
    }
    return From(at, sent, tokens);
  }

  std::string Post(const std::string& path, const std::string& body) {
    Send("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body);
    std::string answer;
    size_t head = std::string::npos;
    while ((head = answer.find("\r\n\r\n")) == std::string::npos) answer += Receive();
    const size_t length = std::stoul(answer.substr(answer.find("Content-Length: ") + 16));
    while (answer.size() < head + 4 + length) answer += Receive();
    return answer.substr(head + 4);
  }

 private:
  void Send(const std::string& bytes) {
    if (::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error("cannot send");
    }
  }
  std::string Receive() {
    char bytes[16384];
    const ssize_t count = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (count <= 0) throw std::runtime_error("the server closed");
    return {bytes, static_cast<size_t>(count)};
  }

  int fd_;
};

struct Options {
  std::string model;
  int rounds = 100;
  int tokens = 64;
  double max_ms = 1.0;
};

Options ReadOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string word = argv[i];
    if (word == "-m")
      options.model = argv[i + 1];
    else if (word == "--rounds")
      options.rounds = std::atoi(argv[i + 1]);
    else if (word == "--tokens")
      options.tokens = std::atoi(argv[i + 1]);
    else if (word == "--max-ms")
      options.max_ms = std::atof(argv[i + 1]);
    else
      throw std::runtime_error("unknown argument " + word);
  }
  return options;
}

bool Compare(const char* name, const Series& engine, const Series& server, double max_ms) {
  const double first = Quantile(server.first, 0.5) - Quantile(engine.first, 0.5);
  const double between = Quantile(server.between, 0.5) - Quantile(engine.between, 0.5);
  std::printf(
      "%s: first token %.3f ms (engine alone %.3f): +%.3f ms; between tokens %.4f ms (%.4f): "
      "%+.4f ms\n",
      name, Quantile(server.first, 0.5), Quantile(engine.first, 0.5), first,
      Quantile(server.between, 0.5), Quantile(engine.between, 0.5), between);
  return first <= max_ms && between <= max_ms;
}

// A stream beside long prompts: its longest wait for a token, and how long the prompts take.
void Gaps(engine::Engine& engine, const engine::GenerateRequest& stream,
          const engine::GenerateRequest& prompt, const char* name) {
  const auto generation = engine.Submit(stream);
  std::vector<double> gaps;
  auto last = Clock::now();
  double prompt_ms = 0;
  std::shared_ptr<engine::Generation> reader;
  while (const auto event = generation->Pop()) {
    if (!std::holds_alternative<engine::Text>(*event)) continue;
    const auto now = Clock::now();
    gaps.push_back(Milliseconds(now - last));
    last = now;
    if (gaps.size() == 8) reader = engine.Submit(prompt);
    if (reader == nullptr) continue;
    while (const auto other = reader->TryPop()) {
      if (const auto* finish = std::get_if<engine::Finish>(&*other)) {
        prompt_ms = finish->timings.prompt_ms;
        generation->Cancel();
      }
    }
  }
  gaps.erase(gaps.begin(), gaps.begin() + std::min<std::ptrdiff_t>(8, std::ssize(gaps)));
  std::printf("%s: gaps between tokens median %.1f ms, longest %.1f ms; the prompt took %.0f ms\n",
              name, Quantile(gaps, 0.5), Quantile(gaps, 1.0), prompt_ms);
}

int Main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Options options = ReadOptions(argc, argv);
  InitLogging(argv[0], LogLevel::kWarning);
  const std::string executable = apps::ExecutablePath();
  const std::string path = options.model.empty() ? apps::DemoModelPath(executable) : options.model;
  serve::ServeSettings settings;
  settings.port = 0;
  settings.parallel = 2;
  settings.context = 8192;
  serve::Server server(settings);
  const apps::ServedModel model(settings, path, executable, "");
  server.SetReady(model.seat());
  engine::Engine& engine = *model.seat().engine;
  const std::string url = server.urls().front();
  const int port = std::atoi(url.c_str() + url.rfind(':') + 1);
  HttpClient client(port);

  std::string text = "The capital of France";
  for (int i = 0; i < 40; ++i) text += ", then of a country with the number " + std::to_string(i);
  const std::string tail = R"(, "ignore_eos": true, "temperature": 0, "stream": true, )" +
                           (R"("n_predict": )" + std::to_string(options.tokens));
  const std::string completion = R"({"prompt": ")" + text + '"' + tail + "}";
  const std::string chat =
      R"({"messages": [{"role": "user", "content": ")" + text + R"("}])" + tail + "}";
  const std::string rendered =
      ParseJson(client.Post("/apply-template", chat), "prompt")["prompt"].GetString();
  const auto request_of = [&](const std::string& prompt) {
    engine::GenerateRequest request;
    request.prompt = model.seat().tokenizer->Tokenise(prompt, {.parse_special = true});
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.n_predict = options.tokens;
    return request;
  };
  struct Case {
    const char* name;
    std::string path, body, mark;
    engine::GenerateRequest request;
    Series engine, server;
  };
  Case cases[] = {
      {"/completion", "/completion", completion, "\"content\":\"", request_of(text), {}, {}},
      {"/v1/chat/completions",
       "/v1/chat/completions",
       chat,
       "\"content\":\"",
       request_of(rendered),
       {},
       {}}};
  for (int round = -3; round < options.rounds; ++round) {
    for (Case& each : cases) {
      const Arrivals alone = OfEngine(engine, each.request);
      const Arrivals served = client.Stream(each.path, each.body, each.mark, options.tokens);
      if (round < 0) continue;
      each.engine.Add(alone);
      each.server.Add(served);
    }
  }
  bool good = true;
  for (const Case& each : cases) {
    good &= Compare(each.name, each.engine, each.server, options.max_ms);
  }

  engine::GenerateRequest constrained = request_of("A list: ");
  engine::GenerateRequest free = constrained;
  constrained.grammar = model.seat().grammars->FromJsonSchema(
      R"({"type": "array", "minItems": 200, "items": {"type": "object", "properties":
          {"name": {"type": "string"}, "n": {"type": "integer"}}, "required": ["name", "n"]}})");
  constrained.n_predict = free.n_predict = 256;
  std::vector<double> ratios;
  for (int round = 0; round < options.rounds; ++round) {
    const double without = OfEngine(engine, free).between;
    const double with = OfEngine(engine, constrained).between;
    if (round > 2) ratios.push_back(with / without);
  }
  std::printf("a schema beside free text: %.4f of its time a token (quartiles %.4f to %.4f)\n",
              Quantile(ratios, 0.5), Quantile(ratios, 0.25), Quantile(ratios, 0.75));

  engine::GenerateRequest stream = request_of(text);
  stream.n_predict = 4000;
  engine::GenerateRequest prompt = request_of(text);
  while (prompt.prompt.size() < 3500) {
    prompt.prompt.insert(prompt.prompt.end(), prompt.prompt.begin(), prompt.prompt.begin() + 100);
  }
  prompt.prompt.resize(3500);
  prompt.cache_prompt = stream.cache_prompt = false;
  prompt.n_predict = 1;
  Gaps(engine, stream, prompt, "a stream beside a prompt of 3500 tokens");
  server.Stop(std::chrono::milliseconds(0));
  return good ? 0 : 1;
}

}  // namespace
}  // namespace bloomery

int main(int argc, char** argv) {
  try {
    return bloomery::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "serve_overhead: %s\n", error.what());
    return 1;
  }
}
