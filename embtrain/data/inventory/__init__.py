"""The inventory of a corpus: the part (train, valid, test) of each of its files.

inventory    decide the part of each file, by patterns, a recipe or names
part_names   parts from file names
listing      list files and members of archives
saved_data_sets  files of a data set that the library `datasets` saved
name_lists   file names on one line, and in identity.json
"""
