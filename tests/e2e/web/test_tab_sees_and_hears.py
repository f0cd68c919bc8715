"""A Gemma 4 with both towers in a tab of Chromium: the same answers as of the Python engine to an
image and a sound in one question."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.audio.test_sees_and_hears import SEEN, SPECIAL, heard, save_both
from tests.e2e.web.test_tab_sound import GREEDY, WORDS, Both, in_both, in_letters, post
from tests.helpers import needs

pytestmark = [
    pytest.mark.long,
    pytest.mark.feature("gemma4-sound", "webgpu", "runs"),
    pytest.mark.feature("gemma4-images", "webgpu", "runs"),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    needs.require_target("webgpu")
    folder = tmp_path_factory.mktemp("both")
    save_both(folder)
    (folder / "tokenizer.json").write_text(in_letters(SPECIAL))
    with in_both(folder) as made:
        yield made


@pytest.mark.parametrize("parts", [[SEEN, heard(0.1)], [heard(0.2), SEEN, heard(0.1)], [SEEN]])
def test_answers_are_those_of_the_python_engine(parts: list[Any], both: Both) -> None:
    content = [*parts, {"type": "text", "text": WORDS}]
    body = {"messages": [{"role": "user", "content": content}], **GREEDY}
    wanted: Any = both.engine.chat.completions.create(**body).to_dict()
    response = post(both.tab, body)
    assert response.status_code == 200, response.text
    found = response.json()
    assert found["choices"][0]["message"] == wanted["choices"][0]["message"]
    counted = [answer["usage"]["prompt_tokens_details"] for answer in (found, wanted)]
    assert counted[0]["image_tokens"] == counted[1]["image_tokens"] > 0
    assert counted[0].get("audio_tokens", 0) == counted[1].get("audio_tokens", 0)


def test_the_description_names_both(both: Both) -> None:
    (model,) = httpx.get(f"{both.tab}/v1/models").json()["data"]
    assert model["input_modalities"] == ["text", "image", "audio"]
