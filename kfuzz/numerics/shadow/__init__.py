"""The running-error shadow: the error model of operators without a formula of theirs.

The oracle runs in float64, and beside each tensor a bound on what a kernel that takes
the same steps in the declared arithmetic, its sums in any order, may differ (a running
error analysis: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.3).
"""

from kfuzz.numerics.shadow.mode import SAFETY, Shadow, in_float32, shadowed
from kfuzz.numerics.shadow.shade import AS_REFERENCE, Steps

__all__ = ["AS_REFERENCE", "SAFETY", "Shadow", "Steps", "in_float32", "shadowed"]
