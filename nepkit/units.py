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
