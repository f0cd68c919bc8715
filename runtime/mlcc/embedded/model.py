"""A model in a tab: JavaScript passes requests in, and responses are written while they are
generated."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcc.artifact.manifest import Manifest
from mlcc.embedded.bridge import failed, to_bytes, to_python
from mlcc.embedded.calls import Call, Calls
from mlcc.embedded.engine import LoopClient
from mlcc.embedded.executor import JsExecutor
from mlcc.embedded.grammars import tab_grammars
from mlcc.embedded.planning import capacity_of
from mlcc.embedded.prompts import TabPrompts
from mlcc.embedded.tokenizer import JsTokenizer
from mlcc.embedded.tower import TabTowers
from mlcc.engine.encoder_engine import EncoderEngine
from mlcc.engine.engine import Engine
from mlcc.errors import ArtifactError, MlccError, UnsupportedError
from mlcc.lora.peft import WEIGHTS_NAME
from mlcc.lora.peft_config import CONFIG_NAME
from mlcc.model.model import ModelText
from mlcc.model.speculation import MTP, Speculation
from mlcc.model.text import read_text
from mlcc.service.adapters import AdapterEntry, AdapterFolders, check_name
from mlcc.service.http.types import FormPart, no_form
from mlcc.service.served_model import OneModel, ServedModel, ServiceBounds
from mlcc.service.service import Service

if TYPE_CHECKING:
    from mlcc.embedded.audio import TabSound

MAX_QUEUE = 64
"""Requests that may wait, as on the server."""
BOUNDS = ServiceBounds(timeout_s=None)
"""No timeout: the page that sends a request can also cancel it."""
NO_FOLDERS = (
    "a tab has no folders to load adapters from, as `mlcc serve --lora-dir` has; the page loads "
    "one with engine.loadAdapter(name, address or files)"
)


class EmbeddedModel:
    """The API of one model. Needs a running event loop, in which all of it runs."""

    def __init__(
        self,
        manifest: Any,
        plan: str,
        texts: Any,
        tokenizer: Any,
        executor: Any,
        parse_special: bool = False,
        prefix_cache: bool = True,
        grammars: Any = None,
        speculate: str | None = None,
        towers: Any = (),
    ) -> None:
        """`texts` are the plan's text files by path, without tokenizer.json. `parse_special`: as
        `ModelText.with_special`. `prefix_cache`: as in `Engine`. `grammars`: the grammar backend
        (`GrammarPort` in web/src/worker/python.ts); None = grammars are refused. `speculate`: as
        in `mlcc serve`, without a draft model. `towers`: the manifest, plan and executor of each
        of the model's towers, and the page's `images` and `sound` (`TowerPort`); images and sound
        in prompts are refused without theirs.

        Raises ArtifactError, which `entry.check` reports before weights are fetched, and what
        `Speculation.read` and `ModelText.new_engine` raise.
        """
        text = read_texts(manifest, texts, tokenizer)
        made = TabTowers(text, towers)
        text = text if made.images is not None else text.without_images()
        text = text if made.sound is not None else text.without_sound()
        if parse_special:
            text = text.with_special()
        read = Manifest.from_bytes(to_bytes(manifest))
        capacity = capacity_of(read, json.loads(plan))
        if (audio := text.audio) is not None:
            from mlcc.multimodal.audio.timestamps import TranscriptGrammars

            text = replace(text, grammars=TranscriptGrammars(audio, read.model.vocab_size))
        elif grammars is not None:
            held = tab_grammars(grammars, capacity.vocab_size, read.model.eos_token_ids)
            text = replace(text, grammars=held)
        speculation = Speculation.read(speculate or None, None, "the option 'speculate'")
        if speculation is not None and speculation.kind == MTP:
            raise UnsupportedError(
                "the option 'speculate': mtp does not run in a browser tab yet; take 'lookup'"
            )
        engine: Engine | EncoderEngine
        if (encoder := text.encoder) is None:
            engine = text.new_engine(capacity, prefix_cache, speculation)
        elif speculation is not None:
            raise UnsupportedError(
                f"'{text.name}' is an encoder, which has no speculation; leave out the option "
                "'speculate'"
            )
        else:
            engine = EncoderEngine(capacity, encoder.pooling, encoder.width)
        self._engine = LoopClient(
            engine, JsExecutor(executor), MAX_QUEUE, text.grammars, read.adapters, made
        )
        self._name = text.name
        prompts = TabPrompts(text, grammars, made)
        self._sound: TabSound | None = None
        if text.audio is not None:
            from mlcc.embedded.audio import TabSound  # not needed for other models

            self._sound = TabSound(made.sound)
        served = ServedModel(
            self._engine,
            text,
            BOUNDS,
            prompts,
            folders=AdapterFolders(None, NO_FOLDERS),
            sound=self._sound,
        )
        self._calls = Calls(Service(OneModel(served)))

    def handle(self, method: str, path: str, headers: str, body: Any, reply: Any) -> Call:
        """Answer a request: calls `reply.start(status, headers)` once and `reply.write(text)` for
        each piece; last, in any case, `reply.end()`, also after a cancellation, or
        `reply.fail(message)` after a bug.

        `path` as in a URL; `headers` a JSON object with lower-case names; `body` text or bytes.
        """

        async def read() -> bytes:
            return to_bytes(body)

        def form(most: int) -> AsyncIterator[FormPart]:
            if self._sound is None:
                return no_form(most)
            return self._sound.form(json.loads(headers), to_bytes(body), most)

        return self._calls.start(method, path, headers, read, _JsReply(reply), form)

    async def load_adapter(self, name: str, config: Any, weights: Any, in_place: bool) -> str:
        """Load a LoRA adapter from the bytes of its two files; requests select it by name.

        Returns "{}", or {"error": ...} like the functions of `entry`: invalid files, a name that is
        taken, or no free slot.
        """
        try:
            await self._load_adapter(name, to_bytes(config), to_bytes(weights), in_place)
        except MlccError as error:
            return failed(error)
        return "{}"

    async def _load_adapter(self, name: str, config: bytes, weights: bytes, in_place: bool) -> None:
        from tempfile import TemporaryDirectory  # slow to import, and rarely needed

        check_name(name, (self._name,), "the adapter's name")
        with TemporaryDirectory(prefix="mlcc-adapter-") as made:
            folder = Path(made)
            (folder / CONFIG_NAME).write_bytes(config)
            (folder / WEIGHTS_NAME).write_bytes(weights)
            try:
                await self._engine.load_adapter(AdapterEntry(name, folder), in_place)
            except (ArtifactError, UnsupportedError) as error:
                error.message = error.message.replace(made, f"the adapter '{name}'")
                raise

    def stats(self) -> str:
        """Return the counters of the engine and the driver, whatever state they are in."""
        return json.dumps(self._engine.stats())

    def close(self) -> None:
        """Fail all requests, now and later. Idempotent."""
        self._engine.close()


class _JsReply:
    """The page's `Reply`. A stream's body tells the page how it ended."""

    def __init__(self, js: Any) -> None:
        self._js = js

    def start(self, status: int, headers: str) -> None:
        self._js.start(status, headers)

    def write(self, text: str) -> None:
        self._js.write(text)

    def end(self, failure: MlccError | None) -> None:
        self._js.end()

    def fail(self, message: str) -> None:
        self._js.fail(message)


def read_texts(manifest: Any, texts: Any, tokenizer: Any) -> ModelText:
    """Return the text side of a model, from the files that JavaScript has read. Raises
    ArtifactError."""
    read = to_python(texts).__getitem__
    return read_text(Manifest.from_bytes(to_bytes(manifest)), read, JsTokenizer(tokenizer))
