// Cards as JSON, the same wherever the programs tell of them (--recommend, GET /props).
#pragma once

#include <span>

#include "runtime/exec/nvml.h"
#include "runtime/serve/json_value.h"

namespace bloomery::apps {

// [{"index":0,"name":"NVIDIA H200","sm":"9.0","vram_total":…,"vram_free":…,"driver_cuda":"13.0",
// "holders":[{"pid":…,"name":…,"bytes":…}]}]; with "holders_untold" where a reason is known.
serve::Json CardsJson(std::span<const exec::VideoCard> cards);

}  // namespace bloomery::apps
