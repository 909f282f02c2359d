"""Everything that a run keeps on disk, and its interruption.

checkpoint.py   saves and loads checkpoints
serialize.py    a nested state as JSON and safetensors
position.py     the progress counters of a run
metrics_log.py  metrics.jsonl
sink_relay.py   passes the log to the sinks
lease.py        which machine works on a run of a shared folder
signals.py      stops on SIGINT, SIGTERM and SIGHUP
"""
