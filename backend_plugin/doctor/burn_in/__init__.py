"""Burn-in: a small job that measures whether replicas reach each other, and at what bandwidth."""
