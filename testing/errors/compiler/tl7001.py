# SPDX-License-Identifier: Apache-2.0
# A factory is no function of the device.
from tilelang.sim import simulate


def factory(n):
    return n


simulate(factory, [])
