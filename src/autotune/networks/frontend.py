"""The interface of a frontend: from a model to tasks, and from tuned tasks to a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from autotune.networks.fixed_inputs import AskedInputs, FixedInputs
from autotune.plugins import Context
from autotune.runtime.arrays import NetworkTensor
from autotune.runtime.interface import CompiledNetwork
from autotune.targets import Target

if TYPE_CHECKING:
    from autotune.store.records import Record

__all__ = [
    "CompiledNetwork",
    "Frontend",
    "LoadOptions",
    "NetworkProgram",
    "NetworkTask",
    "NetworkTensor",
    "PassReport",
    "Rival",
    "class_names",
]


@frozen(eq=False)
class NetworkTask:
    """Program of a network that is tuned by itself.

    Attributes:
        name: Unique in its network, and readable.
        program: A :class:`~autotune.ir.workloads.Workload`, or what the backend imports, such as
            a ``PrimFunc``.
        occurrences: How often one inference calls it.
        flop: Of one call.
        nodes: Names of the operators of the graph that it came from, for messages.
        view: Whether it only gives a tensor another shape, so that there is nothing to tune.
    """

    name: str
    program: object
    occurrences: int
    flop: float
    nodes: tuple[str, ...] = ()
    view: bool = False


@frozen
class PassReport:
    """Report of a pass over the graph.

    Attributes:
        name: As :attr:`LoadOptions.passes` names it.
        seconds: How long it took.
        note: What it changed, in a few words: ``"33 functions fused"``; "" where nothing.
    """

    name: str
    seconds: float
    note: str = ""


@frozen
class Rival:
    """Another runtime that runs the model here, as it is meant to be used.

    Attributes:
        name: Of it, with its version.
        latency: Median seconds of an inference.
    """

    name: str
    latency: float


@frozen(eq=False)
class LoadOptions:
    """Options that a model is prepared for.

    Attributes:
        target: What the network runs on.
        threads: How many threads it uses.
        passes: Passes of the frontend that are replaced, by name: a function from the frontend's
            own graph to another one, or None to leave the pass out.
        on_pass: Told of every pass once it is done.
        asked: What a person says of the inputs. A frontend that takes it gives it to
            :func:`fix_inputs`, and what that returns to the network.
    """

    target: Target
    threads: int
    passes: Mapping[str, Callable[[Any], Any] | None] = field(factory=dict)
    on_pass: Callable[[PassReport], None] = lambda report: None
    asked: AskedInputs = field(factory=AskedInputs)


def class_names(source: object) -> tuple[str, ...]:
    """Names of the classes of an object, by which a frontend knows it and imports nothing."""
    return tuple(f"{it.__module__}.{it.__qualname__}" for it in type(source).__mro__)


class NetworkProgram(ABC):
    """A model, prepared and cut into tasks."""

    name: str
    """Model's name for people: the name of its class, or of its file."""
    backend: str
    """Name of the backend whose programs the tasks are."""
    kernel_backends: tuple[str, ...] = ()
    """Backends of :meth:`Frontend.kernel_backends`; set by whoever loads the network."""
    tasks: tuple[NetworkTask, ...]
    """In the order of their first call. Two may compute the same."""
    passes: tuple[PassReport, ...]
    """Passes over the graph, in order."""
    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]
    writes: tuple[str, ...] = ()
    """Names of inputs, and of :attr:`state`, that the model writes. Their new values are the first
    outputs, in this order; a call of the built network writes them into what it was given, or
    keeps them, and returns the rest."""
    state: Mapping[str, Any] = MappingProxyType({})
    """State that the model holds and writes itself, by name: arrays as before the first call.
    What :meth:`build` makes takes them behind :attr:`inputs`; who calls it keeps them."""
    fixed: FixedInputs | None = None
    """Inputs fixed by :attr:`LoadOptions.asked`; None where the frontend does not take it."""
    weight_bytes: int = 0
    """Bytes beside code that building the network copies, as :meth:`CompiledNetwork.save` does."""
    yardstick: str = "the model itself"
    """Means by which the last call of :meth:`reference` computed, for messages."""
    eps: float = 0.0
    """Of the floats that it computes with inside, of those with the fewest digits
    (:attr:`autotune.ir.element_types.ElementType.eps`); 0 where its outputs say it."""
    wide: Callable[[Sequence[Any]], tuple[Any, ...]] | None = None
    """Model in float32, as it was before it was converted to half precision; set by who
    converted it, and then compared with in place of :meth:`reference`."""

    @abstractmethod
    def example_inputs(self) -> tuple[Any, ...]:
        """Inputs that it can run on: those it was loaded with, else random ones of one seed."""

    def check_inputs(self) -> tuple[Any, ...]:
        """Inputs by which its outputs are compared with the model's."""
        return self.example_inputs()

    @abstractmethod
    def reference(self, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """Compute the outputs by the model itself where it came from, such as in torch.

        Returns:
            Numpy arrays, one for each of :attr:`outputs`; None where the source is no program that
            runs here.
        """

    def suspect(self, inputs: Sequence[Any], wanted: Sequence[Any], found: Sequence[Any]) -> str:
        """Suspects for wrong outputs, and the way to find out, in one line.

        Args:
            inputs: What the network and its model were called with.
            wanted: What the model computed.
            found: What the network computed.
        """
        return (
            "leave graph passes out one after the other (--pass NAME=off) to find the one at fault"
        )

    def check_saving(self, path: Path, target: Target) -> None:  # noqa: B027
        """Check that what :meth:`build` makes for a target can be saved to a path.

        Raises:
            AutotuneError: it will not; what is missing is said before anything is tuned.
        """

    def rival(self, inputs: Sequence[Any], threads: int, seconds: float) -> Rival | None:
        """The fastest other runtime that is installed and runs the model; None where none does.

        Args:
            inputs: What it is called with.
            threads: How many it may use.
            seconds: About how long it may be timed.
        """
        return None

    def refuses(self, record: Record, target: Target) -> str:
        """Return why a network for ``target`` is not built of a record, in a line; "" where it is.

        The next best record is then taken in its place.
        """
        return ""

    @abstractmethod
    def build(
        self, chosen: Mapping[str, Record | None], target: Target, threads: int
    ) -> CompiledNetwork:
        """Compile the network.

        Args:
            chosen: Records by name of the task. What a record schedules
                (``Record.scheduled``) is replayed on the task's own program; the record may be of
                another task that computes the same. None, or no entry: the backend's default
                schedule, or the untuned program where it has none for this task.
            target: What the network runs on.
            threads: How many threads it uses.

        Raises:
            BuildFailed: the compiler rejected it; names the task.
            InvalidSchedule: a record cannot be replayed; names the task.
        """


class Frontend(ABC):
    """Reads models of some kinds. A plugin registers one as kind ``frontend``.

    A source is an object, such as a torch module with its example inputs or an exported program,
    or the path of a file. A frontend's module is cheap to import: compilers and the packages that
    models come from are imported on first use.
    """

    name: str
    sources: tuple[str, ...]
    """Models that it reads, in words, for messages: ``("a torch module", "an .onnx file")``."""
    passes: tuple[str, ...]
    """Names of the passes that :attr:`LoadOptions.passes` can replace, in order."""
    formats: tuple[str, ...] = ()
    """Suffixes of the files that it reads: ``(".onnx",)``."""
    backend: str = ""
    """The backend of all networks that it reads, whose workers start while it reads one; "" where
    that depends on the network. Where it depends on the target, :meth:`backend_for` says it."""

    def __init__(self, context: Context | None = None) -> None:  # noqa: B027
        """A frontend is made like every other part, and needs nothing."""

    def kernel_backends(self, target: Target) -> tuple[str, ...]:
        """Backends besides the networks' own whose records its networks can be built of.

        Tasks are tuned with them where they are asked for.
        """
        return ()

    def backend_for(self, target: Target) -> str:
        """The backend of all networks that it reads for a target; "" where it depends on them."""
        return self.backend

    def builds_for(self, target: Target) -> bool:
        """Tell if it makes networks for a target; otherwise one after it may read the source."""
        return True

    @abstractmethod
    def accepts(self, source: object) -> bool:
        """Return whether it reads sources of this kind, found without importing a compiler."""

    def check_file(self, path: Path) -> None:  # noqa: B027
        """Parse a file that it accepts, in a process of its own and before :meth:`load`.

        What crashes or holds up a parser is an error of the caller then. A frontend whose parsers
        do neither has nothing to do here.

        Raises:
            InvalidValueError: the file is damaged; says what to do.
        """

    def warm_up(self, path: Path) -> None:  # noqa: B027
        """Import what :meth:`load` needs for a file, which may be damaged and is being checked."""

    @abstractmethod
    def load(
        self, source: object, example_inputs: Sequence[object] | None, options: LoadOptions
    ) -> NetworkProgram:
        """Read a model, prepare it, and cut it into tasks.

        Args:
            source: One that it accepts.
            example_inputs: As the model is called with; None where the source has its own.
            options: What it is prepared for.

        Raises:
            UnsupportedWorkload: names the node that cannot be expressed, and what to do.
            InvalidValueError: the source is damaged or incomplete; says what to do.
            UnknownNameError: there is no pass of a name in ``options.passes``.
        """
