# SPDX-License-Identifier: Apache-2.0
"""Catalogue entries of the language: arguments that its functions refuse (TL1xxx)."""

from __future__ import annotations

from tilelang.support.errors import UserError

__all__ = [
    "AtomicDtype",
    "AtomicScope",
    "BadChoice",
    "BadLayout",
    "BadPositive",
    "BarrierExpected",
    "CopyOverlap",
    "DuplicateInit",
    "EagerOnly",
    "FalseAssumption",
    "GemmDtype",
    "GemmOperandRank",
    "GemmOperandScope",
    "GemmShape",
    "GridRank",
    "KernelNested",
    "LayoutKind",
    "LoopOptions",
    "NegativeStage",
    "NoKernel",
    "NotAReducer",
    "NotSupported",
    "OnChipShape",
    "OperandScope",
    "ReduceDim",
    "ReduceShape",
    "StrideRank",
    "StrideStep",
    "TransposeShape",
    "UnknownName",
    "UnsupportedName",
    "ViewSize",
]


class NoKernel(UserError, RuntimeError):
    """Something that belongs inside a launch stands outside."""

    code = "TL1001"
    message = "T.{name} is only meaningful inside `with T.Kernel(...)`"
    help = "move it into the kernel body"


class KernelNested(UserError, RuntimeError):
    """A launch inside a launch."""

    code = "TL1002"
    message = "T.Kernel inside another T.Kernel, loop or branch"
    help = "launch kernels one after another at the top of the function"


class GridRank(UserError, ValueError):
    """A grid or block with a wrong number of extents."""

    code = "TL1003"
    message = "a {what} has 1 to 3 extents, not {count}"
    help = "flatten the extra dimensions into one and take them apart with // and %"


class BadPositive(UserError, ValueError):
    """A number outside of what it may be, most often not positive."""

    code = "TL1004"
    message = "{what} must be {required}, not {value}"
    help = "give {required}"


class BadChoice(UserError, ValueError):
    """A word that is not among the choices."""

    code = "TL1005"
    message = "{what} is {value!r}, but must be one of {choices}"
    help = "choose one of {choices}"


class GemmShape(UserError, AssertionError):
    """The operands of a gemm do not fit together."""

    code = "TL1006"
    message = "T.gemm {axis} shape check failed: {left} has {left_extent}, {right} has {right_extent}"
    help = (
        "op(A) is (M, K), op(B) is (K, N), C is (M, N); transpose_A and transpose_B swap the dimensions of an operand"
    )


class GemmOperandRank(UserError, ValueError):
    """A gemm operand that is not two-dimensional."""

    code = "TL1007"
    message = "T.gemm operand {operand} has shape {shape}; leading dimensions beyond two must be 1"
    help = "slice it to two dimensions"


class GemmOperandScope(UserError, ValueError):
    """A gemm operand in a memory that the op cannot use."""

    code = "TL1008"
    message = "T.gemm operand {operand} ({name}) is in {scope} memory, but must be {required}"
    help = "copy it first: {operand}_tile = {alloc}; T.copy({name}, {operand}_tile)"


class GemmDtype(UserError, TypeError):
    """Operand types that no gemm multiplies."""

    code = "TL1009"
    message = "T.gemm cannot multiply {a} by {b} into {c}"
    help = "convert an operand with T.copy: both of one type, integers into int32, floating-point numbers into floats"


class CopyOverlap(UserError, ValueError):
    """The two sides of a copy share elements, but not all of them."""

    code = "TL1031"
    message = "copy of {name}[{src}] onto {name}[{dst}]: the two overlap, so the result would depend on the order"
    help = "copy through another tile"


class ReduceDim(UserError, ValueError):
    """A dimension that the buffer does not have."""

    code = "TL1010"
    message = "dim={dim} is outside the {rank:#dimension} of {name}"
    help = "dim goes from {low} to {high}"


class ReduceShape(UserError, ValueError):
    """The result of a reduction has a wrong shape."""

    code = "TL1011"
    message = "{op} of {src} {shape} over dim {dim} gives {want}, but {dst} has {have}"
    help = "allocate the result with shape {want} (or with 1 in place of the reduced dimension)"


class LoopOptions(UserError, ValueError):
    """Loop options that contradict each other."""

    code = "TL1012"
    message = "{why}"
    help = "{instead}"


class NegativeStage(UserError, ValueError):
    """num_stages below zero."""

    code = "TL1013"
    message = "num_stages must be an integer of 0 or more, known while tracing, not {value}"
    help = "0 is a plain loop, 2 to 4 keep that many copies in flight"


