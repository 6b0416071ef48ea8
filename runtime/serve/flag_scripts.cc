// Shell completion and the manual page, written from the table of flags.
#include "runtime/serve/flags.h"

namespace bloomery::serve {
namespace {

constexpr std::string_view kProgram = "bloomery-serve";

std::vector<std::string_view> Words(std::string_view text, char between) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = text.find(between);
    words.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return words;
}

std::vector<std::string_view> AllSpellings(const Flag& flag) {
  std::vector<std::string_view> names = FlagSpellings(flag);
  for (std::string_view name : Words(flag.negative, ' ')) names.push_back(name);
  return names;
}

// Offered: what does something. Refused flags are known, but nobody wants to be led to them.
bool IsOffered(const Flag& flag) { return flag.support == FlagSupport::kHonoured; }

bool TakesFile(const Flag& flag) { return flag.metavar == "FILE"; }
bool TakesFolder(const Flag& flag) { return flag.metavar == "DIR"; }

std::string Replaced(std::string_view text, std::string_view characters, std::string_view before) {
  std::string out;
  for (const char c : text) {
    if (characters.find(c) != std::string_view::npos) out += before;
    out.push_back(c);
  }
  return out;
}

std::string FirstSentence(std::string_view help) {
  const size_t end = help.find(". ");
  std::string_view text = help.substr(0, end);
  if (text.ends_with(".")) text.remove_suffix(1);
  return std::string(text);
}

std::string Joined(const std::vector<std::string_view>& words, std::string_view between) {
  std::string out;
  for (std::string_view word : words) {
    if (!out.empty()) out += between;
    out += word;
  }
  return out;
}

std::string Bash() {
  std::string files;
  std::string folders;
  std::string plain;
  std::string cases;
  std::string all;
  for (const Flag& flag : Flags()) {
    if (!IsOffered(flag)) continue;
    all.append(all.empty() ? "" : " ").append(Joined(AllSpellings(flag), " "));
    if (flag.value == FlagValue::kSwitch) continue;
    const std::string pattern = Joined(FlagSpellings(flag), "|");
    std::string& list = TakesFile(flag) ? files : TakesFolder(flag) ? folders : plain;
    if (flag.value == FlagValue::kChoice) {
      cases.append("    ").append(pattern).append(") COMPREPLY=($(compgen -W '");
      cases.append(Joined(Words(flag.choices, '|'), " ")).append("' -- \"$word\")); return ;;\n");
    } else {
      list.append(list.empty() ? "" : "|").append(pattern);
    }
  }
  std::string out =
      "# Completion of bloomery-serve for bash: source it, or put it where "
      "bash-completion looks.\n_bloomery_serve() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  COMPREPLY=()\n  case $last in\n";
  out.append(cases);
  out.append("    ").append(files).append(") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n");
  out.append("    ").append(folders).append(
      ") COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n");
  out.append("    ").append(plain).append(") return ;;\n  esac\n");
  out.append("  COMPREPLY=($(compgen -W '").append(all).append("' -- \"$word\"))\n}\n");
  return out.append("complete -o filenames -F _bloomery_serve bloomery-serve\n");
}

// "--flag[help]:value:action" in single quotes.
std::string Zsh() {
  std::string out = "#compdef bloomery-serve\n_arguments \\\n";
  for (const Flag& flag : Flags()) {
    if (!IsOffered(flag)) continue;
    std::string tail = "[" + Replaced(FirstSentence(flag.help), "[]:\\", "\\") + "]";
    if (flag.value != FlagValue::kSwitch) {
      tail += ":" + Replaced(flag.metavar, "[]:\\", "\\") + ":";
      if (TakesFile(flag)) tail += "_files";
      if (TakesFolder(flag)) tail += "_files -/";
      if (flag.value == FlagValue::kChoice) {
        tail += "(" + Joined(Words(flag.choices, '|'), " ") + ")";
      }
    }
    for (std::string_view name : AllSpellings(flag)) {
      std::string spec = (flag.repeats ? "*" : "") + std::string(name) + tail;
      for (size_t at = spec.find('\''); at != std::string::npos; at = spec.find('\'', at + 4)) {
        spec.replace(at, 1, "'\\''");
      }
      out.append("  '").append(spec).append("' \\\n");
    }
  }
  return out.append("  && return 0\n");
}

std::string Fish() {
  std::string out = "# Completion of bloomery-serve for fish.\ncomplete -c bloomery-serve -f\n";
  for (const Flag& flag : Flags()) {
    if (!IsOffered(flag)) continue;
    std::string tail;
    if (flag.value == FlagValue::kChoice) {
      tail += " -x -a '" + Joined(Words(flag.choices, '|'), " ") + "'";
    } else if (flag.value != FlagValue::kSwitch) {
      tail += TakesFile(flag)     ? " -r -F"
              : TakesFolder(flag) ? " -x -a '(__fish_complete_directories)'"
                                  : " -x";
    }
    tail += " -d '" + Replaced(FirstSentence(flag.help), "'\\", "\\") + "'\n";
    for (std::string_view name : AllSpellings(flag)) {
      out.append("complete -c bloomery-serve ");
      if (name.starts_with("--")) {
        out.append("-l ").append(name.substr(2));
      } else {
        out.append(name.size() == 2 ? "-s " : "-o ").append(name.substr(1));
      }
      out.append(tail);
    }
  }
  return out;
}

// Text for roff: a dash is a hyphen-minus, a backslash is one, no line begins a request.
std::string Roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '-') {
      out += "\\-";
    } else if (c == '\\') {
      out += "\\e";
    } else if (c == ';') {
      out += ";\\:";  // a line may break there: lists of names are longer than one
    } else {
      out.push_back(c);
    }
  }
  if (out.starts_with(".") || out.starts_with("'")) out.insert(0, "\\&");
  return out;
}

