"""--ray and its options: mistakes are reported before anything is compiled or started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlcc.cli import main
from mlcc.commands.serve.replicas import Replicated
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.scale.cluster import check_token
from mlcc.server.asgi import Settings


def given(ray: bool = True, **more: object) -> Replicated:
    options = {"replicas": None, "autoscale": None, "prefill": None, "address": None, **more}
    return Replicated(ray, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more", [{"replicas": 2}, {"autoscale": "1:2"}, {"prefill": 1}, {"address": "auto"}]
)
def test_replicas_are_for_ray(more: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match="add --ray"):
        given(ray=False, **more)


def test_what_contradicts_itself() -> None:
    with pytest.raises(InvalidRequestError, match="give one of them"):
        given(replicas=2, autoscale="1:4")


def test_what_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcc.util.extras.is_here", lambda package: True)
    with pytest.raises(UnsupportedError, match="for one model"):
        given().check(Settings(), alone=False)
    with pytest.raises(UnsupportedError, match="--lora"):
        given().check(Settings(lora_dir=Path()), alone=True)
    given(ray=False).check(Settings(), alone=False)


def test_without_ray_it_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    import mlcc.scale

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnsupportedError, match=r'type `pip install "mlcc\[ray\]"`'):
        given().check(Settings(), alone=True)
    with pytest.raises(UnsupportedError, match=r'"mlcc\[ray\]"'):
        mlcc.scale.deployment("model")


def test_no_cluster_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(UnsupportedError, match="unset it"):
        check_token()
    monkeypatch.setenv("RAY_AUTH_MODE", "Token")
    check_token(connected=True)
    monkeypatch.delenv("RAY_AUTH_MODE")
    check_token()  # one of our own gets it
    with pytest.raises(UnsupportedError, match=r"runs without a token.*RAY_AUTH_TOKEN"):
        check_token(connected=True)


def test_the_command_says_it_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", str(tmp_path), "--replicas", "2"])
    stderr = capsys.readouterr().err.strip()
    assert ended.value.code and "\n" not in stderr
    assert stderr.endswith("--replicas is for replicas on Ray; add --ray")
