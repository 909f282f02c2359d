"""The configuration: layers of YAML merged into one typed tree, with every error named by file:line:column."""

from embtrain.common.config.layers import Keys, Layer, as_sets, from_set, got, read_yaml
from embtrain.common.config.tree import Place, Section, build, dump, flat, merge

__all__ = ["Keys", "Layer", "Place", "Section", "as_sets", "build", "dump", "flat", "from_set", "got", "merge",
           "read_yaml"]
