"""Well-known networks with random weights, built here: nothing is downloaded."""

from autotune_zoo.plugin import NETWORKS as NETWORKS
from autotune_zoo.plugin import Network as Network
from autotune_zoo.plugin import create as create
from autotune_zoo.plugin import names as names
