"""The configuration: layers of YAML merged into one typed tree. Every error names file:line:column.

layers.py   reads one layer: a YAML file or a `--set` option, with the line and column of every key
shown.py    keys and values as errors show them
merging.py  merges layers to one tree with the place of each value
tree.py     validates merged layers against a pydantic class, and writes them as YAML
described.py  settings as YAML with the description of each key
arguments.py  arguments of Python functions: checks of numbers, and names in errors
setting_keys.py  keys of settings in messages, also of a source inside another
foreign_classes.py, hook_results.py  wrap classes of other packages, whose results and errors are checked
plugin_modules.py  imports files of the user by module name, for pickles of their classes
saved_values.py  checks that config.yaml can hold the settings of a class of the user
renamed_keys.py  the old names of renamed keys and values, for errors
"""

from embtrain.common.config.layers import Layer, as_sets, from_set, read_yaml
from embtrain.common.config.merging import Merged, Place, merge
from embtrain.common.config.shown import KeyPath, describe_value
from embtrain.common.config.tree import (
    AbsolutePath,
    FilePath,
    Section,
    absolute_path,
    build,
    dump,
    flatten,
    flatten_values,
    map_items,
    plain_paths,
    saved_tree,
)

__all__ = ["AbsolutePath", "FilePath", "KeyPath", "Layer", "Merged", "Place", "Section", "absolute_path", "as_sets",
           "build", "describe_value", "dump", "flatten", "flatten_values", "from_set", "map_items", "merge",
           "plain_paths", "read_yaml", "saved_tree"]
