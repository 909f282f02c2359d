"""The configuration: layers of YAML merged into one typed tree, with every error named by file:line:column."""

from embtrain.common.config.layers import KeyPath, Layer, as_sets, describe_value, from_set, read_yaml
from embtrain.common.config.tree import Place, Section, build, dump, flatten, merge

__all__ = ["KeyPath", "Layer", "Place", "Section", "as_sets", "build", "describe_value", "dump", "flatten", "from_set",
           "merge", "read_yaml"]
