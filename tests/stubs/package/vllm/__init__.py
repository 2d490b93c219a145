"""A TEST DOUBLE of the package `vllm`: no model, no device, no meaning. See tests/stubs/engine.py."""

from vllm._version import __version__

__all__ = ["__version__"]
