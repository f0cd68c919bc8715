"""The chat template of a checkpoint with Mistral's `tekken.json` alone (Voxtral): Mistral publishes
no template, and writes conversations by the library mistral-common (its tokenizers v7 to v13 are
alike in what is here). Tools are not written."""

from __future__ import annotations

VOXTRAL = """<s>
{%- for message in messages %}
{%- if message.role == 'system' %}{{ '[SYSTEM_PROMPT]' }}
{%- elif message.role == 'user' %}{{ '[INST]' }}
{%- elif message.role != 'assistant' %}
{{- raise_exception('this model has no tools: a message is of system, user or assistant') }}
{%- endif %}
{%- if message.content is string %}{{ message.content }}
{%- else %}
{%- for part in message.content %}
{%- if part.type == 'audio' %}{{ '[BEGIN_AUDIO][AUDIO]' }}
{%- elif not loop.first and loop.previtem.type == 'text' %}{{ '\\n\\n' + part.text }}
{%- else %}{{ part.text }}
{%- endif %}
{%- endfor %}
{%- endif %}
{%- if message.role == 'system' %}{{ '[/SYSTEM_PROMPT]' }}
{%- elif message.role == 'user' %}{{ '[/INST]' }}
{%- else %}{{ '</s>' }}
{%- endif %}
{%- endfor %}"""
NOTE = (
    "the checkpoint has no chat template, as Mistral publishes none: conversations are written as "
    "mistral-common writes them, without tools"
)
"""For the user."""
FAMILIES = ("voxtral",)
"""`model_type`s that are known to be asked so."""
