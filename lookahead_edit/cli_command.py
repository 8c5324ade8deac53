"""The class of all commands: an option that holds one value is given once, where click silently keeps the last."""

from __future__ import annotations

from collections import Counter
from typing import Any

from typer.core import TyperCommand

from lookahead_edit.types import InvalidInput

WITH_COMMAS = "with commas between"  # what the help of options says that hold several values


class Command(TyperCommand):
    """Refuses options that are given more than once, but for flags, and those that are made to be repeated."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As ever; raises InvalidInput for an option that was repeated."""
        # The parser names a parameter each time that it meets it, under whatever name.
        given: list[Any] = list(self.make_parser(ctx).parse_args(args=list(args))[2])
        for option, count in Counter(given).items():
            if count > 1 and option.param_type_name == "option" and not _is_repeatable(option):
                hint = f"; several values go {WITH_COMMAS}" if WITH_COMMAS in (option.help or "") else ""
                raise InvalidInput(f"expected {option.opts[0]} once, got it {count} times{hint}", param=option.name)
        return super().parse_args(ctx, args)


def _is_repeatable(option: Any) -> bool:
    return bool(option.is_flag or option.multiple or option.count)
