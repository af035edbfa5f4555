# SPDX-License-Identifier: Apache-2.0
"""Catalogue entries of the front end: what a traced function may not do (TL2xxx)."""

from __future__ import annotations

from typing import Any

from tilelang.support.diagnostics import Note
from tilelang.support.errors import UserError

__all__ = [
    "AmbiguousDivision",
    "AssignedInBranch",
    "AttributeStore",
    "BadCall",
    "BadOperation",
    "BadShape",
    "BarrierAsValue",
    "BufferAsCondition",
    "BufferAsValue",
    "CompileTimeMissing",
    "ConstConflict",
    "ConstUnknown",
    "ContainerIndex",
    "ContainerStore",
    "ContendedElement",
    "CopyShape",
    "DivisionByZero",
    "ElementCount",
    "EmptySlice",
    "EndlessLoop",
    "HostStatement",
    "IndexCount",
    "IndexOutOfBounds",
    "IndexType",
    "JITNoBuilderError",
    "LocalIndexedByParallel",
    "LoopCarriedName",
    "LoopControl",
    "LoopExtent",
    "LoopInPython",
    "MacroInExpression",
    "MissingAnnotation",
    "MissingReturn",
    "NestedParallel",
    "NoAttribute",
    "NoLaunch",
    "NoTruthValue",
    "NotAParameter",
    "NotATile",
    "NotIndexable",
    "NotIterable",
    "Note",
    "OutOfScope",
    "ParameterForm",
    "PipelinedInParallel",
    "ReducerNest",
    "ReducerUpdate",
    "ReferenceExpected",
    "ReturnInBranch",
    "ReturnValue",
    "ShadowedControl",
    "SliceOutOfBounds",
    "SourceUnavailable",
    "SteppedSlice",
    "StoreInPython",
    "StoreOfWrongKind",
    "TensorRebound",
    "TileOpInParallel",
    "TooLarge",
    "UnboundSymbol",
    "UndefinedName",
    "UnknownDtype",
    "UnknownPythonName",
    "UnsupportedSyntax",
    "UnwrittenOutput",
    "WholeBufferUpdate",
]


class JITNoBuilderError(UserError, RuntimeError):
    """A name of the language was used where no kernel is being traced."""

    code = "TL2001"
    message = "T.{name} may only be used inside a function that is being traced"
    help = "call it inside a @T.prim_func, a @T.macro or an eager @tilelang.jit function"


class SourceUnavailable(UserError, ValueError):
    """The front end reads the source of a function; there is none."""

    code = "TL2002"
    message = "the source of {name} cannot be read: kernels must be plain `def` functions in a file"
    help = "move the function into a module"


class MissingAnnotation(UserError, ValueError):
    """A parameter of a prim_func says nothing of its type."""

    code = "TL2003"
    message = "parameter {name} has no annotation that says what it is"
    help = "write {name}: T.Tensor((...), dtype) for a tensor, {name}: T.int32 for a scalar"


class ParameterForm(UserError, TypeError):
    """A parameter of a form that the parameters of a kernel do not have."""

    code = "TL2004"
    message = "parameter {name} {form}, which kernels do not support"
    help = "{instead}"


class UnsupportedSyntax(UserError, NotImplementedError):
    """A piece of Python that cannot be traced."""

    code = "TL2005"
    message = "{what} is not supported in a kernel"
    help = "{instead}"


class AttributeStore(UserError, NotImplementedError):
    """Assignment to an attribute."""

    code = "TL2006"
    message = "a kernel cannot assign to the attribute {name}"
    help = "bind the value to a plain name, or keep it in a T.alloc_var"


class UndefinedName(UserError, NameError):
    """A name is read before anything was assigned to it."""

    code = "TL2007"
    message = "{name} is read before it has a value"
    help = "assign to it first; a value carried from one iteration to the next must live in a T.alloc_var"


