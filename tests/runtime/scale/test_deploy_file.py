"""The deployment file of docs/scale.md for `serve deploy`, and deploy/kuberay.yaml for KubeRay: Ray
and `mlcc.scale.application` accept them, and (`--long`) Ray's own commands deploy the file on a
cluster of `ray start`, before and after `mlcc serve --ray` used it."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.runtime.scale.ray_cluster import (
    Cluster,
    Served,
    environment,
    free_port,
    ray_head,
    serving,
    until,
)

pytest.importorskip("ray", reason="needs ray: pip install mlcc[ray]")
import ray
from ray.serve.schema import ServeDeploySchema

from mlcc.errors import InvalidRequestError
from mlcc.scale import application
from mlcc.scale.cluster import in_use

ROOT = Path(__file__).parents[3]


def the_file() -> Any:
    """The deployment file in docs/scale.md."""
    page = (ROOT / "docs" / "scale.md").read_text()
    (found,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return yaml.safe_load(found)


def test_the_file_is_what_ray_and_mlcc_take() -> None:
    (one,) = ServeDeploySchema.model_validate(the_file()).applications
    assert one.import_path == f"{application.from_yaml.__module__}:{application.from_yaml.__name__}"
    taken = {*inspect.signature(application.application).parameters, *application._LOADING}
    assert set(one.args) <= taken - {"loading"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"api_key_file": "/absent.json"}, "/absent.json: No such file"),
        ({"thread": 4}, "'thread' is no option of a deployment; use one of threads, "),
        ({"autoscale": "8"}, "type MIN:MAX"),
    ],
)
def test_what_is_wrong_in_it_is_named(
    more: dict[str, object], message: str, compiled_demo: Callable[[str, str], Path]
) -> None:
    model = str(compiled_demo("q8", "cpu"))
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        application.from_yaml({"model": model, **more})


def test_the_manifest_deploys_that_file_on_a_cluster_with_a_token() -> None:
    """The file is valid for the supported version of Ray, with models at any path of a replica. (It
    was checked by hand against KubeRay's own schema: docs/scale.md.)"""
    spec = yaml.safe_load((ROOT / "deploy" / "kuberay.yaml").read_text())["spec"]
    assert yaml.safe_load(spec["serveConfigV2"])["applications"] == the_file()["applications"]
    made = spec["rayClusterConfig"]
    assert made["rayVersion"].rpartition(".")[0] == ray.__version__.rpartition(".")[0]
    assert made["authOptions"] == {"mode": "token"}
    (model,) = (one["args"]["model"] for one in the_file()["applications"])
    for group in (made["headGroupSpec"], *made["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        (mount,) = container["volumeMounts"]
        assert Path(model).is_relative_to(mount["mountPath"])
        assert [volume["name"] for volume in pod["volumes"]] == [mount["name"]]


@pytest.mark.parametrize(
    ("status", "deployments", "used"),
    [("DEPLOY_FAILED", {}, False), ("DEPLOY_FAILED", {"a": 1}, True), ("DEPLOYING", {}, True)],
)
def test_what_ray_could_not_build_keeps_no_serve_up(
    status: str, deployments: dict[str, int], used: bool
) -> None:
    one = SimpleNamespace(status=status, deployments=deployments)
    assert in_use(SimpleNamespace(applications={"mlcc": one})) == used
    assert not in_use(SimpleNamespace(applications={}))


@dataclass(frozen=True)
class Head(Cluster):
    """A cluster of `ray start --head`, and where its dashboard takes applications."""

    dashboard: str
    file: Path
    port: int
    """The port of Serve's proxy."""

    def serve(self, *words: str) -> str:
        """Run Ray's command `serve`; returns its output."""
        command = [sys.executable, "-m", "ray.serve.scripts", *words]
        env = {**environment(self.token), "RAY_DASHBOARD_ADDRESS": self.dashboard}
        env |= {"RAY_ADDRESS": self.address}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def deploy(self, model: Path) -> None:
        """The page's file, of another model and on a port that is free."""
        file = the_file()
        (one,) = file["applications"]
        one["args"] = {"model": str(model), "autoscale": "1:2", "cpus": 0, "threads": 1}
        file["http_options"] = {"host": "127.0.0.1", "port": self.port}
        self.file.write_text(yaml.safe_dump(file))
        self.serve("deploy", str(self.file))

    def status(self) -> dict[str, Any]:
        """The application's status in `serve status`; empty if it is absent."""
        found = yaml.safe_load(self.serve("status")) or {}
        return dict(found.get("applications", {}).get("mlcc", {}))

    def running(self) -> bool:
        return self.status().get("status") == "RUNNING"


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    dashboard = free_port()
    with ray_head(f"--dashboard-port={dashboard}") as made:
        where = f"http://127.0.0.1:{dashboard}"
        yield Head(
            made.process, made.address, made.token, where, tmp_path / "app.yaml", free_port()
        )


@pytest.mark.long
def test_it_is_deployed_again_and_after_a_server_without_proxies(
    head: Head, compiled_demo: Callable[[str, str], Path]
) -> None:
    """Deploy twice, with the same file and with another artifact; and after `mlcc serve --ray
    --address`, during which it was refused: that leaves nothing behind that would refuse it
    again."""
    one, other = compiled_demo("q8", "cpu"), compiled_demo("f32", "cpu")
    own = Served(f"http://127.0.0.1:{head.port}", head.process.pid)
    prints = []
    for model in (one, one, other):
        head.deploy(model)
        until(head.running, 90)
        prints.append(own.chat("Hi")["system_fingerprint"])
    assert prints[0] == prints[1]
    until(lambda: own.chat("Hi")["system_fingerprint"] != prints[0], 90)
    head.serve("shutdown", "-y")
    until(lambda: not head.status(), 60)
    with serving(one, on=head) as served:
        assert served.chat("Hi")["choices"]
        head.deploy(one)
        until(lambda: head.status().get("status") == "DEPLOY_FAILED", 90)
        assert "no request would come here" in head.status()["message"]
        assert served.chat("Hi")["choices"]
        served.end()
    until(lambda: not head.status(), 60)
    head.deploy(one)
    until(head.running, 90)
    assert own.chat("Hi")["system_fingerprint"] == prints[0]
