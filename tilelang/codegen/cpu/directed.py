# SPDX-License-Identifier: Apache-2.0
"""IEEE operations that round in a given direction, written in LLVM's language.

float32 operations are done in double with what is left over, rounded to odd and then once more in the direction asked
for: with 53 bits for 24, the second rounding cannot go wrong. float64 operations round to the nearest only. `odd` is
the direction that a third rounding, to a type of 16 bits, may follow: cut off, with the last bit set where something
was.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["directed_texts"]

# The double nearest to the result, and one with the sign of what is missing to the exact result. Sums: Knuth's TwoSum;
# what cancels is a zero of its own, -0 when rounding down. Products of 24-bit numbers are exact; quotients and roots of
# them are never that close to a float32 without being it.
_TWO_SUM = """
  %sum = fadd double {x}, {y}
  %bv = fsub double %sum, {x}
  %av = fsub double %sum, %bv
  %br = fsub double {y}, %bv
  %ar = fsub double {x}, %av
  %e = fadd double %ar, %br
  %xbits = bitcast double {x} to i64
  %ybits = bitcast double {y} to i64
  %signs = xor i64 %xbits, %ybits
  %differ = icmp slt i64 %signs, 0
  %none = fcmp oeq double %sum, 0.0
  %cancel = and i1 %differ, %none
  %s = select i1 %cancel, double {{zero}}, double %sum"""
_BODIES: dict[str, tuple[int, str]] = {
    "add": (2, _TWO_SUM.format(x="%a", y="%b")),
    "sub": (2, "\n  %m = fneg double %b" + _TWO_SUM.format(x="%a", y="%m")),
    "mul": (2, "\n  %s = fmul double %a, %b\n  %e = fadd double 0.0, 0.0"),
    "div": (2, "\n  %s = fdiv double %a, %b\n  %e = fadd double 0.0, 0.0"),
    "fma": (3, "\n  %p = fmul double %a, %b" + _TWO_SUM.format(x="%p", y="%c")),
    "rcp": (1, "\n  %s = fdiv double 1.0, %a\n  %e = fadd double 0.0, 0.0"),
    "sqrt": (1, "\n  %s = call double @llvm.sqrt.f64(double %a)\n  %e = fadd double 0.0, 0.0"),
}
_NEAREST = {
    "add": "fadd double %a, %b",
    "sub": "fsub double %a, %b",
    "mul": "fmul double %a, %b",
    "div": "fdiv double %a, %b",
    "fma": "call double @llvm.fma.f64(double %a, double %b, double %c)",
    "rcp": "fdiv double 1.0, %a",
    "sqrt": "call double @llvm.sqrt.f64(double %a)",
}
_DECLARE = """declare double @llvm.sqrt.f64(double)
declare double @llvm.fma.f64(double, double, double)
declare float @llvm.arithmetic.fence.f32(float)
declare double @llvm.arithmetic.fence.f64(double)
"""


def directed_texts() -> dict[str, tuple[Callable[[], str], tuple[str, ...]]]:
    """Definitions by name, with the names that they call: `tl_ieee_<op>_<rounding>_<dtype>`."""
    table: dict[str, tuple[Callable[[], str], tuple[str, ...]]] = {"tl_ieee_declarations": (lambda: _DECLARE, ())}
    for rounding in ("rn", "rz", "rd", "ru", "odd"):
        table[f"tl_round_{rounding}"] = (lambda r=rounding: _round_text(r), ())
        for op in _BODIES:
            needs = ("tl_ieee_declarations", f"tl_round_{rounding}")
            table[f"tl_ieee_{op}_{rounding}_float32"] = (lambda o=op, r=rounding: _single_text(o, r), needs)
    for op in _NEAREST:
        table[f"tl_ieee_{op}_rn_float64"] = (lambda o=op: _double_text(o), ("tl_ieee_declarations",))
    return table


def _params(count: int) -> str:
    return ", ".join(f"float %{p}f" for p in "abc"[:count])


def _single_text(op: str, rounding: str) -> str:
    count, body = _BODIES[op]
    body = body.replace("{zero}", "-0.0" if rounding == "rd" else "0.0")
    wide = "".join(f"{_fence('float', p + 'f', p + 'k')}\n  %{p} = fpext float %{p}k to double" for p in "abc"[:count])
    return f"""
define internal float @tl_ieee_{op}_{rounding}_float32({_params(count)}) alwaysinline nounwind {{{wide}{body}
  %n = call float @tl_round_{rounding}(double %s, double %e){_fence("float", "n", "r")}
  ret float %r
}}"""


def _fence(kind: str, name: str, fenced: str) -> str:
    """What stands on one side is not contracted with, nor narrowed to, what stands on the other."""
    bits = {"float": 32, "double": 64}[kind]
    return f"\n  %{fenced} = call {kind} @llvm.arithmetic.fence.f{bits}({kind} %{name})"


def _double_text(op: str) -> str:
    count = _BODIES[op][0]
    params = ", ".join(f"double %{p}d" for p in "abc"[:count])
    fences = "".join(_fence("double", f"{p}d", p) for p in "abc"[:count])
    return f"""
define internal double @tl_ieee_{op}_rn_float64({params}) alwaysinline nounwind {{{fences}
  %n = {_NEAREST[op]}{_fence("double", "n", "r")}
  ret double %r
}}"""


# Must the nearest float32 move to its neighbour: where it lies on the wrong side of the double.
_WRONG = {
    "rn": "fcmp false double %near, %near",
    "rz": "fcmp ogt double %nearsize, %size",
    "rd": "fcmp ogt double %near, %o",
    "ru": "fcmp olt double %near, %o",
}
_WRONG["odd"] = _WRONG["rz"]


def _round_text(rounding: str) -> str:
    """float32 of the exact value next to the double %s, on the side of %e. Towards zero means one place less, and away
    from it one more: rd moves negative numbers away, ru positive ones."""
    last = "%lost" if rounding == "odd" else "false"
    away = {"rz": "false", "odd": "false", "rn": "false", "rd": "%negative", "ru": "%positive"}[rounding]
    return f"""
define internal float @tl_round_{rounding}(double %s, double %e) alwaysinline nounwind {{
  %bits = bitcast double %s to i64
  %last = and i64 %bits, 1
  %even = icmp eq i64 %last, 0
  %inexact = fcmp one double %e, 0.0
  %odd = and i1 %even, %inexact
  %spos = fcmp ogt double %s, 0.0
  %epos = fcmp ogt double %e, 0.0
  %grow = icmp eq i1 %spos, %epos
  %step = select i1 %grow, i64 1, i64 -1
  %move = select i1 %odd, i64 %step, i64 0
  %obits = add i64 %bits, %move
  %o = bitcast i64 %obits to double
  %sizebits = and i64 %obits, 9223372036854775807
  %size = bitcast i64 %sizebits to double
  %f = fptrunc double %o to float
  %near = fpext float %f to double
  %nearbits = bitcast double %near to i64
  %nearsizebits = and i64 %nearbits, 9223372036854775807
  %nearsize = bitcast i64 %nearsizebits to double
  %wrong = {_WRONG[rounding]}
  %fbits = bitcast float %f to i32
  %negative = icmp slt i32 %fbits, 0
  %positive = xor i1 %negative, true
  %by = select i1 {away}, i32 1, i32 -1
  %change = select i1 %wrong, i32 %by, i32 0
  %moved = add i32 %fbits, %change
  %lost = fcmp one double %near, %o
  %set = zext i1 {last} to i32
  %rbits = or i32 %moved, %set
  %r = bitcast i32 %rbits to float
  ret float %r
}}"""
