"""PAC-Bayes certificates: bounds, codes, locks and evidence.

    >>> import pacbayes
    >>> round(pacbayes.certified_accuracy(losses=200, n=1000, bits=208, delta=0.05), 4)
    0.5436

Modules are imported when a name of theirs is first used, so that `import pacbayes` costs nothing; none imports torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pacbayes.bounds import (
        certified_accuracy,
        certified_gain,
        certified_mean_accuracy,
        certified_pool_accuracy,
        holdout_accuracy,
        joint_accuracies,
        required_accuracy,
        required_bits,
        required_n,
        transfer_accuracy,
    )
    from pacbayes.codes import Code, Menu, MenuEntry, parse_code

_HOME = {
    "certified_accuracy": "pacbayes.bounds",
    "certified_gain": "pacbayes.bounds",
    "certified_mean_accuracy": "pacbayes.bounds",
    "certified_pool_accuracy": "pacbayes.bounds",
    "holdout_accuracy": "pacbayes.bounds",
    "joint_accuracies": "pacbayes.bounds",
    "required_accuracy": "pacbayes.bounds",
    "required_bits": "pacbayes.bounds",
    "required_n": "pacbayes.bounds",
    "transfer_accuracy": "pacbayes.bounds",
    "Code": "pacbayes.codes",
    "Menu": "pacbayes.codes",
    "MenuEntry": "pacbayes.codes",
    "parse_code": "pacbayes.codes",
}

__all__ = [
    "Code",
    "Menu",
    "MenuEntry",
    "certified_accuracy",
    "certified_gain",
    "certified_mean_accuracy",
    "certified_pool_accuracy",
    "holdout_accuracy",
    "joint_accuracies",
    "parse_code",
    "required_accuracy",
    "required_bits",
    "required_n",
    "transfer_accuracy",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pacbayes' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
