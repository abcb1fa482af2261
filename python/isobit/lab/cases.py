# SPDX-License-Identifier: Apache-2.0
"""What the lab's lines say of a case's extents, whatever the operator."""

# Dims that follow from others and from options.
DERIVED = (
    *("table", "pairs", "group_channels", "groups_of_channels", "numbers"),
    *("out_length", "out_height", "out_width"),
)
# Dims of arrays that not every case has, and what the arrays' names hold.
OF_SOME_ARRAYS = {"starts": "starts", "places": "blocks"}


def dims(line):
    """The names of the extents: the whole numbers between the pass and the dtype."""
    names = list(line)
    between = names[names.index("pass") + 1 : names.index("dtype")]
    return [
        name
        for name in between
        if isinstance(line[name], int)
        and name not in ("threads", *DERIVED)
        and OF_SOME_ARRAYS.get(name, "") in line.get("with", "")
    ]


def extents(line):
    """Without a batch of one before two others."""
    found = [line[name] for name in dims(line)]
    return found[1:] if found[0] == 1 and len(found) > 2 else found


def shape(line):
    return " × ".join(f"{extent:,}" for extent in extents(line))


def multiplies(line):
    """Whether a line of bench is of a case that has far more arithmetic than bytes."""
    # Forward softmax of 16 bits has ten times as much.
    return line.get("roof") == "fma" and line["gflops"] > 11 * line["gbps"]


def mebibytes(line):
    """What a call, or a peer's, allocates beside its arrays; None where nobody counted."""
    return line["workspace_bytes"] / 2**20 if "workspace_bytes" in line else None
