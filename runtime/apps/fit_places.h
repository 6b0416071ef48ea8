// Where a smaller context is tried when the one that a model was trained with does not fit: which
// of the places that were planned for it comes first, and the settings that come to one of them
// again. Pure: no card is opened.
#pragma once

#include <vector>

#include "runtime/memory/placement.h"
#include "runtime/serve/settings.h"

namespace bloomery::apps {

// Whether a placement of the trained context may be loaded as it is, after `refused` others (of the
// same context): no split that nobody asked for, and no host after cards, which a smaller context
// might keep. Another card that holds the model whole, or several, are as good as the first.
bool IsAsMeant(const memory::Placement& placement, bool any_refused);

// Several cards before one, which holds less; else as they were planned.
void OrderForContext(std::vector<memory::Placement>& refused);

// The settings with the placement's devices for those that were given, so that the same place is
// planned first.
serve::ServeSettings SettingsOn(const memory::Placement& placement,
                                const serve::ServeSettings& settings);

}  // namespace bloomery::apps
