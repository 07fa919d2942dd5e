"""Writes chat.jsonl: what Python's Jinja2 3.1.6, set up as transformers does, makes of the same templates and messages.

    python3 make_chat.py > chat.jsonl

The templates are written for this test. Each uses the constructs that published templates of a family have.
"""

import json
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATES = {
    # No system role: its text goes before the first question. Roles alternate.
    "gemma": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set first = '' -%}{%- set rest = messages -%}
{%- endif -%}
{%- for m in rest -%}
    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('roles must take turns') }}{%- endif -%}
    {{ '<turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\\n' + (first if loop.first else '') }}
    {%- if m['content'] is string -%}{{ m['content'] | trim }}
    {%- elif m['content'] is iterable -%}
        {%- for part in m['content'] -%}{%- if part['type'] == 'text' -%}{{ part['text'] | trim }}{%- endif -%}{%- endfor -%}
    {%- else -%}{{ raise_exception('what is this?') }}{%- endif -%}
    {{ '</turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<turn>model\\n' }}{%- endif -%}
""",
    # Tools before the last question; calls as JSON; ids of nine characters.
    "mistral": """{%- if messages[0]["role"] == "system" %}{%- set system = messages[0]["content"] %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set questions = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}{{- bos_token }}
{%- for m in loop_messages %}
    {%- if m["role"] == "user" %}
        {%- if tools is not none and (m == questions[-1]) %}
            {{- "[TOOLS][" }}
            {%- for tool in tools %}{%- set tool = tool.function %}{{- '{"function": {' }}
                {%- for key, value in tool.items() if key != "return" %}
                    {%- if value is string %}{{- '"' + key + '": "' + value + '"' }}{%- else %}{{- '"' + key + '": ' + value|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}{{- "}}" }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}{{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system is defined %}{{- "[INST]" + system + "\\n\\n" + m["content"] + "[/INST]" }}{%- else %}{{- "[INST]" + m["content"] + "[/INST]" }}{%- endif %}
    {%- elif m.tool_calls is defined and m.tool_calls is not none %}
        {{- "[CALLS][" }}
        {%- for call in m.tool_calls %}
            {%- if call.id is not defined or call.id|length != 9 %}{{- raise_exception("an id has nine characters") }}{%- endif %}
            {%- set out = call.function|tojson %}{{- out[:-1] }}{{- ', "id": "' + call.id + '"}' }}{{- "]" + eos_token if loop.last else ", " }}
        {%- endfor %}
    {%- elif m["role"] == "assistant" %}{{- " " + m["content"]|trim + eos_token }}
    {%- elif m["role"] in ["tool", "tool_results"] %}
        {%- set content = m.content.content if m.content is mapping and m.content.content is defined else m.content %}
        {{- '[RESULTS]{"content": ' + content|string + ', "id": "' + m["tool_call_id"] + '"}[/RESULTS]' }}
    {%- else %}{{- raise_exception("unknown role") }}{%- endif %}
{%- endfor %}""",
    # Namespaces as flags, thoughts that are cut away, full-width bars.
    "deepseek": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, system='', first_system=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.first_system %}{% set ns.system = ns.system + message['content'] %}{% set ns.first_system = false %}{%- else %}{% set ns.system = ns.system + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{ '<｜User｜>' + message['content'] }}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' in message %}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{{ '<｜Assistant｜><｜calls｜>' + tool['function']['name'] + '\\n```json\\n' + tool['function']['arguments']|tojson + '\\n```' }}{%- set ns.is_first = true -%}{%- endif %}{%- endfor %}{{ '<｜end｜>' }}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<｜Assistant｜>' + content + '<｜end｜>' }}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{{ '<｜out｜>' + message['content'] }}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}{{ '<｜Assistant｜>' }}{% endif %}""",
    # Macros that call themselves, types as TypeScript, a date, an effort, channels.
    "harmony": """{#- Types #}
{%- macro type_of(spec, required, nullable=false) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}{{ type_of(spec['items'], required) + "[]" }}{%- else -%}{{ "any[]" }}{%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping and spec.type[0] is defined -%}
        {{- spec.type | join(" | ") if spec.type | length > 1 else spec.type[0] }}
    {%- elif spec.type == "string" -%}
        {%- if spec.enum -%}{{ '"' + spec.enum|join('" | "') + '"' }}{%- else -%}{{ "string" }}{%- if nullable %}{{ " | null" }}{%- endif -%}{%- endif -%}
    {%- elif spec.type in ["number", "integer"] -%}{{ "number" }}
    {%- elif spec.type == "object" -%}
        {%- if spec.properties -%}{{ "{" }}
            {%- for name, inner in spec.properties.items() -%}
                {{- name }}{%- if name not in (spec.required or []) -%}{{ "?" }}{%- endif -%}{{ ": " }}{{ type_of(inner, spec.required or []) }}{%- if not loop.last -%}{{ ", " }}{%- endif -%}
            {%- endfor -%}{{ "}" }}
        {%- else -%}{{ "object" }}{%- endif -%}
    {%- else -%}{{ "any" }}{%- endif -%}
{%- endmacro -%}
{%- macro space(name, tools) -%}
    {{- "namespace " + name + " {\\n" }}
    {%- for tool in tools %}{%- set tool = tool.function %}
        {{- "// " + tool.description + "\\ntype " + tool.name + " = (_: " + type_of(tool.parameters, []) }}
        {%- if tool.parameters.properties.days.default is defined %}{{- ", // default: " + tool.parameters.properties.days.default|string }}{%- endif %}{{- ") => any;\\n" }}
    {%- endfor %}{{- "}" }}
{%- endmacro -%}
{%- macro system_message() -%}
    {%- if model_identity is not defined %}{%- set model_identity = "A model." %}{%- endif %}
    {{- model_identity + "\\nDate: " + strftime_now("%%Y") + "\\n" }}
    {%- if reasoning_effort is not defined %}{%- set reasoning_effort = "medium" %}{%- endif %}
    {{- "Reasoning: " + reasoning_effort }}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}{{- system_message() }}{{- "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}{%- set instructions = messages[0].content %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set instructions = "" %}{%- set loop_messages = messages %}{%- endif %}
{%- if instructions or tools %}{{- "<|start|>developer<|message|>" + instructions }}{%- if tools %}{{- space("functions", tools) }}{%- endif %}{{- "<|end|>" }}{%- endif %}
{%- set last = namespace(name=none) %}
{%- for m in loop_messages %}
    {%- if 'tool_calls' in m %}{%- set call = m.tool_calls[0].function %}{%- set last.name = call.name %}{{- "<|start|>assistant to=functions." ~ call.name ~ "<|channel|>commentary<|message|>" ~ call.arguments|tojson ~ "<|call|>" }}
    {%- elif m.role == "assistant" and loop.last and not add_generation_prompt %}{{- "<|start|>assistant<|channel|>final<|message|>" + m.content + "<|return|>" }}
    {%- elif m.role == "assistant" %}{{- "<|start|>assistant<|channel|>final<|message|>" + m.content + "<|end|>" }}{%- set last.name = none %}
    {%- elif m.role == "tool" %}{%- if last.name is none %}{{- raise_exception("no call before") }}{%- endif %}{{- "<|start|>functions." + last.name + " to=assistant<|message|>" + m.content|tojson + "<|end|>" }}
    {%- else %}{{- "<|start|>user<|message|>" + m.content + "<|end|>" }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<|start|>assistant" }}{%- endif %}""",
    # Headers, tools in the first question, an environment, a default that a caller may change.
    "llama3": """{{- bos_token }}{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|h|>system<|/h|>\\n\\n" }}{%- if tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}{{- "Today: " + date_string + "\\n\\n" }}{{- system_message }}{{- "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}{{- '<|h|>' + message['role'] + '<|/h|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}{%- if not message.tool_calls|length == 1 %}{{- raise_exception("one call at a time") }}{%- endif %}{%- set call = message.tool_calls[0].function %}{{- '<|h|>assistant<|/h|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}{{- "}<|eot|>" }}
    {%- else %}{{- "<|h|>ipython<|/h|>\\n\\n" }}{%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}{{- "<|eot|>" }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|h|>assistant<|/h|>\\n\\n' }}{%- endif %}""",
    "phi": """{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|><|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + (message['content'] or '') + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}""",
    # A preamble, documents, lists of tools as JSON, a counter of results.
    "cohere2": """{{ bos_token }}{% set ns = namespace(results=0, preamble='You are kind.') %}{% for message in messages %}{% if message.role|lower == 'system' %}{% set ns.preamble = message.content %}{% endif %}{% endfor %}<|T|><|SYS|>{{ ns.preamble }}
{% if tools %}[
{% for tool in tools %}
    {"name": "{{ tool['function']['name'] }}", "parameters": {{ tool['function']['parameters']|tojson }}}{% if not loop.last %},{% endif %}

{% endfor %}
]{% endif %}{% if documents %}{% for doc in documents %}{{ doc.title|default('untitled', true) }}: {{ doc.text|replace('\\n', ' ') }}{% endfor %}{% endif %}<|/T|>
{%- for message in messages if message.role|lower != 'system' %}
{%- if message.role == 'tool' %}{% set ns.results = ns.results + 1 %}<|RES|>{{ ns.results }}: {{ message.content|tojson }}
{%- elif message.tool_calls %}<|ACT|>{% for c in message.tool_calls %}{{ c.function.arguments|tojson(indent=2) }}{% endfor %}
{%- else %}<|{{ message.role|upper }}|>{{ message.content|trim|capitalize }}{% endif %}<|/T|>
{%- endfor %}{% if add_generation_prompt %}<|T|><|BOT|>{% endif %}""",
    # Tools as Python writes them, a switch in the text, thoughts.
    "smollm3": """{%- set enable = enable_thinking if enable_thinking is defined else true %}
{%- if messages[0]["role"] == "system" %}{%- set system = messages[0]["content"] %}{%- if "/no_think" in system %}{%- set enable = false %}{%- endif %}{%- set system = system.replace("/no_think", "").rstrip() %}{%- endif %}
{{- "<|im_start|>system\\nMode: " + ("/think" if enable else "/no_think") + "\\n" }}{%- if system is defined %}{{- system }}{%- endif %}
{%- if tools %}{%- set ns = namespace(text="") %}{%- for tool in tools[:] %}{%- set ns.text = ns.text ~ (tool | string) ~ "\\n" %}{%- endfor %}{{- "<tools>\\n" + ns.text + "</tools>" }}{%- endif %}{{- "<|im_end|>\\n" }}
{%- for message in messages %}{%- set content = message.content if message.content is string else "" %}
    {%- if message.role == "user" %}{{- "<|im_start|>user\\n" + content + "<|im_end|>\\n" }}
    {%- elif message.role == "assistant" %}{%- if enable %}{{- "<|im_start|>assistant\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}{%- else %}{{- "<|im_start|>assistant\\n<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}{%- endif %}
    {%- elif message.role == "tool" %}{{- "<|im_start|>user\\n" + message.content + "<|im_end|>\\n" }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{%- if enable %}{{- "<|im_start|>assistant\\n" }}{%- else %}{{- "<|im_start|>assistant\\n<think>\\n\\n</think>\\n" }}{%- endif %}{%- endif %}""",
    # Sentences that grow, controls that may be there, documents.
    "granite": """{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set system_message = "Cutoff: April 2024." %}{%- if tools and documents %}{%- set system_message = system_message + " Both." %}{%- elif tools %}{%- set system_message = system_message + " Tools." %}{%- elif documents %}{%- set system_message = system_message + " Documents." %}{%- endif %}{%- if controls and 'length' in controls and controls.length is not none %}{%- set system_message = system_message + " " + controls['length'] %}{%- endif %}{%- set loop_messages = messages %}{%- endif %}{{- '<|r|>system<|/r|>' + system_message + '<|e|>\\n' }}{%- if tools %}{{- '<|r|>tools<|/r|>' }}{{- tools | tojson(indent=4) }}{{- '<|e|>\\n' }}{%- endif %}{%- for message in loop_messages %}{{- '<|r|>' + message['role'] + '<|/r|>' + (message['content'] if message['content'] else '') + '<|e|>\\n' }}{%- if loop.last and add_generation_prompt %}{{- '<|r|>assistant' }}{%- if controls %}{{- ' ' + controls | tojson }}{%- endif %}{{- '<|/r|>' }}{%- endif %}{%- endfor %}""",
    # A table of roles, messages by number, none and booleans in the text.
    "exaone4": """{%- set names = {'user': '[|user|]\\n', 'assistant': '[|assistant|]\\n', 'system': '[|system|]\\n', 'tool': '[|tool|]\\n'} %}{%- set ns = namespace(last=messages|length - 1) %}
{%- for i in range(messages|length) %}{%- set i = messages|length - 1 - i %}{%- if messages[i].role == 'user' and ns.last == messages|length - 1 %}{%- set ns.last = i %}{%- endif %}{%- endfor %}
{%- for i in range(messages | length) %}{%- set message = messages[i] %}{%- set role = message.role %}
    {%- if role not in names %}{{- raise_exception('unknown role: ' ~ role) }}{%- endif %}
    {{- names[role] }}{%- if message.content %}{%- if '</think>' in message.content and i < ns.last %}{{- message.content.split('</think>')[-1].strip() }}{%- else %}{{- message.content }}{%- endif %}{%- endif %}
    {%- if message.tool_calls %}{%- for call in message.tool_calls %}{{- '<call>' ~ call.function.arguments ~ (call.function.name is defined) ~ none ~ 1.0 ~ [1, 'a', "it's", none, true] ~ '</call>' }}{%- endfor %}{%- endif %}{{- '[|end|]\\n' }}
{%- endfor %}{%- if add_generation_prompt %}{{- '[|assistant|]\\n' }}{%- if enable_thinking is defined and enable_thinking is true %}{{- '<think>\\n' }}{%- else %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}""",
    "glm4": """[M]<sop>{%- if tools -%}<|system|>
# Tools{% for item in tools %}{%- if item.function is defined %}{%- set item = item.function %}{%- endif %}

## {{ item.name }}

{{ item | tojson(indent=4, ensure_ascii=False) }}
{%- endfor %}{%- endif %}{%- for m in messages %}{%- if m.role == 'system' %}<|system|>
{{ m.content }}{%- elif m.role == 'user' %}<|user|>
{{ m.content }}{%- elif m.role == 'assistant' %}{%- for call in m.tool_calls or [] %}<|assistant|>{{ call.function.name }}
{%- for k, v in call.function.arguments.items() %}
<k>{{ k }}</k><v>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</v>{% endfor %}{%- endfor %}{%- if m.content %}<|assistant|>{{ m.metadata | default('', true) }}
{{ m.content }}{%- endif %}{%- elif m.role in ('tool', 'observation') %}<|observation|>
{{ m.content }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}<|assistant|>{%- endif %}""",
    # Messages backwards, tests on the ends of texts, characters that are taken off.
    "qwen3": """{%- set ns = namespace(multi=true, last=messages|length - 1) %}{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}{%- if ns.multi and message.role == "user" and message.content is string and not(message.content.startswith('<r>') and message.content.endswith('</r>')) %}{%- set ns.multi = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}
{%- if tools %}{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}{%- endif %}
{%- for message in messages %}{%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role == "assistant" %}{%- set thought = '' %}{%- if message.reasoning_content is string %}{%- set thought = message.reasoning_content %}{%- elif '</think>' in content %}{%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}{{- '<|a|>' + ('<think>' + thought.strip('\\n') + '</think>' if loop.index0 > ns.last else '') + content }}
        {%- for call in message.tool_calls or [] %}{%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}{{- '<call>' + (call.function.arguments if call.function.arguments is string else call.function.arguments | tojson) + '</call>' }}{%- endfor %}
    {%- elif message.role == "tool" %}{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|u|>' }}{%- endif %}{{- content }}{%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|e|>' }}{%- endif %}
    {%- else %}{{- '<|' + message.role + '|>' + content }}{%- endif %}{{- '<|e|>' }}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|a|>' }}{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}""",
    # The smallest of two numbers, an object under a key that is not there.
    "minicpm": """{%- set names = {'user': 'U', 'assistant': 'A'} %}{%- for m in messages %}{%- set count = [m.content.split('x')|length, 2]|min %}{{- names[m.role]|default('?') ~ names[m.nothing]|default('-') ~ count ~ [count, 1]|max ~ ':' ~ m.content }}{%- for i in range(1, count) %}{{- i }}{%- endfor %}{{- '\\n' }}{%- endfor %}""",
}  # fmt: skip

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "Weather of a <city> & \"more\", é", "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "enum": ["Berlin", "São Paulo"]}, "days": {"type": "integer", "default": 3},
        "units": {"type": "array", "items": {"type": "string"}}, "deep": {"type": "object", "properties": {"x": {"type": ["number", "null"]}}}},
        "required": ["city"]}}}  # fmt: skip


