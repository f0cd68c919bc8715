"""A model that says what its script says: for clients that need a model which chooses well.

Everything but the numbers is real: templates, a byte-level tokenizer, pages, prefix cache,
grammars, the engine and the server. The executor reads the whole prompt back through the pages, and
the next token is that of the script's answer; under a grammar, the likeliest that it allows.

The script, by what the prompt says last:
- `call NAME {...}` in the user's words calls that tool, `call A {...} and B {...}` both;
- after a tool's answer: "The tool said: ..." with its first line;
- `think` before a question thinks first; anything else is answered by `ANSWERS`, or repeated.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.device.toy.logits import ABOVE, adjust, choose, likeliest
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity, Result
from mlcc.engine.batch.tables import CacheGroup
from mlcc.model.model import Model, ModelText
from mlcc.model.structured_output.llguidance import open_grammars
from mlcc.model.tokenizer.tokenizer import FileTokenizer

PAGE = 512
CONTEXT = 512 * PAGE
"""In tokens, which are bytes: an agent's first prompt has a hundred thousand."""
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ASSISTANT_BYTES = b"assistant\n"
"""Behind the control token that begins an answer."""
NO_THOUGHTS = "<think>\n\n</think>\n\n"
"""The template's text for an answer without reasoning."""
VOCAB = 256 + len(CONTROL)
ANSWERS = {"17 + 25": "17 + 25 is 42.", "hello": "Hello! How can I help?"}
CALL = re.compile(r"\b(?:call|and) ([\w.-]+) (\{.*?\})(?= and [\w.-]+ \{|\s|$|[<\"'])", re.DOTALL)
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}You may call functions; they are within <tools></tools>:
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools>
Answer a call as <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif message.role != 'system' or not loop.first %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""


def answer(prompt: str) -> str:
    """The model's answer to a prompt, up to its end token."""
    *_, asked = prompt.split("<|im_start|>user\n")
    asked = asked.split("<|im_end|>")[0]
    if response := re.search(r"<tool_response>\n(.*?)\n", asked, re.DOTALL):
        return f"The tool said: {response[1].strip()[:200]}"
    if calls := CALL.findall(asked):
        return "\n".join(
            f"<tool_call>\n{json.dumps({'name': name, 'arguments': json.loads(arguments)})}\n"
            "</tool_call>"
            for name, arguments in calls
        )
    answer = next(
        (answer for words, answer in ANSWERS.items() if words in asked), f"You said: {asked}"
    )
    return f"<think>\nLet me see.\n</think>\n\n{answer}" if asked.startswith("think") else answer


