"""Builds or installs the peers of `cpu.py` under build/peers, once a machine.

    python -m benchmarks.peers.install        # `cpu --peers` does it too

llama.cpp is compiled from the sources in llama-cpp-python's sdist, for this CPU (10 minutes of two
cores); OpenVINO GenAI and matplotlib are wheels, each in a virtual environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PEERS = Path(__file__).resolve().parents[2] / "build" / "peers"
LLAMA_SDIST = "llama-cpp-python==0.3.36"
OPENVINO = ("openvino-genai==2026.4.1.0", "numpy")
WHISPER_CPP, FASTER_WHISPER = "pywhispercpp==1.5.1", "faster-whisper==1.2.1"
TOOLS = ("llama-bench", "llama-batched-bench")
LOAD_TILES = "    _tile_loadconfig(&tc);"
TILES_IN_MEMORY = '    __asm__ volatile("" : : "r"(&tc) : "memory");\n' + LOAD_TILES
"""gcc 12 believes that `_tile_loadconfig` reads 8 bytes and drops the others, so that AMX kernels
end with SIGILL (ggml-org/llama.cpp issue 20824). A barrier writes them all."""


def run(*command: str | Path, **environment: str) -> None:
    subprocess.run([*map(str, command)], check=True, env={**os.environ, **environment})


def python_of(name: str, *packages: str) -> Path:
    """The interpreter of an environment with these packages."""
    folder = PEERS / name
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        run(sys.executable, "-m", "venv", folder)
        run(python, "-m", "pip", "install", "-q", *packages)
        ready.touch()
    return python


def llama() -> Path:
    """The folder of llama.cpp's programs."""
    built = PEERS / "llama-build" / "bin"
    if not all((built / tool).exists() for tool in TOOLS):
        _build(*TOOLS)
    return built


def mtmd() -> tuple[Path, Path]:
    """`mtmd_tower`, which encodes images by llama.cpp's vision towers, and llama.cpp's sources."""
    built = PEERS / "llama-build" / "bin"
    program, source = built / "mtmd_tower", _sources(_build_tools())
    if not program.exists():
        if not (built / "libmtmd.so").exists():
            _build("mtmd")
        folders = [source / part for part in ("include", "ggml/include", "tools/mtmd")]
        libraries = ["-lmtmd", "-lllama", "-lggml", "-lggml-base"]
        words = [
            "g++",
            "-O2",
            "-std=c++17",
            "-o",
            program,
            Path(__file__).parent / "mtmd_tower.cpp",
        ]
        words += [f"-I{folder}" for folder in folders]
        run(*words, f"-L{built}", f"-Wl,-rpath,{built}", *libraries)
    return program, source


def _build_tools() -> Path:
    return python_of("build", "cmake", "ninja").parent


def _build(*targets: str) -> None:
    tools, built = _build_tools(), PEERS / "llama-build"
    options = ["GGML_NATIVE=ON", "LLAMA_BUILD_TESTS=OFF", "LLAMA_BUILD_EXAMPLES=OFF"]
    options += ["LLAMA_BUILD_SERVER=OFF", "LLAMA_CURL=OFF", "LLAMA_OPENSSL=OFF"]
    options += ["GGML_CCACHE=OFF", "CMAKE_BUILD_TYPE=Release"]
    defined = [f"-D{option}" for option in options]
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    run("cmake", "-S", _sources(tools), "-B", built, "-G", "Ninja", *defined, PATH=path)
    run("cmake", "--build", built, "-j", "2", "--target", *targets, PATH=path)


def _sources(tools: Path) -> Path:
    folder = PEERS / "llama-source"
    if not folder.exists():
        downloads = PEERS / "sdist"
        words = ("download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation")
        run(tools / "python", "-m", "pip", "install", "-q", "scikit-build-core")
        run(tools / "python", "-m", "pip", *words, "-d", downloads, LLAMA_SDIST)
        (archive,) = downloads.glob("*.tar.gz")
        folder.mkdir()
        run("tar", "-xf", archive, "-C", folder)
    (source,) = folder.glob("*/vendor/llama.cpp")
    kernels = source / "ggml/src/ggml-cpu/amx/mmq.cpp"
    text = kernels.read_text()
    if TILES_IN_MEMORY not in text:
        kernels.write_text(text.replace(LOAD_TILES, TILES_IN_MEMORY))
    return source


def openvino() -> Path:
    """The interpreter of the environment with OpenVINO GenAI."""
    return python_of("openvino", *OPENVINO)


def whisper_cpp() -> Path:
    """The interpreter of the environment with whisper.cpp."""
    return python_of("whisper_cpp", WHISPER_CPP)


def faster_whisper() -> Path:
    """The interpreter of the environment with faster-whisper."""
    return python_of("faster_whisper", FASTER_WHISPER)


def plotting() -> Path:
    """The interpreter of the environment with matplotlib."""
    return python_of("plot", "matplotlib")


def main() -> None:
    PEERS.mkdir(parents=True, exist_ok=True)
    print(llama(), openvino(), plotting(), sep="\n")


if __name__ == "__main__":
    main()
