// How Qwen3 models are talked to: the extension bloomery.chat/1.
#pragma once

#include <bloomery/chat.h>

namespace bloomery::qwen3 {

// Constant; the template and the stop tokens are the file's own.
const bl_chat_1& Chat();
// Of the hybrid models, which write their calls as XML.
const bl_chat_1& HybridChat();

}  // namespace bloomery::qwen3
