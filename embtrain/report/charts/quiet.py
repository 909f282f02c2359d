"""matplotlib, imported without its warnings about a home folder that cannot be written, also under --quiet."""

import logging

_log = logging.getLogger("matplotlib")
_level = _log.level
_log.setLevel(logging.ERROR)
import matplotlib  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import (  # noqa: E402
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    ScalarFormatter,
)

_log.setLevel(_level)

__all__ = ["Axes", "Figure", "FigureCanvasSVG", "FuncFormatter", "LogLocator", "MaxNLocator", "NullLocator",
           "ScalarFormatter", "matplotlib"]
