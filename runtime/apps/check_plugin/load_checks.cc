#include <bloomery/chat.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <map>
#include <string_view>

#include "runtime/apps/check_plugin/check.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/plugin/sized.h"
#include "runtime/text/pre_tokenizer.h"

namespace bloomery::apps::check {
namespace {

// A scan of a folder must stay quick. Time of the processor, so that a busy machine does not count.
constexpr auto kLoadTimeMax = std::chrono::seconds(1);

std::chrono::nanoseconds ProcessorTime() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

void Loads(const Subject& subject) {
  const auto start = ProcessorTime();
  plugin::LoadPlugin(subject.path);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(ProcessorTime() - start);
  Expect(took < kLoadTimeMax, "loading took " + std::to_string(took.count()) +
                                  " ms of processor time, at most 1000 are fine");
}

void StaysLocal(const Subject& subject) {
  plugin::LoadPlugin(subject.path);
  Expect(::dlsym(RTLD_DEFAULT, BL_PLUGIN_SYMBOL) == nullptr,
         "loading put " BL_PLUGIN_SYMBOL " into the global scope");
}

// What a process can look at of itself without help: open files, threads, environment, folder,
// signal handlers.
std::map<std::string, std::string> Traces() {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> traces;
  std::error_code ignored;
  for (const auto& fd : fs::directory_iterator("/proc/self/fd")) {
    const fs::path target = fs::read_symlink(fd.path(), ignored);
    if (target.string().find("/proc/") != std::string::npos) continue;  // the iterator's own
    traces["file descriptor " + fd.path().filename().string()] = target.string();
  }
  size_t threads = 0;
  for ([[maybe_unused]] const auto& task : fs::directory_iterator("/proc/self/task")) ++threads;
  traces["number of threads"] = std::to_string(threads);
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const size_t equals = std::min(text.find('='), text.size());
    traces["environment variable " + std::string(text.substr(0, equals))] = text.substr(equals);
  }
  traces["working folder"] = fs::current_path(ignored).string();
  for (int number = 1; number < SIGRTMIN; ++number) {
    struct sigaction action{};
    if (::sigaction(number, nullptr, &action) != 0) continue;
    traces["handler of signal " + std::to_string(number)] =
        std::to_string(reinterpret_cast<uintptr_t>(action.sa_handler));
  }
  return traces;
}

// What `a` holds that `b` lacks or has another value for; the first, or empty.
std::string FirstOnlyIn(const std::map<std::string, std::string>& a,
                        const std::map<std::string, std::string>& b) {
  for (const auto& [what, value] : a) {
    const auto other = b.find(what);
    if (other != b.end() && other->second == value) continue;
    std::string text = what;
    return text.append(": ").append(value);
  }
  return {};
}

void LeavesNoTrace(const Subject& subject) {
  const auto before = Traces();
  plugin::LoadPlugin(subject.path);
  const auto after = Traces();
  const std::string made = FirstOnlyIn(after, before);
  Expect(made.empty(), "loading made or changed " + made);
  const std::string removed = FirstOnlyIn(before, after);
  Expect(removed.empty(), "loading removed " + removed);
}

void TableIsComplete(const Subject& subject) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  Expect(plugin.table->size == sizeof(bl_plugin),
         "bl_plugin.size is " + std::to_string(plugin.table->size) + ", ABI 0.1 has " +
             std::to_string(sizeof(bl_plugin)));
  Expect(IsValidUtf8(plugin.name), "bl_plugin.name is not UTF-8");
}

void UnknownExtensionsAreNull(const Subject& subject) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const std::string long_id(10000, 'x');
  for (const char* id :
       {"", "bloomery", "bloomery.chat", "bloomery.chat/", "bloomery.chat/999",
        "bloomery.nothing/1", "BLOOMERY.CHAT/1", "\xff\xfe garbage\n", long_id.c_str()}) {
    Expect(plugin.table->get_extension(id) == nullptr,
           "gives a table for the unknown extension '" + Printable(id) + "'");
  }
}

