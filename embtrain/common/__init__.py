"""Shared by all other packages: records, errors, files, configuration and output.

types/        records passed between data, models, sources and losses, with their shapes
candidate_lists.py  lists of candidates by query
errors.py     errors that a user can cause, with exit codes
config/       layers of YAML merged into one typed tree
traits.py     records of what sources and losses need and offer
registry.py   finds models, sources and losses by name
optimizers/   PyTorch's optimizers, and their state for larger tables
files.py, output_paths.py  atomic writes, locks, run folders, JSON; checks of paths to be written
json_records.py  converts records to JSON and back, with a check of every value
shipped.py    recipes and configurations shipped with the package
machine.py    memory of the machine and of this process
progress.py   progress bars and lines
terminal.py   escapes control characters before text is printed
"""
