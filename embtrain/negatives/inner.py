"""A source that works on what another source draws: the settings of that other one, and how it is made.

The inner settings are those of its strategy (`source` and its own keys). It gets a seed of its own: two streams of one
seed would draw the same numbers, and which column comes from whom would say which candidate it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from embtrain.config import Layer, build
from embtrain.errors import UsageError
from embtrain.negatives import base
from embtrain.negatives.base import NegativeSource
from embtrain.types import World


def make(settings: dict[str, Any], key: str, k: int | None, world: World) -> NegativeSource:
    """The source that `settings`, found under negatives.KEY, describe. k: what it must draw; None: as its own k says.

    UsageError in one line where they are no settings of a source.
    """
    name = settings.get("source", "unigram")
    if not isinstance(name, str):
        raise UsageError(f"negatives.{key}.source: should be the name of a source, got {name!r}")
    if k is not None and "k" in settings and settings["k"] != k:
        raise UsageError(f"negatives.{key}.k: it draws as many columns as negatives.k says, {k}; leave it out")
    found = base.find(name)
    tree = {"negatives": {key: settings | {"source": name} | ({} if k is None else {"k": k})}}
    try:
        config = build(found.Config, [Layer(f"negatives.{key}", tree["negatives"][key])])
    except UsageError as error:
        raise UsageError(str(error).splitlines()[0]) from error
    seed = int(np.random.SeedSequence([world.seed, *key.encode()]).generate_state(1)[0])
    return found(config, replace(world, seed=seed))
