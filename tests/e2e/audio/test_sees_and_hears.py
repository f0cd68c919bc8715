"""A Gemma 4 with both towers, from a request with an image and a sound to its answer, beside
transformers' on the same image and sound. Small random weights, float32 on the reference and the
CPU."""

from __future__ import annotations

import io
import json
from array import array
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from mlcc import Engine
from mlcc.artifact.folder import Artifact
from mlcc.errors import InvalidRequestError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.audio.input_checkpoints import (
    AUDIO,
    BEGIN,
    END,
    GEMMA4_TOWER,
    gemma4_extractor,
    marks_of,
)
from tests.compiler.models.helpers.checkpoints import GEMMA4, SMALL, save_initialised
from tests.compiler.vision.checkpoints import GEMMA4_PROCESSOR, PROCESSOR
from tests.compiler.vision.checkpoints import GEMMA4_TOWER as SEEING_TOWER
from tests.e2e.audio.test_run_audio import samples, wav
from tests.runtime.multimodal.helpers.oracles import image_processor

IMAGE, IMAGE_BEGIN, IMAGE_END = 127, 126, 125
SPECIAL = {"<image|>": IMAGE_END, "<|image>": IMAGE_BEGIN, "<|image|>": IMAGE}
SPECIAL |= marks_of("gemma4")
TEMPLATE = (
    "{% for m in messages %}{% for part in m.content %}"
    "{{ '<|image|>' if part.type == 'image' else '<|audio|>' if part.type == 'audio' else "
    "part.text }}{% endfor %}{% endfor %}"
)
NEW = 4
TOKENS = 25
"""Of a second of sound: 99 frames end within it, and four are a token."""


@dataclass(frozen=True)
class Made:
    engine: Engine
    oracle: Any
    folder: Path


@pytest.fixture(scope="module", params=[pytest.param("reference", marks=pytest.mark.long), "cpu"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("both")
    oracle = save_both(folder)
    wanted = Options(quant="f32", max_batch=2, max_step_tokens=64)
    row = get_target(request.param, Choices())
    out = compile_model(Checkpoint.open(folder), row, folder / "out", wanted, Progress())
    with Engine(out) as engine:
        yield Made(engine, oracle, out)


def save_both(folder: Path) -> Any:
    """The checkpoint, and transformers' model of it, whose audio tower computes in float32."""
    config = transformers.Gemma4Config(
        text_config={"model_type": "gemma4_text", **SMALL, **GEMMA4, "pad_token_id": 3},
        vision_config={**SEEING_TOWER, "use_clipped_linears": True},
        audio_config=GEMMA4_TOWER,
        image_token_id=IMAGE,
        boi_token_id=IMAGE_BEGIN,
        eoi_token_id=IMAGE_END,
        video_token_id=None,
        audio_token_id=AUDIO,
        boa_token_id=BEGIN,
        eoa_token_index=END,
        tie_word_embeddings=True,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    oracle: Any = save_initialised(transformers.Gemma4ForConditionalGeneration(config), folder)
    oracle.model.audio_tower.float()
    oracle.model.embed_audio.float()
    words = {f"w{i}": i for i in range(IMAGE_END)} | SPECIAL
    tokenizer = Tokenizer(WordLevel(words, "w0"))
    tokenizer.add_special_tokens([*SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "image_processor": {**PROCESSOR, **GEMMA4_PROCESSOR},
        "feature_extractor": gemma4_extractor().to_dict(),
        "audio_seq_length": 750,
    }
    text = json.dumps(settings, default=lambda values: values.tolist())
    (folder / "processor_config.json").write_text(text)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return oracle


def picture() -> Image.Image:
    rng = np.random.default_rng(1)
    return Image.fromarray(rng.integers(0, 256, (24, 40, 3), np.uint8))


def png() -> bytes:
    file = io.BytesIO()
    picture().save(file, "PNG")
    return file.getvalue()


SEEN = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64," + b64encode(png()).decode()},
}


def heard(pitch: float, seconds: int = 1) -> dict[str, Any]:
    data = b64encode(wav(pitch, seconds)).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def word(number: int) -> dict[str, Any]:
    return {"type": "text", "text": f"w{number}"}


def expected(made: Made, parts: Sequence[Any]) -> list[str]:
    """The words of transformers' greedy answer; parts: a word, SEEN, or a pitch."""
    info = Artifact.open(made.folder, host=False).manifest.vision
    assert info is not None
    processor = image_processor(info)
    processor.do_rescale, processor.do_normalize = True, False
    pixels = dict(processor(images=[picture()], return_tensors="pt"))
    count = int(pixels.pop("num_soft_tokens_per_image")[0])
    ids, sounds = list[int](), list[Any]()
    for part in parts:
        if part is SEEN:
            ids += [IMAGE_BEGIN, *[IMAGE] * count, IMAGE_END]
        elif isinstance(part, float):
            ids += [BEGIN, *[AUDIO] * TOKENS, END]
            sounds.append(np.array(array("h", samples(part)), np.float32) / 32768)
        else:
            ids.append(part)
    given: dict[str, Any] = dict(gemma4_extractor()(sounds, return_tensors="pt")) if sounds else {}
    if SEEN in parts:
        given |= pixels | {"pixel_values": pixels["pixel_values"].double()}
    answer: list[int] = []
    for _ in range(NEW):
        tokens = torch.tensor([ids + answer])
        types = (tokens == IMAGE).int() + 3 * (tokens == AUDIO).int()
        with torch.no_grad():
            found = made.oracle(input_ids=tokens, mm_token_type_ids=types, **given)
        answer.append(int(found.logits[0, -1, :IMAGE_END].argmax()))
    return [f"w{each}" for each in answer]


LONGER = [
    pytest.param([0.2, 7, SEEN, 0.1], id="two sounds and an image", marks=pytest.mark.long),
    pytest.param([SEEN, 9], id="image", marks=pytest.mark.long),
]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([SEEN, 7, 0.1, 9], id="image and sound"),
        pytest.param([7, 0.1], id="sound"),
        *LONGER,
    ],
)
def test_an_answer_is_that_of_transformers(parts: list[Any], made: Made) -> None:
    content = [
        part if part is SEEN else heard(part) if isinstance(part, float) else word(part)
        for part in parts
    ]
    banned = {str(token): -100 for token in range(IMAGE_END, AUDIO + 1)}
    answer: Any = made.engine.chat.completions.create(
        messages=[{"role": "user", "content": content}],
        max_tokens=NEW,
        temperature=0,
        ignore_eos=True,
        logit_bias=banned,
    ).to_dict()
    assert answer["choices"][0]["message"]["content"].split() == expected(made, parts)
    details = answer["usage"]["prompt_tokens_details"]
    assert details.get("audio_tokens", 0) == TOKENS * sum(isinstance(p, float) for p in parts)
    assert bool(details.get("image_tokens")) == (SEEN in parts)


def test_what_is_longer_than_thirty_seconds_is_refused(made: Made) -> None:
    with pytest.raises(InvalidRequestError, match=r"lasts 31.0 s, and the model hears at most 30"):
        made.engine.chat.completions.create(
            messages=[{"role": "user", "content": [heard(0.1, 31)]}], max_tokens=1
        )