def said(role: str, content: object, **more: object) -> dict:
    return {"role": role, "content": content, **more}


def call(content: object) -> dict:
    function = {"name": "weather", "arguments": {"city": "Berlin", "days": 2}}
    return said("assistant", content, tool_calls=[{"id": "abcdefghi", "type": "function", "function": function}])


RESULT = said("tool", '{"t": 20.5}', tool_call_id="abcdefghi", name="weather")
CONVERSATIONS = {
    "question": ([said("user", "Hi there")], {}),
    "system": ([said("system", "Be  brief. /no_think\n"), said("user", " Hi "), said("assistant", "<think>\nx\n</think>\n\n Hello. "), said("user", "Bye")], {}),
    "tools": ([said("system", "sys"), said("user", "It's \"20\"?")], {"tools": [WEATHER]}),
    "call": ([said("user", "Weather?"), call(""), RESULT], {"tools": [WEATHER]}),
    "call without content": ([said("user", "Weather?"), call(None), RESULT, said("assistant", "20."), said("user", "x")], {"tools": [WEATHER]}),
    "parts": ([said("user", [{"type": "text", "text": "Hi "}, {"type": "text", "text": "you"}])], {}),
    "wishes": ([said("user", "Hi")], {"enable_thinking": False, "reasoning_effort": "high", "documents": [{"title": "", "text": "a\nb"}], "controls": {"length": "long"}}),
    "two answers": ([said("assistant", "a"), said("assistant", "b")], {}),
}  # fmt: skip


def main() -> None:
    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):  # as transformers' own
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: form.replace("%%", "%")  # a date would be another one tomorrow
    out: dict = {}
    for name, template in TEMPLATES.items():
        out[name] = {}
        for title, (messages, variables) in CONVERSATIONS.items():
            names = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None, "add_generation_prompt": True}
            try:
                out[name][title] = env.from_string(template).render(messages=messages, **{**names, **variables})
            except Exception:
                out[name][title] = None  # refused
    conversations = {title: {"messages": messages, "variables": variables} for title, (messages, variables) in CONVERSATIONS.items()}
    data = {"made": {"by": "packages/model/test/golden/make_chat.py", "jinja2": jinja2.__version__}, "templates": TEMPLATES, "conversations": conversations, "out": out}
    json.dump(data, sys.stdout, ensure_ascii=True, separators=(",", ":"))
    print()


main()
