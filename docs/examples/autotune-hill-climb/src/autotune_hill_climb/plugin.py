from autotune import hookimpl
from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 4


@hookimpl
def autotune_parts():
    factory = "autotune_hill_climb.strategy:HillClimb"
    about = "Neighbours of the fastest so far"
    return [PluginSpec("strategy", "hill-climb", factory, about)]