class OutOfScope(UserError, RuntimeError):
    """A name is used outside the block that defined it."""

    code = "TL2008"
    message = "{name} is used outside the block that defined it"
    help = "define it before the block; a variable that branches or loops write is `{name} = T.alloc_var(dtype)`"


class AssignedInBranch(UserError, RuntimeError):
    """A name was bound anew in a device block and is used afterwards: which value it has depends on the device."""

    code = "TL2009"
    message = "{name} was bound anew inside a device block, so its value after the block is not known"
    help = "keep it in a variable: {name} = T.alloc_var(dtype, init), then `{name} = ...` stores to it"


class LoopCarriedName(UserError, RuntimeError):
    """A name is read and then bound anew in the body of a device loop: the next iteration would not see it."""

    code = "TL2010"
    message = (
        "{name} is read in this loop before it is bound anew; the body is traced once, so the new value would be lost"
    )
    help = "keep it in a variable: {name} = T.alloc_var(dtype, init), then `{name} = ...` stores to it"


class LoopControl(UserError, RuntimeError):
    """break or continue where it cannot act."""

    code = "TL2011"
    message = "`{what}` {why}"
    help = "{instead}"


class ReturnInBranch(UserError, NotImplementedError):
    """return inside device control flow."""

    code = "TL2012"
    message = "`return` inside device control flow is not supported"
    help = "return at the end; let the branch store to a T.alloc_var (T.thread_return() ends a thread)"


class ReturnValue(UserError, TypeError):
    """A prim_func returns something that is no output tensor."""

    code = "TL2013"
    message = "a kernel may only return tensors made by T.empty, not {what}"
    help = "store the result to a tensor parameter"


class MissingReturn(UserError, RuntimeError):
    """A T.empty tensor is not returned."""

    code = "TL2014"
    message = "the output tensor {name} (T.empty) is not returned"
    help = "return every T.empty tensor"


class MacroInExpression(UserError, RuntimeError):
    """Statements would be emitted inside an expression that may not be evaluated."""

    code = "TL2015"
    message = "this operand of `{what}` emits statements, which would not run each time that the operand is evaluated"
    help = "call it in a statement of its own, inside an `if` where it must be conditional"


class NoTruthValue(UserError, TypeError):
    """Python asked an expression for its truth."""

    code = "TL2016"
    message = "the value of this expression is known on the device only, so Python cannot decide on it"
    help = "use if, and/or/not or a ternary in the kernel itself (or T.And, T.Or, T.Not, T.if_then_else)"


class BufferAsCondition(UserError, TypeError):
    """A whole buffer is used as a condition."""

    code = "TL2017"
    message = "buffer {name} has no single truth value"
    help = "use an element ({name}[i]), or T.any_of({name}) / T.all_of({name})"


class BufferAsValue(UserError, TypeError):
    """A whole buffer or a region stands where a scalar is needed."""

    code = "TL2018"
    message = "{what} is a tile of shape {shape}, where a scalar is needed"
    help = "index one element; for elementwise work use `for i in T.Parallel(...)`, for whole tiles T.copy or T.fill"


class AmbiguousDivision(UserError, TypeError):
    """`/` between two integers."""

    code = "TL2019"
    message = "`/` between the integers {a} and {b} is ambiguous on the device"
    help = "write `//` for the floor, or cast for a real quotient: T.float32(x) / y"


class BadOperation(UserError, TypeError):
    """An operation that these operands do not support."""

    code = "TL2020"
    message = "{why}"
    help = "{instead}"

    def __init__(
        self, *, instead: str = "compute with numbers, expressions and single elements of tiles", **fields: Any
    ):
        super().__init__(instead=instead, **fields)


class IndexCount(UserError, IndexError):
    """More indices than dimensions, or too few for one element."""

    code = "TL2021"
    message = "{name} has {rank:#dimension}, shape {shape}, but is indexed with {count}"
    help = "give one index a dimension"


