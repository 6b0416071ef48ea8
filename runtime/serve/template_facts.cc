#include "runtime/serve/template_facts.h"

namespace bloomery::serve {

Json CapsJson(const chat::TemplateCaps& caps) {
  return Json::Object({{"supports_system_role", caps.supports_system_role},
                       {"supports_tools", caps.supports_tools},
                       {"supports_tool_calls", caps.supports_tool_calls},
                       {"supports_parallel_tool_calls", caps.supports_parallel_tool_calls},
                       {"supports_string_content", caps.supports_string_content},
                       {"supports_typed_content", caps.supports_typed_content},
                       {"supports_object_arguments", caps.supports_object_arguments},
                       {"supports_preserve_reasoning", caps.supports_preserve_reasoning},
                       {"supports_reasoning_effort", caps.supports_reasoning_effort},
                       {"supports_enable_thinking", caps.supports_enable_thinking}});
}

const char* TemplateOrigin(const chat::ChatTemplate& chat_template, bool overridden) {
  if (chat_template.is_fallback()) return "fallback chatml";
  return overridden ? "override" : "file";
}

}  // namespace bloomery::serve
