"""Negative samplers ("sources"): every module that defines a `NegativeSource` is found by name.

base         interface, common settings and traits of all sources; `names` and `find`
none         no negatives
every        all candidates, once each: the exact sum
in_batch     the targets of the other rows of a chunk
memory       the targets of recent batches
draw_checks  checks of the fields of a draw
plugin_checks  checks of sources of other packages while they run
static       q is the same for every query: uniform, log-uniform, unigram
listed       q is a list of candidates per query, mixed with static noise: from a file, or by relation and side
softmax      q approximates the model's softmax: exactly, by cells, by kernels, resampled, in a mixture
hard         negatives are chosen by their score, or constructed; most have no q
adversarial  q is trained against the model: ACE, KBGAN
sampling     tools without a source: alias tables, inverse CDFs, int8 rows, k-means, pools
"""
