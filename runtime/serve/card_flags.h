// The flags that say which cards a model lies on and how it is shared among them: how their values
// are read (flags_engine.cc has the rows), and what cannot be meant together. Pure; opens no card,
// so whether there are such cards shows when the model is loaded. Used by the table of flags alone.
#pragma once

#include "runtime/serve/flags.h"

namespace bloomery::serve {

// --device: "auto", "none", "cpu", or cards, each once.
void SetDevice(ServeSettings& settings, const FlagInput& input);
// --split-mode: "layer" or "none".
void SetSplitMode(ServeSettings& settings, const FlagInput& input);
// --tensor-split: numbers between commas or slashes.
void SetCardShares(ServeSettings& settings, const FlagInput& input);
// --fit-target: MiB, one for all cards or one each.
void SetFitMargins(ServeSettings& settings, const FlagInput& input);

// Throws Error(kUsage) naming both for flags of placement that contradict each other.
void CheckPlacing(const ServeSettings& settings);
// After that: the one card of --split-mode none takes the place of the devices.
void TakeOneCard(ServeSettings& settings);

}  // namespace bloomery::serve
