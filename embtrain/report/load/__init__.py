"""Read run folders and results into checked records. Sizes are bounded; damaged files raise DataError.

run.py         RunRecord: the files of a run folder
answers.py     ExampleAnswers: answers.json
comparison.py  Results: results.json and the run folders it names
"""
