"""Whole chat templates of our own, each using the features its family's templates use, and the
conversations they are rendered with."""

TEMPLATES = {}

# Hermes-style JSON tools, reasoning kept only after the last real question, tags split off by hand.
TEMPLATES["hermes"] = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Functions\\nOne JSON signature a line:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\nAnswer {\\"name\\": ..., \\"arguments\\": ...} inside <tool_call></tool_call>.<|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set state = namespace(searching=true, question=messages|length - 1) %}
{%- for m in messages[::-1] %}
    {%- set at = (messages|length - 1) - loop.index0 %}
    {%- if state.searching and m.role == "user" and m.content is string and not (m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}
        {%- set state.searching = false %}
        {%- set state.question = at %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set body = m.content if m.content is string else '' %}
    {%- if m.role == "user" or (m.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + m.role + '\\n' + body + '<|im_end|>' + '\\n' }}
    {%- elif m.role == "assistant" %}
        {%- set thought = '' %}
        {%- if m.reasoning_content is string %}
            {%- set thought = m.reasoning_content %}
        {%- elif '</think>' in body %}
            {%- set thought = body.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set body = body.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > state.question and (loop.last or thought) %}
            {{- '<|im_start|>assistant\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + body.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>assistant\\n' + body }}
        {%- endif %}
        {%- for call in m.tool_calls or [] %}
            {%- if (loop.first and body) or (not loop.first) %}{{- '\\n' }}{%- endif %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<tool_call>\\n{"name": "' }}{{- call.name }}{{- '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif m.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- body }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""

# XML tool calls, macros over schema dicts, previtem and nextitem.
TEMPLATES["coder"] = """\
{% macro extra(dict, known) %}
    {%- if dict is mapping %}
        {%- for key in dict if key not in known %}
            {%- if dict[key] is mapping or (dict[key] is sequence and dict[key] is not string) %}
                {{- '\\n<' ~ key ~ '>' ~ (dict[key] | tojson | safe) ~ '</' ~ key ~ '>' }}
            {%- else %}
                {{- '\\n<' ~ key ~ '>' ~ (dict[key] | string) ~ '</' ~ key ~ '>' }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{% endmacro %}

{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{%- if tools is not defined %}{%- set tools = [] %}{%- endif %}
{%- if system_message is defined %}
    {{- "<|im_start|>system\\n" + system_message }}
{%- elif tools is iterable and tools | length > 0 %}
    {{- "<|im_start|>system\\nYou help with code." }}
{%- endif %}
{%- if tools is iterable and tools | length > 0 %}
    {{- "\\n\\nFunctions:\\n<tools>" }}
    {%- for tool in tools %}
        {%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
        {{- "\\n<function>\\n<name>" ~ tool.name ~ "</name>" }}
        {%- if tool.description is defined %}{{- '\\n<description>' ~ (tool.description | trim) ~ '</description>' }}{%- endif %}
        {%- if tool.parameters is defined and tool.parameters is mapping and tool.parameters.properties is mapping %}
            {%- for name, fields in tool.parameters.properties | items %}
                {{- '\\n<parameter>\\n<name>' ~ name ~ '</name>' }}
                {%- if fields.type is defined %}{{- '\\n<type>' ~ (fields.type | string) ~ '</type>' }}{%- endif %}
                {{- extra(fields, ['name', 'type']) }}
                {{- '\\n</parameter>' }}
            {%- endfor %}
        {%- endif %}
        {{- extra(tool, ['type', 'name', 'description', 'parameters']) }}
        {{- '\\n</function>' }}
    {%- endfor %}
    {{- "\\n</tools>" }}
{%- endif %}
{%- if system_message is defined or (tools is iterable and tools | length > 0) %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- for message in rest %}
    {%- if message.role == "assistant" and message.tool_calls is defined and message.tool_calls is iterable and message.tool_calls | length > 0 %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content is defined and message.content is string and message.content | trim | length > 0 %}
            {{- '\\n' + message.content | trim + '\\n' }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
            {%- if tool_call.arguments is defined %}
                {%- for args_name, args_value in tool_call.arguments | items %}
                    {{- '<parameter=' + args_name + '>\\n' }}
                    {%- set args_value = args_value | tojson | safe if args_value is mapping or (args_value is sequence and args_value is not string) else args_value | string %}
                    {{- args_value }}
                    {{- '\\n</parameter>\\n' }}
                {%- endfor %}
            {%- endif %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role in ["user", "system", "assistant"] %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>user\\n' }}{%- endif %}
        {{- '<tool_response>\\n' ~ message.content ~ '\\n</tool_response>\\n' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}{{- '<|im_end|>\\n' }}{%- elif loop.last %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

# Content macro over typed parts with counters, exceptions, thinking opened in the prompt.
TEMPLATES["parts"] = """\
{%- set image_count = namespace(value=0) %}
{%- macro render_content(content, counting, is_system=false) %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for item in content %}
            {%- if 'image' in item or 'image_url' in item or item.type == 'image' %}
                {%- if is_system %}{{- raise_exception('A system message cannot show images.') }}{%- endif %}
                {%- if counting %}{%- set image_count.value = image_count.value + 1 %}{%- endif %}
                {%- if add_vision_id %}{{- 'Picture ' ~ image_count.value ~ ': ' }}{%- endif %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif 'text' in item %}
                {{- item.text }}
            {%- else %}
                {{- raise_exception('Unexpected item type in content.') }}
            {%- endif %}
        {%- endfor %}
    {%- elif content is none or content is undefined %}
        {{- '' }}
    {%- else %}
        {{- raise_exception('Unexpected content type.') }}
    {%- endif %}
{%- endmacro %}
{%- if not messages %}{{- raise_exception('No messages provided.') }}{%- endif %}
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '<|im_start|>system\\n# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools>" }}
    {%- if messages[0].role == 'system' %}
        {%- set content = render_content(messages[0].content, false, true)|trim %}
        {%- if content %}{{- '\\n\\n' + content }}{%- endif %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + render_content(messages[0].content, false, true)|trim + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- if ns.multi_step_tool %}{{- raise_exception('No user query found in messages.') }}{%- endif %}
{%- for message in messages %}
    {%- set content = render_content(message.content, true)|trim %}
    {%- if message.role == "system" %}
        {%- if not loop.first %}{{- raise_exception('A system message must come first.') }}{%- endif %}
    {%- elif message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = message.reasoning_content|trim if message.reasoning_content is string else '' %}
        {%- if loop.index0 > ns.last_query_index or preserve_thinking %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls and message.tool_calls is iterable and message.tool_calls is not mapping %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
                {%- if loop.first %}
                    {%- if content|trim %}{{- '\\n\\n' }}{%- endif %}
                {%- else %}{{- '\\n' }}{%- endif %}
                {{- '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
                {%- if tool_call.arguments is mapping %}
                    {%- for name, value in tool_call.arguments|items %}
                        {{- '<parameter=' + name + '>\\n' }}
                        {{- value | tojson if value is mapping or (value is sequence and value is not string) else value | string }}
                        {{- '\\n</parameter>\\n' }}
                    {%- endfor %}
                {%- endif %}
                {{- '</function>\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != "tool" %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}
        {{- raise_exception('Unexpected message role.') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- else %}{{- '<think>\\n' }}{%- endif %}
{%- endif %}
"""

# XML tool calls with nothing between the tags, no newline between turns, a span in every assistant turn, and
# tools in a turn of their own or in a message.
TEMPLATES["inline"] = """\
{%- macro announce(tools) -%}
    {{- '<|im_start|>system\\nThese functions may be called:\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson(ensure_ascii=False)) }}{%- endfor %}
    {{- '\\n</tools><|im_end|>' }}
{%- endmacro -%}
{%- macro text(content) -%}
    {%- if content is string %}{{- content }}
    {%- elif content is iterable %}
        {%- for part in content %}
            {%- if part.type == 'text' %}{{- part.text }}{%- elif part.type == 'image_url' %}{{- '<|image_pad|>' }}{%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro -%}
{%- if tools %}{{- announce(tools) }}{%- endif %}
{%- for message in messages %}
    {%- if message.tools %}{{- announce(message.tools) }}{%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {{- '<think>' + (message.reasoning_content or '') + '</think>' }}
    {%- endif %}
    {{- text(message.content) }}
    {%- for call in message.tool_calls or [] %}
        {%- set function = call.function or call %}
        {{- '<tool_call><function=' + function.name + '>' }}
        {%- for key, value in (function.arguments or {}) | items %}
            {{- '<parameter=' + key + '>' }}
            {{- value if value is string else value | tojson(ensure_ascii=False) }}
            {{- '</parameter>' }}
        {%- endfor %}
        {{- '</function></tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think></think>' }}{%- endif %}
{%- endif %}
"""

# One-line tags, ensure_ascii=False, filtered loops, text macro, effort line.
TEMPLATES["glm"] = """\
[gMASK]<sop>
{%- set effort = reasoning_effort | default('max') %}
{%- if enable_thinking is not defined or enable_thinking %}<|system|>
Effort: {{ effort | capitalize }}{% endif %}
{%- macro visible(content) -%}
{%- if content is string %}{{- content }}{%- elif content is iterable and content is not mapping %}
    {%- for item in content if item is mapping and item.type == 'text' %}{{- item.text }}{%- endfor %}
{%- elif content is none %}{%- else %}{{- content }}{%- endif %}
{%- endmacro -%}
{%- if tools %}<|system|>
# Tools
<tools>
{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}
</tools>
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'user' %}<|user|>
{{ visible(m.content) }}
{%- elif m.role == 'assistant' %}<|assistant|>
{%- set content = visible(m.content) %}
{%- if m.reasoning_content is string %}{%- set thought = m.reasoning_content %}
{%- elif '</think>' in content %}
    {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
    {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{%- if thought is defined and thought %}{{ '<think>' + thought.strip() + '</think>' }}{%- else %}{{ '<think></think>' }}{%- endif %}
{%- if content.strip() %}{{ '\\n' + content.strip() }}{% endif %}
{%- if m.tool_calls %}
{%- for call in m.tool_calls %}
{%- set call = call.function if call.function else call %}
{{ '\\n<tool_call>' + call.name }}
{%- for k, v in call.arguments.items() %}
<arg_key>{{ k }}</arg_key><arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{%- endfor %}</tool_call>
{%- endfor %}
{%- endif %}
{%- elif m.role == 'tool' %}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|observation|>' }}{%- endif %}
{%- if m.content is string %}<tool_response>{{ m.content }}</tool_response>
{%- else %}{{- m.content[0].text if m.content and m.content.0.type == 'text' else '' }}{%- endif %}
{%- elif m.role == 'system' %}<|system|>
{{ visible(m.content) }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{{ '<think></think>' if (enable_thinking is defined and not enable_thinking) else '<think>' }}{%- endif %}
"""

# Full-width marks, joined system prompts, state in a namespace, arguments that may be JSON text.
TEMPLATES["deepseek"] = """\
{%- if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif -%}
{%- if thinking is not defined %}{% set thinking = enable_thinking | default(false) %}{% endif -%}
{%- set ns = namespace(in_user=false, is_tool=false, system='', first=true) -%}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {%- if ns.first %}{% set ns.system = ns.system + message['content'] %}{% set ns.first = false %}
        {%- else %}{% set ns.system = ns.system + '\\n\\n' + message['content'] %}{%- endif %}
    {%- endif %}
{%- endfor -%}
{%- if tools is defined and tools %}
    {%- set ns.system = ns.system ~ '\\n\\n## Tools' %}
    {%- for tool in tools %}{%- set ns.system = ns.system ~ '\\n' ~ tool.function.name ~ ': ' ~ (tool.function.parameters | tojson) %}{%- endfor %}
{%- endif -%}
{{ bos_token }}{{ ns.system }}
{%- for message in messages %}
    {%- if message['role'] == 'user' %}
        {%- set ns.is_tool = false %}{%- set ns.in_user = true %}
        {{- '<｜User｜>' + message['content'] }}
    {%- elif message['role'] == 'assistant' and message['tool_calls'] is defined and message['tool_calls'] is not none %}
        {%- if ns.in_user %}{{- '<｜Assistant｜></think>' }}{%- endif %}
        {%- set ns.in_user = false %}{%- set ns.is_tool = false %}
        {%- for tool in message['tool_calls'] %}
            {%- set args = tool['function']['arguments'] %}
            {%- if args is string %}{% set args = args | from_json %}{% endif %}
            {{- ('<｜calls｜>' if loop.index0 == 0) ~ tool['function']['name'] }}
            {%- for key, value in args.items() %}{{- '<｜' ~ key ~ '｜>' ~ (value if value is string else value | tojson) }}{%- endfor %}
        {%- endfor %}
        {{- '<｜end｜>' }}
    {%- elif message['role'] == 'assistant' %}
        {%- if ns.in_user %}{{- '<｜Assistant｜>' ~ ('<think>' if message['prefix'] is defined and message['prefix'] and thinking else '</think>') }}{%- endif %}
        {%- set ns.in_user = false %}
        {%- set content = message['content'] %}
        {%- if '</think>' in content %}{%- set content = content.split('</think>', 1)[1] %}{%- endif %}
        {{- content + '<｜end｜>' }}
    {%- elif message['role'] == 'tool' %}
        {%- set ns.is_tool = true %}
        {{- '<｜output｜>' + message['content'] + '<｜/output｜>' }}
    {%- endif %}
{%- endfor -%}
{%- if add_generation_prompt and (ns.in_user or ns.is_tool) %}{{ '<｜Assistant｜>' }}{{ '<think>' if thinking else '</think>' }}{%- endif %}
"""

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": " Weather of a <city> & more ", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "The city, e.g. 東京"}, "days": {"type": ["integer", "null"], "enum": [1, 3, 7], "minimum": 0.5}},
        "required": ["city"], "additionalProperties": False}, "strict": True}},
    {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}},
]


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def reply(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, ident="c1"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(text, ident="c1"):
    return {"role": "tool", "content": text, "tool_call_id": ident}


def conversations():
    """(name, context) pairs."""
    weather = call("get_weather", {"city": "東京", "days": 3, "opts": {"units": "C", "list": [1, 2.5, None, True]}})
    histories = {
        "one": [user("Hi")],
        "system": [system("Be brief."), user("Hi")],
        "multi": [user("Hi"), reply("Hello!"), user("How are you?")],
        "system_multi": [system("S"), user("a"), reply("b"), user("c"), reply("d"), user("e")],
        "unicode": [user("你好, wörld 🙂 <|im_end|> & \"quotes\" \\ back")],
        "white": [user("  padded \n\n"), reply("\n\n out \n"), user("\tx")],
        "empty": [user("")],
        "code": [user("```python\nprint('{{ x }}' % {1: 2})\n```")],
        "thought_inline": [user("a"), reply("<think>\nhmm\n</think>\n\nb"), user("c")],
        "thought_field": [user("a"), reply("b", reasoning_content="because\n"), user("c")],
        "thought_last": [user("a"), reply("b", reasoning_content="\nbecause")],
        "trailing": [user("a"), reply("half an ans")],
        "call": [user("Weather?"), reply(None, tool_calls=[weather]), result("{\"t\": 21}")],
        "call_text": [user("Weather?"), reply("Let me look.", tool_calls=[weather]), result("21"), reply("21 degrees."), user("Thanks")],
        "call_two": [user("w"), reply("", tool_calls=[weather, call("ping", {}, "c2")]), result("21"), result("pong", "c2")],
        "call_string": [user("w"), reply("", tool_calls=[call("get_weather", "{\"city\": \"Oslo\"}")]), result("3")],
        "call_thought": [system("S"), user("w"), reply("", reasoning_content="use it", tool_calls=[weather]), result("21"), reply("ok", reasoning_content="done"), user("x")],
        "parts": [user([{"type": "text", "text": "one"}, {"type": "text", "text": " two"}])],
        "image": [user([{"type": "image"}, {"type": "text", "text": "what?"}]), reply("a cat"), user([{"type": "image_url", "image_url": {"url": "x"}}])],
        "late_system": [user("a"), system("b"), user("c")],
        "odd_role": [user("a"), {"role": "narrator", "content": "b"}],
        "no_user": [system("a")],
        "no_messages": [],
    }
    for name, messages in histories.items():
        for tools in (False, True):
            for mode in ("plain", "think_off"):
                if mode == "think_off" and (tools or name in ("white", "code", "empty")):
                    continue
                context = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": name != "thought_last"}
                if tools:
                    context["tools"] = TOOLS
                if mode == "think_off":
                    context.update(enable_thinking=False, add_vision_id=True, preserve_thinking=True, reasoning_effort="high")
                yield f"{name}{'_tools' if tools else ''}{'_off' if mode == 'think_off' else ''}", context
