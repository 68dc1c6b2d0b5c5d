from autotune import hookimpl
from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 4


@hookimpl
def autotune_parts():
    factory = "autotune_least_traffic.pruning_model:LeastTraffic"
    about = "Fewest elements moved"
    return [PluginSpec("pruning_model", "least-traffic", factory, about, reads_nest=True)]
