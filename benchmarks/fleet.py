"""Number of machines that one host keeps busy.

- ``races``: candidates per second that the measurer checks and races on 1, 2, 4, 8 and 16 scripted
  machines of one fingerprint, beside what as many would do if each did what the first one does.
- ``scaling``: Ray workers whose measurement is a wait of known time, so that processors are free:
  measurements per second of 1, 2, 4, 8 and 16 of them, beside what as many would do if the host
  cost nothing.
- ``simulation``: the host with 1,000 and 10,000 machines, simulated event by event with the costs
  per job that were measured with most workers. What is busy all the time first?

The Ray cluster is on the loopback interface and ends with the benchmark; ``--races`` leaves out
what needs Ray. With ``--json``, rows of Ray that the file has are not measured again.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support.common import HERE, Bar, Report
from support.scripted_fleet import CANDIDATES, QUICK_CANDIDATES, race
from support.waiting_backend import WAIT_VARIABLE

# Read when Ray is imported; without it Ray looks for an address of the network.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112

WORKERS = (1, 2, 4, 8, 16)
WAIT, SECONDS, QUICK_SECONDS, START_SECONDS = 2.0, 60.0, 20.0, 300.0
STORE_BYTES = 150 << 20
LINEAR = 0.9
RACES_OF, RACES_LINEAR = 8, 0.8
FLEETS = (100, 1_000, 10_000)
SIMULATED_SECONDS = 60.0
# Of one candidate: a check with first samples, and what takes turns with the best one.
JOBS_PER_CANDIDATE, PROGRAM_BYTES, NETWORK_BYTES = 8, 100_000, 125e6


@dataclass
class Row:
    """Measurements of one number of workers.

    Attributes:
        workers: How many.
        jobs: Measurements done.
        seconds: Wall seconds that they took.
        wait: Seconds of each.
        thread: CPU seconds of the host's thread per job.
        others: CPU seconds per job of Ray's driver, and of the host's thread that hears it.
    """

    workers: int
    jobs: int
    seconds: float
    wait: float
    thread: float
    others: float

    @property
    def linear(self) -> float:
        """Share of what as many workers would do if nothing else took time."""
        return self.jobs / self.seconds / (self.workers / self.wait)


def measure(workers: int, seconds: float) -> Row:
    """Keep as many Ray workers busy for so long."""
    from ray.cluster_utils import Cluster

    from autotune.measure.engines import ArtefactStore
    from autotune.testing.engine_suite import EngineHost, engine_context

    class Host(EngineHost):
        task = "task 1"

        def load(self, artefact: str, machine: Any) -> tuple[int, Any]:
            future = self.run(artefact, machine)
            return self._loaded, future

        def time(self, message: Any, machine: Any) -> Any:
            return self._time(message, machine, ())

    head = {
        "num_cpus": workers,
        "object_store_memory": STORE_BYTES,
        "include_dashboard": False,
        "node_ip_address": "127.0.0.1",
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        context = engine_context(
            "support.waiting_backend:WaitingBackend", protocol=patient_protocol()
        )
        with tempfile.TemporaryDirectory() as folder, make_engine(context, cluster, workers) as it:
            host = Host(it, ArtefactStore(Path(folder)), context, workload())
            it.start(host.store)
            end = time.monotonic() + START_SECONDS
            while len(timers(it)) < workers or len(it.machines()) == workers:
                if time.monotonic() > end:
                    raise SystemExit(f"not all workers are up after {START_SECONDS:g} s")
                it.poll(0.1)
            host.tell()
            return keep_busy(host, seconds)
    finally:
        cluster.shutdown()


def keep_busy(host: Any, seconds: float) -> Row:
    """Give each machine that times the next measurement when it has done one."""
    engine, artefact = host.engine, host.built()
    found = timers(engine)
    leases = [host.leased(machine) for machine in found]
    # Each machine loads the program once, under a number of its own.
    loaded = {machine.name: host.load(artefact, machine) for machine in found}
    numbers = {name: number for name, (number, _) in loaded.items()}
    if any(host.reply(future).kind != "done" for _, future in loaded.values()):
        raise SystemExit("a machine does not load the program")

    def ask(machine: Any) -> None:
        message = {
            "op": "sample",
            "task": host.task,
            "number": numbers[machine.name],
            "count": 1,
            "placement": 0,
            # A program that takes so long is not called before it is timed.
            "expected": WAIT,
            "observe": False,
        }
        future = host.time(message, machine)
        future.add_done_callback(lambda done: ended.append((machine, done.result())))

    ended: list[tuple[Any, Any]] = []
    each = max(1, round(seconds / WAIT))
    left = {machine.name: each - 1 for machine in found}
    jobs, begin = 0, time.monotonic()
    thread, process = time.thread_time(), cpu_seconds(engine)
    for machine in found:
        ask(machine)
    while jobs < each * len(found):
        engine.poll(0.1)
        for machine, reply in ended:
            if reply.kind != "done":
                raise SystemExit(f"a measurement ended otherwise: {reply}")
            jobs += 1
            if left[machine.name]:
                left[machine.name] -= 1
                ask(machine)
        ended.clear()
    wall = time.monotonic() - begin
    thread, process = time.thread_time() - thread, cpu_seconds(engine) - process
    for lease in leases:
        lease.release()
    return Row(len(found), jobs, wall, WAIT, thread / jobs, (process - thread) / jobs)


def cpu_seconds(engine: Any) -> float:
    """Of this process and of Ray's driver."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    stat = Path(f"/proc/{engine._cluster.pid}/stat").read_text().rpartition(")")[2].split()
    return used.ru_utime + used.ru_stime + sum(map(int, stat[11:13])) / os.sysconf("SC_CLK_TCK")


