// The thread contract: which thread calls the host, that a plugin starts none of its own, and that
// what is marked [any] may be called from any.
#include <bloomery/chat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "runtime/apps/check_plugin/built_seat.h"
#include "runtime/apps/check_plugin/checking_host.h"
#include "runtime/apps/check_plugin/watched_model.h"
#include "runtime/base/limits.h"

namespace bloomery::apps::check {
namespace {

size_t ThreadsOfThisProcess() {
  size_t threads = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    ++threads;
  }
  return threads;
}

// One life of an instance, from create to destroy, told to `before` call by call.
void Live(const Subject& subject, CheckingHost& host,
          const std::function<void(const char* after)>& look) {
  host.SetCall("create");
  BuiltSeat seat(subject, OpenModel(subject), [&](const bl_host& inner) -> const bl_host& {
    return host.Wrap(inner);
  });  // create and describe
  host.SetCall(nullptr);
  look("create and describe");
  for (const int32_t rows : {1, 7, 512}) {
    host.SetCall("build");
    seat.BuildGraph(rows);
    host.SetCall(nullptr);
    look("build");
  }
  host.SetCall("destroy");
  seat.instance().Destroy();
  host.SetCall(nullptr);
  look("destroy");
}

void CallTheHostAsAllowed(const Subject& subject) {
  CheckingHost host;
  Live(subject, host, [&](const char* after) {
    Expect(host.complaint().empty(),
           std::string("by the end of ") + after + ": " + host.complaint());
  });
}

void ReadTheModelOnTheLoadThread(const Subject& subject) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const model::ModelFile model = OpenModel(subject);
  const plugin::HostModel host_model(model);
  WatchedModel watched(host_model.raw());
  CheckingHost host;
  host.SetCall("create");
  RawInstance instance(plugin, watched.raw(), limits::kPluginHostBytesMax,
                       [&](const bl_host& inner) -> const bl_host& { return host.Wrap(inner); });
  instance.Describe();
  Expect(watched.foreign_calls() == 0,
         "create or describe called " + std::to_string(watched.foreign_calls()) +
             " functions of bl_model from another thread than the load thread");
}

void StartNone(const Subject& subject) {
  const size_t before = ThreadsOfThisProcess();
  CheckingHost host;
  Live(subject, host, [&](const char* after) {
    // A thread that was joined may still be leaving.
    size_t now = ThreadsOfThisProcess();
    for (int wait = 0; wait < 100 && now > before; ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      now = ThreadsOfThisProcess();
    }
    Expect(now <= before, "after " + std::string(after) + " the process has " +
                              std::to_string(now - before) +
                              " threads more than before: threads are the host's");
  });
}

void AnswerExtensionsOnAny(const Subject& subject) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const void* table = plugin.table->get_extension(BL_EXT_CHAT_1);
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  std::vector<int> others(kThreads, 0);
  std::vector<std::thread> threads;
  for (int& differs : others) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        differs += plugin.table->get_extension(BL_EXT_CHAT_1) != table ? 1 : 0;
        differs += plugin.table->get_extension("bloomery.nothing/1") != nullptr ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Expect(std::ranges::count(others, 0) == kThreads,
         "get_extension gives other tables on other threads");
}

}  // namespace

std::vector<Check> ThreadChecks() {
  return {{"threads.call_the_host_as_allowed", true, CallTheHostAsAllowed},
          {"threads.read_the_model_on_the_load_thread", true, ReadTheModelOnTheLoadThread},
          {"threads.are_the_hosts", true, StartNone},
          {"threads.any_may_ask_for_extensions", false, AnswerExtensionsOnAny}};
}

}  // namespace bloomery::apps::check
