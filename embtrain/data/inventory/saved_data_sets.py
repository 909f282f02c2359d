"""Files of a data set that the library `datasets` saved, among the Arrow files of a folder."""

from __future__ import annotations

from embtrain.data.formats import arrow_tables
from embtrain.data.inventory.inventory import FileEntry, Inventory


def check_saved_files(files: Inventory) -> Inventory:
    """Skip Arrow files that are not part of the data set that `datasets` saved in their folder.

    Raises DataError if a file of the data set is missing.
    """
    saved = {path: arrow_tables.saved_files(path) for path in {entry.file.path.parent for entry in files.entries}}

    def is_saved(entry: FileEntry) -> bool:
        names = saved[entry.file.path.parent]
        return not entry.part or names is None or entry.file.path.name in names

    return Inventory(tuple(entry if is_saved(entry) else FileEntry(entry.file, "", "not a part of the saved data set")
                           for entry in files.entries))
