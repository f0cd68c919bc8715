"""`mlcc transcribe MODEL FILE...`: transcripts of recordings, on standard output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from mlcc.commands.grouped_help import GroupedCommand
from mlcc.commands.options import encoder_options
from mlcc.commands.terminal import loading
from mlcc.engine_args import EngineArgs
from mlcc.errors import UnsupportedError

FORMATS = ("text", "srt", "vtt", "json", "verbose_json")


@click.command("transcribe", cls=GroupedCommand)
@encoder_options
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--language", metavar="CODE", help="Language that is spoken, such as 'de'; found by "
              "default.")  # fmt: skip
@click.option("--translate", is_flag=True, help="Translate into English.")
@click.option("--prompt", metavar="TEXT", help="Text that came before: spellings of names, style.")
@click.option("--temperature", metavar="LIST", default="0", show_default=True,
              help="Temperatures, such as 0,0.2,0.4: the next is tried where a window's text "
              "repeats itself or is unlikely.")  # fmt: skip
@click.option("--condition-on-previous-text", "carries", is_flag=True,
              help="Give each window the text before it as its prompt.")  # fmt: skip
@click.option("--no-speech-threshold", "silence", type=click.FloatRange(0.5, 1), metavar="P",
              help="Leave windows out whose text is unlikely and in which silence is likelier than "
              "this, such as 0.6.")  # fmt: skip
@click.option(
    "--words",
    is_flag=True,
    help="Find the time of each word: 'words' of verbose_json, titles of srt and vtt.",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True,
              help="Text, subtitles with times, or JSON.")  # fmt: skip
def transcribe_command(
    args: EngineArgs,
    files: tuple[Path, ...],
    language: str | None,
    translate: bool,
    prompt: str | None,
    temperature: str,
    carries: bool,
    silence: float | None,
    words: bool,
    form: str,
) -> None:
    """Transcribe each FILE (WAV or FLAC; with the extra 'audio' also Ogg and MP3, with 'av' M4A).

    MODEL is a Whisper.
    """
    from mlcc.api.openai.audio import fields_of
    from mlcc.loader import opener
    from mlcc.local.engine import Engine
    from mlcc.model_cache.resolve import check_model, resolve

    if words and form in ("text", "json"):
        raise UnsupportedError(
            f"--words: the format {form} has no times; add --format srt, vtt or verbose_json"
        )
    temperatures = fields_of({"temperature": [temperature]}).temperatures
    check_model(args)
    path = resolve(args)
    with loading(args.model):
        engine = Engine.of(opener(path, args))
    with engine:
        task = engine.audio.translations if translate else engine.audio.transcriptions
        for file in files:
            made: Any = task.create(
                file=file,
                language=language,
                prompt=prompt,
                response_format=form,
                temperature=[*temperatures],
                condition_on_previous_text=carries,
                no_speech_threshold=silence,
                timestamp_granularities=["word", "segment"] if words else (),
            )
            text = made if isinstance(made, str) else json.dumps(made.to_dict(), ensure_ascii=False)
            click.echo(text.rstrip("\n"))
