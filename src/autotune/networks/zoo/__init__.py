"""Well-known networks with random weights, built here: nothing is downloaded."""

from autotune.networks.zoo.catalogue import NETWORKS as NETWORKS
from autotune.networks.zoo.catalogue import Network as Network
from autotune.networks.zoo.catalogue import create as create
from autotune.networks.zoo.catalogue import names as names