class StrideStep(UserError, ValueError):
    """A loop with step zero."""

    code = "TL1014"
    message = "the step of a loop must not be 0"
    help = "leave the step out for 1"


class StrideRank(UserError, ValueError):
    """Strides that do not match the shape."""

    code = "TL1015"
    message = "shape {shape} has {rank:#dimension}, but got {count:#stride}"
    help = "give one stride a dimension, in elements"


class LayoutKind(UserError, AssertionError):
    """A layout of a kind that the buffer cannot have."""

    code = "TL1016"
    message = "buffer {name} in {scope} memory cannot take {what} as its layout"
    help = "fragments take a T.Fragment, shared buffers a T.Layout (or a function of the indices)"


class DuplicateInit(UserError, TypeError):
    """Two initial values for one variable."""

    code = "TL1017"
    message = "T.alloc_var got two initial values"
    help = "write T.alloc_var(dtype, init)"


class EagerOnly(UserError, RuntimeError):
    """A name of the eager style in a prim_func."""

    code = "TL1018"
    message = "T.{name} belongs to eager @tilelang.jit functions"
    help = "in a T.prim_func use Python values of the factory around it, or T.dynamic"


class NotSupported(UserError, NotImplementedError):
    """Part of the language that the compiler does not know yet."""

    code = "TL1019"
    message = "{what} is not supported yet"
    help = "{instead}"


class AtomicScope(UserError, ValueError):
    """An atomic on memory that no other thread sees."""

    code = "TL1020"
    message = "T.{op} on {name}, which is in {scope} memory: atomics work on global and shared memory"
    help = "update {name} with a plain store; registers belong to one thread"


class AtomicDtype(UserError, TypeError):
    """An atomic on an element type that the hardware has none for."""

    code = "TL1021"
    message = "T.{op} does not work on {dtype} elements ({name})"
    help = "keep {name} in float32 or int32"


class NotAReducer(UserError, TypeError):
    """A reducer function got something else."""

    code = "TL1022"
    message = "T.{function} needs a buffer made by T.alloc_reducer (reducer_update an element of one)"
    help = "allocate it: r = T.alloc_reducer(shape, dtype, op)"


class ViewSize(UserError, AssertionError):
    """A view of another size than its buffer."""

    code = "TL1023"
    message = "a view of {name} must have its {have} bits, not {want}"
    help = "choose a shape and an element type with the same product"


class TransposeShape(UserError, ValueError):
    """Operands of a transposition that do not fit."""

    code = "TL1024"
    message = (
        "T.transpose of {src} {src_shape} into {dst} {dst_shape}: the destination must be the source's shape reversed"
    )
    help = "allocate the destination with the two extents swapped"


class FalseAssumption(UserError, ValueError):
    """T.assume of something that is false."""

    code = "TL1025"
    message = "T.assume({condition}) does not hold"
    help = "drop it, or choose sizes for which it holds"


class UnsupportedName(UserError, AttributeError):
    """A name of the language that the compiler does not have."""

    code = "TL1026"
    message = "T.{name} is not supported yet"
    help = "{instead}"


class UnknownName(UserError, AttributeError):
    """A name that the language does not have."""

    code = "TL1027"
    message = "the language has no T.{name}"
    help = "{instead}"


class BadLayout(UserError, ValueError):
    """A layout that does not give every element its own place."""

    code = "TL1028"
    message = "the layout of {name} does not fit: {why}"
    help = "a layout maps every index of the buffer to a place of its own"


class OperandScope(UserError, ValueError):
    """An operand in global memory of an op that works on the chip."""

    code = "TL1029"
    message = "T.{op} operand {operand} ({name}) is in {scope} memory, but must be a fragment or in shared memory"
    help = "copy the tile first: tile = T.alloc_fragment(shape, dtype); T.copy({name}[...], tile)"


class OnChipShape(UserError, ValueError):
    """An on-chip buffer whose size is not known while tracing."""

    code = "TL1030"
    message = "T.{function} needs positive extents that are known while tracing, not {extent}"
    help = "use a tile size of the factory around the kernel, and loop over the tiles"


class BarrierExpected(UserError, ValueError):
    """An operation on a barrier that got none."""

    code = "TL1032"
    message = "T.{op} needs a barrier{given}"
    help = "make one in front of the code that uses it, bar = T.alloc_barrier(count), and pass its element bar[i]"
