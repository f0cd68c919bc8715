"""A click command whose `--help` lists its options in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class GroupedCommand(click.Command):
    """groups: title -> the options in it, by their long flag, in the order of the help. Options of
    no group are listed last."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
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
        for title, flags in self.groups.items():
            with formatter.section(title):
                formatter.write_dl([records.pop(flag) for flag in flags])
        if records:
            with formatter.section("Other"):
                formatter.write_dl(list(records.values()))
