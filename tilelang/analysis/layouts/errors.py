# SPDX-License-Identifier: Apache-2.0
"""What a user may get wrong about layouts."""

from __future__ import annotations

from tilelang.support.errors import UserError

__all__ = [
    "AnnotatedLayoutUnfit",
    "AnnotatedLayoutsDisagree",
    "FragmentAcrossGroups",
    "ParallelExtentNotConstant",
    "RegisterTileShapeNotConstant",
    "TileCodeInDivergentCode",
    "ViewCannotMove",
]


class AnnotatedLayoutsDisagree(UserError):
    code = "TL4101"
    message = "{what}"
    help = "annotate only one of them, or copy between two buffers so that the data may move"


class AnnotatedLayoutUnfit(UserError):
    code = "TL4102"
    message = "the layout annotated for {name} does not fit it: {what}"
    help = "a layout has the shape of its buffer; shared memory takes a Layout, registers take a Fragment"


class ParallelExtentNotConstant(UserError):
    code = "TL4103"
    message = (
        "the extent {extent} of a loop with a layout or an asynchronous copy of its own is no compile-time constant"
    )
    help = "use the tile size as the extent and guard the body: for i in T.Parallel(block): if i < n: ..."


class ViewCannotMove(UserError):
    code = "TL4104"
    message = "{name} is a view of {base}, but they are used in layouts that differ ({place})"
    help = "copy the data into a buffer of its own instead of viewing it"


class RegisterTileShapeNotConstant(UserError):
    code = "TL4105"
    message = "{name} has the shape {shape}; tiles on the chip need compile-time shapes"
    help = "allocate the largest tile and guard its use"


class TileCodeInDivergentCode(UserError):
    code = "TL5004"
    message = "{what} stands in a branch or loop whose threads are not known at compile time"
    help = "branch on the thread index and constants alone, such as `if tx < 128`, or on a value that all threads share"


class FragmentAcrossGroups(UserError):
    code = "TL5005"
    message = "fragment {name} is used by threads {first} and by threads {second}: a fragment belongs to one group"
    help = "use it in one of the thread groups, and pass values to others through shared memory"
