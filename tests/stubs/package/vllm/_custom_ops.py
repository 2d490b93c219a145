"""A TEST DOUBLE of vllm's compiled ops: one op, in Python."""


def rms_norm(out, x, weight, epsilon):
    """Write the root-mean-square norm of every row of `x` to `out`."""
    for number, row in enumerate(x.rows):
        scale = (sum(value * value for value in row) / len(row) + epsilon) ** -0.5
        out.rows[number] = [value * scale * factor for value, factor in zip(row, weight.rows[0], strict=True)]
