"""`mlcc compile` and `mlcc targets`: the compiler's commands, found through `mlcc.commands`."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlcc.artifact.kv_format import KV_DTYPES
from mlcc.artifact.schema import MOST_ADAPTER_RANK, MOST_ADAPTER_SLOTS, MOST_RANKS
from mlcc.commands.grouped_help import GroupedCommand
from mlcc.errors import UnsupportedError
from mlcc.model_argument import full_name, model_argument
from mlcc.util.extras import advice, is_here
from mlcc.util.progress import MODES, VARIABLE
from mlcc_compiler.driver.display import Display
from mlcc_compiler.driver.toolchain import missing
from mlcc_targets import TARGETS, Choices, Target, TargetError, get_target
from mlcc_targets.tvm_import import no_collections

if TYPE_CHECKING:
    from mlcc_compiler.checkpoint.folder import Checkpoint
    from mlcc_compiler.ir.lora import LoraConfig
    from mlcc_compiler.options import Options

LOADING_S = 1.0
"""Seconds until progress is shown."""
GROUPS = {
    "Device": ("--target", "--cpu", "--os", "--arch", "--abi", "--gpu", "--f16", "--webgpu-limits",
               "--subgroup-matrices", "--tp"),
    "Quantization": ("--quant", "--bits", "--calibrate", "--head", "--activations", "--kv"),
    "Model": ("--vision", "--mmproj", "--mtp", "--draft-head", "--for", "--reranker",
              "--merge-lora", "--adapter-rank", "--lora-slots"),
    "Limits": ("--context", "--max-batch", "--max-step-tokens", "--max-rows"),
    "Output": ("--output", "--reuse-weights", "--static-library", "--dump-ir", "--quiet",
               "--verbose", "--progress"),
}  # fmt: skip
"""The options in the order of `--help`."""


@click.command("compile", cls=GroupedCommand, groups=GROUPS)
@click.argument("model", callback=model_argument)
@click.option(
    "--target",
    "target_name",
    default="cpu",
    metavar="NAME",
    show_default=True,
    help="Device to compile for; see `mlcc targets`.",
)
@click.option(
    "--cpu",
    metavar="LEVELS",
    help="For cpu: any, any-x86-64, any-arm, host, or levels such as avx2.",
    show_default="any",
)
@click.option(
    "--os",
    "systems",
    default="",
    metavar="NAMES",
    help="Systems, some of linux, windows, macos; for cpu also ios, ios-simulator.",
    show_default="this one",
)
@click.option(
    "--arch",
    default="",
    metavar="NAMES",
    help="For cuda: GPU architectures, such as sm_80,sm_90; or sm_90a alone.",
)
@click.option(
    "--abi",
    default="",
    metavar="NAMES",
    help="For android: arm64-v8a or arm64-v8a,x86_64.",
    show_default="arm64-v8a",
)
@click.option("--gpu", is_flag=True, help="For android: compile for its GPU instead of its CPU.")
@click.option(
    "--f16/--no-f16",
    default=None,
    help="Compute in float16.",
    show_default="if the target supports it",
)
@click.option(
    "--webgpu-limits",
    is_flag=True,
    help="For vulkan: assume no more of the GPU than WebGPU guarantees.",
)
@click.option(
    "--subgroup-matrices",
    type=click.Choice(["8", "16"]),
    help="For webgpu: matrices of 8 x 8 (Apple's GPUs) or 16 x 16 (NVIDIA's), where a browser has "
    "Chromium's experimental feature.",
)
@click.option(
    "--quant",
    metavar="SCHEME",
    help="Scheme: q3 to q6, q8, f16, bf16, f32 and variants, or keep (the checkpoint's schemes).",
    show_default="keep for quantized checkpoints, q8 for Whisper, else q4",
)
@click.option(
    "--head",
    metavar="SCHEME",
    help="Recipe or scheme of output head and embedding.",
    show_default="--quant's",
)
@click.option(
    "--calibrate",
    metavar="TEXT",
    help="Calibration text: a file, 'default' (a built-in text of several domains), 'random' "
    "(activation statistics of random tokens) or 'none'.",
    show_default="random, for q3 to q6",
)
@click.option(
    "--bits",
    type=click.FloatRange(3, 9),
    metavar="B",
    help="Average bits per weight of the linears, including scales, allocated by --calibrate's "
    "text.",
    show_default="--quant's",
)
@click.option(
    "--activations",
    type=click.Choice(["8", "16"]),
    help="Bits to which activations are rounded. In WGSL 8 is for steps of one or two tokens, and "
    "16 multiplies and adds in float16 in steps of more than eight. On CUDA 8 is for weights that "
    "a checkpoint has in fp8: 8-bit floats.",
    show_default="8 on a CPU",
)
@click.option(
    "--kv",
    type=click.Choice(list(KV_DTYPES)),
    help="KV cache dtype.",
    show_default="f16 if the target supports it",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Output folder.",
    show_default="dist/NAME-QUANT-TARGET",
)
@click.option(
    "--context",
    type=click.IntRange(16),
    metavar="N",
    help="Context length.",
    show_default="the model's, at most 4096",
)
@click.option(
    "--max-batch",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Sequences per step, at most.",
    show_default="8; cuda: 256",
)
@click.option(
    "--max-step-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Tokens per step, at most.",
    show_default="512; cuda: 2048",
)
@click.option(
    "--max-rows",
    type=click.IntRange(1),
    metavar="N",
    help="Rows of logits per step, at most.",
    show_default="--max-batch",
)
@click.option(
    "--merge-lora",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Merge a LoRA adapter (a PEFT folder) into the weights.",
)
@click.option(
    "--adapter-rank",
    type=click.IntRange(1, MOST_ADAPTER_RANK),
    metavar="N",
    help="Support LoRA adapters up to this rank.",
    show_default="none",
)
@click.option(
    "--lora-slots",
    type=click.IntRange(1, MOST_ADAPTER_SLOTS),
    metavar="N",
    help="LoRA adapters on the device at once.",
    show_default="8, with --adapter-rank",
)
@click.option(
    "--dump-ir",
    type=click.Path(path_type=Path),
    help="Write the module after each phase to this folder.",
)
@click.option(
    "--reuse-weights",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Reuse the weights of an earlier compile, such as for another GPU target.",
)
@click.option(
    "--reranker",
    is_flag=True,
    help="Compile a Qwen3 as Qwen3-Reranker, which scores pairs of texts.",
)
@click.option(
    "--mmproj",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="For a GGUF model: the file of its vision tower.",
    show_default="the one beside the model by its name",
)
@click.option(
    "--vision/--no-vision",
    default=True,
    show_default=True,
    help="Compile a checkpoint's vision tower too, so that the model reads images.",
)
@click.option(
    "--mtp",
    is_flag=True,
    help="Compile the checkpoint's multi-token-prediction layer too, for `--speculate mtp`.",
)
@click.option(
    "--draft-head",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Compile an EAGLE-3 head for the checkpoint too, for `--speculate mtp`.",
)
@click.option(
    "--for",
    "checkpoint_of_head",
    metavar="CHECKPOINT",
    callback=lambda context, parameter, text: text and model_argument(context, parameter, text),
    help="MODEL is an EAGLE-3 head: compile this checkpoint with it.",
)
@click.option(
    "--tp",
    "ranks",
    type=click.IntRange(1, MOST_RANKS),
    metavar="N",
    default=1,
    help="Tensor parallelism: number of ranks.",
    show_default="1",
)
@click.option(
    "--static-library", is_flag=True, help="Also build model.a, for programs that link it."
)
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option("-v", "--verbose", is_flag=True, help="List the passes.")
@click.option(
    "--progress",
    type=click.Choice(MODES),
    envvar=VARIABLE,
    help="How progress is shown on the standard error: plain lines, json lines, or none.",
    show_default="a line that moves on a terminal, else plain",
)
def compile_command(
    model: str,
    target_name: str,
    output: Path | None,
    merge_lora: Path | None,
    mmproj: Path | None,
    checkpoint_of_head: str | None,
    quiet: bool,
    verbose: bool,
    progress: str | None,
    **given: Any,
) -> None:
    """Compile MODEL for one kind of device.

    MODEL is a Hugging Face folder, a GGUF file, or hf://org/name[:Q4_K_M][@revision]. A
    checkpoint that is already quantized keeps its schemes unless --quant is given.
    """
    target = find_target(target_name, _choices(target_name, given))
    with Display("none" if quiet else progress, verbose, LOADING_S) as display:
        display.step("loading the compiler")
        # Imported late: the compiler takes seconds to load, `--help` should not.
        with no_collections():
            from mlcc_compiler.checkpoint.hub import resolve
            from mlcc_compiler.checkpoint.open import open_checkpoint
            from mlcc_compiler.compile import compile_model
            from mlcc_compiler.weights.merge_lora import with_lora
        gc.freeze()  # modules stay: later collections need not visit them

        if checkpoint_of_head is not None:
            if given["draft_head"] is not None:
                raise UnsupportedError("--for and --draft-head name two heads; leave out one")
            given["draft_head"] = resolve(full_name(model), display.download)
            model = checkpoint_of_head
        checkpoint = open_checkpoint(resolve(full_name(model), display.download), mmproj)
        if merge_lora is not None:
            checkpoint = with_lora(checkpoint, merge_lora)
        options = _options(given, checkpoint)
        out = output or _folder(checkpoint.name, options, merge_lora, target)
        try:
            compile_model(checkpoint, target, out, options, display.progress())
        except TargetError as error:
            raise UnsupportedError(str(error)) from error
        next_command = _next_command(out) if output is None and not target.run_missing else ""
        display.finish(out, hint=target.opened_by or next_command)


def _choices(target_name: str, given: dict[str, Any]) -> Choices:
    """Take the options of the target's row out of the command line's."""
    default = "any" if target_name == "cpu" and not given["static_library"] else "host"
    return Choices(
        cpu=given.pop("cpu") or default,
        systems=_names(given.pop("systems")),
        archs=_names(given.pop("arch")),
        abis=_names(given.pop("abi")),
        gpu=given.pop("gpu"),
        f16=given.pop("f16"),
        webgpu_limits=given.pop("webgpu_limits"),
        subgroup_matrices=int(given.pop("subgroup_matrices") or 0),
    )


def _options(given: dict[str, Any], checkpoint: Checkpoint) -> Options:
    """The compile's options, from the rest of the command line's."""
    from mlcc_compiler.models.registry import HEARING
    from mlcc_compiler.options import Options
    from mlcc_compiler.quantization.recipes import DEFAULT, KEEP, OF_SOUND

    adapters = _lora_config(given.pop("adapter_rank"), given.pop("lora_slots"))
    default = OF_SOUND if checkpoint.config.get("model_type") in HEARING else DEFAULT
    given["quant"] = given["quant"] or (KEEP if checkpoint.quantized else default)
    if given["bits"] is not None:
        given["calibrate"] = given["calibrate"] or "default"
    bits = given.pop("activations")
    return Options(adapters=adapters, activations=int(bits) if bits else None, **given)


def _folder(name: str, options: Options, merge_lora: Path | None, target: Target) -> Path:
    """The default output folder, whose name says what was compiled and how."""
    label = f"{options.quant}-head-{options.head}" if options.head else options.quant
    if options.bits is not None:
        label += f"-bits{options.bits:g}"
    if options.calibrate not in (None, "random"):
        label += "-uncalibrated" if options.calibrate == "none" else "-calibrated"
    label = f"{merge_lora.name}-{label}" if merge_lora is not None else label
    label += f"-kv-{options.kv}" if options.kv else ""
    label += "-mtp" if options.mtp else ""
    label += "-eagle" if options.draft_head else ""
    label += f"-a{options.activations}" if _rounds_unusually(options, target) else ""
    label += f"-tp{options.ranks}" if options.ranks > 1 else ""
    kind = f"{target.name}-gpu" if target.abis and target.generator else target.name
    return Path("dist") / f"{name.rpartition('/')[2]}-{label}-{kind}"


def _rounds_unusually(options: Options, target: Target) -> bool:
    """Whether activations are rounded otherwise than by default."""
    default = 8 if target.kernels == "cpu" else None
    return options.activations not in (None, default)


def _next_command(out: Path) -> str:
    """The command that runs a compiled model on this machine."""
    from mlcc.artifact.folder import Artifact

    command = Artifact.open(out).manifest.command
    return f"{command}{'' if command == 'serve' else ' with'} it: mlcc {command}"


def _lora_config(rank: int | None, slots: int | None) -> LoraConfig | None:
    from mlcc_compiler.ir.lora import DEFAULT_SLOTS, LoraConfig

    if rank is None:
        if slots is not None:
            raise UnsupportedError("--lora-slots is for adapters; add --adapter-rank, such as 16")
        return None
    return LoraConfig(rank, slots or DEFAULT_SLOTS)


def _names(listed: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in listed.split(",") if name.strip())


@click.command("targets")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def targets_command(as_json: bool) -> None:
    """List the targets: what compiles here, what runs here, and why not."""
    rows = [describe(name) for name in TARGETS]
    if as_json:
        import json

        click.echo(json.dumps({row["target"]: row for row in rows}, indent=1))
        return
    for row in rows:
        compiles, runs = ("yes" if not row[key] else "no" for key in ("compile", "run"))
        click.echo(f"{row['target']:<10} compiles: {compiles:<4} runs: {runs:<4} {row['note']}")
        for device in row["devices"]:
            click.echo(f"{'':<10} --device {device}")


def describe(name: str) -> dict[str, Any]:
    """One row of `mlcc targets`; empty `compile` and `run` mean yes."""
    try:
        target = get_target(name)
    except TargetError as error:
        reason = str(error)
        return {"target": name, "compile": reason, "run": reason, "note": reason, "devices": []}
    cannot = missing(target)
    devices, run_missing = _devices(target)
    note = cannot or run_missing or f"{target.cpu} {' '.join(target.features)}".strip()
    kernels = f"{target.generator} kernels" if target.generator else ""
    return {
        "target": name,
        "compile": cannot,
        "run": run_missing,
        "note": note or kernels or "numpy evaluates the graph; slow, exact",
        "devices": devices,
    }


def _devices(target: Target) -> tuple[list[str], str]:
    """The GPUs of a row that this machine has, and why its libraries cannot be run here."""
    if target.run_missing or not target.generator:
        needs = "" if target.device != "numpy" or is_here("numpy") else advice("numpy", "reference")
        return [], target.run_missing or (needs and f"this needs {needs}")
    # Imported late: asking for devices loads TVM's runtime.
    from mlcc.device.select import list_devices

    return list_devices(target.device)


def find_target(name: str, choices: Choices) -> Target:
    """A target's row; TargetError becomes the command line's UnsupportedError."""
    try:
        return get_target(name, choices)
    except TargetError as error:
        raise UnsupportedError(str(error)) from error
