// The fake plugin with one thing broken, chosen by FLAW: check-plugin must fail each, in the test
// that is about it. FLAW is the name of one of the cases below.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "tests/abi/fake/fake.h"

extern "C" const char* const flawed_flaw;

namespace bloomery::test {
namespace {

using Calls = sdk::PluginCalls<Fake>;

bool Is(std::string_view flaw) { return flaw == flawed_flaw; }

// State of the process, which a plugin must not have: that is the point of some flaws.
const bl_model* seen_model = nullptr;
std::atomic<int> probes = 0;
bool described = false;
bool drafting = false;  // the last instance was asked for a draft head

bl_status Probe(const bl_model* model, const bl_sink* sink, bl_claim* out) {
  ++probes;
  if (Is("throws")) throw 7;
  if (Is("crashes")) std::raise(SIGSEGV);
  if (Is("hangs")) {
    while (true) ::usleep(1000);
  }
  if (Is("exits")) std::exit(0);
  if (Is("prints")) {
    std::puts("probing");
    std::fflush(stdout);
  }
  if (Is("shy")) {
    sink->fail(sink->self, BL_REFUSED, "not today");
    return BL_REFUSED;
  }
  if (Is("moody") && probes % 2 == 0) {
    sink->fail(sink->self, BL_REFUSED, "not again");
    return BL_REFUSED;
  }
  if (Is("curious")) {
    float value = 0;
    model->read_small(model->self, 0, 0, &value, sizeof(value));
  }
  if (Is("claims_all")) {
    out->score = 50;
    return BL_OK;
  }
  if (Is("silent")) {
    static constexpr bl_sink kDeaf = {sizeof(bl_sink), 0, nullptr, nullptr};
    return Calls::Probe(model, &kDeaf, out);
  }
  return Calls::Probe(model, sink, out);
}

// Bytes through volatile, so that the compiler does not take the pair away.
void* TakeAndKeep(size_t bytes) {
  static void* volatile kept = nullptr;
  kept = std::malloc(bytes);  // NOLINT(cppcoreguidelines-no-malloc)
  return kept;
}

bl_status CallProgress(void* host, int32_t) {
  const auto* table = static_cast<const bl_host*>(host);
  table->progress(table->self, "a piece", 1, 2);
  return BL_OK;
}
bl_status CallModel(void* model, int32_t) {
  const auto* table = static_cast<const bl_model*>(model);
  table->find(table->self, "token_embd.weight");
  return BL_OK;
}

bl_status Create(const bl_host* host, const bl_model* model, const bl_params* params,
                 bl_instance** out) {
  seen_model = model;
  drafting = (params->features & BL_FEATURE_DRAFT) != 0;
  if (Is("hoards")) host->alloc(host->self, 100, 64);  // and never frees it
  if (Is("takes_heap")) TakeAndKeep(2u << 20);
  if (Is("reads_environment")) {
    [[maybe_unused]] const char* volatile home = std::getenv("HOME");
  }
  if (Is("opens_file")) {
    if (std::FILE* file = std::fopen("/dev/null", "r")) std::fclose(file);
  }
  if (Is("keeps_thread")) {
    std::thread([] { ::usleep(5000000); }).detach();
  }
  if (Is("progress_elsewhere")) {
    host->parallel_for(host->self, 4, CallProgress, const_cast<bl_host*>(host));
  }
  if (Is("reads_model_elsewhere")) {
    host->parallel_for(host->self, 4, CallModel, const_cast<bl_model*>(model));
  }
  if (Is("brittle")) {
    auto kv = sdk::MakeAbi<bl_kv>();
    if (model->kv(model->self, "fake.block_count", &kv) != BL_OK) std::raise(SIGSEGV);
  }
  const bl_status status = Calls::Create(host, model, params, out);
  if (Is("mislabels") && status == BL_NO_MEMORY) return BL_INTERNAL;
  // Leaves something behind on failure.
  if (Is("half_made") && status != BL_OK)
    *out = reinterpret_cast<bl_instance*>(const_cast<bl_host*>(host));
  return status;
}

bl_status BuildDeaf(bl_instance*, const bl_builder* builder, const bl_build*) {
  bl_value tokens = 0;
  builder->input(builder->self, BL_FIELD_TOKEN, &tokens);
  return BL_OK;
}
bl_status (*sound_build)(bl_instance*, const bl_builder*, const bl_build*) = nullptr;
bl_status BuildFickle(bl_instance* instance, const bl_builder* builder, const bl_build* build) {
  static int calls = 0;
  if (calls++ % 2 == 1) builder->layer(builder->self, -1);
  return sound_build(instance, builder, build);
}
// Fewer rows than before are not expected.
bl_status BuildUpwards(bl_instance* instance, const bl_builder* builder, const bl_build* build) {
  static int32_t most = 0;
  if (build->rows < most) {
    builder->fail(builder->self, BL_REFUSED, "fewer rows than the last time");
    return BL_REFUSED;
  }
  most = build->rows;
  return sound_build(instance, builder, build);
}

bl_status BuildFew(bl_instance* instance, const bl_builder* builder, const bl_build* build) {
  if (build->rows > 100) {
    builder->fail(builder->self, BL_REFUSED, "that many rows are too many");
    return BL_REFUSED;
  }
  return sound_build(instance, builder, build);
}

// A draft head in small: what the slot's row before left, and the token. The plane is the last.
constexpr const char* kHeads[] = {"deaf_head", "forgetful_head", "meddling_head", "sound_head"};
bool HasHead() { return drafting && std::ranges::any_of(kHeads, Is); }
uint32_t tap_plane = 0;
bl_status BuildMainWithHead(bl_instance* instance, const bl_builder* builder,
                            const bl_build* build) {
  const bl_status status = sound_build(instance, builder, build);
  if (status != BL_OK || Is("forgetful_head")) return status;
  sdk::Graph g(builder);
  g.Previous(g.Embed(g.Tokens(), sdk::Weight{0}), sdk::Plane{tap_plane});
  return BL_OK;
}
bl_status BuildHead(bl_instance*, const bl_builder* builder, const bl_build*) {
  sdk::Graph g(builder);
  const sdk::Value x = g.Add(g.Embed(g.Tokens(), sdk::Weight{0}), g.Recall(sdk::Plane{tap_plane}));
  g.Keep(x, sdk::Plane{tap_plane});
  if (!Is("deaf_head")) g.Export("logits", g.Head(g.SelectRows(x), sdk::Weight{1}));
  return BL_OK;
}

float& First(const bl_args* args, int32_t row) { return sdk::Args(args).Out(0).Row<float>(row)[0]; }
bl_status Scale(const bl_args* args, int32_t row) {
  return sdk::CpuKernelCalls<ScaleKernel>::Run(args, row);
}

// Kernels of fake.scale, each wrong in one way.
bl_status Spills(const bl_args* args, int32_t row) {
  static_cast<float*>(args->out->data)[args->out->ne[0] * args->out->ne[1]] = 1.0f;
  return Scale(args, row);
}
bl_status MixesRows(const bl_args* args, int32_t row) {
  const bl_status done = Scale(args, row);
  First(args, row) += static_cast<float>(*args->rows->live);
  return done;
}
bl_status PeeksSlot(const bl_args* args, int32_t row) {
  const bl_status done = Scale(args, row);
  First(args, row) += static_cast<float>(args->rows->slot[row]);
  return done;
}
// What lay beyond a cut still counts.
bl_status RemembersFarthest(const bl_args* args, int32_t row) {
  static std::atomic<int32_t> farthest = 0;
  const bl_status done = Scale(args, row);
  const int32_t index = args->rows->index[row];
  if (index < farthest) First(args, row) += 1.0f;
  if (index > farthest) farthest = index;
  return done;
}
// A state that is in no plane.
bl_status TrustsHistory(const bl_args* args, int32_t row) {
  static std::atomic<int32_t> sums[8] = {};
  const bl_status done = Scale(args, row);
  std::atomic<int32_t>& sum = sums[args->rows->slot[row] % 8];
  if (args->rows->index[row] == 0) sum = 0;
  sum += args->rows->token[row];
  First(args, row) += static_cast<float>(sum);
  return done;
}
bl_status Allocates(const bl_args* args, int32_t row) {
  std::free(TakeAndKeep(100));  // NOLINT(cppcoreguidelines-no-malloc)
  return Scale(args, row);
}
bl_status Locks(const bl_args* args, int32_t row) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  ::pthread_mutex_lock(&mutex);
  ::pthread_mutex_unlock(&mutex);
  return Scale(args, row);
}
bl_status KeepsOrder(const bl_args* args, int32_t row) {
  static std::atomic<int32_t> last = 0;
  const bl_status done = Scale(args, row);
  First(args, row) += static_cast<float>(last.exchange(row));
  return done;
}
bl_status Meddles(const bl_args* args, int32_t row) {
  const bl_status done = Scale(args, row);
  if (drafting) First(args, row) += 1.0f;
  return done;
}
bl_status SquaresAlmost(const bl_args* args, int32_t row) {
  const bl_status done = sdk::CpuKernelCalls<SquareKernel>::Run(args, row);
  First(args, row) *= 1.01f;
  return done;
}

struct FlawedKernel {
  std::string_view flaw;
  size_t op;
  size_t kernel;
  bl_status (*run)(const bl_args*, int32_t);
};
constexpr FlawedKernel kFlawedKernels[] = {
    {"spills", 0, 0, Spills},
    {"mixes_rows", 0, 0, MixesRows},
    {"peeks_slot", 0, 0, PeeksSlot},
    {"remembers_farthest", 0, 0, RemembersFarthest},
    {"trusts_history", 0, 0, TrustsHistory},
    {"allocates", 0, 0, Allocates},
    {"locks", 0, 0, Locks},
    {"keeps_order", 0, 0, KeepsOrder},
    {"meddling_head", 0, 0, Meddles},
    {"untrue_kernel", 1, 0, SquaresAlmost},
};

// A description of the sound plugin's, copied so that it can be spoilt.
struct Copy {
  bl_seat seats[2];
  std::vector<bl_weight> weights;
  std::vector<bl_plane> planes;
  std::vector<bl_op> ops;
  std::vector<std::vector<bl_kernel>> kernels;
  bl_entry entry;
  bl_entry entries[2];
  std::deque<std::string> texts;

