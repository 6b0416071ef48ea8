// Load on a whole server, as clients see it: starts bloomery-serve, asks every request once alone,
// finds the peak with closed loops, then sends an open loop at a multiple of it over the same
// number of connections, and compares every text with that of the request alone. With --turns, open
// loop and closed loop take turns, for machines whose other work comes and goes. Then, beside one
// good client, sockets that send and read slowly. Ends with 1 where a bound is missed.
//
//   serve_load bin/bloomery-serve [--seconds 300] [--peak-seconds 20] [--connections 64]
//     [--factor 3] [--turns 1] [--slow 2000] [--slow-seconds 60] [--goodput-min 0.95]
//     [--rss-max 1.01]
//     [--slow-max 1.10] [--slow-bodies 1] [-- server flags]
// With --slow-bodies 1 the slow sockets all send a small body.
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/json.h"
#include "tests/unit/serve/client.h"

namespace bloomery {
namespace {

using Clock = std::chrono::steady_clock;
using test::Answer;
using test::Client;

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

struct Options {
  std::string server;
  std::vector<std::string> flags{"-np", "8", "-c", "8192", "--cache-ram", "64"};
  std::map<std::string, double> numbers{
      {"--seconds", 300},  {"--peak-seconds", 20}, {"--connections", 64},  {"--factor", 3},
      {"--turns", 1},      {"--slow", 2000},       {"--slow-seconds", 60}, {"--goodput-min", 0.95},
      {"--rss-max", 1.01}, {"--slow-max", 1.10},   {"--slow-bodies", 0}};
  double operator[](const char* name) const { return numbers.at(name); }
};

Options ReadOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") {
      options.flags.assign(argv + i + 1, argv + argc);
      break;
    }
    if (options.numbers.contains(word) && i + 1 < argc) {
      options.numbers[word] = std::atof(argv[++i]);
    } else if (options.server.empty() && !word.starts_with("-")) {
      options.server = word;
    } else {
      throw std::runtime_error("unknown argument " + word);
    }
  }
  if (options.server.empty()) throw std::runtime_error("the first argument is the server");
  return options;
}

