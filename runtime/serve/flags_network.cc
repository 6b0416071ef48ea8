// Rows of the table of flags: listening, who may ask, and which routes there are.
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/serve/flag_rows.h"

namespace bloomery::serve::rows {
namespace {

// A variable that is set but empty is a mistake, and must not open the server to everyone.
void SetApiKeys(S& s, const I& i) {
  s.api_keys = SplitList(i.text);
  if (s.api_keys.empty()) throw Error(ErrorKind::kUsage, "expected at least one key");
}

void SetPageSettings(S& s, const I& i) {
  CheckObject(i.text, "--ui-config");
  s.ui_config = i.text;
}

constexpr std::string_view kNoTools = "The server runs no tools of its own.";
constexpr std::string_view kOneModel = "One server serves one model.";

// Packed by hand: one field a line, as clang-format would have it, is three times as long.
// clang-format off
constexpr Flag kFlags[] = {
    {.group = "Network", .names = "--host", .env = "LLAMA_ARG_HOST", .value = kText,
     .metavar = "HOST,...", .fallback = "127.0.0.1",
     .help = "Addresses to listen on; unix:PATH, and a name ending in .sock, is a UNIX socket, and "
             "one that a crash left behind is replaced.",
     .apply = BLOOMERY_SET(s.hosts = SplitList(i.text))},
    {.group = "Network", .names = "--port", .env = "LLAMA_ARG_PORT", .value = kInteger,
     .metavar = "N", .fallback = "8080", .min = 0, .max = 65535,
     .help = "Port to listen on; 0 takes any free one, which is printed.",
     .apply = BLOOMERY_SET(s.port = static_cast<int>(i.integer))},
    {.group = "Network", .names = "--reuse-port", .env = "LLAMA_ARG_REUSE_PORT", .value = kSwitch,
     .fallback = "off", .help = "Let several servers share the port.",
     .apply = BLOOMERY_SET(s.reuse_port = i.on)},
    {.group = "Network", .names = "--api-prefix", .env = "LLAMA_ARG_API_PREFIX", .value = kText,
     .metavar = "PATH", .help = "Put this in front of every route.",
     .apply = BLOOMERY_SET(s.api_prefix = i.text)},
    {.group = "Network", .names = "--api-key", .env = "LLAMA_API_KEY", .value = kText,
     .metavar = "KEY,...", .fallback = "none", .secret = true,
     .help = "Keys a client must send as a Bearer token or X-Api-Key. Without one nobody is asked.",
     .apply = BLOOMERY_SET(SetApiKeys(s, i))},
    {.group = "Network", .names = "--api-key-file", .env = "LLAMA_ARG_API_KEY_FILE", .value = kText,
     .metavar = "FILE", .fallback = "none",
     .help = "Further keys, one a line; empty lines and lines with # are skipped.",
     .apply = BLOOMERY_SET(s.api_key_file = i.text)},
    {.group = "Network", .names = "--cors-origins", .env = "LLAMA_ARG_CORS_ORIGINS", .value = kText,
     .metavar = "ORIGINS", .fallback = "*",
     .help = "Access-Control-Allow-Origin: * echoes any origin, localhost echoes this machine's, "
             "anything else is sent as it is.", .apply = BLOOMERY_SET(s.cors_origins = i.text)},
    {.group = "Network", .names = "--cors-methods", .env = "LLAMA_ARG_CORS_METHODS", .value = kText,
     .metavar = "LIST", .fallback = "GET, POST, DELETE, OPTIONS",
     .help = "Access-Control-Allow-Methods.", .apply = BLOOMERY_SET(s.cors_methods = i.text)},
    {.group = "Network", .names = "--cors-headers", .env = "LLAMA_ARG_CORS_HEADERS", .value = kText,
     .metavar = "LIST", .fallback = "*", .help = "Access-Control-Allow-Headers.",
     .apply = BLOOMERY_SET(s.cors_headers = i.text)},
    {.group = "Network", .names = "--cors-credentials", .negative = "--no-cors-credentials",
     .env = "LLAMA_ARG_CORS_CREDENTIALS", .value = kSwitch, .fallback = "on",
     .help = "Access-Control-Allow-Credentials.", .apply = BLOOMERY_SET(s.cors_credentials = i.on)},
    {.group = "Network", .names = "-to --timeout", .env = "LLAMA_ARG_TIMEOUT", .value = kInteger,
     .metavar = "SECONDS", .fallback = "3600", .min = 1, .max = 86400,
     .help = "How long one write to a client may take.",
     .apply = BLOOMERY_SET(s.timeout_s = static_cast<int>(i.integer))},
    {.group = "Network", .names = "--threads-http", .env = "LLAMA_ARG_THREADS_HTTP",
     .value = kInteger, .metavar = "N", .fallback = "-1 (automatic)", .min = -1,
     .max = limits::kHttpThreadsMax,
     .help = "Threads that answer HTTP.",
     .apply = BLOOMERY_SET(s.http_threads = i.integer > 0 ? static_cast<int>(i.integer) : 0)},
    {.group = "Network", .names = "--sse-ping-interval", .env = "LLAMA_ARG_SSE_PING_INTERVAL",
     .value = kInteger, .metavar = "SECONDS", .fallback = "30", .min = -1, .max = 86400,
     .help = "A silent stream gets a comment this often; -1 turns it off.",
     .apply = BLOOMERY_SET(s.sse_ping_s = static_cast<int>(i.integer))},
    {.group = "Network", .names = "--slots", .negative = "--no-slots",
     .env = "LLAMA_ARG_ENDPOINT_SLOTS", .value = kSwitch, .fallback = "on",
     .help = "Answer /slots.", .apply = BLOOMERY_SET(s.slots_route = i.on)},
    {.group = "Network", .names = "--props", .env = "LLAMA_ARG_ENDPOINT_PROPS", .value = kSwitch,
     .fallback = "off", .help = "Accept POST /props.",
     .apply = BLOOMERY_SET(s.props_writable = i.on)},
    {.group = "Network", .names = "--metrics", .env = "LLAMA_ARG_ENDPOINT_METRICS",
     .value = kSwitch, .fallback = "on", .help = "/metrics is always answered.",
     .apply = BLOOMERY_SET({})},
    {.group = "Network", .names = "--slot-save-path",
     .env = "LLAMA_ARG_SLOT_SAVE_PATH BLOOMERY_SLOT_SAVE_PATH", .value = kText, .metavar = "DIR", .fallback = "none",
     .help = "The folder, which must exist, where POST /slots/ID?action=save and restore have their "
             "files; without it they answer 501.",
     .apply = BLOOMERY_SET(s.slot_save_path = i.text)},
    {.group = "Network", .names = "--media-path", .value = kText, .metavar = "DIR",
     .support = kRefused, .help = "The server opens no local media files."},
    {.group = "Network", .names = "--path", .env = "LLAMA_ARG_STATIC_PATH", .value = kText,
     .metavar = "DIR", .fallback = "the built-in page",
     .help = "Serve the files of this folder, which must exist, at / in place of the web page.",
     .apply = BLOOMERY_SET(s.page_folder = i.text)},
    {.group = "Network", .names = "--ssl-key-file", .env = "LLAMA_ARG_SSL_KEY_FILE", .value = kText,
     .metavar = "FILE", .fallback = "none",
     .help = "Speak TLS: the private key, PEM without a passphrase. Needs --ssl-cert-file.",
     .apply = BLOOMERY_SET(s.ssl_key_file = i.text)},
    {.group = "Network", .names = "--ssl-cert-file", .env = "LLAMA_ARG_SSL_CERT_FILE",
     .value = kText, .metavar = "FILE", .fallback = "none",
     .help = "The certificate, PEM, with those that lead to its root behind it.",
     .apply = BLOOMERY_SET(s.ssl_cert_file = i.text)},
    {.group = "Network", .names = "--drain-seconds", .env = "BLOOMERY_DRAIN_SECONDS",
     .value = kInteger, .metavar = "N", .fallback = "5", .min = 0, .max = 3600,
     .help = "How long answers in progress may go on after SIGTERM, SIGINT or POST /shutdown.",
     .apply = BLOOMERY_SET(s.drain_s = static_cast<int>(i.integer))},
    {.group = "Network", .names = "--ui --webui", .negative = "--no-ui --no-webui",
     .env = "LLAMA_ARG_UI", .value = kSwitch, .fallback = "on",
     .help = "Serve the web page at /.", .apply = BLOOMERY_SET(s.page = i.on)},
    {.group = "Network", .names = "--ui-config --webui-config", .env = "LLAMA_ARG_UI_CONFIG",
     .value = kText, .metavar = "JSON", .fallback = "{}",
     .help = "The page's settings where the browser has none of its own, an object "
             "(docs/serving.md, The page).",
     .apply = BLOOMERY_SET(SetPageSettings(s, i))},
    {.group = "Network", .names = "--ui-config-file --webui-config-file",
     .env = "LLAMA_ARG_UI_CONFIG_FILE", .value = kText, .metavar = "FILE", .fallback = "none",
     .help = "A file with that object.", .apply = BLOOMERY_SET(s.ui_config_file = i.text)},
    {.group = "Network", .names = "--ui-mcp-proxy --webui-mcp-proxy",
     .negative = "--no-ui-mcp-proxy --no-webui-mcp-proxy", .env = "LLAMA_ARG_UI_MCP_PROXY",
     .value = kSwitch, .support = kRefused, .help = kNoTools, .apply = BLOOMERY_ACCEPT_IF(!i.on)},
    {.group = "Network", .names = "--tools", .env = "LLAMA_ARG_TOOLS", .value = kText, .metavar = "LIST", .support = kRefused,
     .help = kNoTools},
    {.group = "Network", .names = "--tools-runtime", .env = "LLAMA_ARG_TOOLS_RUNTIME", .value = kText, .metavar = "NAME",
     .support = kRefused, .help = kNoTools},
    {.group = "Network", .names = "--mcp-servers-config",
     .env = "LLAMA_ARG_MCP_SERVERS_CONFIG", .value = kText, .metavar = "FILE",
     .support = kRefused, .help = kNoTools},
    {.group = "Network", .names = "--mcp-servers-json", .env = "LLAMA_ARG_MCP_SERVERS_JSON",
     .value = kText, .metavar = "JSON",
     .support = kRefused, .help = kNoTools},
    {.group = "Network", .names = "-ag --agent", .negative = "-no-ag --no-agent",
     .env = "LLAMA_ARG_AGENT", .value = kSwitch,
     .support = kRefused, .help = kNoTools, .apply = BLOOMERY_ACCEPT_IF(!i.on)},
    {.group = "Network", .names = "--models-dir", .env = "LLAMA_ARG_MODELS_DIR", .value = kText,
     .metavar = "DIR", .support = kRefused, .help = kOneModel},
    {.group = "Network", .names = "--models-preset", .env = "LLAMA_ARG_MODELS_PRESET",
     .value = kText, .metavar = "FILE", .support = kRefused, .help = kOneModel},
    {.group = "Network", .names = "--models-max", .env = "LLAMA_ARG_MODELS_MAX", .value = kInteger,
     .metavar = "N", .support = kRefused, .help = kOneModel},
    {.group = "Network", .names = "--models-autoload", .negative = "--no-models-autoload",
     .env = "LLAMA_ARG_MODELS_AUTOLOAD", .value = kSwitch, .support = kRefused, .help = kOneModel,
     .apply = BLOOMERY_ACCEPT_IF(!i.on)},
    {.group = "Network", .names = "--embedding --embeddings", .env = "LLAMA_ARG_EMBEDDINGS",
     .value = kSwitch, .support = kRefused, .help = "Embeddings are not in this version."},
    {.group = "Network", .names = "--rerank --reranking", .env = "LLAMA_ARG_RERANKING",
     .value = kSwitch, .support = kRefused, .help = "Reranking is not in this version."},
    {.group = "Network", .names = "--pooling", .env = "LLAMA_ARG_POOLING", .value = kText,
     .metavar = "TYPE", .support = kRefused, .help = "Embeddings are not in this version."},
    {.group = "Network", .names = "--embd-normalize", .value = kInteger, .metavar = "N",
     .support = kRefused, .help = "Embeddings are not in this version."},
};
// clang-format on

}  // namespace

std::span<const Flag> Network() { return kFlags; }

}  // namespace bloomery::serve::rows
