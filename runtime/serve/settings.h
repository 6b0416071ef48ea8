// Everything a start of the server can be told, as plain values with their defaults. Filled by
// flags.h from the settings file, the environment and the command line; read-only afterwards. It
// opens no file and checks nothing by itself: flags.h checks each value, the composition in apps/
// checks what needs the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/engine/engine.h"
#include "runtime/exec/load_modes.h"
#include "runtime/exec/place_names.h"
#include "runtime/exec/residency_driver.h"
#include "runtime/text/sampling.h"

namespace bloomery::serve {

enum class PlaneType { kF32, kF16, kQ8_0 };
enum class Thinking { kAuto, kOn, kOff };

struct ServeSettings {
  // Model and where it runs.
  std::string model_path;  // empty: the bundled demo model
  std::string hf_repo;     // "owner/name[:quant]" of a hub
  std::string hf_file;     // the exact path there
  std::string hf_token;
  bool offline = false;     // the cache only
  bool cache_list = false;  // only list the cache
  bool recommend = false;   // only say what fits
  bool dry_run = false;     // only plan
  bool json = false;        // stdout is for programs
  std::vector<std::string> aliases;
  std::vector<std::string> tags;
  std::vector<std::string> plugin_dirs;
  std::string isa = "auto";   // exec::kKernelChoices
  bool delta_chunks = false;  // exec::SeatOptions
  exec::LoadMode load_mode = exec::LoadMode::kAuto;
  // "auto", "none", or cards in the order in which they take layers: "CUDA0", "CUDA1,CUDA0".
  std::string device = "auto";
  bool list_devices = false;  // only print the cards
  // Of the layers, card by card of `device` (auto: of the machine); empty: by the cards' room.
  std::vector<double> card_shares;
  bool one_card = false;              // of `device` or of the machine, no more
  std::optional<uint32_t> main_card;  // which one; none: the first
  // What may lie on cards; card_layers 0: nothing.
  exec::PlacementRequest placing;
  bool fit = true;  // sizes that were not given are chosen to fit
  // Of what each card has free, that those leave; of the first cards, where several were given.
  uint64_t fit_margin_bytes = 1024 << 20;
  std::vector<uint64_t> fit_margins_bytes;
  int fit_context = 4096;          // the least they come to, over all slots
  uint64_t card_budget_bytes = 0;  // of each card; 0: what it has free
  uint64_t host_budget_bytes = 0;  // 0: what the machine has available
  int threads = 0;                 // 0: one a core

  // Network.
  std::vector<std::string> hosts{"127.0.0.1"};
  int port = 8080;
  bool reuse_port = false;
  std::string ssl_cert_file;
  std::string ssl_key_file;
  std::string ssl_certificates;  // PEM: what those files hold
  std::string ssl_key;
  std::string api_prefix;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::string cors_origins = "*";
  std::string cors_methods = "GET, POST, DELETE, OPTIONS";
  std::string cors_headers = "*";
  bool cors_credentials = true;
  int timeout_s = 3600;
  int http_threads = 0;  // 0: by the machine
  int sse_ping_s = 30;
  bool slots_route = true;
  bool props_writable = false;
  bool page = true;         // the web page at /
  std::string page_folder;  // files in place of the built-in page; empty: none
  std::string ui_config;    // a JSON object: the page's first settings; empty: its own
  std::string ui_config_file;
  int drain_s = limits::kDrainSecondsMax;  // answers in progress get this long at a stop

  // Engine.
  int context = 0;       // total rows over all slots; 0: as trained
  int slot_context = 0;  // rows of each slot; 0: an equal part of the total
  int parallel = 1;      // slots; 0: as many, up to four, as fit
  int queue_depth = limits::kQueuedRequestsMax;
  int decode_gap_ms = 250;
  engine::DraftOptions draft;
  std::string draft_file;  // of the model's draft layers; empty: its own file has them
  int batch = 2048;
  int ubatch = 512;
  PlaneType type_k = PlaneType::kF16;
  PlaneType type_v = PlaneType::kF16;
  bool cache_prompt = true;
  // The prompt cache in host memory, in MiB: -1 without a limit, 0 off; none: what the plan leaves.
  std::optional<int64_t> cache_ram_mib;
  std::string cache_disk;  // a folder; empty: memory only
  uint64_t cache_disk_bytes = uint64_t{32} << 30;
  std::string slot_save_path;  // a folder; empty: slots are not saved
  double slot_similarity = 0.1;
  exec::ResidencyKind residency = exec::ResidencyKind::kPayback;
  std::string routing_trace;  // a file; empty: none

  // Defaults of requests.
  int n_predict = -1;
  text::SamplingParams sampling;
  std::vector<std::string> stop;
  std::string grammar;  // GBNF, of requests that give none; "" for none
  std::string grammar_file;
  std::string json_schema;  // becomes the grammar
  std::string json_schema_file;
  bool special = false;  // control tokens print in answers
  bool escape = true;    // \n and relatives in --reverse-prompt and --dry-sequence-breaker

  // Chat.
  std::string chat_template;
  std::string chat_template_file;
  std::string chat_template_kwargs;  // a JSON object, or empty
  std::string reasoning_format = "auto";
  Thinking thinking = Thinking::kAuto;
  std::string reasoning_effort;
  int32_t reasoning_budget = -1;  // tokens; -1: no limit
  std::string reasoning_budget_message;
  bool prefill_assistant = true;
  bool spm_infill = false;  // /infill: the suffix before the prefix

  // Logging: 0 errors only, 1 warnings, 2 and above everything.
  int log_level = 2;
  bool log_jsonl = false;  // one JSON object a line
};

}  // namespace bloomery::serve
