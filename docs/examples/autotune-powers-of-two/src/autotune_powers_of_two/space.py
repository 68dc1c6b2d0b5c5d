from autotune.plugins.options import NoOptions, read_options
from autotune.spaces import FeasibleSpace, SketchSpace


class PowersOfTwo(FeasibleSpace):
    name = "powers-of-two"

    def __init__(self, context):
        read_options("search space 'powers-of-two'", NoOptions, context.options)
        whole = SketchSpace(context.workload, context.target, context.limits)
        self.version = f"1+{whole.version}"  # what it proposes depends on both
        self.left_out, self.loosened = whole.left_out, whole.loosened
        super().__init__({it: _narrowed(whole.feasible_set(it)) for it in whole.sketches()})


def _narrowed(feasible):
    for name in feasible.columns:
        powers = [value for value in feasible.values(name) if value & (value - 1) == 0]
        fewer = feasible.restrict({name: powers})
        feasible = fewer if fewer.count else feasible  # 14 = 2 * 7 needs another
    return feasible
