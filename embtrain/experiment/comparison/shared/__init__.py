"""A comparison on several machines, in a folder that they share.

sharing.py    Sharing: the grid that the processes agree on, and the one report
joiner.py     Joiner: takes free cells by lease and trains them
executors.py  Submitter: cells as calls of an executor
board.py      Board: who holds which lease, and who shows no sign of life
handover.py   folders of the holders: taking over, publishing
places.py     the folders of all this
"""
