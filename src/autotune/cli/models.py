"""Options that select a model and say how it is read."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from attrs import frozen

from autotune.cli.destinations import InputFile
from autotune.cli.output import notify
from autotune.errors import InvalidValueError

if TYPE_CHECKING:
    from autotune.networks.api import ModelOptions
    from autotune.networks.fixed_inputs import AskedInputs
    from autotune.networks.frontend import NetworkProgram
    from autotune.networks.source import Source
    from autotune.search.schedulers.objective import Objective
    from autotune.tuning.events import Event
    from autotune.tuning.options import TuneOptions

__all__ = [
    "AskedModel",
    "ReadingLines",
    "model_options",
    "notify_remarks",
    "read_objective",
]

Command = TypeVar("Command", bound=Callable[..., Any])

SOURCE_HELP = (
    "SOURCE is a function that returns a model and its example inputs, package.module:function, "
    "or a file that a frontend reads (`autotune plugins` lists those that are installed): graph "
    "reads ONNX (.onnx) and exported programs of torch (.pt2), relax reads Relax as JSON (.json) "
    "and TVMScript (.py), mlir reads MLIR (.mlir)."
)


@frozen
class AskedModel:
    """The model that a command line asks for.

    Attributes:
        text: The source, or the network of the package.
        is_own: Whether it is a network of the package.
        sizes: Sizes of that network, as texts.
        frontend: Name of the part that reads it, or None.
        passes: Replacements of passes, as texts.
        precision: What a module of torch is converted to, or None.
        check: Whether outputs are compared with the model's.
        verbose: Whether to show every pass.
        is_timed: Whether programs of it are timed, for which there must be a machine.
        is_recorded: Whether it is made of records, for which there must be a database.
        dims: Lengths of axes, as texts.
        inputs: Shapes, examples and values of inputs, as texts.
    """

    text: str
    is_own: bool
    sizes: tuple[str, ...]
    frontend: str | None
    passes: tuple[str, ...]
    precision: str | None
    check: bool
    verbose: bool
    is_timed: bool
    is_recorded: bool
    dims: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    def source(self, options: TuneOptions) -> Source:
        """The model, which may take long to import: first it is checked what is known without.

        Raises:
            AutotuneError: there is no such model, or it cannot be made; or the database that the
                command reads cannot be read, or programs cannot be timed on the target.
        """
        from autotune.networks.source import in_precision, read_network, read_source, with_inputs

        self._check_before(options)
        asked = self.asked()
        if self.is_own:
            read = read_network(self.text, self.own_sizes)
        else:
            read = read_source(self.text, self.frontend)
        return in_precision(with_inputs(read, asked), self.precision)

    def asked(self) -> AskedInputs:
        """Inputs as the command line describes them.

        Raises:
            InvalidValueError: a text is of another form, or a name is there twice.
        """
        from autotune.networks.fixed_inputs import read_asked

        return read_asked(self.dims, self.inputs)

    def _check_before(self, options: TuneOptions) -> None:
        from autotune.networks.api import check_measuring
        from autotune.store.sqlite import open_database

        if self.is_recorded:
            with open_database(options.database, read_only=True):
                pass
        if self.is_timed:
            check_measuring(self.reading(), options)

    @property
    def own_sizes(self) -> dict[str, int]:
        """Sizes of a network of the package.

        Raises:
            InvalidValueError: one is no whole number, or given twice.
        """
        from autotune.plugins.workload_names import parse_assignments

        sizes = parse_assignments(",".join(self.sizes), "--size")
        return {key: _whole(key, text) for key, text in sizes.items()}

    def reading(self) -> ModelOptions:
        """Options of reading the model.

        Raises:
            AutotuneError: there is no such frontend, or a pass is not replaced as it can be.
        """
        from autotune.networks.api import ModelOptions
        from autotune.networks.loading import read_passes
        from autotune.networks.source import check_precision
        from autotune.plugins.parts import check_part

        self.asked()  # refuses what is wrong of it before the model is read
        check_precision(self.precision)
        if self.frontend is not None:
            check_part("frontend", self.frontend)
        passes = read_passes(self.passes)
        return ModelOptions(frontend=self.frontend, passes=passes, check=self.check)


def _whole(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidValueError(f"--size: {key} must be a whole number, not {text!r}")
    return int(text)


def _source_options(check: bool) -> list[Callable[[Command], Command]]:
    """SOURCE and what says how it is read."""
    options = [
        click.argument("source", required=False, type=InputFile()),
        click.option(
            "--network",
            metavar="NAME",
            help="In place of SOURCE: a network that this package builds, with random weights.",
        ),
        click.option(
            "--size",
            "sizes",
            metavar="K=V,...",
            multiple=True,
            help="Sizes of that network that are not the published ones, such as layers=2.",
        ),
        click.option(
            "--frontend",
            metavar="NAME",
            help="What reads SOURCE; by default the first installed part that does.",
        ),
        click.option(
            "--pass",
            "passes",
            metavar="NAME=off|MODULE:FUNCTION",
            multiple=True,
            help="Leave a graph pass out, or replace it; may be repeated. -v shows their names.",
        ),
        click.option(
            "--precision",
            metavar="float16|bfloat16",
            help="Convert a module of torch to half precision: its weights, inputs and outputs. "
            "Outputs are compared with those of the module as it was.",
        ),
        click.option(
            "--dim",
            "dims",
            metavar="AXIS=LENGTH,...",
            multiple=True,
            help="Lengths of axes that the model names instead, such as batch=1; may be repeated.",
        ),
        click.option(
            "--input",
            "inputs",
            metavar="NAME=SHAPE|FILE.npy|VALUE",
            multiple=True,
            help="What an input is: its shape, x=1,3,320,480; an example of it, x=FILE.npy; or, "
            "of one element, a value that it has in every call, sr=16000. May be repeated.",
        ),
        click.option(
            "-v", "--verbose", is_flag=True, help="Show every graph pass with its seconds."
        ),
    ]
    if check:
        text = "Do not compare the outputs with those of the model."
        options.append(click.option("--no-check", is_flag=True, help=text))
    return options


def model_options(
    *, check: bool = True, times: bool = False, reads_database: bool = False
) -> Callable[[Command], Command]:
    """SOURCE, ``--network`` and how it is read, which the command takes as ``model``.

    Args:
        check: Whether the command compares outputs, and has ``--no-check``.
        times: As :attr:`AskedModel.is_timed`.
        reads_database: As :attr:`AskedModel.is_recorded`.
    """
    options = _source_options(check)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def filled(
            *,
            source: str | None,
            network: str | None,
            sizes: tuple[str, ...],
            frontend: str | None,
            passes: tuple[str, ...],
            precision: str | None,
            dims: tuple[str, ...],
            inputs: tuple[str, ...],
            verbose: bool,
            no_check: bool = False,
            **values: Any,
        ) -> Any:
            text = _asked(source, network, sizes)
            model = AskedModel(
                *(text, network is not None, sizes, frontend, passes, precision, not no_check),
                *(verbose, times, reads_database, dims, inputs),
            )
            return command(model=model, **values)

        decorated: Any = filled
        for option in reversed(options):
            decorated = option(decorated)
        return cast(Command, decorated)

    return decorate


def read_objective(text: str | None) -> tuple[Objective | None, dict[str, float]]:
    """Read ``--objective``: a function, or weights of tasks by their names.

    Raises:
        InvalidValueError: it is neither, or a weight is no positive number.
    """
    from autotune.networks.source import imported_function
    from autotune.plugins.workload_names import parse_assignments

    if text is None:
        return None, {}
    if "=" in text:
        given = parse_assignments(text, "--objective")
        return None, {name: _weight(name, weight) for name, weight in given.items()}
    if ":" not in text:
        raise InvalidValueError(
            f"--objective {text!r} is neither a function, package.module:function, nor a list of "
            "weights, TASK=WEIGHT,..."
        )
    purpose = "takes the latencies of the tasks and returns a number"
    return cast("Objective", imported_function(text, purpose)), {}


def _weight(name: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise InvalidValueError(f"--objective: {name} must be a positive number, not {text!r}")
    return weight


def _asked(source: str | None, network: str | None, sizes: tuple[str, ...]) -> str:
    if source is not None and network is not None:
        raise InvalidValueError(f"--network {network} and SOURCE {source!r} exclude each other")
    if sizes and network is None:
        raise InvalidValueError("--size needs the network that it is of: --network NAME")
    if network is not None:
        from autotune.errors import UnknownNameError
        from autotune.networks.zoo import names

        if network not in names():
            raise UnknownNameError("network", network, names())
        return network
    if source is None:
        raise InvalidValueError(
            "Missing argument 'SOURCE': a function package.module:function, a file, or "
            "--network NAME"
        )
    return source


class ReadingLines:
    """A listener that says how far the reading of a model is.

    Args:
        verbose: Whether every graph pass gets a line, and not the first alone.
    """

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose
        self._prepared = ""

    def __call__(self, event: Event) -> None:
        """Take one event."""
        text = self.text(event)
        if text:
            notify(text)

    def text(self, event: Event) -> str:
        """The line on an event; "" where it has none."""
        from autotune.report import formats
        from autotune.tuning.events import PassFinished

        if not isinstance(event, PassFinished):
            return ""
        if self._verbose:
            note = f": {event.note}" if event.note else ""
            return f"{event.network}: pass {event.name}, {formats.seconds(event.seconds)}{note}"
        if self._prepared == event.network:
            return ""
        self._prepared = event.network
        return f"{event.network}: read; its graph is being prepared"


def notify_remarks(network: NetworkProgram) -> None:
    """Say what was chosen of a model's inputs that nobody gave."""
    for remark in network.fixed.remarks if network.fixed else ():
        notify(f"autotune: {remark}")
