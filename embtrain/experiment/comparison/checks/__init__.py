"""Checks of a comparison before its first run.

folder.py     whether its folder has files of the user, or further finished runs
pairing.py    whether the runs can be paired
first_run.py  read the corpus, then apply the checks that need it:
parts.py      whether a run of each strategy can be built
metrics.py    whether runs will have the metrics that decide
disk.py       whether the files of all runs fit on the disk
"""
