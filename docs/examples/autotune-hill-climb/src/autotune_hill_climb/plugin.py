from autotune.plugins.hooks import PluginSpec, hookimpl

AUTOTUNE_API_VERSION = 1


@hookimpl
def autotune_strategies():
    factory = "autotune_hill_climb.strategy:HillClimb"
    return [PluginSpec("hill-climb", factory, "Neighbours of the fastest candidates so far")]