def timers(engine: Any) -> list[Any]:
    return [it for it in engine.machines() if "time" in it.roles]


def workload() -> Any:
    from autotune.ir.workloads import gemm

    return gemm(m=8, n=8, k=8)


def patient_protocol() -> Any:
    from autotune.measure import MeasureProtocol

    return MeasureProtocol(
        deadlines={"start": 600.0, "run": 120.0},
        min_samples=1,
        budget_seconds=WAIT / 2,
        limit_seconds=WAIT / 2,
        pin=False,
    )


def make_engine(context: Any, cluster: Any, workers: int) -> Any:
    """The engine of runner ``ray`` with machines that are hosts of their own.

    They are processes of one machine, which do not disturb one another as they only wait.
    """
    from autotune.measure.engines.ray_engine import RayCluster
    from autotune.measure.engines.supervised import Node, SupervisedEngine
    from autotune.process.channel import encode

    class Hosts(RayCluster):
        def nodes(self) -> Sequence[Any]:
            [node, *_] = super().nodes() or [None]
            names = [] if node is None else [f"host {at}/" for at in range(workers)]
            return [Node(name + node.name.rpartition("/")[2], 1) for name in names]

        def supervise(self, node: Any, setup: Any, cpus: int, gpus: int, on_event: Any) -> Any:
            if not setup.times and not node.name.startswith("host 0/"):
                return Absent()

            def on_own_host(data: bytes, end: str) -> None:
                if data:
                    message = decoded(data)
                    if "group" in message["status"]:
                        message["status"]["group"] = node.name.partition("/")[0].replace(" ", "-")
                    data = encode(message)
                on_event(data, end)

            return super().supervise(node, setup, cpus, gpus, on_own_host)

    class Absent:
        def send(self, command: bytes, contents: Sequence[object]) -> None:
            """Fail: the client is not there."""

        def kill(self) -> None:
            """Fail: the client is not there."""

    from autotune.measure.engines.supervisor import decoded

    return SupervisedEngine(context, Hosts(cluster.address), builders=1, silence=600.0)


@dataclass
class Simulated:
    """The host with many machines.

    Attributes:
        workers: How many machines.
        wait: Seconds of each measurement.
        throughput: Measurements per second.
        linear: Share of what as many would do if the host cost nothing.
        busy: Share of the time that each part of the host is busy.
        first: What is busy most.
    """

    workers: int
    wait: float
    throughput: float
    linear: float
    busy: dict[str, float]
    first: str


