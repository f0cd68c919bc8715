"""Files and batches through OpenAI's own client: states, answers, errors by line, owners, bounds,
and a server that is killed amid a batch."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIStatusError, BadRequestError, NotFoundError, OpenAI
from openai.types import Batch

from tests.runtime.server.helpers.server_process import RunningServer, eventually, running

CHAT = "/v1/chat/completions"


def line(name: str, text: str = "hello", url: str = CHAT, **options: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    body = {"model": "toy", "messages": messages, "max_tokens": 8, "temperature": 0, **options}
    return {"custom_id": name, "method": "POST", "url": url, "body": body}


def text_of(lines: Iterable[Any]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in lines).encode()


def start(client: OpenAI, data: bytes, endpoint: Any = CHAT) -> Batch:
    file = client.files.create(file=("in.jsonl", data), purpose="batch")
    return client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", metadata={"job": "x"}
    )


def ended(client: OpenAI, batch: Batch) -> Batch:
    done = ("completed", "failed", "expired", "cancelled")
    assert eventually(lambda: client.batches.retrieve(batch.id).status in done), batch
    return client.batches.retrieve(batch.id)


def lines_of(client: OpenAI, file: str | None) -> list[dict[str, Any]]:
    assert file is not None
    return [json.loads(each) for each in client.files.content(file).text.splitlines()]


def client_of(server: RunningServer, key: str = "none") -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def test_each_line_gets_the_answer_of_a_request(client: OpenAI) -> None:
    texts = [f"hello {number % 7}" for number in range(60)]
    lines = [line(f"line-{number}", text) for number, text in enumerate(texts)]
    batch = start(client, b"\xef\xbb\xbf" + text_of(lines) + b"\n\n")
    assert batch.status == "validating" and batch.metadata == {"job": "x"}
    assert batch.expires_at == batch.created_at + 24 * 3600
    batch = ended(client, batch)
    assert batch.status == "completed" and batch.error_file_id is None and batch.errors is None
    counts = batch.request_counts
    assert counts and (counts.total, counts.completed, counts.failed) == (60, 60, 0)
    found = lines_of(client, batch.output_file_id)
    assert [each["custom_id"] for each in found] == [each["custom_id"] for each in lines]
    alone: dict[str, Any] = {}
    for text, each in zip(texts, found, strict=True):
        assert each["error"] is None and each["response"]["status_code"] == 200
        body = each["response"]["body"]
        if text not in alone:
            whole = client.chat.completions.create(
                model="toy",
                messages=[{"role": "user", "content": text}],
                max_tokens=8,
                temperature=0,
            )
            alone[text] = whole.choices[0].message.content
        assert body["choices"][0]["message"]["content"] == alone[text]
        assert body["object"] == "chat.completion" and body["usage"]["completion_tokens"] > 0
    metrics = httpx.get(f"{str(client.base_url).removesuffix('/v1/')}/metrics").text
    assert 'mlcc_batch_answers_total{key="",model="toy"}' in metrics
    output = client.files.retrieve(str(batch.output_file_id))
    assert output.purpose == "batch_output" and output.filename == f"{batch.id}_output.jsonl"


def test_a_line_that_is_refused_is_an_error_of_its_own(client: OpenAI) -> None:
    lines = [line("good"), line("bad", temperature=-1), line("other", model="gpt-4")]
    batch = ended(client, start(client, text_of(lines)))
    assert batch.status == "completed"
    counts = batch.request_counts
    assert counts and (counts.total, counts.completed, counts.failed) == (3, 1, 2)
    assert [each["custom_id"] for each in lines_of(client, batch.output_file_id)] == ["good"]
    bad, other = lines_of(client, batch.error_file_id)
    assert bad["response"]["status_code"] == 400
    assert bad["response"]["body"]["error"]["param"] == "temperature"
    assert other["response"]["status_code"] == 404


@pytest.mark.parametrize(
    ("data", "number", "param", "words"),
    [
        (text_of([line("a"), line("a")]), None, "custom_id", "lines 1 and 2"),
        (text_of([line("a"), {"custom_id": "b"}]), 2, "url", "'url' must be"),
        (text_of([line("a", url="/v1/embeddings")]), 1, "url", CHAT),
        (text_of([line("a", stream=True)]), 1, "body.stream", "not possible in a batch"),
        (text_of([{**line("a"), "custom_id": ""}]), 1, "custom_id", "1 to 512"),
        (text_of([{**line("a"), "method": "GET"}]), 1, "method", "POST"),
        (text_of([{**line("a"), "body": []}]), 1, "body", "JSON object"),
        (text_of([[]]), 1, None, "JSON object"),
        (b'{"custom_id": "a"\n', 1, None, "not JSON"),
        (text_of([line("a", "x" * 100_001)]), 1, None, "100000 bytes"),
        (b"\n\n", None, None, "no lines"),
    ],
)
def test_errors_of_a_file_name_the_line(
    client: OpenAI, data: bytes, number: int | None, param: str | None, words: str
) -> None:
    batch = ended(client, start(client, data))
    assert batch.status == "failed" and batch.output_file_id is None
    assert batch.errors and batch.errors.data
    error = batch.errors.data[0]
    assert (error.line, error.param) == (number, param)
    assert words in (error.message or "")


def test_files_are_listed_read_and_deleted(client: OpenAI) -> None:
    data = text_of([line("ä€😀")]) * 3
    made = [client.files.create(file=(f"{n}.jsonl", data), purpose="batch") for n in range(3)]
    ids = [each.id for each in made]
    assert made[0].bytes == len(data) and made[0].filename == "0.jsonl"
    assert client.files.content(ids[0]).content == data
    newest = [each.id for each in client.files.list(limit=2, purpose="batch").data]
    assert newest == [ids[2], ids[1]]
    page = client.files.list(limit=2, after=ids[2], order="desc").data
    assert [each.id for each in page][:2] == [ids[1], ids[0]]
    oldest = client.files.list(after=ids[0], order="asc").data
    assert [each.id for each in oldest] == ids[1:]
    assert client.files.delete(ids[0]).deleted
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(NotFoundError, match="no file"):
            call(ids[0])


def post(server: RunningServer, **given: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/files", **given)


def test_what_is_no_upload_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with running("--files", str(tmp_path), "--max-file", "2000", "--hosts") as other:
        good = {"file": ("a.jsonl", b"{}\n")}
        batch = {"purpose": "batch"}
        for given, status, words in (
            ({"json": {}}, 415, "curl -F purpose=batch"),
            ({"files": good}, 400, "'purpose' is missing"),
            ({"files": good, "data": {"purpose": "fine-tune"}}, 400, "'batch' is what there is"),
            ({"files": {"purpose": (None, "batch")}}, 400, "no file"),
            ({"files": {"file": ("a", b"\xff")}, "data": batch}, 400, "byte 0 is 0xff"),
            ({"files": {"file": ("a", b"x" * 2001)}, "data": batch}, 413, "more than 2000 bytes"),
            ({"files": {"file": ("a", b"x" * 99_999)}, "data": batch}, 413, "form is larger"),
            ({"files": good, "data": {**batch, "note": "x" * 1001}}, 400, "longer than 1000"),
            ({"files": {**good, **{str(n): (None, "x") for n in range(20)}}}, 400, "16 fields"),
            (
                {"files": good, "data": {**batch, "expires_after[anchor]": "created_at"}},
                400,
                "expires_after.seconds",
            ),
        ):
            answer = post(other, **given)  # type: ignore[arg-type]
            assert answer.status_code == status and words in answer.text, (given, answer.text)
        cut = b"--b\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\n{}"
        kind = {"content-type": "multipart/form-data; boundary=b"}
        answer = post(other, content=cut, headers=kind)
        assert answer.status_code == 400 and "before its last boundary" in answer.text
        foreign = {**kind, "origin": "https://foreign.example"}
        assert post(other, content=cut, headers=foreign).status_code == 403
        assert not [*(tmp_path / "files").iterdir()]
        assert client_of(other).files.list().data == []
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"files", "batches.sqlite"}


def test_another_key_finds_nothing() -> None:
    with running("--api-key", "one", "--api-key", "two") as server:
        one, two = client_of(server, "one"), client_of(server, "two")
        batch = ended(one, start(one, text_of([line("a")])))
        output, given = str(batch.output_file_id), batch.input_file_id
        assert lines_of(one, output)[0]["custom_id"] == "a"
        for call in (
            lambda: two.batches.retrieve(batch.id),
            lambda: two.batches.cancel(batch.id),
            lambda: two.files.content(output),
            lambda: two.files.retrieve(output),
            lambda: two.files.delete(given),
            lambda: two.batches.create(input_file_id=given, endpoint=CHAT, completion_window="24h"),
        ):
            with pytest.raises(NotFoundError):
                call()
        assert two.files.list().data == [] and two.batches.list().data == []
        assert [each.id for each in one.batches.list().data] == [batch.id]


def test_requests_go_first_and_a_batch_is_cancelled() -> None:
    with running("--delay", "0.02") as server:
        client = client_of(server)
        batch = start(client, text_of([line(f"{n}", max_tokens=60) for n in range(40)]))
        assert eventually(lambda: client.batches.retrieve(batch.id).status == "in_progress")
        with pytest.raises(BadRequestError, match="reads this file"):
            client.files.delete(batch.input_file_id)
        stream = client.chat.completions.create(
            model="toy",
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=400,  # it still runs when a slow client looks
            stream=True,
            extra_body={"ignore_eos": True},
        )
        next(iter(stream))
        stats = httpx.get(f"{server.url}/health").json()["engine"]
        assert stats["running"] == 1, "the batch stands aside"
        stream.close()
        assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
        batch = ended(client, batch)
        assert batch.status == "cancelled" and batch.cancelled_at
        answered = lines_of(client, batch.output_file_id) if batch.output_file_id else []
        missing = lines_of(client, batch.error_file_id)
        assert len(answered) + len(missing) == 40
        assert missing[0]["response"] is None
        assert missing[0]["error"]["code"] == "batch_cancelled"
        with pytest.raises(BadRequestError, match="is cancelled"):
            client.batches.cancel(batch.id)


def test_batches_that_have_not_ended_are_bounded() -> None:
    with running("--delay", "0.02") as server:
        client = client_of(server)
        data = text_of([line(f"{n}", max_tokens=90) for n in range(50)])
        batches = [start(client, data) for _ in range(8)]
        with pytest.raises(APIStatusError, match="8 batches have not ended"):
            start(client, data)
        for batch in batches:
            client.batches.cancel(batch.id)


def killed(folder: Path, data: bytes) -> Iterator[str]:
    """Start a server, begin a batch, and kill it amid its lines. Yields the batch's id."""
    with running("--files", str(folder), "--delay", "0.01") as server:
        client = client_of(server)
        batch = start(client, data)

        def begun() -> bool:
            counts = client.batches.retrieve(batch.id).request_counts
            return counts is not None and counts.completed >= 5

        assert eventually(begun)
        children = server.children()
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        for child in children:
            os.kill(child, signal.SIGKILL)
        yield batch.id