class IndexOutOfBounds(UserError, IndexError):
    """An index outside its buffer: a constant, or one that leaves it in every iteration, or, on chip, in some."""

    code = "TL2022"
    message = "index {index} is outside dimension {dim} of {name}, whose extent is {extent}"
    help = "valid indices are 0 to {last}{counts}"


class IndexType(UserError, TypeError):
    """An index that is no integer."""

    code = "TL2023"
    message = "{name} is indexed with {index}, which is {kind}, not an integer"
    help = "{instead}"


class SteppedSlice(UserError, RuntimeError):
    """A slice with a step."""

    code = "TL2024"
    message = "a slice with a step is not supported on {name}"
    help = "loop over the elements with T.Parallel"


class WholeBufferUpdate(UserError, RuntimeError):
    """Augmented assignment to a whole buffer or a slice."""

    code = "TL2025"
    message = "`{op}` on {what} is not supported"
    help = "for {loops} in T.Parallel(...):\n    {element} {op} ..."


class StoreOfWrongKind(UserError, TypeError):
    """A store of something that is no scalar expression."""

    code = "TL2026"
    message = "cannot store {what} to an element of {name}"
    help = "store a number or an expression; copy tiles with T.copy"


class EndlessLoop(UserError, RuntimeError):
    """while with a condition that Python knows to be true, and that stays true."""

    code = "TL2027"
    message = "the condition of this `while` is {often}, so the loop would never end"
    help = "use a condition on device values, or a `for` loop with `break`"


class ElementCount(UserError, ValueError):
    """Unpacking into a wrong number of names."""

    code = "TL2028"
    message = "cannot unpack {have:#value} into {want:#name}"
    help = "name exactly {have}"


class ReferenceExpected(UserError, ValueError):
    """A T.Ref parameter got something that cannot be written."""

    code = "TL2029"
    message = "parameter {name} is a T.Ref: it needs a variable or a buffer element, not {what}"
    help = "pass a T.alloc_var or an element such as A[i]"


class ShadowedControl(UserError, RuntimeError):
    """global or nonlocal in traced code."""

    code = "TL2030"
    message = "`{what}` is not supported in a kernel: the name would be bound at trace time only"
    help = "pass a T.alloc_var as a T.Ref, or return the value"


class UnknownDtype(UserError, TypeError):
    """A name that is no element type."""

    code = "TL2031"
    message = "{value!r} is not an element type{near}"
    help = 'element types are written "float16", T.float16, torch.float16 or numpy.float16'


class SliceOutOfBounds(UserError, IndexError):
    """A slice that leaves its buffer."""

    code = "TL2032"
    message = "slice {slice} leaves dimension {dim} of {name}, whose extent is {extent}"
    help = "keep the slice within 0:{extent}"


class EmptySlice(UserError, ValueError):
    """A slice without elements."""

    code = "TL2033"
    message = "slice {slice} of dimension {dim} of {name} holds no element"
    help = "the stop of a slice must be greater than its start"


class CopyShape(UserError, ValueError):
    """The two sides of a copy differ in shape."""

    code = "TL2034"
    message = "copy of {src} into {dst}: the shapes differ ({src_shape} against {dst_shape}, unit dimensions dropped)"
    help = (
        "slice the larger side, or give one side by its first element (A[i, j]) and it takes the extents of the other"
    )


class NotATile(UserError, TypeError):
    """A tile op got something that is no buffer, region or element."""

    code = "TL2035"
    message = "{op} needs a buffer, a slice or an element for {operand}, not {what}"
    help = "pass a tensor or a buffer made by T.alloc_shared, T.alloc_fragment, ..."


class NotIterable(UserError, TypeError):
    """A `for` over something that cannot be iterated."""

    code = "TL2037"
    message = "cannot loop over {what}"
    help = "write range(n), T.serial(n), T.Parallel(...) or T.Pipelined(...)"


class NotIndexable(UserError, TypeError):
    """A scalar is indexed."""

    code = "TL2038"
    message = "{what} is a scalar and cannot be indexed"
    help = "index the buffer itself"


