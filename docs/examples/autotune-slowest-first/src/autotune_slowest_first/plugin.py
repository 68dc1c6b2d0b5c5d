from autotune import hookimpl
from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 2


@hookimpl
def autotune_parts():
    factory = "autotune_slowest_first.scheduler:SlowestFirst"
    return [
        PluginSpec(
            "task_scheduler", "slowest-first", factory, "What takes longest for the rounds it had"
        )
    ]
