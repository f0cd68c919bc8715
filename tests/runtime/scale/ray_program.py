"""A Ray program that tests start in another process, as Ray reads its environment at import. Its
cluster ends with it.

Prints the cluster's address. Then, for each line of JSON, it runs or deletes an application with a
model, beside one of another kind, and prints the applications, or the error. What Ray prints, also
of other programs on the cluster, goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from mlcc.errors import MlccError
from mlcc.scale import deployment
from mlcc.scale.cluster import connected


def beside() -> Any:
    """Another application on the same Ray Serve."""
    from ray import serve

    @serve.deployment(ray_actor_options={"num_cpus": 0})  # type: ignore[untyped-decorator]
    class Greeter:
        def __call__(self, request: object) -> str:
            return "Hello"

    return Greeter.bind()


def run(asked: dict[str, Any]) -> list[str]:
    """Both applications, or neither if no model is given."""
    from ray import serve

    if model := asked.get("model"):
        keys, replicas = tuple(asked["keys"]), asked.get("replicas", 1)
        answer = deployment(model, replicas=replicas, threads=1, cpus=0, api_keys=keys)
        serve.start(http_options={"host": "127.0.0.1", "port": asked["port"]})
        serve.run(beside(), name="beside", route_prefix="/hello")
        serve.run(answer, name="llm", route_prefix=asked["prefix"])
    else:
        serve.delete("llm")
        serve.delete("beside")
    return sorted(serve.status().applications)


def main() -> None:
    with os.fdopen(os.dup(1), "w", buffering=1) as replies, connected(None):
        os.dup2(2, 1)
        import ray

        print(ray.get_runtime_context().gcs_address, file=replies)
        for line in sys.stdin:
            try:
                reply: object = run(json.loads(line))
            except MlccError as error:
                reply = error.message
            print(json.dumps(reply), file=replies)


if __name__ == "__main__":
    main()
