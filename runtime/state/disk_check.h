// Whether a folder could be the prompt cache's, before a model is there. Any thread.
#pragma once

#include <string>

namespace bloomery::state {

// What DiskTier's constructor (disk_tier.h) would throw for `folder`, without making or changing
// anything.
void CheckDiskFolder(const std::string& folder);

}  // namespace bloomery::state
