from autotune import hookimpl
from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 4


@hookimpl
def autotune_parts():
    factory = "autotune_powers_of_two.space:PowersOfTwo"
    about = "Powers of two only"
    return [PluginSpec("search_space", "powers-of-two", factory, about)]
