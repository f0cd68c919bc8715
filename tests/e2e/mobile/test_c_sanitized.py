"""The requests of test_c_requests.py and the misuse of misuse.cc, with library and program under
the sanitizers of threads and of memory.

CPython itself is not built with them, so its leaks are not detected.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.mobile import test_c_bad_input as bad_input
from tests.e2e.mobile import test_c_requests as requests
from tests.helpers.mobile.c_host import Host
from tests.helpers.mobile.c_library import SITE, built

TESTS = [
    (requests.test_an_answer_comes_whole_or_as_events, ()),
    (requests.test_polling, ()),
    (requests.test_cancelling_from_outside_and_within_the_callback, ()),
    (requests.test_closing_while_answers_stream, (False,)),
    (requests.test_closing_while_answers_stream, (True,)),
    (requests.test_closing_while_it_loads, ()),
    (requests.test_a_callback_that_ends_its_thread, ()),
    (requests.test_a_callback_that_does_not_return, ()),
    (requests.test_callbacks_may_call, ()),
    (requests.test_several_models_at_once, ()),
    (requests.test_low_memory_refuses_until_another_trim, ()),
    (requests.test_the_background_unloads_the_model_if_configured, ()),
    (bad_input.test_arguments_that_are_missing, ()),
    (bad_input.test_options_that_are_no_json, ()),
]


@pytest.mark.long
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_requests_leave_the_sanitizers_silent(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    sanitizer: str,
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"c-library-{sanitizer.partition(',')[0]}"
    library = built(folder, sanitizer)
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    log = tmp_path / "stderr"
    for test, arguments in TESTS:
        with log.open("ab") as stderr, Host(library.program, stderr=stderr) as host:
            assert host.start(path=os.pathsep.join(SITE)).c == 0
            test(host, *arguments)
    assert not log.read_bytes(), log.read_text()[:4000]
    bad_input.check_misuse(library, f"-fsanitize={sanitizer}")
