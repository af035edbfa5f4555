# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T

tiles = []


@T.prim_func
def first(A: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32) as b:
        S = T.alloc_shared((8,), "int32")
        tiles.append(S)
        T.copy(A, S)


@T.prim_func
def second(A: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32) as b:
        T.copy(tiles[0], A)
