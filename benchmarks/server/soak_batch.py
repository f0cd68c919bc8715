"""A batch that runs beneath the soak's requests: each line is answered once, and as on a quiet
server."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
import urllib.request
from typing import Any

LINES = 120
WAIT_S = 300.0
"""Seconds within which the batch must end after the last request."""
_BOUNDARY = "soak-boundary"


class BatchBeneath:
    """One batch of a server. It asks few different things many times, greedily."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        self._url, self._context = url, context
        self._name = ""
        self.faults: list[str] = []
        """What is wrong with the answers, once the batch has ended."""

    async def begin(self) -> None:
        """Upload the lines and start the batch."""
        await asyncio.to_thread(self._begin)

    async def end(self, killed: bool) -> None:
        """Wait until the batch has ended, or for WAIT_S. killed: engines were, which a line
        survives twice."""
        end, status = time.monotonic() + WAIT_S, ""
        while status not in ("completed", "failed") and time.monotonic() < end:
            await asyncio.sleep(0.5)
            status = (await asyncio.to_thread(self._batch))["status"]
        self.faults = await asyncio.to_thread(self._faults, killed)

    def _faults(self, killed: bool) -> list[str]:
        batch = self._batch()
        if batch["status"] != "completed":
            return [f"the batch is {batch['status']}"]
        lines = self._lines(batch["output_file_id"])
        failed = self._lines(batch["error_file_id"]) if batch["error_file_id"] else []
        names = [line["custom_id"] for line in (*lines, *failed)]
        faults = []
        if sorted(names) != sorted(f"line {number}" for number in range(LINES)):
            faults.append(f"the batch has {len(names)} lines, {len(set(names))} different ones")
        if failed and not killed:
            faults.append(f"{len(failed)} lines of the batch failed: {failed[0]}")
        answers: dict[int, set[str]] = {}
        for line in lines:
            text = line["response"]["body"]["choices"][0]["text"]
            answers.setdefault(int(line["custom_id"].split()[1]) % 7, set()).add(text)
        if differ := [texts for texts in answers.values() if len(texts) > 1]:
            faults.append(f"lines that ask the same have other answers: {differ[0]}")
        return faults

    def _begin(self) -> None:
        greedy = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}
        lines = [
            {
                "custom_id": f"line {number}",
                "url": "/v1/completions",
                "body": {"prompt": f"line {number % 7}", **greedy},
            }
            for number in range(LINES)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        head = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name="
        form = (
            f'{head}"purpose"\r\n\r\nbatch\r\n{head}"file"; filename="lines"\r\n\r\n{text}'
            f"\r\n--{_BOUNDARY}--\r\n"
        )
        kind = f"multipart/form-data; boundary={_BOUNDARY}"
        file = json.loads(self._send("/v1/files", form.encode(), kind))
        wanted = {
            "input_file_id": file["id"],
            "endpoint": "/v1/completions",
            "completion_window": "24h",
        }
        made = self._send("/v1/batches", json.dumps(wanted).encode(), "application/json")
        self._name = json.loads(made)["id"]

    def _batch(self) -> dict[str, Any]:
        return dict(json.loads(self._send(f"/v1/batches/{self._name}")))

    def _lines(self, file: str) -> list[dict[str, Any]]:
        text = self._send(f"/v1/files/{file}/content").decode()
        return [json.loads(line) for line in text.splitlines()]

    def _send(self, path: str, body: bytes | None = None, kind: str = "") -> bytes:
        headers = {"Content-Type": kind} if kind else {}
        request = urllib.request.Request(self._url + path, body, headers)
        with urllib.request.urlopen(request, timeout=60, context=self._context) as answer:
            return bytes(answer.read())
