"""Use an existing run or vector file.

evaluate.py    scores and export of a run or of a vector file
neighbours.py  nearest neighbours of words
benchmarks.py  resolve the names of `evaluate --on`
export.py      write a run's vectors for other programs
file_names.py  the settings that an export shows, with names of files without folders
align.py       rotate the vectors of a run or file onto those of another
encoding.py    read a text into the cache, or estimate what that costs
submission.py  lines of the leaderboard: the scores of a run with the command that repeats it
sentences.py   one side of a parallel corpus, tokenized as a translator reads it
"""
