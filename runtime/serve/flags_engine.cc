// Rows of the table of flags: slots, memory, the prompt cache, and where the model runs.
#include <charconv>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/exec/residency_driver.h"
#include "runtime/serve/card_flags.h"
#include "runtime/serve/flag_rows.h"

namespace bloomery::serve::rows {
namespace {

PlaneType PlaneTypeOf(std::string_view name) {
  if (name == "f32") return PlaneType::kF32;
  return name == "q8_0" ? PlaneType::kQ8_0 : PlaneType::kF16;
}

void SetParallel(S& s, const I& i) {
  if (i.text == "auto" || i.text == "-1") {
    s.parallel = 0;
    return;
  }
  int slots = 0;
  const char* const end = i.text.data() + i.text.size();
  const auto [stop, error] = std::from_chars(i.text.data(), end, slots);
  if (error != std::errc() || stop != end || slots < 1 || slots > limits::kSlotsMax) {
    throw Error(ErrorKind::kUsage,
                "expected 1 to " + std::to_string(limits::kSlotsMax) + " slots, or auto");
  }
  s.parallel = slots;
}

void SetSimilarity(S& s, const I& i) {
  if (!(i.real >= 0 && i.real <= 1)) throw Error(ErrorKind::kUsage, "expected 0 to 1");
  s.slot_similarity = i.real;
}

// 0, a number of layers, or a word for all of them.
bool ApplyCardLayers(S& s, const I& i) {
  if (i.text == "auto" || i.text == "all" || i.text == "-1") {
    s.placing.card_layers.reset();
    return true;
  }
  uint32_t layers = 0;
  const char* const end = i.text.data() + i.text.size();
  const auto [stop, error] = std::from_chars(i.text.data(), end, layers);
  if (error != std::errc() || stop != end) {
    throw Error(ErrorKind::kUsage, "expected a number of layers, auto or all");
  }
  s.placing.card_layers = layers;
  return true;
}

void SetHostExpertLayers(S& s, const I& i) {
  if (s.placing.host_expert_layers == UINT32_MAX) return;  // --cpu-moe: all of them
  s.placing.host_expert_layers = static_cast<uint32_t>(i.integer);
}

// Given again, rules add to those before.
void AddTensorRules(S& s, const I& i) {
  if (i.first) s.placing.rules.clear();
  for (exec::TensorRule& rule : exec::ParseTensorRules(i.text)) {
    s.placing.rules.push_back(std::move(rule));
  }
}

constexpr int32_t kDraftMax = limits::kWindowRowsMax - 1;

engine::DraftKind DraftKindOf(std::string_view text) {
  for (const auto kind :
       {engine::DraftKind::kOff, engine::DraftKind::kLookup, engine::DraftKind::kMtp}) {
    if (text == engine::DraftKindName(kind)) return kind;
  }
  throw Error(ErrorKind::kUsage,
              "expected mtp, lookup or off (--draft-max says how many tokens a draft has)");
}

// llama-server's names of kinds.
bool SetSpecType(S& s, const I& i) {
  if (i.text == "none") {
    s.draft.kind = engine::DraftKind::kOff;
  } else if (i.text == "draft-mtp") {
    s.draft.kind = engine::DraftKind::kMtp;
  } else if (i.text.starts_with("ngram-")) {
    s.draft.kind = engine::DraftKind::kLookup;
  } else {
    return false;
  }
  return true;
}

constexpr std::string_view kDenseTogether =
    "Dense weights and states of all layers lie on cards, or all with the host.";

// Packed by hand: one field a line, as clang-format would have it, is three times as long.
// clang-format off
constexpr Flag kFlags[] = {
    {.group = "Engine", .names = "-c --ctx-size --ctx", .env = "LLAMA_ARG_CTX_SIZE",
     .value = kInteger, .metavar = "N", .fallback = "0 (as trained)", .min = 0, .max = kIntMax,
     .help = "Context over all slots, in tokens; each slot gets an equal part, at most what the model "
             "was trained with.",
     .apply = BLOOMERY_SET(s.context = static_cast<int>(i.integer))},
    {.group = "Engine", .names = "--slot-ctx", .env = "BLOOMERY_SLOT_CTX", .value = kInteger,
     .metavar = "N", .fallback = "an equal part of --ctx-size", .min = 1, .max = limits::kSlotContextMax,
     .help = "Context of each slot, in tokens. With --ctx-size too, that is the most all slots may have.",
     .apply = BLOOMERY_SET(s.slot_context = static_cast<int>(i.integer))},
    {.group = "Engine", .names = "-np --parallel", .env = "LLAMA_ARG_N_PARALLEL", .value = kText,
     .metavar = "N", .fallback = "1",
     .help = "Slots: requests that run at the same time, 1 to 64. auto or -1: the most, up to 4, whose plan "
             "fits where one slot's does, with no weight elsewhere; 1 where --ctx-size is given without --slot-ctx.",
     .apply = BLOOMERY_SET(SetParallel(s, i))},
    {.group = "Engine", .names = "--queue-depth", .env = "BLOOMERY_QUEUE_DEPTH", .value = kInteger,
     .metavar = "N", .fallback = "64", .min = 1, .max = limits::kQueueDepthMax,
     .help = "Requests that may wait for a slot; the next one gets 503 with Retry-After.",
     .apply = BLOOMERY_SET(s.queue_depth = static_cast<int>(i.integer))},
    {.group = "Engine", .names = "--decode-gap", .env = "BLOOMERY_DECODE_GAP", .value = kInteger,
     .metavar = "MS", .fallback = "250", .min = 0, .max = limits::kDecodeGapMsMax,
     .help = "While a prompt is read beside running streams, a pass is cut to what takes about so long; 0: it is not cut.",
     .apply = BLOOMERY_SET(s.decode_gap_ms = static_cast<int>(i.integer))},
    {.group = "Engine", .names = "--draft", .env = "BLOOMERY_DRAFT", .value = kChoice,
     .metavar = "KIND", .fallback = "off", .choices = "mtp|lookup|off",
     .help = "Guesses of the next tokens, verified beside the next one: mtp by the model's own draft head, "
             "lookup by what followed the last tokens before. Answers are the same as without.",
     .apply = BLOOMERY_SET(s.draft.kind = DraftKindOf(i.text))},
    {.group = "Engine", .names = "--spec-type", .env = "LLAMA_ARG_SPEC_TYPE", .value = kText,
     .metavar = "TYPE",
     .help = "The same by llama-server's names: none, draft-mtp, or ngram-… for lookup; others change nothing.",
     .apply = SetSpecType},
    {.group = "Engine", .names = "--spec-draft-n-max --draft-max --draft-n",
     .env = "LLAMA_ARG_SPEC_DRAFT_N_MAX", .value = kInteger, .metavar = "N", .fallback = "3", .min = 0,
     .max = kIntMax,
     .help = "Tokens of a draft, at most; more than 7 are 7, 0 is --draft off. How many of them a pass "
             "verifies follows from what passes take.",
     .apply = BLOOMERY_SET(s.draft.tokens_max = static_cast<int>(std::min<int64_t>(i.integer, kDraftMax)))},
    {.group = "Engine", .names = "--spec-draft-n-min --draft-min --draft-n-min",
     .env = "LLAMA_ARG_SPEC_DRAFT_N_MIN", .value = kInteger, .metavar = "N", .fallback = "0", .min = 0,
     .max = kIntMax, .help = "A shorter draft is not verified.",
     .apply = BLOOMERY_SET(s.draft.tokens_min = static_cast<int>(std::min<int64_t>(i.integer, kDraftMax)))},
    {.group = "Engine", .names = "--spec-draft-p-min --draft-p-min",
     .env = "LLAMA_ARG_SPEC_DRAFT_P_MIN", .value = kReal, .metavar = "P", .fallback = "0",
     .help = "mtp: a draft ends before a token that its head holds for less probable.",
     .apply = BLOOMERY_SET(s.draft.p_min = i.real)},
    {.group = "Engine", .names = "-b --batch-size", .env = "LLAMA_ARG_BATCH", .value = kInteger,
     .metavar = "N", .fallback = "2048", .min = 1, .max = limits::kBatchRowsMax,
     .help = "Prompt tokens between two decode passes; on several cards also the rows of a pass, "
             "which goes through them in parts of --ubatch-size, each card at a part of its own.",
     .apply = BLOOMERY_SET(s.batch = static_cast<int>(i.integer))},
    {.group = "Engine", .names = "-ub --ubatch-size", .env = "LLAMA_ARG_UBATCH", .value = kInteger,
     .metavar = "N", .fallback = "512", .min = 1, .max = limits::kUbatchRowsMax,
     .help = "Rows that are computed at once.",
     .apply = BLOOMERY_SET(s.ubatch = static_cast<int>(i.integer))},
    {.group = "Engine", .names = "-t --threads", .env = "LLAMA_ARG_THREADS", .value = kInteger,
     .metavar = "N", .fallback = "-1 (one a core)", .min = -1, .max = limits::kThreadsMax,
     .help = "Threads that compute.",
     .apply = BLOOMERY_SET(s.threads = i.integer > 0 ? static_cast<int>(i.integer) : 0)},
    {.group = "Engine", .names = "-tb --threads-batch", .env = "LLAMA_ARG_THREADS_BATCH",
     .value = kInteger, .metavar = "N", .min = -1, .max = limits::kThreadsMax, .support = kIgnored,
     .help = "One pool computes prompts and answers: -t sets it.",
     .apply = BLOOMERY_ACCEPT_IF(i.integer <= 0)},
    {.group = "Engine", .names = "-ctk --cache-type-k", .env = "LLAMA_ARG_CACHE_TYPE_K",
     .value = kChoice, .metavar = "TYPE", .fallback = "f16", .choices = "f32|f16|q8_0",
     .help = "Type of the key planes.", .apply = BLOOMERY_SET(s.type_k = PlaneTypeOf(i.text))},
    {.group = "Engine", .names = "-ctv --cache-type-v", .env = "LLAMA_ARG_CACHE_TYPE_V",
     .value = kChoice, .metavar = "TYPE", .fallback = "f16", .choices = "f32|f16|q8_0",
     .help = "Type of the value planes.", .apply = BLOOMERY_SET(s.type_v = PlaneTypeOf(i.text))},
    {.group = "Engine", .names = "--cache-prompt", .negative = "--no-cache-prompt",
     .env = "LLAMA_ARG_CACHE_PROMPT", .value = kSwitch, .fallback = "on",
     .help = "Keep the prefix a slot shares with the next request.",
     .apply = BLOOMERY_SET(s.cache_prompt = i.on)},
    {.group = "Engine", .names = "--cache-reuse", .env = "LLAMA_ARG_CACHE_REUSE", .value = kInteger,
     .metavar = "N", .support = kIgnored, .help = "A state is never moved to other positions.",
     .apply = BLOOMERY_ACCEPT_IF(i.integer == 0)},
    {.group = "Engine", .names = "-cram --cache-ram", .env = "LLAMA_ARG_CACHE_RAM",
     .value = kInteger, .metavar = "MiB",
     .fallback = "8192, or half of what the plan leaves where that is less", .min = -1,
     .max = INT32_MAX,
     .help = "Host memory for states of earlier prompts; -1: no limit, 0: only the slots' own.",
     .apply = BLOOMERY_SET(s.cache_ram_mib = i.integer)},
    {.group = "Engine", .names = "--cache-disk", .env = "BLOOMERY_CACHE_DISK", .value = kText,
     .metavar = "DIR", .fallback = "none",
     .help = "A folder where the prompt cache lives on, past its memory and the server's end. Of "
             "one server at a time; it is made where it is missing.",
     .apply = BLOOMERY_SET(s.cache_disk = i.text)},
    {.group = "Engine", .names = "--cache-disk-limit", .env = "BLOOMERY_CACHE_DISK_LIMIT",
     .value = kText, .metavar = "BYTES", .fallback = "32GiB",
     .help = "What that folder may take: bytes, or a number with KiB, MiB or GiB.",
     .apply = BLOOMERY_SET(s.cache_disk_bytes = BytesOf(i.text))},
    {.group = "Engine", .names = "--cache-idle-slots", .negative = "--no-cache-idle-slots",
     .env = "LLAMA_ARG_CACHE_IDLE_SLOTS", .value = kSwitch, .support = kIgnored,
     .help = "A state is saved when its slot is given away, never earlier and never not.",
     .apply = BLOOMERY_ACCEPT_IF(i.on)},
    {.group = "Engine", .names = "-ctxcp --ctx-checkpoints --swa-checkpoints", .env = "LLAMA_ARG_CTX_CHECKPOINTS",
     .value = kInteger, .metavar = "N", .support = kIgnored, .help = "Checkpoints are held within --cache-ram."},
    {.group = "Engine", .names = "-cms --checkpoint-min-step",
     .env = "LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT", .value = kInteger, .metavar = "N",
     .support = kIgnored, .help = "Checkpoints are taken every 512 positions."},
    {.group = "Engine", .names = "-cb --cont-batching", .negative = "-nocb --no-cont-batching",
     .env = "LLAMA_ARG_CONT_BATCHING", .value = kSwitch, .support = kIgnored,
     .help = "Slots are always batched together.", .apply = BLOOMERY_ACCEPT_IF(i.on)},
    {.group = "Engine", .names = "-kvu --kv-unified", .negative = "-no-kvu --no-kv-unified",
     .env = "LLAMA_ARG_KV_UNIFIED", .value = kSwitch, .support = kIgnored,
     .help = "Each slot has its own part of the context.", .apply = BLOOMERY_ACCEPT_IF(!i.on)},
    {.group = "Engine", .names = "--kv-unified-per-slot", .env = "LLAMA_ARG_KV_UNIFIED_PER_SLOT",
     .value = kInteger, .metavar = "N", .support = kIgnored,
     .help = "Each slot has its own part of the context."},
    {.group = "Engine", .names = "--context-shift", .negative = "--no-context-shift",
     .env = "LLAMA_ARG_CONTEXT_SHIFT", .value = kSwitch, .support = kRefused,
     .help = "A full context ends the answer; it is never shifted.",
     .apply = BLOOMERY_ACCEPT_IF(!i.on)},
    {.group = "Engine", .names = "--keep", .value = kInteger, .metavar = "N", .support = kIgnored,
     .help = "A full context ends the answer; it is never shifted.",
     .apply = BLOOMERY_ACCEPT_IF(i.integer == 0)},
    {.group = "Engine", .names = "-sps --slot-prompt-similarity",
     .env = "BLOOMERY_SLOT_PROMPT_SIMILARITY", .value = kReal, .metavar = "F", .fallback = "0.1",
     .help = "A request takes the free slot with the longest common prefix where that is more than "
             "this part of its prompt, else the one unused for longest; 0: always that.",
     .apply = BLOOMERY_SET(SetSimilarity(s, i))},
    {.group = "Engine", .names = "--residency", .env = "BLOOMERY_RESIDENCY", .value = kChoice,
     .metavar = "POLICY", .fallback = "on", .choices = exec::kResidencyChoices,
     .help = "Which experts move to a card while the model is split between cards and host "
             "(docs/residency.md). on is payback; lru and lfu are there to compare with.",
     .apply = BLOOMERY_SET(s.residency = exec::ResidencyKindOf(i.text))},
    {.group = "Engine", .names = "--routing-trace", .env = "BLOOMERY_ROUTING_TRACE",
     .value = kText, .metavar = "FILE",
     .help = "Write which experts every row picked to a file, for bloomery residency-sim. It is "
             "there when the server has ended.",
     .apply = BLOOMERY_SET(s.routing_trace = i.text)},
    {.group = "Engine", .names = "--sleep-idle-seconds", .value = kInteger, .metavar = "N",
     .support = kIgnored, .help = kHintOnly, .apply = BLOOMERY_ACCEPT_IF(i.integer < 0)},
    {.group = "Engine", .names = "--warmup", .negative = "--no-warmup", .value = kSwitch,
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "-fa --flash-attn", .env = "LLAMA_ARG_FLASH_ATTN",
     .value = kChoice, .metavar = "WHEN", .choices = "on|off|auto", .support = kIgnored,
     .help = "There is one form of attention.", .apply = BLOOMERY_ACCEPT_IF(i.text == "auto")},
    {.group = "Engine", .names = "--swa-full", .env = "LLAMA_ARG_SWA_FULL", .value = kSwitch,
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "-C --cpu-mask", .value = kText, .metavar = "MASK",
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "-Cr --cpu-range", .value = kText, .metavar = "RANGE",
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "-Cb --cpu-mask-batch", .value = kText, .metavar = "MASK",
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "-Crb --cpu-range-batch", .value = kText, .metavar = "RANGE",
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--cpu-strict-batch", .value = kText, .metavar = "0|1",
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--prio-batch", .value = kInteger, .metavar = "N",
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--poll-batch", .value = kText, .metavar = "0|1",
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--perf", .negative = "--no-perf", .env = "LLAMA_ARG_PERF",
     .value = kSwitch, .support = kIgnored,
     .help = "Times are in every answer and in /metrics.", .apply = BLOOMERY_ACCEPT_IF(!i.on)},
    {.group = "Engine", .names = "-bs --backend-sampling", .env = "LLAMA_ARG_BACKEND_SAMPLING",
     .value = kSwitch, .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--moe-cache-mib", .env = "LLAMA_ARG_MOE_CACHE_MIB",
     .value = kInteger, .metavar = "N", .support = kIgnored,
     .help = "Experts get what each card has left; --card-budget lowers that.",
     .apply = BLOOMERY_ACCEPT_IF(i.integer == 0)},
    {.group = "Engine", .names = "--cpu-strict", .value = kText, .metavar = "0|1",
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--prio", .value = kInteger, .metavar = "N", .support = kIgnored,
     .help = kHintOnly},
    {.group = "Engine", .names = "--poll", .value = kInteger, .metavar = "N", .support = kIgnored,
     .help = kHintOnly},
    {.group = "Engine", .names = "--numa", .env = "LLAMA_ARG_NUMA", .value = kText,
     .metavar = "TYPE", .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--repack", .negative = "-nr --no-repack",
     .env = "LLAMA_ARG_REPACK", .value = kSwitch, .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--no-host", .env = "LLAMA_ARG_NO_HOST", .value = kSwitch,
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--op-offload", .negative = "--no-op-offload", .value = kSwitch,
     .support = kIgnored, .help = kDenseTogether},
    {.group = "Engine", .names = "-dt --defrag-thold", .env = "LLAMA_ARG_DEFRAG_THOLD",
     .value = kReal, .metavar = "N", .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "-ngl --gpu-layers --n-gpu-layers",
     .env = "LLAMA_ARG_N_GPU_LAYERS", .value = kText, .metavar = "N", .fallback = "auto",
     .help = "Layers that may have experts on a card: the last N. Their dense weights and states "
             "are there for all layers. 0: as --device none; auto, all, -1 or as many as the "
             "model has: every layer may.",
     .apply = &ApplyCardLayers},
    {.group = "Engine", .names = "--place", .env = "BLOOMERY_PLACE", .value = kChoice,
     .metavar = "WHERE", .fallback = "auto", .choices = exec::kPlaceChoices,
     .help = "card: all of the model on one card or on several; split: dense weights and states there, "
             "as many experts of each layer as fit, and the others with the host; host: no card; auto: "
             "card where the model fits so, else split (not with --fit off), else host.",
     .apply = BLOOMERY_SET(s.placing.place = exec::PlaceOf(i.text))},
    {.group = "Engine", .names = "-dev --device", .env = "LLAMA_ARG_DEVICE", .value = kText,
     .metavar = "LIST", .fallback = "auto",
     .help = "Where the model runs: auto takes the first card that holds all of it, else all cards "
             "together, else the CPU, and says so; none; or cards, in the order in which they take layers: "
             "CUDA0 or CUDA0,CUDA1 (--list-devices names them).",
     .apply = BLOOMERY_SET(SetDevice(s, i))},
    {.group = "Engine", .names = "--list-devices", .value = kSwitch,
     .help = "Print the cards of this machine and exit.",
     .apply = BLOOMERY_SET(s.list_devices = i.on)},
    {.group = "Engine", .names = "-ts --tensor-split", .env = "LLAMA_ARG_TENSOR_SPLIT",
     .value = kText, .metavar = "LIST", .fallback = "by what each card has room for",
     .help = "Shares of the layers, one a card of --device (auto: of the machine), in that order: 3,1 or "
             "3/1; a card that is left out, or has 0, gets none.",
     .apply = BLOOMERY_SET(SetCardShares(s, i))},
    {.group = "Engine", .names = "-sm --split-mode", .env = "LLAMA_ARG_SPLIT_MODE", .value = kText,
     .metavar = "MODE", .fallback = "layer",
     .help = "layer: of several cards each has layers of its own. none: one card, that of --main-gpu. row and "
             "tensor are refused: layers are not divided among cards.",
     .apply = BLOOMERY_SET(SetSplitMode(s, i))},
    {.group = "Engine", .names = "-mg --main-gpu", .env = "LLAMA_ARG_MAIN_GPU", .value = kInteger,
     .metavar = "N", .fallback = "0", .min = 0, .max = kIntMax,
     .help = "With --split-mode none: the card, counted from 0 in --device (auto: in the machine). Without it, "
             "no effect.",
     .apply = BLOOMERY_SET(s.main_card = static_cast<uint32_t>(i.integer))},
    {.group = "Engine", .names = "-ot --override-tensor", .env = "LLAMA_ARG_OVERRIDE_TENSOR",
     .value = kText, .metavar = "REGEX=PLACE,…", .fallback = "none", .repeats = true,
     .help = "Experts of the layers in whose tensors' names REGEX is found: CPU or host keeps them "
             "from the cards, card or CUDA0 puts all of them on theirs. The first that is found counts; "
             "gate, up and down of a layer go together; may be repeated.",
     .apply = BLOOMERY_SET(AddTensorRules(s, i))},
    {.group = "Engine", .names = "-cmoe --cpu-moe", .env = "LLAMA_ARG_CPU_MOE", .value = kSwitch,
     .fallback = "off", .help = "Keep the experts of all layers with the host.",
     .apply = BLOOMERY_SET(if (i.on) s.placing.host_expert_layers = UINT32_MAX)},
    {.group = "Engine", .names = "-ncmoe --n-cpu-moe", .env = "LLAMA_ARG_N_CPU_MOE",
     .value = kInteger, .metavar = "N", .fallback = "0", .min = 0, .max = kIntMax,
     .help = "Keep the experts of the first N layers with the host.",
     .apply = BLOOMERY_SET(SetHostExpertLayers(s, i))},
    {.group = "Engine", .names = "-ncffn --n-cpu-ffn", .env = "LLAMA_ARG_N_CPU_FFN",
     .value = kInteger, .metavar = "N", .support = kIgnored, .help = kDenseTogether},
    {.group = "Engine", .names = "--card-budget", .env = "BLOOMERY_CARD_BUDGET", .value = kText,
     .metavar = "BYTES", .fallback = "what each has free",
     .help = "Memory of each card that the server may plan with: bytes, or a number with KiB, MiB or GiB.",
     .apply = BLOOMERY_SET(s.card_budget_bytes = BytesOf(i.text))},
    {.group = "Engine", .names = "-fit --fit", .env = "LLAMA_ARG_FIT", .value = kChoice,
     .metavar = "WHEN", .fallback = "on", .choices = "on|off",
     .help = "on: a context that was not given is made smaller where it does not fit as trained, "
             "before experts leave a card; what was given is not.",
     .apply = BLOOMERY_SET(s.fit = i.text == "on")},
    {.group = "Engine", .names = "-fitt --fit-target", .env = "LLAMA_ARG_FIT_TARGET",
     .value = kText, .metavar = "MiB,…", .fallback = "1024",
     .help = "Of each card's free memory, what contexts and experts that are chosen to fit leave: one value "
             "for all, or one a card of --device (auto: of the machine); of a list, those left out are 1024.",
     .apply = BLOOMERY_SET(SetFitMargins(s, i))},
    {.group = "Engine", .names = "-fitc --fit-ctx", .env = "LLAMA_ARG_FIT_CTX", .value = kInteger,
     .metavar = "N", .fallback = "4096", .min = 1, .max = kIntMax,
     .help = "The least that a context is made by --fit, over all slots.",
     .apply = BLOOMERY_SET(s.fit_context = static_cast<int>(i.integer))},
    {.group = "Engine", .names = "-kvo --kv-offload", .negative = "-nkvo --no-kv-offload",
     .env = "LLAMA_ARG_KV_OFFLOAD", .value = kSwitch, .support = kIgnored, .help = kDenseTogether},
    {.group = "Engine", .names = "--rpc", .env = "LLAMA_ARG_RPC", .value = kText,
     .metavar = "SERVERS", .support = kRefused,
     .help = "The server does not compute on other machines."},
};
// clang-format on

}  // namespace

std::span<const Flag> Engine() { return kFlags; }

}  // namespace bloomery::serve::rows
