from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 2


def autotune_parts():
    factory = "autotune_hill_climb.strategy:HillClimb"
    about = "Neighbours of the fastest candidates so far"
    return [PluginSpec("strategy", "hill-climb", factory, about)]
