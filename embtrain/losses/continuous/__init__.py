"""Losses of continuous outputs: a predicted vector is compared with the unit vector of the target.

base.py             base of these losses, and their gradient
cosine.py           cosine loss
vmf.py              von Mises-Fisher loss
power_spherical.py  power spherical loss
"""
