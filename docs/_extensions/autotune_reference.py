"""Directives that read what they show from the code, so that it cannot fall behind.

``cli-reference`` shows the help of every command. ``parts`` shows every part of one kind with its
options. ``options-table`` shows the attributes of a class with their defaults, bounds and
descriptions.
"""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import click
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from autotune.plugins.options import meanings
from autotune.plugins.parts import create_part

WIDTH = 80


class CliReference(SphinxDirective):
    """A section for the command group, then one for each command."""

    def run(self) -> list[nodes.Node]:
        """The sections."""
        from autotune.cli.app import command_group

        self.env.note_reread()
        context = click.Context(command_group, info_name="autotune", **_width())
        sections = [_section("autotune", command_group.get_help(context))]
        for name in command_group.list_commands(context):
            command = command_group.get_command(context, name)
            if command is None:
                raise self.error(f"autotune lists a command {name!r} that it does not have")
            inner = click.Context(command, info_name=name, parent=context, **_width())
            sections.append(_section(f"autotune {name}", command.get_help(inner)))
            if isinstance(command, click.Group):
                for member_name, member in command.commands.items():
                    innermost = click.Context(
                        member, info_name=member_name, parent=inner, **_width()
                    )
                    title = f"autotune {name} {member_name}"
                    sections.append(_section(title, member.get_help(innermost)))
        return list(sections)


def _width() -> dict[str, int]:
    return {"terminal_width": WIDTH, "max_content_width": WIDTH}


def _section(title: str, text: str) -> nodes.section:
    section = nodes.section(ids=[title.replace(" ", "-")], names=[title])
    section += nodes.title("", "", nodes.literal("", title))
    block = nodes.literal_block(text, text)
    block["language"] = "text"
    section += block
    return section


class OptionsTable(SphinxDirective):
    """Attributes of an attrs class: ``options-table:: module:Class``."""

    required_arguments = 1
    option_spec = {"skip": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """The table."""
        self.env.note_reread()
        return [_options_table(self.arguments[0], self.options.get("skip", "").split())]


class Parts(SphinxDirective):
    """Every registered part of a kind: ``parts:: strategy``.

    Lines of the content, ``name: module:Class``, say which attrs class holds the options of a part
    whose specification does not describe them.
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """A table of the parts, then one of the options of each."""
        from autotune.plugins.manager import manager

        self.env.note_reread()
        kind = self.arguments[0]
        owners = {row.name: row.distribution for row in manager().report() if row.kind == kind}
        classes = dict(line.split(": ") for line in self.content)
        if not owners or not classes.keys() <= owners.keys():
            missing = ", ".join(sorted(classes.keys() - owners.keys())) or "any"
            raise self.error(f"there is no {kind} {missing}")
        rows, shown = [], []
        for name, distribution in sorted(owners.items()):
            spec = manager().get(kind, name)
            default = spec.default_cost_model
            beside = f"; cost model ``{default}``" if default else ""
            rows.append((f"``{name}``", spec.description + beside, distribution))
            options = _options_of(name, classes.get(name), spec.options)
            if options is not None:
                shown += [nodes.rubric("", "Options of ", nodes.literal("", name)), options]
        return [_table(("name", "what it is", "distribution"), rows, (20, 60, 20)), *shown]


def _options_of(
    name: str, class_path: str | None, described: Mapping[str, str]
) -> nodes.table | None:
    if class_path is not None:
        return _options_table(class_path, ())
    if described:
        rows = [(f"``{option}``", text) for option, text in described.items()]
        return _table(("option", "meaning"), rows, (22, 78))
    return None


def _options_table(class_path: str, skipped: Sequence[str]) -> nodes.table:
    module, _, name = class_path.partition(":")
    cls = getattr(importlib.import_module(module), name)
    texts = {key: text for base in reversed(cls.__mro__) for key, text in meanings(base).items()}
    made = cls()
    rows = []
    for attribute in attrs.fields(cls):
        if attribute.name in skipped or not attribute.init:
            continue
        if attribute.name not in texts:
            raise ValueError(f"{class_path} does not describe {attribute.name!r}")
        rows.append(
            (
                f"``{attribute.name}``",
                _default(attribute, made),
                _bounds(attribute.metadata),
                texts[attribute.name],
            )
        )
    return _table(("option", "default", "allowed", "meaning"), rows, (22, 12, 14, 52))


class PublishedPreset(SphinxDirective):
    """Choices of a preset, and what still differs: ``preset:: NAME``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """A table of what it chooses, and a list of the differences."""
        preset = create_part("preset", self.arguments[0])
        self.env.note_reread()
        rows = [(kind.replace("_", " "), f"``{part!r}``") for kind, part in preset.parts.items()]
        rows += [
            (name.replace("_", " "), f"``{value!r}``")
            for name, value in (
                ("round_size", preset.round_size),
                ("lookahead", preset.lookahead),
                ("load_cost_model", preset.load_cost_model),
            )
            if value is not None
        ]
        differences = nodes.bullet_list()
        for text in preset.differences:
            differences += nodes.list_item("", nodes.paragraph(text, text))
        opening = f"{preset.source}, except that"
        table = _table((self.arguments[0], "chooses"), rows, (30, 70))
        return [table, nodes.paragraph(opening, opening), differences]


def _default(attribute: attrs.Attribute[Any], made: object) -> str:
    """The declared default, or what is made where nothing plain is."""
    declared = attribute.default
    if isinstance(declared, attrs.Factory):  # type: ignore[arg-type]
        declared = getattr(made, attribute.name)
    return "" if declared is None or declared == () else f"``{declared!r}``"


def _bounds(metadata: Any) -> str:
    low, high = metadata.get("low"), metadata.get("high")
    if low is None and high is None:
        return ""
    return f"at least {low:g}" if high is None else f"{low:g} to {high:g}"


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int]
) -> nodes.table:
    group = nodes.tgroup(cols=len(heads))
    group += [nodes.colspec(colwidth=width) for width in widths]
    head, body = nodes.thead(), nodes.tbody()
    head += _row(heads)
    body += [_row(row) for row in rows]
    group += [head, body]
    table = nodes.table("", group)
    return table


def _row(cells: Sequence[str]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        paragraph = nodes.paragraph()
        for position, part in enumerate(cell.split("``")):
            if part:
                paragraph += nodes.literal("", part) if position % 2 else nodes.Text(part)
        row += nodes.entry("", paragraph)
    return row


def unlink_builtin_types(_app: Sphinx, document: nodes.document) -> None:
    """Let types of Python be no references: attributes of classes here are called so, too."""
    for reference in list(document.findall(addnodes.pending_xref)):
        if reference.get("refdomain") == "py" and hasattr(builtins, reference["reftarget"]):
            reference.replace_self(reference.children)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", unlink_builtin_types)
    app.add_directive("cli-reference", CliReference)
    app.add_directive("options-table", OptionsTable)
    app.add_directive("parts", Parts)
    app.add_directive("preset", PublishedPreset)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
