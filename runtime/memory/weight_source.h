// How weights get into host memory. Apart from weights.h for what only passes the choice on.
#pragma once

namespace bloomery::memory {

// kAuto is settled by whoever plans: read where the plan fits, else map.
enum class WeightSource { kAuto, kRead, kMap };

}  // namespace bloomery::memory