std::string Entry(const Flag& flag) {
  std::string out = ".TP\n.B " + Roff(Joined(AllSpellings(flag), ", "));
  if (!flag.metavar.empty()) out.append("\\fR \\fI").append(Roff(flag.metavar)).append("\\fR");
  out.append("\n").append(Roff(flag.help));
  if (flag.help.find_last_of(".!?)") != flag.help.size() - 1) out += '.';
  if (!flag.choices.empty()) {
    out.append("\nOne of: ").append(Roff(Joined(Words(flag.choices, '|'), ", "))).append(".");
  }
  if (!flag.fallback.empty()) out.append("\nDefault: ").append(Roff(flag.fallback)).append(".");
  std::string variables;
  for (std::string_view name : FlagVariables(flag)) {
    variables += (variables.empty() ? "" : ", ") + ("\\fB" + Roff(name) + "\\fR");
  }
  if (!variables.empty()) out.append("\nEnvironment: ").append(variables).append(".");
  return out.append("\n");
}

}  // namespace

std::string FlagsCompletion(FlagAction shell) {
  if (shell == FlagAction::kCompletionZsh) return Zsh();
  return shell == FlagAction::kCompletionFish ? Fish() : Bash();
}

std::string FlagsManual() {
  std::string out = ".TH BLOOMERY\\-SERVE 1 \"\" \"bloomery\" \"User Commands\"\n.SH NAME\n";
  out.append(kProgram.substr(0, 8)).append("\\-serve \\- serve a language model over HTTP\n");
  out +=
      ".SH SYNOPSIS\n.B bloomery\\-serve\n[\\fIflags\\fR]\n.SH DESCRIPTION\n"
      "Serves one model with the HTTP API of llama\\-server. With no model it serves the bundled "
      "demo model.\nEach flag has a key in the settings file, its first long name without "
      "dashes, and most have an environment variable. The command line wins over the "
      "environment, and that over /etc/bloomery/serve.ini and "
      "$XDG_CONFIG_HOME/bloomery/serve.ini.\n.SH OPTIONS\n";
  std::string_view group;
  std::string refused;
  for (const Flag& flag : Flags()) {
    if (!IsOffered(flag)) {
      refused.append(Entry(flag));
      continue;
    }
    if (flag.group != group) {
      group = flag.group;
      out.append(".SS ").append(group).append("\n");
    }
    out.append(Entry(flag));
  }
  out +=
      ".SH OTHER OPTIONS OF LLAMA\\-SERVER\nKnown by name: ignored with a warning, or refused, "
      "for the reason given.\n";
  out.append(refused);
  return out +=
         ".SH SEE ALSO\nbloomery(1): chat, pull, models, bench, perplexity, quantize, "
         "check\\-plugin.\n";
}

}  // namespace bloomery::serve