class BadShape(UserError, TypeError):
    """A shape with an entry that is no extent, or strides with one that is no stride."""

    code = "TL2039"
    message = "{value!r} is not {what}"
    help = "extents and strides are non-negative integers, or integer expressions and symbols"


class NestedParallel(UserError, ValueError):
    """T.Parallel inside T.Parallel."""

    code = "TL2040"
    message = "T.Parallel inside T.Parallel: the iterations of the outer one are spread over the threads already"
    help = "write one nest, `for i, j in T.Parallel(M, N):`, or make the inner loop T.serial"


class PipelinedInParallel(UserError, ValueError):
    """T.Pipelined inside T.Parallel."""

    code = "TL2041"
    message = "T.Pipelined inside T.Parallel: an iteration belongs to one thread, a pipeline to the whole block"
    help = "move the T.Pipelined loop outside, or make it T.serial"


class TileOpInParallel(UserError, ValueError):
    """A tile op inside T.Parallel."""

    code = "TL2042"
    message = "tile op `{op}` inside T.Parallel: an iteration belongs to one thread, a tile op to the whole block"
    help = "move it out of the T.Parallel loop, or write the elements one by one"


class LocalIndexedByParallel(UserError, ValueError):
    """A per-thread array indexed by a T.Parallel variable."""

    code = "TL2043"
    message = "per-thread array {name} is indexed by `{index}`, which depends on a T.Parallel variable"
    help = "use T.alloc_fragment, whose elements are spread over the threads like the iterations"


class ConstUnknown(UserError, RuntimeError):
    """A T.const whose value nothing gives."""

    code = "TL2044"
    message = "the value of T.const {name} is not known: it is not itself a dimension or a stride of a tensor"
    help = "use it directly in a shape, T.Tensor(({name}, ...), dtype), or pass {name}=... by name"


class ConstConflict(UserError, ValueError):
    """Two tensors disagree on a T.const."""

    code = "TL2045"
    message = "T.const {name} is {first}, but dimension {dim} of {tensor} is {second}"
    help = "pass tensors whose shapes agree"


class NotAParameter(UserError, RuntimeError):
    """A bare tensor annotation of a name that is no parameter."""

    code = "TL2046"
    message = "{name} is annotated as a tensor, but it is not a parameter of the function"
    help = "add {name} to the parameters, or allocate it: T.alloc_shared, T.alloc_fragment, T.empty"


class CompileTimeMissing(UserError, TypeError):
    """A compile-time argument without a value."""

    code = "TL2047"
    message = "compile-time parameter {name} has no value"
    help = "pass {name}=..., or annotate it as a tensor"


class ReducerNest(UserError, NotImplementedError):
    """An update of a reducer in a nest whose contributions cannot be collected."""

    code = "TL2048"
    message = "reducer {name} cannot be updated here: {why}"
    help = "index it by whole loop variables of the T.Parallel nest, in order, or by constants"


class ReducerUpdate(UserError, ValueError):
    """A store to a reducer that is no contribution."""

    code = "TL2049"
    message = "reducer {name} takes contributions to its {op} only; this store is something else"
    help = (
        "write T.reducer_update({name}[i], x); with replication= also {name}[i] += x or {name}[i] = T.max({name}[i], x)"
    )


class BadCall(UserError, TypeError):
    """A function of the language was called with wrong arguments."""

    code = "TL2050"
    message = "{why}"
    help = "help(T.<name>) shows the parameters"


class ContainerStore(UserError, RuntimeError):
    """A Python container is changed in device control flow."""

    code = "TL2051"
    message = "a Python {kind} cannot be changed in a device loop or branch: the change happens once, while tracing"
    help = "use T.alloc_local((n,), dtype) or T.alloc_var(dtype)"


class LoopExtent(UserError, TypeError):
    """A loop bound that is no integer."""

    code = "TL2052"
    message = "a loop bound must be an integer, not {what}"
    help = "cast it: T.int32(...), or use // in place of /"


