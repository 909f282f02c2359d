"""One side of a parallel corpus, tokenized as a translator reads it, as training text for other programs.

Rare words are <unk>; held-out sentences are tokenized like the others. A target table needs a row for the end of a
sentence, too: `ends` appends </s> to each sentence, which models/output_table.py uses for <eos>.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from embtrain.common.errors import UsageError
from embtrain.data.inventory.part_names import PARTS
from embtrain.experiment.run import settings as run_settings
from embtrain.experiment.tasks.translation import SIDES, TranslationTask
from embtrain.models.nmt.model import Nmt
from embtrain.models.output_table import END_WORDS


def sentences(corpus: str | os.PathLike[str] | None = None, side: str = "target", part: str = "train",
              ends: bool = False, sets: list[str] | None = None) -> Iterator[str]:
    """Yield each sentence of a part, its words separated by spaces.

    corpus: a recipe or a path; None: that of configs/models/nmt.yaml. sets: keys of `translation`. UsageError if the
    side or part does not exist; the corpus raises the same errors as in a run.
    """
    if wrong := [text for text in sets or [] if not text.strip().startswith("translation.")]:
        raise UsageError(f"--set {wrong[0]}: is not a key of translation; set only those")
    for key, value, choices in (("side", side, SIDES), ("part", part, PARTS)):
        if value not in choices:
            raise UsageError(f"--{key}: {value!r} is not one of {', '.join(choices)}")
    settings = run_settings.resolve(None, Nmt.name, None if corpus is None else os.fspath(corpus), sets=sets)
    text = TranslationTask.read(settings).text
    if len(text.part(part)) == 0:
        raise UsageError(f"--part: {part}: {settings.corpus} has no {part} sentences; set translation.{part} "
                         "above 0")
    side_text, end_token = (text.source, text.target)[SIDES.index(side)], [END_WORDS[1]] if ends else []
    return (" ".join(side_text.words(i) + end_token) for i in text.part(part))
