"""Several engines for `mlcc serve`: replicas on Ray, or an engine on each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mlcc.errors import InvalidRequestError, UnsupportedError

if TYPE_CHECKING:
    from mlcc.model.model import ModelText
    from mlcc.scale.options import Scale
    from mlcc.server.asgi import Settings
    from mlcc.server.serve import StartEngine


class Replicated:
    """The options of replicas. `scale` is None without --ray. Raises InvalidRequestError for
    options that need --ray or contradict each other."""

    def __init__(
        self,
        ray: bool,
        replicas: int | None,
        autoscale: str | None,
        prefill: int | None,
        address: str | None,
    ) -> None:
        self.scale: Scale | None = None
        self._address = address
        given = {"--replicas": replicas, "--autoscale": autoscale}
        given |= {"--prefill": prefill, "--address": address}
        if not ray:
            if found := [name for name, value in given.items() if value is not None]:
                raise InvalidRequestError(f"{found[0]} is for replicas on Ray; add --ray")
            return
        if replicas is not None and autoscale is not None:
            raise InvalidRequestError("--replicas and --autoscale: give one of them")
        from mlcc.scale.options import Scale, read_autoscale

        many = read_autoscale(autoscale) if autoscale else None
        self.scale = Scale(replicas or 1, many, prefill or 0)

    def check(self, settings: Settings, alone: bool, devices: Sequence[int] = ()) -> None:
        """Raises UnsupportedError for unsupported combinations, before a model is compiled."""
        if devices:
            _check_devices(settings, alone, self.scale is not None)
        if self.scale is None:
            return
        from mlcc.scale.cluster import check_token
        from mlcc.util.extras import require

        require("ray", "ray", "--ray")
        check_token()
        if not alone:
            raise UnsupportedError("--ray is for one model; give `mlcc serve` that alone")
        if settings.adapters or settings.lora_dir:
            raise UnsupportedError(
                "--lora and --lora-dir are not built for replicas on Ray; merge the adapter "
                "(`mlcc compile --merge-lora`), or leave out --ray"
            )

    def begin(
        self, text: ModelText, devices: Sequence[int], on_progress: Callable[[int, int], object]
    ) -> StartEngine:
        """A function that starts the engines. `on_progress` gets the bytes that an engine of this
        machine has read, and all."""
        about = text.info
        if devices:
            from mlcc.scale.data_parallel import DataParallelEngines

            return partial(DataParallelEngines, artifact=about.fingerprint, devices=devices)
        if self.scale is None:
            from mlcc.server.models.backends import LocalEngine

            return partial(LocalEngine, on_progress=on_progress)
        from dataclasses import replace

        from mlcc.scale.serving import RayEngine

        if self.scale.prefill and (about.device in ("cuda", "metal") or text.encoder is not None):
            raise UnsupportedError(
                "--prefill is built for models that write, on CPUs and Vulkan: pages of others are "
                "not moved (docs/internals/kv_transfer.md); leave it out"
            )
        scale = replace(self.scale, gpus=1.0) if about.device == "cuda" else self.scale
        return partial(RayEngine, artifact=about.fingerprint, scale=scale, address=self._address)


def _check_devices(settings: Settings, alone: bool, ray: bool) -> None:
    """Raises UnsupportedError for options unsupported with an engine on each of several devices."""
    if ray:
        raise UnsupportedError(
            "--device with several numbers is without Ray; with --ray each replica gets a GPU of "
            "Ray's: leave --device out"
        )
    if not alone:
        raise UnsupportedError(
            "--device with several numbers is for one model; give `mlcc serve` that alone"
        )
    if settings.adapters or settings.lora_dir:
        raise UnsupportedError(
            "--lora and --lora-dir are not built for several devices; merge the adapter (`mlcc "
            "compile --merge-lora`), or give --device one number"
        )
