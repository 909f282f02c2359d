"""Checks for components of other packages: `check_source(SourceClass)` runs the contract of negative sources."""

from embtrain.testing.case import ContractError
from embtrain.testing.check import check_source

__all__ = ["ContractError", "check_source"]