  void Take(const bl_seat& seat) {
    weights.assign(seat.weights, seat.weights + seat.n_weights);
    planes.assign(seat.planes, seat.planes + seat.n_planes);
    if (Is("idle_plane")) planes.push_back(planes.front());
    ops.assign(seat.ops, seat.ops + seat.n_ops);
    kernels.clear();
    for (bl_op& op : ops) {
      kernels.emplace_back(op.kernels, op.kernels + op.n_kernels);
      op.kernels = kernels.back().data();
    }
    entry = *seat.entries;
    if (HasHead()) AddHead();
  }

  void AddHead() {
    static constexpr bl_dtype kTypes[] = {BL_F32};
    tap_plane = static_cast<uint32_t>(planes.size());
    auto tap = sdk::MakeAbi<bl_plane>();
    tap.rate = 1;
    tap.name = "hidden";
    tap.owner = BL_OWNER_DRAFT;
    tap.rule = BL_PLANE_FIXED;
    tap.plane_class = BL_CLASS_TAP;
    tap.width = weights.front().ne[0];
    tap.types_allowed = kTypes;
    tap.n_types = 1;
    tap.lanes = 1;
    tap.init = BL_INIT_ZERO;
    planes.push_back(tap);
  }

  void IgnoreTheRest() {
    for (uint64_t i = 0; i < seen_model->n_tensors; ++i) {
      auto info = sdk::MakeAbi<bl_tensor_info>();
      seen_model->tensor(seen_model->self, i, &info);
      bool known = false;
      for (const bl_weight& w : weights) {
        std::string name = w.pattern;
        const size_t at = name.find("{l}");
        if (at != std::string::npos) name.replace(at, 3, std::to_string(w.layer));
        known |= name == info.name;
      }
      if (known || std::string_view(info.name) == "blk.0.unused.weight") continue;
      bl_weight ignored = weights.front();
      ignored.pattern = texts.emplace_back(info.name).c_str();
      ignored.flags = BL_WEIGHT_OPTIONAL | BL_WEIGHT_IGNORED;
      ignored.role = BL_ROLE_DENSE;
      ignored.n_dims = 0;
      weights.push_back(ignored);
    }
  }