def write_tokenizer(folder: Path) -> Path:
    """tokenizer.json: a token per byte, and the control tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={one: i for i, one in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True) for text in CONTROL])
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


class ScriptedExecutor:
    """An Executor that continues each sequence by its script."""

    depth = 1
    page_bytes = (4 * PAGE,)

    def __init__(self, capacity: Capacity, tokenizer: Path) -> None:
        self.capacity = capacity
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._start, self._end = map(self._tokenizer.token_to_id, CONTROL[1:])
        self._no_thoughts = self._tokenizer.encode(NO_THOUGHTS).ids
        self._held = array("i", bytes(4 * PAGE * capacity.pools[0]))
        """Tokens by slot, in place of a model's keys and values."""
        self._answers: dict[bytes, list[int]] = {}
        """Scripted answers, by the token ids of their prompts."""
        self._results: deque[Result] = deque()
        self._last: Sequence[int] = ()
        self._tickets = 0

    def step_buffer(self) -> None:
        """None: batches bring their own memory."""

    def adjustments_buffer(self) -> None:
        """None: adjustments bring their own memory."""

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        """Compute a batch at once."""
        self._results.append(self._run(batch, adjustments))
        self._tickets += 1
        return self._tickets

    def collect(self, ticket: int) -> Result:
        """The oldest result."""
        return self._results.popleft()

    def read_pages(self, group: int, ids: Sequence[int]) -> bytes:
        """The contents of pages."""
        return b"".join(self._held[i * PAGE : (i + 1) * PAGE].tobytes() for i in ids)

    def write_pages(self, group: int, ids: Sequence[int], data: bytes) -> None:
        """Set the contents of pages."""
        tokens = array("i", data)
        for n, i in enumerate(ids):
            self._held[i * PAGE : (i + 1) * PAGE] = tokens[n * PAGE : (n + 1) * PAGE]

    def close(self) -> None:
        """Nothing to release."""

    def _run(self, batch: Batch, adjustments: Adjustments | None) -> Result:
        layout, held = batch.layout, self._held
        copies = (batch.column(layout.copies, name) for name in ("source", "destination"))
        for source, to in (map(int, pair) for pair in zip(*copies, strict=True)):
            held[to * PAGE : (to + 1) * PAGE] = held[source * PAGE : (source + 1) * PAGE]
        ids = map(int, batch.column(layout.tokens, "id"))
        for slot, token in zip(batch.column(layout.tokens, "slot.0"), ids, strict=True):
            held[int(slot)] = token if token >= 0 else self._last[-1 - token]
        adjusted = {row.row: row for row in adjustments.rows()} if adjustments else {}
        tokens, logprobs, top = [], [], []
        wanted = batch.column(layout.rows, "top_logprobs")
        for i, prefix in enumerate(self._prefixes(batch)):
            logits = self._logits(self._next(prefix))
            if i in adjusted:
                adjust(logits, adjusted[i], self._last)
            token, logprob = choose(logits)
            tokens.append(token)
            logprobs.append(logprob)
            top.append(likeliest(logits, int(wanted[i])))
        self._last = tokens
        return Result(tokens, logprobs, top if batch.top_logprobs else None)

    def _prefixes(self, batch: Batch) -> Iterator[array[int]]:
        """The tokens of each row's sequence up to the row's token, read through its pages."""
        layout = batch.layout
        pages, table = batch.page_list(0), layout.sequences
        first = [int(page) for page in batch.column(table, "first_page.0")]
        owners = batch.column(layout.tokens, "sequence")
        positions = batch.column(layout.tokens, "position")
        for row in map(int, batch.column(layout.rows, "token")):
            s = int(owners[row])
            held = array("i")
            for page in pages[first[s] : first[s + 1]]:
                held += self._held[page * PAGE : (page + 1) * PAGE]
            yield held[: int(positions[row]) + 1]

    def _next(self, prefix: array[int]) -> int:
        """The next token of the script's answer; the end where the answer went another way."""
        if self._start not in prefix:  # a raw prompt
            return self._end
        begin = len(prefix) - 1 - prefix[::-1].index(self._start)
        prompt, output = prefix[:begin], prefix[begin + len(ASSISTANT_BYTES) + 1 :].tolist()
        if output[: len(NO_THOUGHTS)] == self._no_thoughts:  # the template's
            output = output[len(NO_THOUGHTS) :]
        key = prompt.tobytes()
        if key not in self._answers:
            text = answer(self._tokenizer.decode(prompt.tolist(), skip_special_tokens=False))
            self._answers[key] = self._tokenizer.encode(text).ids
        wanted = self._answers[key]
        return wanted[len(output)] if output == wanted[: len(output)] != wanted else self._end

    def _logits(self, token: int) -> list[float]:
        """The scripted token first; if a grammar forbids it, tokens that close open brackets."""
        logits = [-1000.0 - t for t in range(self.capacity.vocab_size)]
        closing = [self._tokenizer.token_to_id(letter) for letter in ('"', "}", "]", "0", "{")]
        for rank, one in enumerate(dict.fromkeys([token, self._end, *closing])):
            logits[one] = ABOVE - rank
        return logits


def scripted_text(folder: Path, name: str = "scripted") -> ModelText:
    """The tokenizer and template; writes the tokenizer into the folder if it is missing."""
    path = folder / "tokenizer.json"
    if not path.exists():
        write_tokenizer(folder)
    tokenizer = FileTokenizer(path)
    size = len(pre_tokenizers.ByteLevel.alphabet())
    end = size + CONTROL.index("<|im_end|>")
    template = ChatTemplate(TEMPLATE, control_tokens=CONTROL)
    grammars = open_grammars(path, VOCAB, [end])
    return ModelText(name, tokenizer, template, frozenset([end]), grammars=grammars)


def open_scripted(folder: Path, name: str = "scripted") -> Model:
    """The whole model."""
    text = scripted_text(folder, name)
    capacity = Capacity.of(
        [CacheGroup("paged", PAGE)],
        [2 * CONTEXT // PAGE],
        vocab_size=VOCAB,
        context=CONTEXT,
        max_batch=4,
        max_step_tokens=16384,
    )
    return Model(text, ScriptedExecutor(capacity, folder / "tokenizer.json"))
