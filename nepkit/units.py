"""Physical constants and element tables, as GPUMD defines them.

Units everywhere in nepkit: eV, Å, eV/Å; virial in eV, positive when compressed
(virial = -volume x ASE stress).
"""

# One eV/Å^3 in GPa.
GPA_PER_EV_PER_CUBIC_ANGSTROM = 160.2177
# e^2 / (4 pi eps0) in eV Å.
COULOMB = 14.399645

# Elements that a NEP model may contain, H to Pu; atomic number = index + 1.
ELEMENTS = tuple(
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn "
    "Ga Ge As Se Br Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce "
    "Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn "
    "Fr Ra Ac Th Pa U Np Pu".split()
)
ATOMIC_NUMBERS = {symbol: number for number, symbol in enumerate(ELEMENTS, start=1)}

# Covalent radii in Å as GPUMD has them, for the typewise ZBL; atomic number = index + 1.
COVALENT_RADII = (
    0.426667,
    0.613333,
    1.6,
    1.25333,
    1.02667,
    1.0,
    0.946667,
    0.84,
    0.853333,
    0.893333,
    1.86667,
    1.66667,
    1.50667,
    1.38667,
    1.46667,
    1.36,
    1.32,
    1.28,
    2.34667,
    2.05333,
    1.77333,
    1.62667,
    1.61333,
    1.46667,
    1.42667,
    1.38667,
    1.33333,
    1.32,
    1.34667,
    1.45333,
    1.49333,
    1.45333,
    1.53333,
    1.46667,
    1.52,
    1.56,
    2.52,
    2.22667,
    1.96,
    1.85333,
    1.76,
    1.65333,
    1.53333,
    1.50667,
    1.50667,
    1.44,
    1.53333,
    1.64,
    1.70667,
    1.68,
    1.68,
    1.64,
    1.76,
    1.74667,
    2.78667,
    2.34667,
    2.16,
    1.96,
    2.10667,
    2.09333,
    2.08,
    2.06667,
    2.01333,
    2.02667,
    2.01333,
    2.0,
    1.98667,
    1.98667,
    1.97333,
    2.04,
    1.94667,
    1.82667,
    1.74667,
    1.64,
    1.57333,
    1.54667,
    1.48,
    1.49333,
    1.50667,
    1.76,
    1.73333,
    1.73333,
    1.81333,
    1.74667,
    1.84,
    1.89333,
    2.68,
    2.41333,
    2.22667,
    2.10667,
    2.02667,
    2.04,
    2.05333,
    2.06667,
)


def group(number: int) -> int:
    """Column of the periodic table, 1 to 18, of an atomic number; lanthanides and actinides are 3."""
    if number <= 2:
        return 1 if number == 1 else 18
    noble = max(z for z in (2, 10, 18, 36, 54, 86) if z < number)
    place = number - noble
    if noble < 18:
        return place if place <= 2 else place + 10
    if noble < 54 or place <= 3:
        return place
    return max(place - 14, 3)


def period(number: int) -> int:
    """Row of the periodic table, 1 to 7, of an atomic number."""
    return 1 + sum(first <= number for first in (3, 11, 19, 37, 55, 87))