def simulate(workers: int, wait: float, costs: dict[str, float]) -> Simulated:
    """Run jobs through the parts of the host, each of which does one at a time, in turn.

    Args:
        workers: How many machines, each with one job at a time.
        wait: Seconds of a job on its machine.
        costs: Seconds per job of each part, in the order in which a job passes them.
    """
    free = dict.fromkeys(costs, 0.0)
    busy = dict.fromkeys(costs, 0.0)
    # Machines begin at different moments: their first jobs are handed out one by one.
    waiting = [(wait * at / workers, at) for at in range(workers)]
    heapq.heapify(waiting)
    jobs = 0
    while True:
        moment, at = heapq.heappop(waiting)
        if moment >= SIMULATED_SECONDS:
            break
        for part, seconds in costs.items():
            moment = max(moment, free[part]) + seconds
            free[part] = moment
            busy[part] += seconds
        jobs += moment <= SIMULATED_SECONDS
        heapq.heappush(waiting, (moment + wait, at))
    throughput = jobs / SIMULATED_SECONDS
    shares = {part: min(1.0, seconds / SIMULATED_SECONDS) for part, seconds in busy.items()}
    first = max(shares, key=lambda part: busy[part])
    return Simulated(workers, wait, throughput, throughput * wait / workers, shares, first)


LIFTS = {
    "host's thread": "a driver per task, or jobs in batches of several samples",
    "Ray's driver": "one actor per host that relays for its devices, so that events are fewer",
    "network of the host": "builders that hand programs to those that time without the host",
}


def costs_of(row: Row) -> dict[str, float]:
    """Seconds per job of each part of the host."""
    return {
        "host's thread": row.thread,
        "Ray's driver": row.others,
        # A program comes from its builder and goes to a machine, once per candidate.
        "network of the host": 2 * PROGRAM_BYTES / NETWORK_BYTES / JOBS_PER_CANDIDATE,
    }


def run(options: argparse.Namespace) -> Report:
    """Measure, simulate and print."""
    raced = race_all(options.quick)
    bars = [Bar(f"share of linear of races, {RACES_OF} machines", raced[RACES_OF], RACES_LINEAR)]
    data = {"races": raced}
    if options.races:
        return Report(data, bars)
    os.environ[WAIT_VARIABLE] = str(WAIT)
    paths = [str(HERE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    seconds = QUICK_SECONDS if options.quick else SECONDS
    rows = known_rows(options.json, seconds)
    for workers in WORKERS:
        if workers not in rows:
            rows[workers] = measure(workers, seconds)
            write(options.json, rows, seconds)
        row = rows[workers]
        print(
            f"{workers:3} workers: {row.jobs / row.seconds:6.2f} measurements/s, "
            f"{row.linear:.3f} of linear; host {1e3 * row.thread:.2f} ms, "
            f"Ray's driver {1e3 * row.others:.2f} ms of CPU per job",
            flush=True,
        )
    largest = rows[max(rows)]
    simulated = [simulate(it, largest.wait, costs_of(largest)) for it in FLEETS]
    for it in simulated:
        print(
            f"{it.workers:6} machines, simulated: {it.throughput:7.0f} measurements/s, "
            f"{it.linear:.2f} of linear; busiest: {it.first} ({it.busy[it.first]:.0%}), "
            f"lifted by {LIFTS[it.first]}"
        )
    least = min(row.linear for row in rows.values())
    bars.append(Bar(f"share of linear up to {max(rows)} workers", least, LINEAR))
    data |= {
        "seconds": seconds,
        "rows": [asdict(row) for row in rows.values()],
        "simulated": [asdict(it) for it in simulated],
    }
    return Report(data, bars)


def race_all(quick: bool) -> dict[int, float]:
    """Shares of linear throughput of races, by the number of machines."""
    shares: dict[int, float] = {}
    each = QUICK_CANDIDATES if quick else CANDIDATES
    alone = 0.0
    for machines in (1, RACES_OF) if quick else WORKERS:
        raced = race(machines, each * machines)
        alone = alone or raced.throughput
        shares[machines] = raced.throughput / alone / machines
        print(
            f"{machines:3} machines: {raced.throughput:6.1f} candidates/s, "
            f"{shares[machines]:.3f} of linear; found {raced.best:.3f} of the best latency",
            flush=True,
        )
    return shares


def known_rows(path: Path | None, seconds: float) -> dict[int, Row]:
    """Rows that an earlier call with the same settings has measured."""
    if path is None or not path.exists():
        return {}
    data = json.loads(path.read_text())
    if data.get("seconds") != seconds:
        return {}
    return {row["workers"]: Row(**row) for row in data["rows"]}


def write(path: Path | None, rows: dict[int, Row], seconds: float) -> None:
    """Keep what has been measured so far."""
    if path is not None:
        data = {"seconds": seconds, "rows": [asdict(row) for row in rows.values()]}
        path.write_text(json.dumps(data))


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser.add_argument("--races", action="store_true", help="only what needs no Ray")
    return parser.parse_args(arguments)
