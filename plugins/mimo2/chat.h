// How MiMo-V2 models are talked to: the extension bloomery.chat/1.
#pragma once

#include <bloomery/chat.h>

#include <cstdint>

namespace bloomery::mimo2 {

// Constant; the template is the file's own.
const bl_chat_1& Chat();
// Of a model with so many tokens: where it has those of the releases, their stop ids, too.
const bl_chat_1& ChatOf(uint64_t vocabulary);

}  // namespace bloomery::mimo2
