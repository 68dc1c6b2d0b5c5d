from autotune.models.host.model_host import HostLimits as HostLimits
from autotune.models.host.model_host import ModelHost as ModelHost
from autotune.models.host.model_host import ModelSpec as ModelSpec
from autotune.models.host.models import HostedCostModel as HostedCostModel
from autotune.models.host.models import HostedPruningModel as HostedPruningModel
from autotune.models.host.transport import differentiable_names as differentiable_names
