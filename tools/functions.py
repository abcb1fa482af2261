#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the polynomials of src/isobit/functions: nearly the least largest error, in 60 digits,
one coefficient after another rounded to its type and the others fitted again.

`tools/functions.py` prints them; the header's are frozen, since other ones are other bits. It needs
mpmath, which PyTorch brings along.
"""

import struct

import mpmath as mp

mp.mp.dps = 60


def rounded(value, bits):
    """The nearest f32 (24 bits) or f64, as an exact number."""
    if bits == 53:
        return mp.mpf(float(value))
    scale = mp.mpf(2) ** (23 - int(mp.floor(mp.log(abs(value), 2))))
    return mp.nint(value * scale) / scale


def fitted(values, degree):
    """Coefficients of the polynomial through (x, value, weight) with nearly the least error:
    least squares, in which points with large errors come to count more (Lawson's iteration).
    """
    counts = [mp.mpf(1)] * len(values)
    best = None
    for _ in range(12):
        matrix, right = mp.matrix(degree + 1, degree + 1), mp.matrix(degree + 1, 1)
        sums = [mp.mpf(0)] * (2 * degree + 1)
        for (x, value, weight), count in zip(values, counts, strict=True):
            power = count * weight * weight
            for j in range(2 * degree + 1):
                sums[j] += power
                if j <= degree:
                    right[j] += power * value
                power *= x
        for i in range(degree + 1):
            for j in range(degree + 1):
                matrix[i, j] = sums[i + j]
        solved = mp.lu_solve(matrix, right)
        found = [solved[j] for j in range(degree + 1)]
        errors = [abs((mp.polyval(found[::-1], x) - value) * weight) for x, value, weight in values]
        if best is None or max(errors) < best[0]:
            best = max(errors), found
        counts = [
            count * (error / max(errors) + mp.mpf("1e-3"))
            for count, error in zip(counts, errors, strict=True)
        ]
        counts = [count / max(counts) for count in counts]
    return best[1]


def polynomial(function, weight, degree, low, high, bits):
    """Coefficients of `bits` bits, lowest first, and the weighted error that is left."""
    count = 16 * (degree + 1)
    xs = [
        (low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (k + mp.mpf(1) / 2) / count)
        for k in range(count)
    ]
    values = [(x, function(x), weight(x)) for x in xs]
    fixed = []
    for k in range(degree + 1):
        left = [
            ((x, (value - mp.polyval(fixed[::-1] or [0], x)) / x**k, scale * abs(x) ** k))
            for x, value, scale in values
        ]
        fixed.append(rounded(fitted(left, degree - k)[0], bits))
    return fixed, max(
        abs((mp.polyval(fixed[::-1], x) - value) * scale) for x, value, scale in values
    )


def half_erfcx(a):
    """erfcx(a / sqrt 2) / 2: what is left of the normal tail once exp(-a^2 / 2) is taken out."""
    return mp.erfc(a / mp.sqrt(2)) * mp.exp(a * a / 2) / 2


def of_tail(center):
    """half_erfcx(a) * (a + 4), as a function of center - 8 / (a + 4)."""

    def function(v):
        t = (center - v) / 8
        return half_erfcx(1 / t - 4) / t

    return function


def near(function, limit):
    """A quotient of small numbers, with the digits that cancel."""

    def value(x):
        with mp.workdps(120):
            return function(x if x else limit)

    return value


def polynomials(bits):
    """Name, function, weight of an error, degree, and between which bounds, for one type."""
    double = bits == 53
    third = mp.log(2) / 2 * mp.mpf("1.01")
    exp2 = near(lambda f: (mp.mpf(2) ** f - 1) / f, mp.mpf("1e-40"))
    tail = near(lambda r: (mp.exp(r) - 1 - r) / r**2, mp.mpf("1e-30"))
    atanh = near(lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z, mp.mpf("1e-30"))
    erf = near(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, mp.mpf("1e-30"))
    center, most = (mp.mpf("1.0625"), 54.2) if double else (mp.mpf("1.171875"), mp.mpf("19.9"))
    normal = of_tail(center)
    yield "kExp2", exp2, lambda f: abs(f), 11 if double else 5, -mp.mpf("0.501"), mp.mpf("0.501")
    yield "kExp", tail, lambda r: abs(r), 10 if double else 4, -third, third
    largest = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.001")
    yield "kLog", atanh, lambda z: z / 2, 6 if double else 3, mp.mpf(0), largest
    yield (
        "kNormalTail",
        normal,
        lambda v: 1 / normal(v),
        24 if double else 10,
        center - 2,
        center - 8 / (most + mp.mpf(4)),
    )
    yield "kErf", erf, lambda z: 1 / (1 + erf(z)), 13 if double else 6, mp.mpf(0), mp.mpf(1)
    if double:
        quarter = (mp.pi / 4) ** 2 * mp.mpf("1.001")
        sine = near(lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, mp.mpf("1e-30"))
        cosine = near(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, mp.mpf("1e-20"))
        yield "kSin", sine, lambda z: z, 6, mp.mpf(0), quarter
        yield "kCos", cosine, lambda z: z**2, 6, mp.mpf(0), quarter


def parts(value, bits, count):
    """A number as the sum of `count` numbers of `bits` bits."""
    result = []
    for _ in range(count):
        result.append(rounded(value, bits))
        value -= result[-1]
    return result


def text(value, bits):
    """In hexadecimal, with no more digits than the type has."""
    number = float(value)
    if bits == 24:
        assert struct.unpack("f", struct.pack("f", number))[0] == number
    mantissa, exponent = number.hex().split("p")
    mantissa = mantissa.rstrip("0") if "." in mantissa else mantissa
    return f"{mantissa.rstrip('.')}p{int(exponent)}{'f' if bits == 24 else ''}"


def main():
    for bits, name in ((24, "float"), (53, "double")):
        print(f"// {name}")
        numbers = {
            "kLn2": parts(mp.log(2), bits, 2),
            "kLog2E": parts(1 / mp.log(2), bits, 2),
            "kRoot2": parts(mp.sqrt(2), bits, 2),
            "kInverseRootTwoPi": parts(1 / mp.sqrt(2 * mp.pi), bits, 2),
            "kSlope": parts(mp.sqrt(8 / mp.pi), bits, 2),
            "kCubic": parts(mp.sqrt(8 / mp.pi) * mp.mpf("0.044715"), bits, 2),
        }
        if bits == 53:
            numbers["kHalfPi"] = parts(mp.pi / 2, bits, 3)
            numbers["kTwoOverPi"] = parts(2 / mp.pi, bits, 1)
        for key, values in numbers.items():
            print(f"{key}: {', '.join(text(value, bits) for value in values)}")
        for key, function, weight, degree, low, high in polynomials(bits):
            found, error = polynomial(function, weight, degree, low, high, bits)
            print(f"{key}, off by 2^{float(mp.log(error, 2)):.1f}:")
            print("   ", ", ".join(text(value, bits) for value in found))


if __name__ == "__main__":
    main()