void CheckText(const char* text, const std::string& what) {
  if (text == nullptr) return;
  Expect(*text != '\0' && IsValidUtf8(text), what + " is empty or not UTF-8");
}

void CheckRecordings(const bl_chat_1& chat) {
  const plugin::SizedArray<bl_chat_recording> recordings(chat.recordings, chat.n_recordings,
                                                         "recording");
  for (uint32_t i = 0; i < recordings.size(); ++i) {
    const bl_chat_recording recording = recordings[i];
    const std::string what = "recording " + std::to_string(i);
    Expect(recording.request_json != nullptr, what + " has no request");
    ParseJson(recording.request_json, what + ", request_json");
    Expect(recording.output == nullptr || recording.message_json != nullptr,
           what + " has an output and not what it must parse to");
    if (recording.message_json != nullptr) {
      ParseJson(recording.message_json, what + ", message_json");
    }
  }
}

void ChatIsSane(const Subject& subject) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const void* table = plugin.table->get_extension(BL_EXT_CHAT_1);
  if (table == nullptr) throw NotApplicable("the plugin has no " BL_EXT_CHAT_1);
  Expect(plugin.table->get_extension(BL_EXT_CHAT_1) == table, "another table on the second call");
  const auto chat = plugin::CopySized(static_cast<const bl_chat_1*>(table), BL_EXT_CHAT_1);
  CheckText(chat.pre_tokenizer, "pre_tokenizer");
  CheckText(chat.reasoning_open, "reasoning_open");
  CheckText(chat.reasoning_close, "reasoning_close");
  Expect((chat.reasoning_open == nullptr) == (chat.reasoning_close == nullptr),
         "one reasoning mark without the other");
  if (chat.tool_syntax != nullptr) {
    constexpr std::string_view kKnown[] = {"hermes", "qwen_xml", "qwen_xml_inline", "glm_xml",
                                           "dsml"};
    Expect(std::ranges::find(kKnown, chat.tool_syntax) != std::end(kKnown),
           "tool_syntax '" + Printable(chat.tool_syntax) + "' is not known to this ABI");
  }
  Expect(chat.n_pre_patterns == 0 || chat.pre_patterns != nullptr, "pre_patterns is null");
  for (uint32_t i = 0; i < chat.n_pre_patterns; ++i) {
    Expect(chat.pre_patterns[i] != nullptr, "pre_patterns holds null");
    const std::string_view pattern = chat.pre_patterns[i];
    const text::PreTokenizer compiles({.name = "the plugin's",
                                       .expressions = {&pattern, 1},
                                       .add_bos = false,
                                       .add_eos = false,
                                       .ignore_merges = false});
  }
  Expect(chat.n_stop_texts == 0 || chat.stop_texts != nullptr, "stop_texts is null");
  Expect(chat.n_stop_ids == 0 || chat.stop_ids != nullptr, "stop_ids is null");
  for (uint32_t i = 0; i < chat.n_stop_texts; ++i) CheckText(chat.stop_texts[i], "a stop text");
  const bl_sampling& sampling = chat.sampling;
  Expect(std::isnan(sampling.temperature) || sampling.temperature >= 0, "sampling.temperature < 0");
  Expect(std::isnan(sampling.top_p) || (sampling.top_p > 0 && sampling.top_p <= 1),
         "sampling.top_p is outside 0 … 1");
  Expect(std::isnan(sampling.min_p) || (sampling.min_p >= 0 && sampling.min_p <= 1),
         "sampling.min_p is outside 0 … 1");
  Expect(sampling.top_k >= -1, "sampling.top_k < -1");
  CheckRecordings(chat);
}

}  // namespace

std::vector<Check> LoadChecks() {
  return {{"load.passes_the_version_gate_in_time", false, Loads},
          {"load.stays_local", false, StaysLocal},
          {"load.leaves_no_trace", false, LeavesNoTrace},
          {"table.is_complete", false, TableIsComplete},
          {"extension.unknown_ids_are_null", false, UnknownExtensionsAreNull},
          {"extension.chat_is_sane", false, ChatIsSane}};
}

}  // namespace bloomery::apps::check
