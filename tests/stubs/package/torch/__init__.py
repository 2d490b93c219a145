"""A TEST DOUBLE of torch: just enough, in Python, to compare one op of the stub engine with it."""

import math
import random
from types import SimpleNamespace

__version__ = "2.13.0+stub"
version = SimpleNamespace(cuda=None)


class Generator:
    """A source of numbers."""

    def manual_seed(self, seed):
        self.random = random.Random(seed)
        return self


class Tensor:
    """Rows of numbers; a vector is one row."""

    def __init__(self, rows):
        self.rows = rows

    def to(self, _device):
        return self

    def pow(self, exponent):
        return self._each(lambda value: value**exponent)

    def abs(self):
        return self._each(abs)

    def mean(self, _dim, *, keepdim):
        assert keepdim
        return Tensor([[sum(row) / len(row)] for row in self.rows])

    def max(self):
        return max(value for row in self.rows for value in row)

    def _each(self, function):
        return Tensor([[function(value) for value in row] for row in self.rows])

    def _with(self, other, function):
        rows = other.rows if isinstance(other, Tensor) else [[other]]
        wide = [range(max(len(self.rows), len(rows))), range(max(len(self.rows[0]), len(rows[0])))]
        mine = lambda i, j: self.rows[i % len(self.rows)][j % len(self.rows[0])]  # noqa: E731
        return Tensor([[function(mine(i, j), rows[i % len(rows)][j % len(rows[0])]) for j in wide[1]] for i in wide[0]])

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._with(other, lambda a, b: a - b)

    def __mul__(self, other):
        return self._with(other, lambda a, b: a * b)


def randn(*shape, generator):
    """Numbers of a normal distribution; one or two dimensions."""
    rows, columns = shape if len(shape) == 2 else (1, *shape)
    return Tensor([[generator.random.gauss(0, 1) for _ in range(columns)] for _ in range(rows)])


def rsqrt(tensor):
    """One over the square root."""
    return tensor._each(lambda value: 1 / math.sqrt(value))


def empty_like(tensor):
    """A tensor of the same shape."""
    return tensor._each(lambda _: math.nan)
