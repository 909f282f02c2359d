"""embtrain's components inside PyTorch programs of other libraries.

pykeen/    negative samplers and a training callback for PyKEEN
"""
