"""The server's log on stderr: plain lines, or a JSON object per line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone

from mlcc.server.observability.request_log import REQUEST_ID

LEVELS = ("debug", "info", "warning", "error")
_OURS = ("mlcc", "uvicorn")


def configure(level: str, as_json: bool) -> None:
    """Configure logging. Each request is a line of level info. uvicorn logs errors only: our lines
    say more, and some of its advice does not apply here."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else Lines())
    for name in _OURS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    logging.getLogger("mlcc").setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel("ERROR")


class Lines(logging.Formatter):
    """`2026-11-23 10:00:00 WARNING the engine is back [req-...]`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        name = REQUEST_ID.get()
        return super().format(record) + (f" [{name}]" if name else "")


class JsonLines(logging.Formatter):
    """One object per line: time (UTC, RFC 3339), level, logger, message, request_id, and the fields
    of an access line."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, timezone.utc)
        entry = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **({"request_id": name} if (name := REQUEST_ID.get()) else {}),
            **getattr(record, "fields", {}),
            **({"error": self.formatException(record.exc_info)} if record.exc_info else {}),
        }
        return json.dumps(entry, ensure_ascii=True)
