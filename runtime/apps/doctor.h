// bloomery doctor: what this machine has for the programs, what is wrong with it, and how fast it
// is; for people and for programs (docs/agents.md). Measures, and keeps the rates for predictions
// (rates.h). Changes nothing else.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/apps/rates.h"
#include "runtime/apps/recommend.h"
#include "runtime/plugin/discovery.h"

namespace bloomery::apps {

// What doctor knows: looked at by LookAtAll, or made by a test.
struct DoctorView {
  MachineView machine = {};
  bool has_driver = false;              // of cards
  std::vector<std::string> cards = {};  // a line each, as --list-devices has them
  std::string no_cards = {};            // why there is none
  plugin::Discovery plugins = {};
  std::string rates_path = {};     // empty: there is no cache folder
  std::string rates_trouble = {};  // why they could not be kept
  std::optional<memory::MachineRates> rates = {};
  bool measured = false;  // now; else they were kept before
};

struct Problem {
  std::string what = {};
  std::string next = {};  // what to do
};

// What is wrong, worst first. A machine without any card and driver is not.
std::vector<Problem> ProblemsOf(const DoctorView& view);

serve::Json DoctorJson(const DoctorView& view);
void PrintDoctor(std::ostream& out, const DoctorView& view);

}  // namespace bloomery::apps
