"""Chat templates of model families, for what an agent's conversation has: texts, tools, calls and
results. Written after what the families' own say, in Jinja, as `transformers` renders them.
"""

LLAMA_3 = """
{{- bos_token }}
{%- if messages[0].role == 'system' %}
  {%- set system = messages[0].content | trim %}{% set messages = messages[1:] %}
{%- else %}{% set system = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools %}{{ 'Environment: ipython\\n' }}{% endif %}
{{- 'Cutting Knowledge Date: December 2023\\nToday Date: 26 Jul 2024\\n\\n' }}
{{- system + '<|eot_id|>' }}
{%- if tools %}
  {{- '<|start_header_id|>user<|end_header_id|>\\n\\nGiven the following functions, please respond '
    + 'with a JSON for a function call with its proper arguments that best answers the given '
    + 'prompt.\\n\\nRespond in the format {"name": function name, "parameters": dictionary of '
    + 'argument name and its value}.Do not use variables.\\n\\n' }}
  {%- for tool in tools %}{{ tool | tojson(indent=4) + '\\n\\n' }}{% endfor %}
  {{- messages[0].content | trim + '<|eot_id|>' }}
  {%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}
  {%- if message.role == 'tool' %}
    {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
    {{- message.content | tojson + '<|eot_id|>' }}
  {%- elif message.tool_calls %}
    {%- set call = message.tool_calls[0].function %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
    {{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}<|eot_id|>' }}
  {%- else %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
    {{- message.content | trim + '<|eot_id|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

DEEPSEEK_V3 = """
{{- bos_token }}
{%- for message in messages if message.role == 'system' %}{{ message.content }}{% endfor %}
{%- for message in messages if message.role != 'system' %}
  {%- if message.role == 'user' %}{{ '<｜User｜>' + message.content }}
  {%- elif message.role == 'assistant' %}
    {{- '<｜Assistant｜>' if loop.previtem is undefined or loop.previtem.role != 'tool' }}
    {{- message.content }}
    {%- if message.tool_calls %}
      {{- '<｜tool▁calls▁begin｜>' }}
      {%- for call in message.tool_calls %}
        {{- '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' }}
        {{- call.function.arguments | tojson + '\\n```<｜tool▁call▁end｜>' }}
      {%- endfor %}
      {{- '<｜tool▁calls▁end｜>' }}
    {%- endif %}
    {{- '<｜end▁of▁sentence｜>' }}
  {%- elif message.role == 'tool' %}
    {%- if loop.previtem.role != 'tool' %}{{ '<｜tool▁outputs▁begin｜>' }}{% endif %}
    {{- '<｜tool▁output▁begin｜>' + message.content + '<｜tool▁output▁end｜>' }}
    {%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<｜tool▁outputs▁end｜>' }}{% endif %}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and messages[-1].role != 'tool' %}{{ '<｜Assistant｜>' }}{% endif %}
"""

MISTRAL_V3 = """
{{- bos_token }}
{%- set system = messages[0].content %}{% set messages = messages[1:] %}
{%- if tools %}{{ '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{% endif %}
{%- for message in messages %}
  {%- if message.role == 'user' %}
    {{- '[INST] ' + (system + '\\n\\n' if loop.first else '') + message.content + '[/INST]' }}
  {%- elif message.role == 'tool' %}
    {%- set result = {'content': message.content, 'call_id': message.tool_call_id} %}
    {{- '[TOOL_RESULTS] ' + result | tojson + '[/TOOL_RESULTS]' }}
  {%- elif message.tool_calls %}
    {{- '[TOOL_CALLS] [' }}
    {%- for call in message.tool_calls %}
      {{- '{"name": ' + call.function.name | tojson + ', "arguments": ' }}
      {{- call.function.arguments | tojson + ', "id": ' + call.id | tojson + '}' }}
      {{- ', ' if not loop.last }}
    {%- endfor %}
    {{- ']' + eos_token }}
  {%- else %}{{ ' ' + message.content + eos_token }}
  {%- endif %}
{%- endfor %}
"""

MISTRAL_V13 = """
{{- bos_token + '[SYSTEM_PROMPT]' + messages[0].content + '[/SYSTEM_PROMPT]' }}
{%- if tools %}{{ '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{% endif %}
{%- for message in messages[1:] %}
  {%- if message.role == 'user' %}{{ '[INST]' + message.content + '[/INST]' }}
  {%- elif message.role == 'tool' %}{{ '[TOOL_RESULTS]' + message.content + '[/TOOL_RESULTS]' }}
  {%- else %}
    {{- message.content }}
    {%- for call in message.tool_calls or [] %}
      {{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + call.function.arguments | tojson }}
    {%- endfor %}
    {{- eos_token }}
  {%- endif %}
{%- endfor %}
"""

GEMMA_4 = """
{%- macro quoted(text) %}{{ '<|"|>' + text + '<|"|>' }}{% endmacro %}
{%- macro fields(values) %}
  {%- for key, value in values | dictsort %}
    {{- key + ':' + (quoted(value) if value is string else value | tojson) }}
    {{- ',' if not loop.last }}
  {%- endfor %}
{%- endmacro %}
{{- bos_token + '<|turn>system\\n' + messages[0].content | trim }}
{%- for tool in tools or [] %}
  {%- set parameters = tool.function.parameters %}
  {{- '<|tool>declaration:' + tool.function.name + '{description:' }}
  {{- quoted(tool.function.description) + ',parameters:{properties:{' }}
  {%- for key, schema in parameters.properties | dictsort %}
    {{- key + ':{' }}
    {%- if schema.description %}{{ 'description:' + quoted(schema.description) + ',' }}{% endif %}
    {{- 'type:' + quoted(schema.type | upper) + '}' }}
    {{- ',' if not loop.last }}
  {%- endfor %}
  {{- '},required:[' }}
  {%- for name in parameters.required %}{{ quoted(name) }}{{ ',' if not loop.last }}{% endfor %}
  {{- '],type:' + quoted(parameters.type | upper) + '}}<tool|>' }}
{%- endfor %}
{{- '<turn|>\\n' }}
{%- for message in messages[1:] %}
  {%- if message.role == 'tool' %}
    {{- '<|tool_response>response:' + message.name + '{value:' + quoted(message.content) }}
    {{- '}<tool_response|>' }}
  {%- else %}
    {%- if loop.previtem is undefined or loop.previtem.role != 'tool' %}
      {{- '<|turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}
    {%- endif %}
    {%- for call in message.tool_calls or [] %}
      {{- '<|tool_call>call:' + call.function.name + '{' + fields(call.function.arguments) }}
      {{- '}<tool_call|>' }}
    {%- endfor %}
    {{- message.content | trim }}
    {%- if not message.tool_calls %}{{ '<turn|>\\n' }}{% endif %}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and messages[-1].role != 'tool' %}{{ '<|turn>model\\n' }}{% endif %}
"""

TEMPLATES = {
    "llama-3": (LLAMA_3, "<|begin_of_text|>", "<|eot_id|>"),
    "deepseek-v3": (DEEPSEEK_V3, "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "mistral-v3": (MISTRAL_V3, "<s>", "</s>"),
    "mistral-v13": (MISTRAL_V13, "<s>", "</s>"),
    "gemma-4": (GEMMA_4, "<bos>", "<eos>"),
}
"""By dialect: its family's template, and its first and last token."""