// The server as a child of this process.
class Server {
 public:
  Server(const std::string& program, std::vector<std::string> flags) {
    int out[2];
    if (::pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    flags.insert(flags.begin(), {program, "--port", "0"});
    std::vector<char*> argv;
    for (std::string& flag : flags) argv.push_back(flag.data());
    argv.push_back(nullptr);
    const int failed =
        ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    if (failed != 0) throw std::runtime_error("cannot start " + program);
    std::string said;
    char byte = 0;
    while (::read(out[0], &byte, 1) == 1) {
      said += byte;
      const size_t at = said.find("listening on http://");
      if (byte == '\n' && at != std::string::npos) {
        port_ = std::atoi(said.c_str() + said.rfind(':') + 1);
        break;
      }
    }
    out_ = out[0];
    if (port_ == 0) throw std::runtime_error("the server did not start: " + said);
  }
  ~Server() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
    ::close(out_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return port_; }
  double RssMib() const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmRSS:")) return std::atof(line.c_str() + 6) / 1024;
    }
    return 0;
  }
  // Seconds of processor time so far.
  double CpuSeconds() const {
    std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
    std::string text;
    std::getline(stat, text);
    text.erase(0, text.rfind(')') + 2);  // from the state on: utime and stime are words 12 and 13
    double ticks = 0;
    for (int word = 1; word <= 13; ++word) {
      if (word >= 12) ticks += std::atof(text.c_str());
      text.erase(0, text.find(' ') + 1);
    }
    return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  int Descriptors() const {
    int count = -2;  // "." and ".."
    DIR* folder = ::opendir(("/proc/" + std::to_string(pid_) + "/fd").c_str());
    if (folder == nullptr) return 0;
    while (::readdir(folder) != nullptr) ++count;
    ::closedir(folder);
    return count;
  }
  // Descriptors once they are down to `most`, or after `seconds`.
  int DescriptorsDownTo(int most, int seconds) const {
    const auto end = Clock::now() + std::chrono::seconds(seconds);
    while (Descriptors() > most && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return Descriptors();
  }

 private:
  pid_t pid_ = -1;
  int port_ = 0;
  int out_ = -1;
};

struct Request {
  std::string bytes;
  bool stream = false;
  std::string text;  // that it has alone
  int tokens = 0;
};

std::string TextOf(const Request& request, const Answer& answer, int* tokens) {
  if (!answer.complete) throw std::runtime_error("an answer was cut off");
  if (!request.stream) {
    const rapidjson::Document body = ParseJson(answer.body, "answer");
    *tokens = body["tokens_predicted"].GetInt();
    return body["content"].GetString();
  }
  std::string text;
  for (size_t at = 0; (at = answer.body.find("data: ", at)) != std::string::npos;) {
    at += 6;
    const size_t end = answer.body.find("\n\n", at);
    const rapidjson::Document event = ParseJson(answer.body.substr(at, end - at), "event");
    if (event.HasMember("error")) throw std::runtime_error(answer.body.substr(at, end - at));
    text += event["content"].GetString();
    *tokens = event["tokens_predicted"].GetInt();
  }
  return text;
}

// The same each time: greedy, or with a seed; some share their beginning, half are streamed.
std::vector<Request> MakeRequests(int port) {
  static constexpr const char* kPlaces[] = {"Japan", "France", "Italy",  "Iceland",
                                            "Peru",  "Kenya",  "Norway", "Chile"};
  static constexpr const char* kForms[] = {"The capital of ", "What is said of ", "A story of ",
                                           "The rivers and the mountains of "};
  std::vector<Request> requests;
  for (int i = 0; i < 96; ++i) {
    Request request;
    request.stream = i % 2 == 0;
    std::string prompt = std::string(kForms[i % 4]) + kPlaces[(i / 4) % 8];
    for (int k = 0; k < (i % 7) * 6; ++k) prompt += ", then " + std::to_string(i + k);
    const std::string body =
        R"({"prompt": ")" + prompt + R"(", "ignore_eos": true, "n_predict": )" +
        std::to_string(8 + (i * 5) % 48) + R"(, "seed": )" + std::to_string(i) +
        R"(, "temperature": )" + (i % 3 == 0 ? "0" : "0.9") + R"(, "stream": )" +
        (request.stream ? "true}" : "false}");
    request.bytes = test::RequestText("POST", "/completion", body);
    const Answer answer = [&] {
      Client client(port);
      client.Send(request.bytes);
      return client.Read();
    }();
    if (answer.status != 200) throw std::runtime_error("alone: " + answer.body);
    request.text = TextOf(request, answer, &request.tokens);
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Outcome {
  double seconds = 0;
  double cpu_seconds = 0;  // of the server
  int64_t right = 0;
  int64_t right_tokens = 0;
  int64_t refused = 0;   // 503 with Retry-After
  int64_t not_sent = 0;  // due while every connection was busy
  std::vector<double> latencies;
  std::string wrong;  // the first answer that was

  double goodput() const { return static_cast<double>(right_tokens) / seconds; }
  double per_cpu_second() const { return static_cast<double>(right_tokens) / cpu_seconds; }
  void Add(Outcome&& other) {
    seconds += other.seconds;
    cpu_seconds += other.cpu_seconds;
    right += other.right;
    right_tokens += other.right_tokens;
    refused += other.refused;
    not_sent += other.not_sent;
    latencies.insert(latencies.end(), other.latencies.begin(), other.latencies.end());
    std::ranges::sort(latencies);
    if (wrong.empty()) wrong = std::move(other.wrong);
  }
  double percentile(double part) const {
    if (latencies.empty()) return 0;
    return latencies[static_cast<size_t>(part * static_cast<double>(latencies.size() - 1))];
  }
};

class Load {
 public:
  Load(int port, const std::vector<Request>& requests, double seconds, double rate)
      : port_(port),
        requests_(requests),
        rate_(rate),
        begin_(Clock::now()),
        end_(begin_ +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {
    outcome_.seconds = seconds;
  }

  Outcome Run(int connections) {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(connections));
    for (int i = 0; i < connections; ++i) threads.emplace_back([this] { Work(); });
    for (std::thread& thread : threads) thread.join();
    std::ranges::sort(outcome_.latencies);
    return std::move(outcome_);
  }

 private:
  void Work() {
    std::unique_ptr<Client> client;
    while (true) {
      int64_t number = next_++;
      if (!AwaitTurn(number)) return;
      const Request& request = requests_[static_cast<size_t>(number) % requests_.size()];
      try {
        if (!client) client = std::make_unique<Client>(port_);
        const auto sent = Clock::now();
        if (sent >= end_) return;
        client->Send(request.bytes);
        const Answer answer = client->Read();
        Record(request, answer, Seconds(Clock::now() - sent));
        if (answer.headers.contains("connection") && answer.headers.at("connection") == "close") {
          client.reset();
        }
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex_);
        outcome_.wrong = error.what();
        return;
      }
    }
  }

  // Open loop: waits until the arrival is due; one that was due while all were busy is passed over.
  bool AwaitTurn(int64_t& number) {
    while (rate_ > 0) {
      const auto due =
          begin_ + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(static_cast<double>(number) / rate_));
      if (due >= end_) return false;
      if (Clock::now() - due < std::chrono::milliseconds(20)) {
        std::this_thread::sleep_until(due);
        break;
      }
      ++not_sent_;
      number = next_++;
    }
    return Clock::now() < end_;
  }

  void Record(const Request& request, const Answer& answer, double latency) {
    const bool in_time = Clock::now() < end_;
    int tokens = 0;
    const std::string text = answer.status == 200 ? TextOf(request, answer, &tokens) : "";
    const std::lock_guard lock(mutex_);
    outcome_.not_sent = not_sent_;
    if (answer.status == 503 && answer.headers.contains("retry-after")) {
      ++outcome_.refused;
    } else if (answer.status != 200) {
      outcome_.wrong = std::to_string(answer.status) + " " + answer.body;
    } else if (text != request.text || tokens != request.tokens) {
      outcome_.wrong = "'" + text + "' instead of '" + request.text + "'";
    } else if (in_time) {
      ++outcome_.right;
      outcome_.right_tokens += tokens;
      outcome_.latencies.push_back(latency);
    }
  }

  const int port_;
  const std::vector<Request>& requests_;
  const double rate_;
  const Clock::time_point begin_;
  const Clock::time_point end_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> not_sent_{0};
  std::mutex mutex_;
  Outcome outcome_;
};

// Sockets that are in no hurry: a fifth each sends nothing, a head, a large and a small body a byte
// at a time, and asks without reading; or all send a small body. Each is touched every five
// seconds, and opened again where it was closed.
class SlowSockets {
 public:
  SlowSockets(int port, int count, bool bodies)
      : port_(port), bodies_(bodies), sockets_(static_cast<size_t>(count), -1) {
    for (size_t i = 0; i < sockets_.size(); ++i) Open(i);
    thread_ = std::jthread([this](const std::stop_token& stop) { Drip(stop); });
  }
  ~SlowSockets() {
    thread_.request_stop();
    thread_.join();
    for (const int fd : sockets_) ::close(fd);
  }
  SlowSockets(const SlowSockets&) = delete;
  SlowSockets& operator=(const SlowSockets&) = delete;

 private:
  void Open(size_t i) {
    if (sockets_[i] >= 0) ::close(sockets_[i]);
    sockets_[i] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(sockets_[i], reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return;
    const std::string_view first = KindOf(i).first;
    if (!first.empty()) ::send(sockets_[i], first.data(), first.size(), MSG_NOSIGNAL);
  }

  void Drip(const std::stop_token& stop) {
    constexpr size_t kRounds = 250;  // of 20 ms: five seconds
    for (size_t round = 0; !stop.stop_requested(); ++round) {
      for (size_t i = round % kRounds; i < sockets_.size(); i += kRounds) {
        char byte = 'a';
        const ssize_t n = KindOf(i).sends
                              ? ::send(sockets_[i], &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT)
                              : ::recv(sockets_[i], &byte, 1, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) Open(i);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  struct Kind {
    std::string_view first;
    bool sends;
  };
  const Kind& KindOf(size_t i) const {
    static constexpr Kind kKinds[] = {
        {"", false},
        {"POST /completion HTTP/1.1\r\nHost: x\r\nX-Slow: ", true},
        {"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", true},
        {"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", true},
        {"GET /props HTTP/1.1\r\nHost: x\r\n\r\n", false}};
    return kKinds[bodies_ ? 3 : i % std::size(kKinds)];
  }

  const int port_;
  const bool bodies_;
  std::vector<int> sockets_;
  std::jthread thread_;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

// Latencies of one good client with and without the slow sockets, in turns.
std::vector<double> GoodClient(int port, const std::vector<Request>& requests, double seconds,
                               bool fresh) {
  std::vector<double> latencies;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  Client kept(port);
  for (size_t i = 0; Clock::now() < end; ++i) {
    const Request& request = requests[i % 16];
    const auto begin = Clock::now();
    Answer answer;
    if (fresh) {
      Client client(port);
      client.Send(request.bytes);
      answer = client.Read();
    } else {
      kept.Send(request.bytes);
      answer = kept.Read();
    }
    latencies.push_back(Seconds(Clock::now() - begin));
    int tokens = 0;
    if (answer.status != 200 || TextOf(request, answer, &tokens) != request.text) {
      throw std::runtime_error("the good client got " + std::to_string(answer.status));
    }
  }
  return latencies;
}

bool Check(bool holds, const char* what) {
  std::printf("%s: %s\n", holds ? "holds" : "MISSED", what);
  return holds;
}

Outcome LoadFor(const Server& server, const std::vector<Request>& requests, double seconds,
                double rate, int connections) {
  const double before = server.CpuSeconds();
  Outcome outcome = Load(server.port(), requests, seconds, rate).Run(connections);
  outcome.cpu_seconds = server.CpuSeconds() - before;
  return outcome;
}

// MiB of the prompt cache, and its limit.
std::pair<double, double> CacheMib(const Server& server) {
  const std::string text = test::Fetch(server.port(), "GET", "/metrics").body;
  const auto value = [&](const std::string& name) {
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::atof(text.c_str() + at + name.size() + 2) / (1 << 20);
  };
  return {value("bloomery:prompt_cache_memory_bytes"),
          value("bloomery:prompt_cache_memory_bytes_max")};
}

// What the server may hold belongs to where it begins: the prompt cache is filled to its limit.
void FillCache(const Server& server, const std::vector<Request>& requests, const Options& options,
               int connections) {
  constexpr int kRoundsMax = 6;
  auto [held, most] = CacheMib(server);
  for (int round = 0; round < kRoundsMax && held < 0.9 * most; ++round) {
    LoadFor(server, requests, options["--peak-seconds"], 0, connections);
    std::tie(held, most) = CacheMib(server);
  }
  std::printf("prompt cache: %.1f of %.1f MiB\n", held, most);
}

struct Measured {
  Outcome peak;
  Outcome open;
  double rate = 0;
  double rss = 0, rss_after = 0;
  int descriptors = 0, descriptors_after = 0;
};

// False where a closed loop already gets a wrong answer.
bool Measure(const Server& server, const std::vector<Request>& requests, const Options& options,
             Measured& measured) {
  const int connections = static_cast<int>(options["--connections"]);
  measured.descriptors = server.Descriptors();
  int best = 0;
  for (const int clients : {8, 16, connections}) {
    Outcome closed = LoadFor(server, requests, options["--peak-seconds"], 0, clients);
    std::printf("closed loop, %d connections: %.1f requests/s, %.0f tokens/s, median %.0f ms\n",
                clients, static_cast<double>(closed.right) / closed.seconds, closed.goodput(),
                1e3 * closed.percentile(0.5));
    if (!closed.wrong.empty()) return Check(false, closed.wrong.c_str());
    if (best != 0 && closed.goodput() <= measured.peak.goodput()) continue;
    best = clients;
    measured.peak = std::move(closed);
  }
  measured.rate =
      options["--factor"] * static_cast<double>(measured.peak.right) / measured.peak.seconds;
  FillCache(server, requests, options, best);
  measured.rss = server.RssMib();
  const int turns = static_cast<int>(options["--turns"]);
  const double seconds = options["--seconds"] / turns;
  for (int turn = 0; turn < turns; ++turn) {
    if (turn > 0) measured.peak.Add(LoadFor(server, requests, seconds, 0, best));
    measured.open.Add(LoadFor(server, requests, seconds, measured.rate, connections));
  }
  measured.rss_after = server.RssMib();
  measured.descriptors_after = server.DescriptorsDownTo(measured.descriptors, 60);
  return measured.peak.wrong.empty() || Check(false, measured.peak.wrong.c_str());
}

bool RunLoad(const Server& server, const std::vector<Request>& requests, const Options& options) {
  Measured m;
  if (!Measure(server, requests, options, m)) return false;
  const Outcome& open = m.open;
  const double goodput = open.goodput() / m.peak.goodput();
  const double per_cpu = open.per_cpu_second() / m.peak.per_cpu_second();
  std::printf(
      "open loop, %.0f connections, %.1f requests/s for %.0f s: %lld right answers, %lld "
      "refused with Retry-After, %lld not sent (all connections busy)\n",
      options["--connections"], m.rate, open.seconds, static_cast<long long>(open.right),
      static_cast<long long>(open.refused), static_cast<long long>(open.not_sent));
  std::printf(
      "goodput %.1f tokens/s, at the peak %.1f: %.3f of it; a second of the server's "
      "processor time %.1f, at the peak %.1f: %.3f of it\n",
      open.goodput(), m.peak.goodput(), goodput, open.per_cpu_second(), m.peak.per_cpu_second(),
      per_cpu);
  std::printf(
      "latency median %.0f ms, 99 %% %.0f ms; RSS %.1f -> %.1f MiB: %.4f; descriptors %d "
      "-> %d\n",
      1e3 * open.percentile(0.5), 1e3 * open.percentile(0.99), m.rss, m.rss_after,
      m.rss_after / m.rss, m.descriptors, m.descriptors_after);
  bool good = Check(open.wrong.empty(), open.wrong.empty() ? "no wrong text" : open.wrong.c_str());
  good &= Check(goodput >= options["--goodput-min"], "goodput");
  good &= Check(m.rss_after <= options["--rss-max"] * m.rss, "RSS");
  good &= Check(m.descriptors_after <= m.descriptors, "descriptors back to the start");
  return good;
}

bool RunSlow(const Server& server, const std::vector<Request>& requests, const Options& options) {
  const int count = static_cast<int>(options["--slow"]);
  if (count == 0) return true;
  constexpr int kTurns = 6;
  const double seconds = options["--slow-seconds"] / (2 * kTurns);
  const bool bodies = options["--slow-bodies"] != 0;
  bool good = true;
  for (const bool fresh : {false, true}) {
    std::vector<double> without, with;
    for (int turn = 0; turn < kTurns; ++turn) {
      const auto plain = GoodClient(server.port(), requests, seconds / 2, fresh);
      without.insert(without.end(), plain.begin(), plain.end());
      const SlowSockets slow(server.port(), count, bodies);
      const auto beside = GoodClient(server.port(), requests, seconds / 2, fresh);
      with.insert(with.end(), beside.begin(), beside.end());
    }
    const double ratio = Median(with) / Median(without);
    std::printf("%d %s, a good client %s: median %.2f ms without, %.2f ms with = %.3f\n", count,
                bodies ? "slow bodies" : "slow sockets",
                fresh ? "that connects each time" : "on one connection", 1e3 * Median(without),
                1e3 * Median(with), ratio);
    good &= Check(ratio <= options["--slow-max"], "latency beside slow sockets");
  }
  return good;
}

int Main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Options options = ReadOptions(argc, argv);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const Server server(options.server, options.flags);
  const std::vector<Request> requests = MakeRequests(server.port());
  bool good = options["--seconds"] == 0 || RunLoad(server, requests, options);
  good &= RunSlow(server, requests, options);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace bloomery

int main(int argc, char** argv) {
  try {
    return bloomery::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "serve_load: %s\n", error.what());
    return 1;
  }
}