class NoAttribute(UserError, AttributeError):
    """An attribute that expressions and buffers do not have."""

    code = "TL2053"
    message = "{what} has no attribute {name}"
    help = "buffers have .shape, .dtype and .strides, expressions .dtype and .astype(dtype)"


class LoopInPython(UserError, TypeError):
    """A device loop in a function that is not traced."""

    code = "TL2054"
    message = "a loop of the language in a plain Python function or a comprehension"
    help = "decorate the function with @T.macro; a plain helper may loop over range(...), which unrolls"


class UnboundSymbol(UserError, NameError):
    """A symbol that no argument gives a value."""

    code = "TL2055"
    message = "symbol {name} has no value: it is in no shape of a tensor parameter, and no parameter itself"
    help = "use it in the shape of a tensor parameter, or make it a parameter: {name}: T.int32"


class DivisionByZero(UserError, ZeroDivisionError):
    """A quotient whose divisor is known to be 0."""

    code = "TL2056"
    message = "`{quotient}` divides by zero"
    help = "tile sizes and extents that divide another must be positive"


class HostStatement(UserError, RuntimeError):
    """A statement outside of every launch, which no thread would run."""

    code = "TL2057"
    message = "{what} outside of `with T.Kernel(...)`: the host only computes sizes and launches kernels"
    help = "move it into the body of a T.Kernel"


class NoLaunch(UserError, ValueError):
    """A program without a launch."""

    code = "TL2058"
    message = "{name} launches no kernel"
    help = "put its work under `with T.Kernel(blocks, threads=128) as bx:`"


class ContainerIndex(UserError, TypeError):
    """A Python container is indexed by a value that only the device knows."""

    code = "TL2059"
    message = "a Python {kind} cannot be indexed with {index}: its elements are chosen while tracing"
    help = "keep the values in a buffer, T.alloc_local((n,), dtype), or choose with T.if_then_else"


class TooLarge(UserError, ValueError):
    """A size that no device can hold, or that the compiler could not get through."""

    code = "TL2060"
    message = "{what} is {value}, more than the {limit} that {why}"
    help = "{instead}"


class UnknownPythonName(UserError, NameError):
    """A name that neither the kernel nor the module around it binds."""

    code = "TL2061"
    message = "the name {name} is not defined"
    help = "{instead}"


class TensorRebound(UserError, TypeError):
    """The name of a tile or tensor is bound to something else, where a copy or a fill was meant: Python would take the
    name away, and no element would change."""

    code = "TL2062"
    message = "`{name} = ...` gives the name of {what} to {value}, and stores nothing"
    help = "{instead}"


class StoreInPython(UserError, TypeError):
    """A store to an element in a function that is not traced."""

    code = "TL2063"
    message = "a store to an element in Python code that is not traced"
    help = (
        "store in a method or a T.macro; a constructor sets its tiles by T.clear, T.fill or T.alloc_var(..., init=...)"
    )


class ContendedElement(UserError, ValueError):
    """Iterations of T.Parallel belong to different threads, and nothing orders them."""

    code = "TL2064"
    message = "iterations over {var} of T.Parallel update the same element, {element}, at once"
    help = "{instead}"


class UnwrittenOutput(UserError, RuntimeError):
    """Outputs are allocated for a call, and have no values before the kernel stores some."""

    code = "TL2065"
    message = "the output {name} is read before anything is stored to it"
    help = "store to it first (T.fill, T.copy), or make it a parameter that the caller fills and passes"


class BarrierAsValue(UserError, TypeError):
    """The words of an mbarrier are the hardware's: they have no meaning for a program."""

    code = "TL2066"
    message = "{name} is a barrier: its elements are no values that a program reads or stores"
    help = "T.barrier_arrive({name}[i]) and T.barrier_wait({name}[i], parity) use it; count in a T.alloc_var"
