"""The files for deployment, as far as they can be checked without a container engine and
systemd."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def service(name: str) -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"][name]


def test_compose_mounts_what_is_there_and_opens_ports_to_this_machine_only() -> None:
    for name in ("prometheus", "grafana"):
        for mount in service(name)["volumes"]:
            assert (DEPLOY / mount.partition(":")[0]).is_file(), mount
        assert re.search(r":v?\d+\.\d+\.\d+$", service(name)["image"])
    for name in ("mlcc", "grafana"):
        assert all(port.startswith("127.0.0.1:") for port in service(name)["ports"])
    build = service("mlcc")["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Containerfile"
    assert f" AS {build['target']}\n" in (DEPLOY / "Containerfile").read_text()


def test_prometheus_asks_the_server_under_a_name_that_it_answers_to() -> None:
    scrape = yaml.safe_load((DEPLOY / "grafana" / "prometheus.yaml").read_text())
    (target,) = scrape["scrape_configs"][0]["static_configs"][0]["targets"]
    name = target.partition(":")[0]
    command = service(name)["command"]
    assert command[command.index("--allowed-host") + 1] == name


def test_the_extras_of_the_images_are_mlccs() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    installs = re.findall(r'"mlcc\[(.*?)\]"', (DEPLOY / "Containerfile").read_text())
    assert len(installs) == 3
    for extra in {name for names in installs for name in names.split(",")}:
        assert re.search(rf"^{extra} = \[", project, flags=re.MULTILINE), extra


def test_the_install_page_has_every_extra() -> None:
    """All extras except those for development, and `tvm`, which others include."""
    listed = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    extras = set(re.findall(r"^([\w-]+) = \[", listed.partition("\n[")[0], flags=re.MULTILINE))
    extras -= {"dev", "docs", "real", "tvm"}
    page = (ROOT / "docs" / "install.md").read_text()
    table = page.partition("| extra | brings |")[2].partition("\n\n")[0]
    rows = {one: words for _, one, words, _ in (row.split("|") for row in table.splitlines()[2:])}
    assert {name for one in rows for name in re.findall(r"`([\w-]+)`", one)} == extras
    (whole,) = re.findall(r'^all = \["mlcc\[(.*?)\]"\]', listed, flags=re.MULTILINE)
    left_out = set(re.findall(r"`(\w+)`", rows[" `all` "]))
    assert extras - {*whole.split(","), "all", "cuda-runtime"} == left_out


@pytest.mark.needs("systemd")
def test_the_unit_is_sound_and_sees_little(tmp_path: Path) -> None:
    program = tmp_path / "mlcc"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = (DEPLOY / "mlcc.service").read_text()
    unit = tmp_path / "mlcc.service"
    unit.write_text(text.replace("/opt/mlcc/bin/mlcc", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    exposed = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)],
        capture_output=True,
        text=True,
    )
    assert exposed.returncode == 0, exposed.stdout
    assert "ProcSubset=pid" not in text  # it hides /proc/cpuinfo and meminfo, which mlcc reads
    stop = re.search(r"TimeoutStopSec=(\d+)", text)
    assert stop
    assert int(stop[1]) > 30  # --drain
