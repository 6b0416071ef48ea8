#include "runtime/apps/doctor.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>

#include "runtime/apps/cards_json.h"
#include "runtime/apps/commands.h"
#include "runtime/apps/program.h"
#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/exec/card_loading.h"
#include "runtime/memory/plan.h"
#include "runtime/serve/dialect.h"

namespace bloomery::apps {
namespace {

using serve::Json;

constexpr const char* kHelp =
    "Usage: bloomery doctor [--json] [--quick] [-m FILE] [--plugin-dir DIR]\n"
    "\n"
    "Prints what this machine has, what is wrong, and its rates: memory of the host and of each\n"
    "card, the link between them, multiply-adds, experts on the host, and with -m how fast that\n"
    "file is read. They are kept in the cache folder for the predictions of `bloomery plan` and\n"
    "--dry-run. --quick measures nothing. Takes all threads and up to 5 GiB for some seconds.\n";

std::string Rate(double bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f GB/s", bytes / 1e9);
  return text.data();
}

void PrintRates(std::ostream& out, const DoctorView& view) {
  if (!view.rates) {
    out << "rates: not measured yet\n";
    return;
  }
  const memory::MachineRates& rates = *view.rates;
  out << "rates (" << (view.measured ? "measured now" : "measured before") << "):\n";
  out << "  the host reads " << Rate(rates.host_read) << ", multiplies "
      << static_cast<int64_t>(rates.host_macs / 1e9) << " G int8 values a second\n";
  if (rates.experts.bytes > 0) {
    std::array<char, 160> text{};
    std::snprintf(text.data(), text.size(),
                  "  an expert of %.2f MB takes the host %.1f us, a dispatch of some %.1f us more; "
                  "in prompts %.1f us and %.2f a row\n",
                  static_cast<double>(rates.experts.bytes) / 1e6, rates.experts.expert_us,
                  rates.experts.dispatch_us, rates.experts.fixed_us, rates.experts.row_us);
    out << text.data();
  }
  if (rates.file_read > 0) out << "  the file is read at " << Rate(rates.file_read) << '\n';
  for (const memory::CardRates& card : rates.cards) {
    out << "  " << card.id << " reads " << Rate(card.read) << "; to it " << Rate(card.to_card)
        << ", from it " << Rate(card.from_card);
    if (card.to_card_beside > 0) {
      out << ", to it beside experts of the host " << Rate(card.to_card_beside);
    }
    if (card.hand_off > 0) {
      std::array<char, 48> text{};
      std::snprintf(text.data(), text.size(), "; host and card answer in %.1f us",
                    card.hand_off * 1e6);
      out << text.data();
    }
    out << '\n';
  }
}

DoctorView LookAtAll(const std::vector<std::string>& plugin_dirs) {
  const auto environment = Environment();
  const auto path = environment.find("BLOOMERY_PLUGIN_PATH");
  DoctorView view;
  view.machine = LookAtMachine();
  view.has_driver = exec::DriverIsThere() || !view.machine.cards.empty();
  try {
    view.cards = exec::CardLines();
  } catch (const Error& error) {
    view.no_cards = error.what();
  }
  view.plugins = plugin::Discover(plugin::SearchList(
      plugin_dirs, path == environment.end() ? std::string() : path->second, ExecutablePath()));
  view.rates_path = RatesPath(environment);
  return view;
}

void Measure(DoctorView& view, const std::string& model) {
  view.rates = MeasureRates(model);
  view.measured = true;
  if (view.rates_path.empty()) {
    view.rates_trouble = "neither XDG_CACHE_HOME nor HOME is set";
    return;
  }
  try {
    const std::string key = RatesKey(view.machine);
    if (model.empty()) {  // a file's rate of an earlier run stays
      const auto before = ReadRates(view.rates_path, key);
      if (before) view.rates->file_read = before->file_read;
    }
    WriteRates(view.rates_path, key, *view.rates);
  } catch (const Error& error) {
    view.rates_trouble = error.what();
  }
}

}  // namespace

std::vector<Problem> ProblemsOf(const DoctorView& view) {
  std::vector<Problem> problems;
  const auto& features = view.machine.features;
  if (!features.empty() && std::ranges::find(features, "avx2") == features.end()) {
    problems.push_back({"the processor has no AVX2", "another machine, or --isa scalar"});
  }
  if (view.plugins.candidates.empty()) {
    problems.push_back({"there is no plugin, so no model can be read",
                        "install the bundle whole, or name a folder with --plugin-dir"});
  }
  for (const plugin::Verdict& verdict : view.plugins.verdicts) {
    if (!verdict.skipped) continue;
    problems.push_back({"plugin " + verdict.path + " is skipped: " + verdict.text,
                        "bloomery check-plugin " + verdict.path});
  }
  if (view.has_driver && view.cards.empty()) {
    problems.push_back({view.no_cards, "bloomery-serve --device none goes on without a card"});
  }
  if (!view.rates_trouble.empty()) {
    problems.push_back({"the rates cannot be kept: " + view.rates_trouble,
                        "make the cache folder writable, or set XDG_CACHE_HOME"});
  }
  if (!view.rates) {
    problems.push_back({"no rates are kept, so plans predict nothing", "bloomery doctor"});
  }
  return problems;
}

Json DoctorJson(const DoctorView& view) {
  Json plugins = Json::Array();
  for (const plugin::Candidate& plugin : view.plugins.candidates) {
    plugins.Append(plugin.manifest_path);
  }
  Json problems = Json::Array();
  for (const Problem& problem : ProblemsOf(view)) {
    problems.Append(Json::Object({{"what", problem.what}, {"next", problem.next}}));
  }
  Json document = Json::Object({{"schema", 1}, {"version", serve::BuildName()}});
  document.Set("host", HostJson(view.machine));
  document.Set("devices", CardsJson(view.machine.cards));
  document.Set("no_cards", view.no_cards.empty() ? Json() : Json(view.no_cards));
  document.Set("plugins", std::move(plugins));
  document.Set("rates", view.rates ? RatesJson(*view.rates) : Json());
  document.Set("rates_measured", view.measured);
  document.Set("rates_file", view.rates_path);
  document.Set("problems", std::move(problems));
  return document;
}

void PrintDoctor(std::ostream& out, const DoctorView& view) {
  const MachineView& machine = view.machine;
  out << serve::BuildName() << "\nhost: " << machine.cpu << ", " << machine.cores << " cores";
  for (const std::string& feature : machine.features) out << ' ' << feature;
  out << "; " << memory::FormatBytes(machine.ram_total) << " of memory";
  if (machine.available) {
    out << ", " << memory::FormatBytes(machine.available->bytes) << " available ("
        << machine.available->source << ")";
  }
  out << '\n';
  for (const std::string& card : view.cards) out << card << '\n';
  if (view.cards.empty()) out << "cards: " << view.no_cards << '\n';
  for (const plugin::Candidate& plugin : view.plugins.candidates) {
    out << "plugin: " << plugin.manifest_path << '\n';
  }
  PrintRates(out, view);
  const std::vector<Problem> problems = ProblemsOf(view);
  if (problems.empty()) out << "nothing is wrong\n";
  for (const Problem& problem : problems) {
    out << "wrong: " << problem.what << "\n  next: " << problem.next << '\n';
  }
}

int DoctorCommand(const std::vector<std::string>& arguments) {
  bool json = false;
  bool quick = false;
  std::string model;
  std::vector<std::string> plugin_dirs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == arguments.size()) throw Error(ErrorKind::kUsage, word + ": a value is missing");
      return arguments[++i];
    };
    if (word == "-h" || word == "--help") {
      std::cout << kHelp;
      return kExitOk;
    }
    if (word == "--json") {
      json = true;
    } else if (word == "--quick") {
      quick = true;
    } else if (word == "-m" || word == "--model") {
      model = value();
    } else if (word == "--plugin-dir") {
      plugin_dirs.push_back(value());
    } else {
      throw Error(ErrorKind::kUsage, "'" + Printable(word) + "': unexpected",
                  "bloomery doctor --help");
    }
  }
  DoctorView view = LookAtAll(plugin_dirs);
  if (quick) {
    view.rates = ReadRates(view.rates_path, RatesKey(view.machine));
  } else {
    Measure(view, model);
  }
  if (json) {
    std::cout << DoctorJson(view).Text() << '\n';
  } else {
    PrintDoctor(std::cout, view);
  }
  return kExitOk;
}

}  // namespace bloomery::apps
