from autotune import hookimpl
from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 4


@hookimpl
def autotune_parts():
    factory = "autotune_slowest_first.scheduler:SlowestFirst"
    about = "Slowest for its rounds"
    return [PluginSpec("task_scheduler", "slowest-first", factory, about)]
