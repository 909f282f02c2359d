"""The catalogue of data sets: recipes in corpora/ and evals/, and the files they name.

recipes      the schema of corpora/, and the loading of recipes
benchmark    the schema of evals/
recipe_file  a file of a recipe
fetch        find a file by its sha256 in a package, the cache or a mirror, or download it
mirror       the mirror of files, a folder or an address
download     download one file, bounded in bytes
members      unpack chosen members of an archive into the cache
"""
