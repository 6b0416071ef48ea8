// The rates of this machine that predictions need: measured by `bloomery doctor`, kept in the
// user's cache folder under a key of machine, cards and driver, so that another machine's are never
// taken for this one's. Measuring takes some seconds, memory and all threads; reading takes
// neither.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "runtime/apps/recommend.h"
#include "runtime/memory/predict.h"
#include "runtime/serve/json_value.h"

namespace bloomery::apps {

// "…/bloomery/rates.json" under XDG_CACHE_HOME or HOME's .cache; empty where neither is set.
std::string RatesPath(const std::map<std::string, std::string>& environment);

// What the rates hang on: processor, cores, cards with their memory, the driver.
std::string RatesKey(const MachineView& machine);

// The rates kept for `key`; none where there are none, or the file is not one of ours.
std::optional<memory::MachineRates> ReadRates(const std::string& path, const std::string& key);

// Keeps them beside those of other keys, making folders as needed; the oldest give way beyond 16.
// A file that is not one of ours is replaced. Error(kNoInput) naming what cannot be written.
void WriteRates(const std::string& path, const std::string& key, const memory::MachineRates& rates);

// Measures the host's rates, and those of the cards where there are any that work; of `model_file`
// (empty: none) how fast it is read.
memory::MachineRates MeasureRates(const std::string& model_file);

serve::Json RatesJson(const memory::MachineRates& rates);

}  // namespace bloomery::apps
