"""Every rule there is: each module of `rules` enters its own."""

from importlib import import_module
from pkgutil import iter_modules

from kfuzz.contracts.gradients import rules
from kfuzz.contracts.gradients.rules import RULES

for _module in iter_modules(rules.__path__):
    import_module(f"{rules.__name__}.{_module.name}")

__all__ = ["RULES"]
