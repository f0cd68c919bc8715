"""Runs the vectors against a server: `python -m tests.e2e.conformance URL [TOPIC[/NAME] ...]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.e2e.conformance.helpers.client import Client
from tests.e2e.conformance.runner import Runner
from tests.e2e.conformance.vectors import FOLDER, Vector, layout, parse, read


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if everything that was run is as expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.conformance", description=__doc__)
    parser.add_argument("url", help="what speaks the API, such as http://127.0.0.1:8000")
    parser.add_argument("names", nargs="*", help="topics or vectors  [all]")
    parser.add_argument("--target", default="server", help="server or tab: skips the other's")
    parser.add_argument("--api-key", help="sent with each request that says nothing else")
    parser.add_argument("--record", action="store_true", help="write what came into $record fields")
    options = parser.parse_intermixed_args(arguments)
    files = {path: read(path) for path in sorted(FOLDER.glob("*.json"))}
    chosen = [
        vector
        for path, entries in files.items()
        for vector in (parse(path.stem, entry) for entry in entries)
        if vector.fits(options.target) and _is_named(vector, options.names)
    ]
    failed = _run(Client(options.url, options.api_key), chosen, options.record)
    if options.record:
        for path, entries in files.items():
            path.write_bytes(layout(entries))
    return 1 if failed else 0


def _is_named(vector: Vector, names: Sequence[str]) -> bool:
    return not names or bool({vector.id, vector.topic} & set(names))


def _run(client: Client, chosen: list[Vector], record: bool) -> int:
    """Run vectors and print the failed ones. Returns their number."""
    started, failed = time.monotonic(), 0
    runner = Runner(client, chosen, record)
    for vector in chosen:
        try:
            runner.result(vector)
        except Exception as error:  # of one vector; the others are still of interest
            failed += 1
            print(f"{vector.id}: {error}")
    runner.close()
    client.close()
    seconds = time.monotonic() - started
    print(f"{len(chosen) - failed} of {len(chosen)} as expected, in {seconds:.1f} s")
    return failed


if __name__ == "__main__":
    sys.exit(main())
