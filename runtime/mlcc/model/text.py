"""Reads a `ModelText` from an artifact: tokenizer, chat templates, default sampling parameters.

Loads no library and hashes no weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.api.openai.models import ModelInfo
from mlcc.api.openai.requests import default_sampling, recommended
from mlcc.artifact.generation_config import tokens_never_sampled
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.text_files import TOKENIZER, Read, chat_templates, generation_config, text_files
from mlcc.errors import ArtifactError
from mlcc.model.model import ModelText
from mlcc.model.tokenizer.indexed import open_tokenizer
from mlcc.model.tokenizer.tokenizer import TextTokenizer
from mlcc.multimodal.audio.clips import AudioProcessor
from mlcc.multimodal.processors.registry import processor_of

if TYPE_CHECKING:
    from mlcc.artifact.folder import Artifact

_NO_TEMPLATE = "the model has no chat template; conversations are written as plain 'User: ...' text"


def open_text(
    path: Path,
    *,
    parse_special: bool = False,
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
) -> ModelText:
    """The `ModelText` of a compiled model, without loading its library; only text files are hashed.

    parse_special: as `ModelText.with_special`; parsers: as `ModelText.with_parsers`.

    Raises ArtifactError, and InvalidRequestError for unknown parsers.
    """
    from mlcc.artifact.folder import Artifact

    artifact = Artifact.open(path, verify=False, host=False)
    artifact.verify(text_files(artifact.manifest))
    text = text_of(artifact).with_parsers(tool_parser, reasoning_parser)
    return text.with_special() if parse_special else text


def text_of(artifact: Artifact, tokenizer: TextTokenizer | None = None) -> ModelText:
    """The `ModelText` of an artifact whose files were checked. tokenizer: None = read
    tokenizer.json, which the grammars use in any case. Raises ArtifactError."""
    from mlcc.model.structured_output.llguidance import open_grammars

    if tokenizer is None:  # else the host application brings its own
        entry = artifact.manifest.file(TOKENIZER)
        tokenizer = open_tokenizer(artifact.tokenizer_path, entry.sha256 if entry else "")
    info = artifact.manifest.model
    grammars = open_grammars(artifact.tokenizer_path, info.vocab_size, info.eos_token_ids)
    try:
        text = read_text(artifact.manifest, artifact.text, tokenizer)
        if (audio := artifact.manifest.audio) is not None:
            from mlcc.multimodal.audio.timestamps import TranscriptGrammars

            grammars = TranscriptGrammars(audio, info.vocab_size)
        return replace(text, grammars=grammars)
    except ArtifactError as error:
        raise ArtifactError(f"{artifact.folder}: {error.message}") from error


def read_text(manifest: Manifest, read: Read, tokenizer: TextTokenizer) -> ModelText:
    """The `ModelText` from files that `read` returns. Raises ArtifactError."""
    info = manifest.model
    templates = chat_templates(manifest, read)
    template, tools = templates.get("default"), templates.get("tool_use")
    control, ends = tokenizer.special_tokens(), frozenset(info.eos_token_ids)
    config = generation_config(manifest, read)
    marks = () if manifest.vision is None else processor_of(manifest.vision).marks
    sound = manifest.audio_input
    heard = () if sound is None else AudioProcessor(sound).marks
    around = ("", "") if sound is None else (sound.begin, sound.end)
    common = (info.special_tokens, control, marks, heard, around)
    return ModelText(
        name=info.name,
        tokenizer=tokenizer,
        chat_template=ChatTemplate(template, *common),
        tool_template=ChatTemplate(tools, *common) if tools else None,
        eos_ids=ends,
        sampling={**recommended(config), **tokens_never_sampled(config, info.vocab_size, ends)},
        notes=() if template or manifest.encoder or manifest.audio else (_NO_TEMPLATE,),
        info=model_about(manifest, config),
        encoder=manifest.encoder,
        vision=manifest.vision,
        audio=manifest.audio,
        audio_input=manifest.audio_input,
    )


def model_about(manifest: Manifest, config: Mapping[str, Any]) -> ModelInfo:
    """The metadata of a model; config: its generation_config.json."""
    info, memory = manifest.model, manifest.memory
    digest = sha256()
    for entry in sorted(manifest.files, key=lambda entry: entry.path):
        digest.update(f"{entry.sha256} {entry.path}\n".encode())
    return ModelInfo(
        architecture=info.architecture,
        quantization=manifest.quantization.name,
        device=manifest.target.device,
        config=info.config,
        vocab_size=info.vocab_size,
        parameters=info.parameters,
        weights_bytes=memory.weights_bytes,
        device_bytes=memory.weights_bytes
        + memory.cache_bytes
        + memory.workspace_bytes
        + (manifest.adapters.nbytes if manifest.adapters else 0),
        sampling={} if manifest.encoder else default_sampling(config),
        digest=digest.hexdigest(),
        image_size=processor_of(manifest.vision).useful_size if manifest.vision else None,
        hears=manifest.audio_input is not None,
    )
