"""Sums of products of which every lane holds the same bits."""

import triton
import triton.language as tl


@triton.jit
def of_products(x, y, axis: tl.constexpr):
    """Sum of x y along ``axis``.

    Lanes that share a sum add each other's parts, and any of them may pass it on. A compiler that
    fuses a product with such an addition rounds the product of one lane and not that of the other,
    so that their sums differ in last bits. A product that is an fma with 0 cannot be fused again.
    """
    x, y = tl.broadcast(x, y)
    return tl.sum(tl.fma(x, y, tl.zeros_like(x)), axis)