def test_a_killed_server_answers_each_line_once(tmp_path: Path) -> None:
    names = [f"{n}" for n in range(60)]
    for name in killed(tmp_path, text_of([line(name, name, max_tokens=12) for name in names])):
        with running("--files", str(tmp_path)) as server:
            client = client_of(server)
            before = client.batches.retrieve(name)
            assert before.status in ("in_progress", "finalizing", "completed")
            batch = ended(client, before)
            assert batch.status == "completed"
            found = lines_of(client, batch.output_file_id)
            assert [each["custom_id"] for each in found] == names
            requests = httpx.get(f"{server.url}/health").json()["engine"]["requests"]
            assert requests <= 55, "at least the 5 lines before are not answered again"


def test_other_endpoints_and_names_that_are_not_built(client: OpenAI) -> None:
    lines = [
        {"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "hel", "max_tokens": 3}},
        {"custom_id": "b", "url": "/v1/completions", "body": {"prompt": "hey", "max_tokens": 3}},
    ]
    batch = ended(client, start(client, text_of(lines), "/v1/completions"))
    bodies = [each["response"]["body"] for each in lines_of(client, batch.output_file_id)]
    assert [body["object"] for body in bodies] == ["text_completion"] * 2
    lines = [{"custom_id": "a", "url": "/v1/responses", "body": {"input": "hello"}}]
    batch = ended(client, start(client, text_of(lines), "/v1/responses"))
    (answer,) = lines_of(client, batch.output_file_id)
    assert answer["response"]["body"]["object"] == "response"
    with pytest.raises(BadRequestError, match="'endpoint' must be one of"):
        start(client, b"{}\n", "/v1/moderations")


def folders_of(server: RunningServer) -> Sequence[Path]:
    return [
        link.readlink().parent
        for link in Path(f"/proc/{server.process.pid}/fd").iterdir()
        if re.search(r"mlcc-files-.*sqlite$", str(link.readlink()))
    ]


def test_without_a_folder_nothing_is_left_at_the_end() -> None:
    with running() as server:
        client = client_of(server)
        assert ended(client, start(client, text_of([line("a")]))).status == "completed"
        (folder, *_) = folders_of(server)
        assert (folder.stat().st_mode & 0o777) == 0o700 and [*(folder / "files").iterdir()]
    assert not folder.exists()
