"""A command group that names what is available when it does not know a command."""

from __future__ import annotations

import click

from autotune.errors import did_you_mean, near_matches

__all__ = ["CommandGroup"]


class CommandGroup(click.Group):
    """A group of commands, listed in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names:
            hint = did_you_mean(near_matches(args[0], names))
            raise click.UsageError(
                f"unknown command {args[0]!r}; available: {', '.join(names)}.{hint}", ctx
            )
        return super().resolve_command(ctx, args)
