// Rows of the table of flags: what the program prints, where it reads its settings, and its log.
#include "runtime/serve/flag_rows.h"

namespace bloomery::serve::rows {
namespace {

// Packed by hand: one field a line, as clang-format would have it, is three times as long.
// clang-format off
constexpr Flag kFlags[] = {
    {.group = "General", .names = "-h --help --usage", .value = kSwitch,
     .help = "Print this help and exit."},
    {.group = "General", .names = "--version", .value = kSwitch,
     .help = "Print the version and exit."},
    {.group = "General", .names = "--help-markdown", .value = kSwitch,
     .help = "Print the flags as the table of docs/serving.md and exit."},
    {.group = "General", .names = "--completion-bash", .value = kSwitch,
     .help = "Print a completion script for bash and exit."},
    {.group = "General", .names = "--completion-zsh", .value = kSwitch,
     .help = "Print a completion script for zsh and exit."},
    {.group = "General", .names = "--completion-fish", .value = kSwitch,
     .help = "Print a completion script for fish and exit."},
    {.group = "General", .names = "--man", .value = kSwitch,
     .help = "Print the manual page (roff) and exit."},
    {.group = "General", .names = "--recommend", .value = kSwitch,
     .help = "Say which models fit this machine, best first, and exit. Opens no model and no card.",
     .apply = BLOOMERY_SET(s.recommend = i.on)},
    {.group = "General", .names = "--dry-run", .value = kSwitch,
     .help = "Find the model, plan its memory, say whether it fits, and exit as a start would.",
     .apply = BLOOMERY_SET(s.dry_run = i.on)},
    {.group = "General", .names = "--json", .env = "BLOOMERY_JSON", .value = kSwitch,
     .fallback = "off",
     .help = "Write JSON to stdout and nothing else: one document with --recommend and --dry-run, "
             "else one event a line up to ready or error (docs/agents.md).",
     .apply = BLOOMERY_SET(s.json = i.on)},
    {.group = "General", .names = "--config", .env = "BLOOMERY_CONFIG", .value = kText,
     .metavar = "FILE",
     .help = "Read this settings file instead of /etc/bloomery/serve.ini and "
             "$XDG_CONFIG_HOME/bloomery/serve.ini.", .apply = BLOOMERY_SET({})},
    {.group = "General", .names = "-v --verbose --log-verbose", .value = kSwitch,
     .help = "Log everything.", .apply = BLOOMERY_SET(s.log_level = 4)},
    {.group = "General", .names = "-lv --verbosity --log-verbosity",
     .env = "LLAMA_ARG_LOG_VERBOSITY", .value = kInteger, .metavar = "N", .fallback = "2", .min = 0,
     .max = 9, .help = "What is logged: 0 errors, 1 warnings too, 2 and above everything.",
     .apply = BLOOMERY_SET(s.log_level = static_cast<int>(i.integer))},
    {.group = "General", .names = "--log-disable", .value = kSwitch, .help = "Log errors only.",
     .apply = BLOOMERY_SET(s.log_level = 0)},
    {.group = "General", .names = "--log-file", .env = "LLAMA_ARG_LOG_FILE", .value = kText,
     .metavar = "FILE", .support = kIgnored, .help = "The log goes to stderr; redirect it."},
    {.group = "General", .names = "--log-prompts-dir", .value = kText, .metavar = "DIR",
     .support = kIgnored, .help = "Prompts are written to no file."},
    {.group = "General", .names = "--verbose-prompt", .value = kSwitch, .support = kIgnored,
     .help = "Prompts are in no log; POST /apply-template and /tokenize show them."},
    {.group = "General", .names = "--license", .value = kSwitch, .support = kRefused,
     .help = "The licence is share/doc/bloomery/LICENSE beside the program's folder."},
    {.group = "General", .names = "--log-colors", .env = "LLAMA_ARG_LOG_COLORS", .value = kText,
     .metavar = "WHEN", .support = kIgnored, .help = "The log has no colours."},
    {.group = "General", .names = "--log-prefix", .negative = "--no-log-prefix",
     .env = "LLAMA_ARG_LOG_PREFIX", .value = kSwitch, .support = kIgnored,
     .help = "Log lines always have a prefix."},
    {.group = "General", .names = "--log-timestamps", .negative = "--no-log-timestamps",
     .env = "LLAMA_ARG_LOG_TIMESTAMPS", .value = kSwitch, .support = kIgnored,
     .help = "Log lines always have a time stamp."},
    {.group = "General", .names = "--log-jsonl", .negative = "--no-log-jsonl",
     .env = "LLAMA_ARG_LOG_JSONL", .value = kSwitch,
     .fallback = "off", .help = "The log is one JSON object a line (docs/serving.md, The log).",
     .apply = BLOOMERY_SET(s.log_jsonl = i.on)},
};
// clang-format on

}  // namespace

std::span<const Flag> General() { return kFlags; }

}  // namespace bloomery::serve::rows
