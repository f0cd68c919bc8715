"""A click command whose `--help` lists its options in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

COMMON: Mapping[str, Sequence[str]] = {
    "Sampling": ("--temperature", "--top-p", "--top-k", "--min-p", "--seed", "--max-tokens"),
    "Model": (
        "--target", "--quant", "--kv", "--speculate", "--draft", "--parse-special",
        "--reasoning-parser",
    ),
    "Memory": (
        "--threads", "--device", "--context", "--max-batch", "--max-step-tokens", "--max-rows",
        "--memory", "--kv-pages", "--prefix-cache",
    ),
}  # fmt: skip
"""The options that commands share (`options.py`). A command's own are listed before them."""


class GroupedCommand(click.Command):
    """groups: title -> the options in it, by their long flag, in the order of the help. Options of
    no group are listed last; before COMMON."""

    def __init__(
        self, *args: Any, groups: Mapping[str, Sequence[str]] = COMMON, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One section for each group."""
        records = {
            max(parameter.opts, key=len): record
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option)
            and (record := parameter.get_help_record(ctx)) is not None
        }
        sections = {
            title: [records.pop(flag) for flag in flags if flag in records]
            for title, flags in self.groups.items()
        }
        others = list(records.values())
        if self.groups is COMMON:
            sections = {"Options": others, **sections}
        else:
            sections["Other"] = others
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
