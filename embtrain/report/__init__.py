"""What a run has to say: a table for the terminal, and one self-contained page.

`table(rows)` fits 80 columns. `write(folder)` reads what a run left in its folder and nothing else, and writes
`report.html`: no script, no network, the same bytes for the same run.
"""

from embtrain.report.format import table
from embtrain.report.run.page import write

__all__ = ["table", "write"]
