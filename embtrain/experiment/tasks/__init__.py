"""What a corpus is to a model: one file for each kind of data, found by walking this package."""