  void SpoilWeights() {
    for (bl_weight& w : weights) {
      if (Is("wrong_size")) w.size = 8;
      if (Is("all_optional") && w.bank < 0) w.flags |= BL_WEIGHT_OPTIONAL;
      if (Is("unchecked_shapes")) {
        for (uint64_t& n : w.ne) n = 0;
      }
    }
    if (Is("ignores_all")) IgnoreTheRest();
  }
};

std::map<bl_instance*, Copy>& Copies() {
  static std::map<bl_instance*, Copy> copies;
  return copies;
}

bl_status Describe(bl_instance* instance, const bl_seat** out) {
  const bl_status status = Calls::Describe(instance, out);
  if (status != BL_OK) return status;
  described = true;
  static int calls = 0;
  auto& copies = Copies();
  const bool first = !copies.contains(instance);
  Copy& copy = copies[instance];
  bl_seat& seat = copy.seats[Is("restless") ? calls++ % 2 : 0];
  seat = **out;
  *out = &seat;
  if (first) {
    copy.Take(seat);
    copy.SpoilWeights();
    sound_build = copy.entry.build;
    if (Is("deaf_build")) copy.entry.build = BuildDeaf;
    if (Is("fickle_build")) copy.entry.build = BuildFickle;
    if (Is("builds_few")) copy.entry.build = BuildFew;
    if (Is("builds_upwards")) copy.entry.build = BuildUpwards;
    if (Is("foreign_operator")) copy.ops[0].name = copy.kernels[0][0].op = "linear.scale";
    for (const FlawedKernel& flawed : kFlawedKernels) {
      if (Is(flawed.flaw)) copy.kernels[flawed.op][flawed.kernel].run = flawed.run;
    }
  }
  if (Is("probe_disturbs")) seat.context_trained += static_cast<uint64_t>(probes);
  if (Is("counts_lives")) seat.context_trained += copies.size();
  seat.planes = copy.planes.data();
  seat.n_planes = static_cast<uint32_t>(copy.planes.size());
  seat.weights = copy.weights.data();
  seat.n_weights = static_cast<uint32_t>(copy.weights.size());
  seat.ops = copy.ops.data();
  seat.entries = &copy.entry;
  if (HasHead()) {
    copy.entries[0] = copy.entries[1] = copy.entry;
    copy.entries[0].build = BuildMainWithHead;
    copy.entries[1].name = "draft";
    copy.entries[1].kind = BL_ENTRY_DRAFT_STEP;
    copy.entries[1].build = BuildHead;
    seat.entries = copy.entries;
    seat.n_entries = 2;
  }
  return BL_OK;
}

void Destroy(bl_instance* instance) {
  if (Is("needs_describe") && !described) std::raise(SIGSEGV);
  Copies().erase(instance);
  Calls::Destroy(instance);
}

bl_chat_1 MisrecordedChat() {
  static bl_chat_recording recordings[2] = {kFakeRecordings[0], kFakeRecordings[1]};
  recordings[0].prompt = "hi";
  recordings[1].output = "I do not know.";
  bl_chat_1 chat = kFakeChat;
  chat.recordings = recordings;
  return chat;
}

// A recording that says nothing to answer, or of a call not what was called.
bl_chat_1 RecordingGapsChat() {
  static bl_chat_recording recordings[2] = {kFakeRecordings[0], kFakeRecordings[1]};
  if (Is("no_request")) recordings[0].request_json = nullptr;
  if (Is("no_function")) {
    recordings[1].message_json =
        R"({"content": "Let me look.", "tool_calls": [{"type": "function"}]})";
  }
  bl_chat_1 chat = kFakeChat;
  chat.recordings = recordings;
  return chat;
}

bl_chat_1 HalfMarkedChat() {
  bl_chat_1 chat = kFakeChat;
  chat.reasoning_close = nullptr;
  return chat;
}

const void* Extension(const char* id) {
  static const bl_chat_1 half_marked = HalfMarkedChat();
  static const bl_chat_1 misrecorded = MisrecordedChat();
  static const bl_chat_1 recording_gaps = RecordingGapsChat();
  thread_local const bl_chat_1 own = kFakeChat;
  const void* table = Calls::GetExtension(id);
  if (Is("obliging")) return &kFakeChat;
  if (table == nullptr) return nullptr;
  if (Is("misrecorded")) return &misrecorded;
  if (Is("half_marked")) return &half_marked;
  if (Is("no_request") || Is("no_function")) return &recording_gaps;
  return Is("thread_bound") ? &own : table;
}

}  // namespace
}  // namespace bloomery::test

// The functions of the table in table.c.
extern "C" {
const void* flawed_get_extension(const char* id) { return bloomery::test::Extension(id); }
bl_status flawed_probe(const bl_model* model, const bl_sink* sink, bl_claim* out) {
  return bloomery::test::Probe(model, sink, out);
}
bl_status flawed_create(const bl_host* host, const bl_model* model, const bl_params* params,
                        bl_instance** out) {
  return bloomery::test::Create(host, model, params, out);
}
bl_status flawed_describe(bl_instance* instance, const bl_seat** out) {
  return bloomery::test::Describe(instance, out);
}
void flawed_destroy(bl_instance* instance) { bloomery::test::Destroy(instance); }
}
